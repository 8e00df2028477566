// The two ways of a caller's rows: to a solver, and back.
#include <algorithm>

#include "distrib/agree.hpp"
#include "distrib/deal.hpp"
#include "src/api/held.hpp"

namespace terrace::api {

namespace {

constexpr Index least_direct = Index(64) << 10;  // bytes that are worth a copy of their own

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

/// What every rank asks for.
std::vector<std::vector<Range>> gather(const Control& control, std::span<const Range> mine) {
  std::vector<std::vector<Range>> to(std::size_t(control.size()),
                                     std::vector<Range>(mine.begin(), mine.end()));
  return deal(control, std::move(to));
}

}  // namespace

/// A run of this rank's rows, as it lies where the sink may have it so, else packed.
template <class T, class B>
void Held<T, B>::give(Index position, const Holders::Run& run, const io::Sink<Value>& sink,
                      bool there) const {
  const bool direct = on_host_ || there;
  if (ld_ == columns_ && direct) return sink(position, run.count, data_ + run.at * ld_);
  const Index most = std::min(portion(), run.count) * columns_;
  const Buffer<Value, Cpu> host(on_host_ || !there ? most : 0);
  const Buffer<Value, B> device(on_host_ || !there ? 0 : most);
  for (Index from = 0; from < run.count; from += portion()) {
    const Index count = std::min(portion(), run.count - from);
    if (on_host_ || !there) {
      pack(run.at + from, count, host.data());
    } else {
      copy_rows<Value>(context_->ahead, device.data(), columns_,
                       const_cast<const Value*>(data_) + (run.at + from) * ld_, ld_, columns_,
                       count);
      context_->ahead.synchronize();
    }
    sink(position + from, count, on_host_ || !there ? host.data() : device.data());
  }
}

template <class T, class B>
void Held<T, B>::read_alone(std::span<const Range> ranges, const io::Sink<Value>& sink,
                            bool there) const {
  Index position = 0;
  for (std::size_t i = 0; i < ranges.size();) {
    Range together = ranges[i++];  // with those that go on where it ends: a call and a wait each
    for (; i < ranges.size() && ranges[i].first == together.end(); ++i)
      together.count += ranges[i].count;
    holders_.each(together, [&](const Holders::Run& run) {
      give(position, run, sink, there);
      position += run.count;
    });
  }
}

template <class T, class B>
void Held<T, B>::read(std::span<const Range> ranges, const io::Sink<Value>& sink,
                      bool there) const {
  const Control& control = context_->control;
  if (control.size() == 1) return read_alone(ranges, sink, there);
  const int ranks = control.size(), me = control.rank();
  const std::vector<std::vector<Range>> wanted = gather(control, ranges);
  const Index portion = this->portion();
  const auto stays = [&](const Holders::Run& run) {  // on its device
    return there && !on_host_ && run.rank == me && 8 * run.count * columns_ >= least_direct;
  };
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
          if (run.rank != me || (r == me && stays(run))) return;
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
        if (!stays(run)) expected[std::size_t(run.rank)] += run.count * columns_;
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
      rows.clear();
      const auto flush = [&] {
        const Index count = columns_ > 0 ? Index(rows.size()) / columns_ : 0;
        if (count > 0) sink(position, count, rows.data());
        position += count;
        rows.clear();
      };
      holders_.each(range, [&](const Holders::Run& run) {
        if (stays(run)) {
          flush();
          give(position, run, sink, true);
          position += run.count;
          return;
        }
        std::size_t& at = used[std::size_t(run.rank)];
        const auto from = in[std::size_t(run.rank)].begin() + std::ptrdiff_t(at);
        rows.insert(rows.end(), from, from + run.count * columns_);
        at += std::size_t(run.count * columns_);
      });
      flush();
    }
  }
}

template <class T, class B>
bool Held<T, B>::write_in_order(std::span<const Index> destination, const io::Source<Value>& from,
                                bool there) const {
  if constexpr (!std::is_const_v<T>) {
    if (context_->size() > 1 || (!there && !on_host_) || ld_ != columns_ || destination.empty())
      return false;
    for (std::size_t i = 1; i < destination.size(); ++i)
      if (destination[i] != destination[i - 1] + 1) return false;
    from(0, Index(destination.size()), data_ + destination[0] * ld_);
  }
  return true;
}

template <class T, class B>
void Held<T, B>::write(std::span<const Index> destination, const io::Source<Value>& from,
                       bool there) const requires(!std::is_const_v<T>) {
  if (columns_ == 0 || write_in_order(destination, from, there)) return;
  const Control& control = context_->control;
  const int me = control.rank();
  const Index slots = Index(destination.size()), most = std::min(portion(), slots);
  const Index rounds = control.reduce(ceil_div(slots, portion()), Reduce::max);
  const auto ranks = std::size_t(control.size());
  const bool stay = there && !on_host_;  // own rows, on their device
  const Buffer<Value, Cpu> rows(stay && ranks == 1 ? 0 : most * columns_);
  const Buffer<Value, B> device(stay ? most * columns_ : 0);
  for (Index round = 0; round < rounds; ++round) {
    const Index first = std::min(slots, round * portion());
    const Index count = std::min(portion(), slots - first);
    std::vector<std::vector<Index>> at(ranks);
    std::vector<std::vector<Value>> values(ranks);
    std::vector<Index> own(std::size_t(count), -1);
    std::vector<int> owner(std::size_t(count), me);
    for (Index i = 0; i < count; ++i) {
      const Index row = destination[std::size_t(first + i)];
      const Holders::Run& run = holders_.run_of(row);
      owner[std::size_t(i)] = run.rank;
      if (run.rank == me)
        own[std::size_t(i)] = run.at + row - run.first;
      else
        at[std::size_t(run.rank)].push_back(run.at + row - run.first);
    }
    if (count > 0) from(first, count, stay ? device.data() : rows.data());
    if (stay)
      scatter(own, device.data(), columns_);
    else
      put(own, rows.data());
    if (ranks == 1) continue;
    if (stay) download(context_->ahead, rows.data(), device.view().slice(0, count * columns_));
    context_->ahead.synchronize();
    for (Index i = 0; i < count; ++i)
      if (const int r = owner[std::size_t(i)]; r != me)
        values[std::size_t(r)].insert(values[std::size_t(r)].end(), rows.data() + i * columns_,
                                      rows.data() + (i + 1) * columns_);
    at = deal(control, std::move(at));
    values = deal(control, std::move(values));
    for (std::size_t r = 0; r < ranks; ++r) put(at[r], values[r].data());
  }
}

#define TERRACE_READ(T, B)                                                                         \
  template void Held<T, B>::read(std::span<const Range>, const io::Sink<Held<T, B>::Value>&, bool) \
      const;
#define TERRACE_WRITE(T, B)                                                                     \
  template void Held<T, B>::write(std::span<const Index>, const io::Source<Held<T, B>::Value>&, \
                                  bool) const;
#define TERRACE_HELD_ROWS(B)    \
  TERRACE_READ(double, B)       \
  TERRACE_READ(const double, B) \
  TERRACE_READ(Word, B)         \
  TERRACE_READ(const Word, B)   \
  TERRACE_WRITE(double, B)      \
  TERRACE_WRITE(Word, B)
TERRACE_FOR_EACH_BACKEND(TERRACE_HELD_ROWS)
#undef TERRACE_READ
#undef TERRACE_WRITE
#undef TERRACE_HELD_ROWS

}  // namespace terrace::api
