// The caller's rows: taken over into a solver's layout, and results given back into theirs.
//
// On one rank a solver's reader gets pointers into the caller's memory, on the host or on a device.
// Over several ranks rows go through the host in portions: one message from each rank that holds
// some to each that asks, 32 MiB of rows for each rank at a time.
#pragma once
#include <span>
#include <vector>

#include "distrib/context.hpp"
#include "distrib/layout.hpp"
#include "io/input.hpp"
#include "io/output.hpp"
#include "src/api/terrace/context.hpp"

namespace terrace::api {

/// Who holds which of `extent` rows, in which order. Equal on all ranks.
class Holders {
 public:
  /// Throws agreed Error(usage) when the ranks' rows are not each row exactly once; `what`: "a".
  /// Collective.
  Holders(const Control& control, Index extent, const Rows& mine, const char* what);
  struct Run {
    Index first, count;
    int rank;
    Index at;  ///< position among the rows of its rank
  };
  /// Runs that together are `rows`, ascending.
  template <class F>
  void each(Range rows, const F& f) const {
    while (rows.count > 0) {
      const Run& run = run_of(rows.first);
      const Index skip = rows.first - run.first, count = std::min(rows.count, run.count - skip);
      f(Run{rows.first, count, run.rank, run.at + skip});
      rows = {rows.first + count, rows.count - count};
    }
  }
  [[nodiscard]] const Run& run_of(Index row) const;
  [[nodiscard]] const std::vector<Run>& runs() const { return runs_; }
  [[nodiscard]] Index count(int rank) const { return counts_[std::size_t(rank)]; }
  [[nodiscard]] Index extent() const { return extent_; }

 private:
  Index extent_;
  std::vector<Run> runs_;  // ascending
  std::vector<Index> counts_;
};

/// Rows of `columns` numbers in the caller's memory.
template <class T, class B>
class Held {
 public:
  /// `context` outlives it. Collective; throws agreed Error(usage) as Holders, and for a device's
  /// memory on the CPU backend.
  Held(terrace::Context<B>& context, Index extent, const Local<T>& local, Index columns,
       const char* what);

  /// Throws an agreed Error(input) for NaN and Inf. Collective.
  void require_finite() const requires(std::is_same_v<std::remove_const_t<T>, double>);
  /// A reader as the solvers want one: rows of `ranges`, in order. Collective.
  void read(std::span<const Range> ranges, const io::Sink<std::remove_const_t<T>>& sink) const;
  /// Row destination[slot] := the row that `from` has in `slot`. Collective.
  void write(std::span<const Index> destination,
             const io::Source<std::remove_const_t<T>>& from) const requires(!std::is_const_v<T>);
  [[nodiscard]] const Holders& holders() const { return holders_; }
  [[nodiscard]] Index rows() const { return holders_.count(context_->rank()); }

 private:
  using Value = std::remove_const_t<T>;
  void read_alone(std::span<const Range> ranges, const io::Sink<Value>& sink) const;
  /// Rows [at, at + count) of the caller's to packed host memory, or back.
  void pack(Index at, Index count, Value* out) const;
  void unpack(Index at, Index count, const Value* in) const;

  terrace::Context<B>* context_;
  Holders holders_;
  const char* what_;
  T* data_;
  Index columns_, ld_;
  bool on_host_;
};

}  // namespace terrace::api
