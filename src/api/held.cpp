#include "src/api/held.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "distrib/agree.hpp"
#include "distrib/deal.hpp"
#include "io/offender.hpp"
#include "kernels/base/callers.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::api {

namespace {

constexpr Index portion_bytes = Index(32) << 20;

/// One rank's rows, as ranges in the order in which it holds them.
std::vector<Range> ranges_of(const Rows& rows, Index extent, int rank, int ranks) {
  if (rows.block > 0) return BlockCyclic{extent, rows.block, ranks}.ranges(rank);
  if (rows.count == 0) return {};
  return {{rows.first, rows.count}};
}

/// Positions [from, from + count) of the concatenation of `ranges`, as ranges.
std::vector<Range> window(std::span<const Range> ranges, Index from, Index count) {
  std::vector<Range> found;
  for (const Range& range : ranges) {
    if (count == 0) break;
    if (from >= range.count) {
      from -= range.count;
      continue;
    }
    const Index here = std::min(count, range.count - from);
    found.push_back({range.first + from, here});
    from = 0;
    count -= here;
  }
  return found;
}

Index total(std::span<const Range> ranges) {
  Index sum = 0;
  for (const Range& range : ranges) sum += range.count;
  return sum;
}

template <class T>
void copy_on_host(Index rows, Index columns, const T* from, Index from_ld, T* to, Index to_ld) {
  const Index grain = std::max<Index>(1, (Index(1) << 18) / columns);
  parallel_ranges(rows, grain, [&](Index first, Index end) {
    for (Index i = first; i < end; ++i) std::copy_n(from + i * from_ld, columns, to + i * to_ld);
  });
}

/// What every rank asks for.
std::vector<std::vector<Range>> gather(const Control& control, std::span<const Range> mine) {
  std::vector<std::vector<Range>> to(std::size_t(control.size()),
                                     std::vector<Range>(mine.begin(), mine.end()));
  return deal(control, std::move(to));
}

}  // namespace

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
    if (!on_host_) wait_for_device();  // for what the caller has enqueued there
  });
}

template <class T, class B>
void Held<T, B>::pack(Index at, Index count, Value* out) const {
  if (count == 0 || columns_ == 0) return;
  if (on_host_) return copy_on_host(count, columns_, data_ + at * ld_, ld_, out, columns_);
  copy_rows<Value>(context_->ahead, out, columns_, const_cast<const Value*>(data_) + at * ld_, ld_,
                   columns_, count);
  context_->ahead.synchronize();
}

template <class T, class B>
void Held<T, B>::unpack(Index at, Index count, const Value* in) const {
  if constexpr (!std::is_const_v<T>) {
    if (count == 0 || columns_ == 0) return;
    if (on_host_) return copy_on_host(count, columns_, in, columns_, data_ + at * ld_, ld_);
    copy_rows<Value>(context_->ahead, data_ + at * ld_, ld_, in, columns_, columns_, count);
    context_->ahead.synchronize();
  }
}

template <class T, class B>
void Held<T, B>::require_finite() const requires(std::is_same_v<std::remove_const_t<T>, double>) {
  io::Offender wrong;
  std::mutex mutex;
  const Index portion = std::max<Index>(1, portion_bytes / std::max<Index>(1, 8 * columns_));
  std::vector<Value> packed;
  for (const Holders::Run& run : holders_.runs()) {
    if (run.rank != context_->rank()) continue;
    for (Index from = 0; from < run.count; from += portion) {
      const Index count = std::min(portion, run.count - from);
      const Value* rows = data_ + (run.at + from) * ld_;
      Index ld = ld_;
      if (!on_host_) {
        packed.resize(std::size_t(count * columns_));
        pack(run.at + from, count, packed.data());
        rows = packed.data(), ld = columns_;
      }
      parallel_for(count, [&](Index i) {
        const Value* const row = rows + i * ld;
        double sum = 0;  // of zeros, unless some number is not finite
        for (Index j = 0; j < columns_; ++j) sum += row[j] * 0.0;
        if (sum == 0) return;
        const std::lock_guard lock(mutex);
        for (Index j = 0; j < columns_; ++j)
          if (!std::isfinite(row[j])) wrong.note(run.first + from + i, j, row[j]);
      });
    }
  }
  io::refuse_not_finite(context_->control, wrong, fmt::format("'{}'", what_));
}

template <class T, class B>
void Held<T, B>::read_alone(std::span<const Range> ranges, const io::Sink<Value>& sink) const {
  Index position = 0;
  const Index portion = std::max<Index>(1, portion_bytes / std::max<Index>(1, 8 * columns_));
  std::vector<Value> packed;
  for (const Range& range : ranges)
    holders_.each(range, [&](const Holders::Run& run) {
      if (ld_ == columns_ && on_host_) {
        sink(position, run.count, data_ + run.at * ld_);
        position += run.count;
        return;
      }
      for (Index from = 0; from < run.count; from += portion) {
        const Index count = std::min(portion, run.count - from);
        packed.resize(std::size_t(count * columns_));
        pack(run.at + from, count, packed.data());
        sink(position, count, packed.data());
        position += count;
      }
    });
}

template <class T, class B>
void Held<T, B>::read(std::span<const Range> ranges, const io::Sink<Value>& sink) const {
  const Control& control = context_->control;
  if (control.size() == 1) return read_alone(ranges, sink);
  const int ranks = control.size(), me = control.rank();
  const std::vector<std::vector<Range>> wanted = gather(control, ranges);
  const Index portion = std::max<Index>(1, portion_bytes / std::max<Index>(1, 8 * columns_));
  Index most = 0;
  for (const auto& list : wanted) most = std::max(most, total(list));
  const Communicator<Cpu> host(control);
  const Stream<Cpu> lane;
  std::vector<std::vector<Value>> out, in;
  out.resize(std::size_t(ranks));
  in.resize(std::size_t(ranks));
  std::vector<Value> rows;
  for (Index from = 0; from < most; from += portion) {
    std::vector<Piece> sends, receives;
    for (int r = 0; r < ranks; ++r) {  // what rank r gets of mine, in its order
      auto& buffer = out[std::size_t(r)];
      buffer.clear();
      for (const Range& range : window(wanted[std::size_t(r)], from, portion))
        holders_.each(range, [&](const Holders::Run& run) {
          if (run.rank != me) return;
          const std::size_t old = buffer.size();
          buffer.resize(old + std::size_t(run.count * columns_));
          pack(run.at, run.count, buffer.data() + old);
        });
      if (r != me && !buffer.empty())
        sends.push_back({r, buffer.data(), Index(buffer.size() * sizeof(Value))});
    }
    const std::vector<Range> mine = window(ranges, from, portion);
    std::vector<Index> expected(wanted.size(), 0);
    for (const Range& range : mine)
      holders_.each(range, [&](const Holders::Run& run) {
        expected[std::size_t(run.rank)] += run.count * columns_;
      });
    for (int r = 0; r < ranks; ++r) {
      in[std::size_t(r)].resize(r == me ? 0 : std::size_t(expected[std::size_t(r)]));
      if (!in[std::size_t(r)].empty())
        receives.push_back(
            {r, in[std::size_t(r)].data(), Index(in[std::size_t(r)].size() * sizeof(Value))});
    }
    host.exchange(lane, sends, receives);
    lane.synchronize();
    in[std::size_t(me)].swap(out[std::size_t(me)]);
    std::vector<std::size_t> used(wanted.size(), 0);
    Index position = from;
    for (const Range& range : mine) {
      rows.resize(std::size_t(range.count * columns_));
      Value* to = rows.data();
      holders_.each(range, [&](const Holders::Run& run) {
        const auto numbers = std::size_t(run.count * columns_);
        std::size_t& at = used[std::size_t(run.rank)];
        std::copy_n(in[std::size_t(run.rank)].begin() + std::ptrdiff_t(at), numbers, to);
        at += numbers;
        to += numbers;
      });
      sink(position, range.count, rows.data());
      position += range.count;
    }
  }
}

template <class T, class B>
void Held<T, B>::write(std::span<const Index> destination, const io::Source<Value>& from) const
    requires(!std::is_const_v<T>) {
  const Control& control = context_->control;
  const Index slots = Index(destination.size());
  const Index portion = std::max<Index>(1, portion_bytes / std::max<Index>(1, 8 * columns_));
  const Index rounds = control.reduce(ceil_div(slots, portion), Reduce::max);
  const auto ranks = std::size_t(control.size());
  std::vector<Value> rows(std::size_t(std::min(portion, slots) * columns_));
  for (Index round = 0; round < rounds; ++round) {
    const Index first = std::min(slots, round * portion);
    const Index count = std::min(portion, slots - first);
    if (count > 0) from(first, count, rows.data());
    std::vector<std::vector<Index>> at(ranks);
    std::vector<std::vector<Value>> values(ranks);
    for (Index i = 0; i < count; ++i) {
      const Index row = destination[std::size_t(first + i)];
      const Holders::Run& run = holders_.run_of(row);
      const Index place = run.at + row - run.first;
      if (ranks == 1) {
        Index together = 1;  // rows that go side by side
        while (i + together < count &&
               destination[std::size_t(first + i + together)] == row + together &&
               row + together < run.first + run.count)
          ++together;
        unpack(place, together, rows.data() + i * columns_);
        i += together - 1;
        continue;
      }
      at[std::size_t(run.rank)].push_back(place);
      auto& list = values[std::size_t(run.rank)];
      list.insert(list.end(), rows.begin() + i * columns_, rows.begin() + (i + 1) * columns_);
    }
    if (ranks == 1) continue;
    at = deal(control, std::move(at));
    values = deal(control, std::move(values));
    for (std::size_t r = 0; r < ranks; ++r)
      for (std::size_t i = 0; i < at[r].size(); ++i)
        unpack(at[r][i], 1, values[r].data() + Index(i) * columns_);
  }
}

#define TERRACE_HELD(B)                 \
  template class Held<double, B>;       \
  template class Held<const double, B>; \
  template class Held<Word, B>;         \
  template class Held<const Word, B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_HELD)
#undef TERRACE_HELD

}  // namespace terrace::api
