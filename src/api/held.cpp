#include "src/api/held.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>

#include "distrib/agree.hpp"
#include "io/offender.hpp"
#include "kernels/base/matrix.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/base/rows.hpp"

namespace terrace::api {

namespace {

constexpr Index portion_bytes = Index(32) << 20;
std::atomic<Index> staged = 0;

/// One rank's rows, as ranges in the order in which it holds them.
std::vector<Range> ranges_of(const Rows& rows, Index extent, int rank, int ranks) {
  if (rows.block > 0) return BlockCyclic{extent, rows.block, ranks}.ranges(rank);
  if (rows.count == 0) return {};
  return {{rows.first, rows.count}};
}

template <class T>
void copy_on_host(Index rows, Index columns, const T* from, Index from_ld, T* to, Index to_ld) {
  const Index grain = std::max<Index>(1, (Index(1) << 18) / columns);
  parallel_ranges(rows, grain, [&](Index first, Index end) {
    for (Index i = first; i < end; ++i) std::copy_n(from + i * from_ld, columns, to + i * to_ld);
  });
}

}  // namespace

std::int64_t staged_bytes() { return staged; }
void note_staged(Index bytes) { staged += bytes; }

Holders::Holders(const Control& control, Index extent, const Rows& mine, const char* what)
    : extent_(extent) {
  const std::vector<Index> blocks = control.gather_all(mine.block);
  const std::vector<Index> firsts = control.gather_all(mine.first);
  const std::vector<Index> held = control.gather_all(mine.count);
  const int ranks = control.size();
  for (int r = 0; r < ranks; ++r) {
    const Rows rows{firsts[std::size_t(r)], held[std::size_t(r)], blocks[std::size_t(r)]};
    if (rows.block < 0 || rows.count < 0 || (rows.block > 0) != (blocks[0] > 0) ||
        (rows.block > 0 && rows.block != blocks[0]))
      fail_together(Exit::usage,
                    fmt::format("the rows of '{}' make no layout; rank {}; give a range "
                                "on each rank, or the same block on all",
                                what, r));
    Index at = 0;
    for (const Range& range : ranges_of(rows, extent, r, ranks)) {
      runs_.push_back({range.first, range.count, r, at});
      at += range.count;
    }
    counts_.push_back(at);
  }
  std::sort(runs_.begin(), runs_.end(),
            [](const Run& a, const Run& b) { return a.first < b.first; });
  Index next = 0;
  for (const Run& run : runs_) {
    if (run.first != next)
      fail_together(
          Exit::usage,
          fmt::format("row {} of '{}' is {}; rank {}; each row is held once, and there "
                      "are {}",
                      std::min(next, run.first), what,
                      run.first > next ? "with no rank" : "held twice", run.rank, extent));
    next += run.count;
  }
  if (next != extent)
    fail_together(
        Exit::usage,
        fmt::format("the ranks hold {} rows of '{}', and there are {}; in the rows given; "
                    "each row is held once",
                    next, what, extent));
}

const Holders::Run& Holders::run_of(Index row) const {
  return *std::prev(std::upper_bound(runs_.begin(), runs_.end(), row,
                                     [](Index i, const Run& run) { return i < run.first; }));
}

template <class T, class B>
Held<T, B>::Held(terrace::Context<B>& context, Index extent, const Local<T>& local, Index columns,
                 const char* what)
    : context_(&context),
      holders_(context.control, extent, local.rows, what),
      what_(what),
      data_(local.data),
      columns_(columns),
      ld_(local.ld == 0 ? columns : local.ld),
      on_host_(local.where == Where::host) {
  collectively(context.control, [&] {
    if (ld_ < columns_)
      throw terrace::Error(Exit::usage,
                           fmt::format("the leading dimension {} is below {}; '{}'; give at least "
                                       "as much as a row has",
                                       ld_, columns_, what));
    if (!data_ && rows() > 0 && columns_ > 0)
      throw terrace::Error(Exit::usage,
                           fmt::format("a null pointer; '{}'; give the rows' memory", what));
    if (std::is_same_v<B, Cpu> && !on_host_ && rows() > 0)
      throw terrace::Error(Exit::usage,
                           fmt::format("'{}' lies on a device, and the CPU backend works; "
                                       "Options::backend; leave it automatic",
                                       what));
  });
}

template <class T, class B>
std::vector<Range> Held<T, B>::ranges() const {
  std::vector<Range> own;
  for (const Holders::Run& run : holders_.runs())
    if (run.rank == context_->rank()) own.push_back({run.first, run.count});
  return own;
}

template <class T, class B>
Index Held<T, B>::portion() const {
  return std::max<Index>(1, portion_bytes / std::max<Index>(1, 8 * columns_));
}

template <class T, class B>
void Held<T, B>::pack(Index at, Index count, Value* out) const {
  if (count == 0 || columns_ == 0) return;
  if (on_host_) return copy_on_host(count, columns_, data_ + at * ld_, ld_, out, columns_);
  note_staged(8 * count * columns_);
  copy_rows<Value>(context_->ahead, out, columns_, const_cast<const Value*>(data_) + at * ld_, ld_,
                   columns_, count);
  context_->ahead.synchronize();
}

template <class T, class B>
void Held<T, B>::put(std::span<const Index> places, const Value* packed) const {
  if constexpr (!std::is_const_v<T>) {
    const Index count = Index(places.size());
    if (count == 0 || columns_ == 0) return;
    if (!on_host_) {
      note_staged(8 * columns_ * (count - std::count(places.begin(), places.end(), Index(-1))));
      const Buffer<Value, B> rows(count * columns_);
      upload(context_->ahead, rows.view(), packed);
      return scatter(places, rows.data(), columns_);
    }
    const Index grain = std::max<Index>(1, (Index(1) << 18) / columns_);
    parallel_ranges(count, grain, [&](Index first, Index end) {
      for (Index i = first; i < end; ++i)
        if (const Index place = places[std::size_t(i)]; place >= 0)
          std::copy_n(packed + i * columns_, columns_, data_ + place * ld_);
    });
  }
}

template <class T, class B>
bool Held<T, B>::place(std::span<const Index> destination, const Value* from, Index ld) const {
  if (context_->size() > 1 || on_host_ != std::is_same_v<B, Cpu>) return false;
  scatter(destination, from, ld);  // one rank has row i as its i-th
  return true;
}

template <class T, class B>
void Held<T, B>::scatter(std::span<const Index> places, const Value* from, Index ld) const {
  if constexpr (!std::is_const_v<T>) {
    const Buffer<Index, B> list(Index(places.size()));
    upload(context_->ahead, list.view(), places.data());
    scatter_rows(context_->ahead, View<const Index, B>(list), columns_,
                 reinterpret_cast<const Word*>(from), ld, reinterpret_cast<Word*>(data_), ld_);
    context_->ahead.synchronize();
  }
}

template <class T, class B>
void Held<T, B>::require_finite() {
  if constexpr (std::is_same_v<std::remove_const_t<T>, double>) {
    io::Offender wrong;
    std::mutex mutex;
    std::vector<Value> packed;
    bool look = true;
    if (!on_host_ && rows() > 0 && columns_ > 0) {
      const View<const double, B> all{data_, rows() * ld_};
      look = !std::isfinite(max_abs<B>(context_->ahead, rows(), columns_, all, ld_));
    }
    for (const Holders::Run& run : holders_.runs()) {
      if (!look || run.rank != context_->rank()) continue;
      for (Index from = 0; from < run.count; from += portion()) {
        const Index count = std::min(portion(), run.count - from);
        const Value* rows = data_ + (run.at + from) * ld_;
        Index ld = ld_;
        if (!on_host_) {
          packed.resize(std::size_t(count * columns_));
          pack(run.at + from, count, packed.data());
          rows = packed.data(), ld = columns_;
        }
        parallel_for(count, [&](Index i) {
          const Value* const row = rows + i * ld;
          if (all_finite(row, columns_)) return;
          const std::lock_guard lock(mutex);
          for (Index j = 0; j < columns_; ++j)
            if (!std::isfinite(row[j])) wrong.note(run.first + from + i, j, row[j]);
        });
      }
    }
    io::refuse_not_finite(context_->control, wrong, fmt::format("'{}'", what_));
  }
}

template <class T, class B>
bool Held<T, B>::note_not_finite(Index* word) const {
  if (!word || context_->size() > 1 || on_host_ != std::is_same_v<B, Cpu>) return false;
  if constexpr (std::is_same_v<Value, double>)
    terrace::note_not_finite(context_->ahead, rows(), columns_, data_, ld_, word);
  return true;
}

#define TERRACE_HELD(B)                 \
  template class Held<double, B>;       \
  template class Held<const double, B>; \
  template class Held<Word, B>;         \
  template class Held<const Word, B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_HELD)
#undef TERRACE_HELD

}  // namespace terrace::api
