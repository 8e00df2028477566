// The caller's rows: taken over into a solver's layout, and results given back into theirs.
//
// On one rank a solver's reader gets pointers into the caller's memory, on the host or on a device.
// Over several ranks rows go through the host in portions: one message from each rank that holds
// some to each that asks, 32 MiB of rows for each rank at a time. A rank's own rows of a device stay
// there where reader and writer copy to and from the memory of the backend alone (`there`).
#pragma once
#include <bit>
#include <span>
#include <vector>

#include "distrib/context.hpp"
#include "distrib/layout.hpp"
#include "io/input.hpp"
#include "io/output.hpp"
#include "src/api/terrace/context.hpp"

namespace terrace::api {

/// Bytes of the caller's arrays on devices that went through the memory of the host, in this
/// process; for tests.
TERRACE_API std::int64_t staged_bytes();
void note_staged(Index bytes);

/// No NaN and no infinity among `count` numbers: an exponent of all ones overflows into the sign.
inline bool all_finite(const double* x, Index count) {
  constexpr Word exponent = Word(0x7ff) << 52;
  Word seen = 0;
  for (Index i = 0; i < count; ++i)
    seen |= (std::bit_cast<Word>(x[i]) & exponent) + (Word(1) << 52);
  return seen >> 63 == 0;
}

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
  using Value = std::remove_const_t<T>;

 public:
  /// `context` outlives it. Collective; throws agreed Error(usage) as Holders, and for a device's
  /// memory on the CPU backend.
  Held(terrace::Context<B>& context, Index extent, const Local<T>& local, Index columns,
       const char* what);

  /// Throws an agreed Error(input) for NaN and Inf; of words nothing. Collective.
  void require_finite();
  /// *word := 1 where there is NaN or Inf, once Context::ahead gets there: require_finite() tells then.
  /// Of one rank, whose rows and word lie in memory of B; false, and nothing is done: they do not.
  bool note_not_finite(Index* word) const;
  /// A reader as the solvers want one: rows of `ranges`, in order. `there`: the sink copies them to
  /// memory of B, and pieces may lie on the device. Collective.
  void read(std::span<const Range> ranges, const io::Sink<std::remove_const_t<T>>& sink,
            bool there = false) const;
  /// Row destination[slot] := the row that `from` has in `slot`. `there`: it copies from memory of
  /// B, to the device as well. Collective.
  void write(std::span<const Index> destination, const io::Source<std::remove_const_t<T>>& from,
             bool there = false) const requires(!std::is_const_v<T>);
  /// Row destination[slot] := the numbers at from + slot * ld, in memory of B; false where that is not
  /// the memory of the caller's rows, or there are other ranks.
  bool place(std::span<const Index> destination, const Value* from, Index ld) const;
  /// Rows [at, at + count) of the caller's to packed host memory.
  void pack(Index at, Index count, Value* out) const;
  /// The caller's row places[i] := packed row i, of host memory; negative: none.
  void put(std::span<const Index> places, const Value* packed) const;
  /// This rank's rows, in the order in which it holds them.
  [[nodiscard]] std::vector<Range> ranges() const;
  [[nodiscard]] const Holders& holders() const { return holders_; }
  [[nodiscard]] Index rows() const { return holders_.count(context_->rank()); }
  [[nodiscard]] bool on_device() const { return !on_host_; }
  [[nodiscard]] T* data() const { return data_; }
  /// All rows without gaps in memory of B, of one rank; or null.
  [[nodiscard]] T* whole() const {
    const bool here = on_host_ == std::is_same_v<B, Cpu> && ld_ == columns_;
    return here && context_->size() == 1 ? data_ : nullptr;
  }
  [[nodiscard]] Index ld() const { return ld_; }

 private:
  void read_alone(std::span<const Range> ranges, const io::Sink<Value>& sink, bool there) const;
  void give(Index position, const Holders::Run& run, const io::Sink<Value>& sink, bool there) const;
  /// Straight to their places, where the rows stay in order and lie side by side.
  bool write_in_order(std::span<const Index> destination, const io::Source<Value>& from,
                      bool there) const;
  /// As put(), of rows in the memory of B from rows there, every `ld` numbers.
  void scatter(std::span<const Index> places, const Value* from, Index ld) const;
  /// Rows of which the host, or the device, takes a portion at once.
  [[nodiscard]] Index portion() const;

  terrace::Context<B>* context_;
  Holders holders_;
  const char* what_;
  T* data_;
  Index columns_, ld_;
  bool on_host_;
};

}  // namespace terrace::api
