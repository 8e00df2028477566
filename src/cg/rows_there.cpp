#include "src/cg/rows_there.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "distrib/agree.hpp"
#include "distrib/deal.hpp"
#include "kernels/base/gather.hpp"
#include "kernels/base/parallel.hpp"
#include "src/cg/coarse_rows.hpp"

namespace terrace::cg {
namespace {

template <class B>
void renumber(const Stream<B>& lane, View<std::int32_t, B> column, Index own,
              const std::vector<std::int32_t>& places) {
  const Buffer<std::int32_t, B> to = uploaded(lane, places);
  renumber_columns<B>(lane, column, own, to.view());
  lane.synchronize();
}

/// Columns of other ranks: those that were needed before, and those that arrived; what to make of them.
template <class B>
struct MoreColumns {
  MoreColumns(const Stream<B>& lane, const ColumnNumbers& number, const ArrivedRows<B>& rows,
              Scratch<B>& scratch)
      : own{number.first, number.own}, old(uploaded(lane, number.needed)) {
    numbers = distinct_numbers<B>(lane, {old, rows.column}, own, scratch);
    needed = downloaded(lane, numbers.ascending.view());
  }
  /// Local numbers of columns that arrived. Does not wait.
  void place(const Stream<B>& lane, View<const Index, B> columns, View<std::int32_t, B> to) const {
    locate<B>(lane, numbers, own, columns, to);
  }
  /// Of columns that were needed before.
  void renumber(const Stream<B>& lane, View<std::int32_t, B> column) const {
    if (old.size() == 0) return;
    const Buffer<std::int32_t, B> to(old.size());
    locate<B>(lane, numbers, own, old, to.view());
    renumber_columns<B>(lane, column, own.count, to);
    lane.synchronize();
  }
  NumberRange own;
  Buffer<Index, B> old;
  DistinctNumbers<B> numbers;
  std::vector<Index> needed;
};

/// Each row by ascending columns.
void sort_rows(HostRows& a) {
  parallel_ranges(a.rows(), 4096, [&](Index from, Index to) {
    std::vector<std::pair<std::int32_t, double>> row;
    for (Index i = from; i < to; ++i) {
      const Index begin = a.start[at(i)], end = a.start[at(i) + 1];
      if (std::is_sorted(a.column.begin() + begin, a.column.begin() + end)) continue;
      row.clear();
      for (Index e = begin; e < end; ++e) row.emplace_back(a.column[at(e)], a.value[at(e)]);
      std::sort(row.begin(), row.end(),
                [](const auto& x, const auto& y) { return x.first < y.first; });
      for (Index e = begin; e < end; ++e)
        std::tie(a.column[at(e)], a.value[at(e)]) = row[at(e - begin)];
    }
  });
}
}  // namespace

template <class B>
ArrivedRows<B> exchanged(const Context<B>& context, const CsrRows<B>& a,
                         const std::vector<Index>& bounds, const ColumnNumbers& number,
                         const std::vector<Index>* row, Scratch<B>& scratch) {
  const Stream<B>& lane = context.ahead;
  const auto ranks = at(context.size());
  struct Message {
    Index rows = 0, entries = 0;
  };
  std::vector<std::vector<Message>> sent(ranks);
  Buffer<Index, B> sizes, column, listed;
  Index begin = 0;  // the first entry
  collectively(context.control, [&] {
    const auto entry = [&](Index i) { return downloaded(lane, a.start.slice(i, 1)).front(); };
    Index from = begin = entry(bounds.front());
    for (std::size_t r = 0; r < ranks; ++r) {
      if (bounds[r + 1] == bounds[r]) continue;
      const Index to = entry(bounds[r + 1]);
      sent[r] = {{bounds[r + 1] - bounds[r], to - from}};
      from = to;
    }
    sizes = Buffer<Index, B>(bounds.back() - bounds.front());
    row_sizes<B>(lane, a.start.slice(bounds.front(), sizes.size() + 1), sizes.view());
    column = Buffer<Index, B>(from - begin);
    const Buffer<Index, B> needed = uploaded(lane, number.needed);
    global_columns<B>(lane, a.column.slice(begin, column.size()), {number.first, number.own},
                      needed, column.view());
    if (row) listed = uploaded(lane, *row);
    lane.synchronize();
  });
  const std::vector<std::vector<Message>> come = deal(context.control, sent);
  ArrivedRows<B> all;
  collectively(context.control, [&] {
    Message sum;
    all.begin.push_back(0);
    for (const auto& part : come) {
      for (const Message& m : part) sum.rows += m.rows, sum.entries += m.entries;
      all.begin.push_back(sum.rows);
    }
    all.start = Buffer<Index, B>(sum.rows + 1);
    all.column = Buffer<Index, B>(sum.entries);
    all.value = Buffer<double, B>(sum.entries);
    if (row) all.row = Buffer<Index, B>(sum.rows);
  });
  std::vector<Piece> out, in;
  const auto add = [](std::vector<Piece>& pieces, std::size_t r, auto* data, Index first,
                      Index count) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(data)>>;
    if (count > 0)
      pieces.push_back({int(r), const_cast<T*>(data) + first, count * Index(sizeof(T))});
  };
  const auto pieces = [&](std::vector<Piece>& to, const auto& messages, const Index* size,
                          const Index* columns, const double* value, const Index* number_of) {
    Message done;
    for (std::size_t r = 0; r < ranks; ++r)
      for (const Message& m : messages[r]) {
        add(to, r, size, done.rows, m.rows);
        add(to, r, columns, done.entries, m.entries);
        add(to, r, value, done.entries, m.entries);
        if (row) add(to, r, number_of, done.rows, m.rows);
        done.rows += m.rows, done.entries += m.entries;
      }
  };
  pieces(out, sent, sizes.data(), column.data(), a.value.data + begin, listed.data());
  pieces(in, come, all.start.data(), all.column.data(), all.value.data(), all.row.data());
  context.comm.exchange(lane, out, in);
  collectively(context.control, [&] {
    sizes_to_starts<B>(lane, all.start.view(), 0, scratch);
    lane.synchronize();
  });
  return all;
}

template <class B>
RowsThere<B> uploaded_rows(const Stream<B>& lane, RankRows&& a) {
  HostRows& rows = a.rows;
  sort_rows(rows);
  RowsThere<B> there{
      std::move(a.first), std::move(a.needed),
      SparseRows<B>{Buffer<Index, B>(rows.rows() + 1), Buffer<std::int32_t, B>(rows.nonzeros()),
                    Buffer<double, B>(rows.nonzeros()), rows.columns}};
  upload(lane, there.rows.start.view(), rows.start.data());
  upload(lane, there.rows.column.view(), rows.column.data());
  upload(lane, there.rows.value.view(), rows.value.data());
  lane.synchronize();
  rows = {};
  return there;
}

template <class B>
CsrPart<B> take_part(const Stream<B>& lane, RowsThere<B>& a, Index own, Index left, bool scattered,
                     bool keep, Scratch<B>& scratch) {
  if (a.needed.empty()) return part_of(lane, std::move(a.rows), scattered, scratch);
  Buffer<std::int32_t, B> column;
  if (keep) {
    column = Buffer<std::int32_t, B>(a.rows.nonzeros());
    copy(lane, column.view(), a.rows.view().column);
  }
  std::vector<std::int32_t> places;
  for (Index k = 0; k < Index(a.needed.size()); ++k)
    places.push_back(std::int32_t(k < left ? k - left : own + k - left));
  renumber(lane, a.rows.column.view(), own, places);
  CsrPart<B> part = part_of(lane, std::move(a.rows), scattered, scratch);
  a.rows.column = std::move(column);
  return part;
}

template <class B>
CsrPart<B> take_whole(const Stream<B>& lane, RowsThere<B>& a, int rank, bool scattered,
                      Scratch<B>& scratch) {
  const Index first = a.first[at(rank)], own = a.first[at(rank) + 1] - first;
  std::vector<std::int32_t> places;
  for (const Index c : a.needed) places.push_back(std::int32_t(c - first));
  if (!places.empty()) renumber(lane, a.rows.column.view(), own, places);
  return part_of(lane, std::move(a.rows), scattered, scratch);
}

template <class B>
void drop_unused(const Stream<B>& lane, RowsThere<B>& a, Index own) {
  if (a.needed.empty()) return;
  const Buffer<std::int32_t, B> used{Index(a.needed.size())};
  fill_zero(lane, used.view());
  mark_columns<B>(lane, a.rows.column, own, used.view());
  std::vector<std::int32_t> places = downloaded(lane, used.view());
  std::vector<Index> kept;
  for (std::size_t k = 0; k < places.size(); ++k) {
    const bool used_here = places[k] != 0;
    places[k] = std::int32_t(own + Index(kept.size()));
    if (used_here) kept.push_back(a.needed[k]);
  }
  if (kept.size() == a.needed.size()) return;
  renumber(lane, a.rows.column.view(), own, places);
  a.needed = std::move(kept);
  a.rows.columns = own + Index(a.needed.size());
}

template <class B>
AskedRows<B>::AskedRows(const Context<B>& context, RowsThere<B>& a) {
  if (context.size() == 1) return;
  if (a.asked.empty()) a.asked = asked_entries(context.control, a.first, a.needed);
  collectively(context.control, [&] {
    std::vector<Index> all;
    for (const std::vector<Index>& rows : a.asked) {
      all.insert(all.end(), rows.begin(), rows.end());
      bounds_.push_back(Index(all.size()));
    }
    for (const Index end : a.first)
      wanted_.push_back(std::lower_bound(a.needed.begin(), a.needed.end(), end) - a.needed.begin());
    listed_ = uploaded(context.ahead, all);
  });
}

template <class B>
template <class T>
Buffer<T, B> AskedRows<B>::joined(const Context<B>& context, const Buffer<T, B>& own) const {
  const Stream<B>& lane = context.ahead;
  Buffer<T, B> taken, all;
  collectively(context.control, [&] {
    taken = Buffer<T, B>(bounds_.back());
    gather(lane, listed_.view(), View<const T, B>(own), taken.view());
    all = Buffer<T, B>(own.size() + wanted_.back());
    copy<T, B>(lane, all.view().slice(0, own.size()), own);
  });
  std::vector<Piece> out, in;
  const auto add = [](std::vector<Piece>& pieces, std::size_t r, T* data,
                      const std::vector<Index>& bounds) {
    if (const Index count = bounds[r + 1] - bounds[r]; count > 0)
      pieces.push_back({int(r), data + bounds[r], count * Index(sizeof(T))});
  };
  for (std::size_t r = 0; r < at(context.size()); ++r) {
    add(out, r, taken.data(), bounds_);
    add(in, r, all.data() + own.size(), wanted_);
  }
  context.comm.exchange(lane, out, in);
  lane.synchronize();
  return all;
}

template <class B>
RowsThere<B> AskedRows<B>::with_needed_rows(const Context<B>& context, const RowsThere<B>& p,
                                            Scratch<B>& scratch) const {
  const Stream<B>& lane = context.ahead;
  const ColumnNumbers number = columns_of(context.control, p.first, p.needed);
  const SparseRows<B> taken = collectively(
      context.control, [&] { return take_rows<B>(lane, p.rows.view(), listed_.view(), scratch); });
  const ArrivedRows<B> got = exchanged(context, taken.view(), bounds_, number, nullptr, scratch);
  return collectively(context.control, [&] {
    const Index own = p.rows.rows(), entries = p.rows.nonzeros(), more = got.column.size();
    const MoreColumns<B> columns(lane, number, got, scratch);
    RowsThere<B> all{p.first, columns.needed, {}};
    SparseRows<B>& rows = all.rows;
    rows = {Buffer<Index, B>(own + got.rows() + 1), Buffer<std::int32_t, B>(entries + more),
            Buffer<double, B>(entries + more), number.own + Index(all.needed.size())};
    copy(lane, rows.start.view().slice(0, own + 1), p.rows.view().start);
    row_sizes<B>(lane, got.start, rows.start.view().slice(own, got.rows()));
    sizes_to_starts<B>(lane, rows.start.view().slice(own, got.rows() + 1), entries, scratch);
    copy(lane, rows.column.view().slice(0, entries), p.rows.view().column);
    copy(lane, rows.value.view().slice(0, entries), p.rows.view().value);
    copy<double, B>(lane, rows.value.view().slice(entries, more), got.value);
    columns.renumber(lane, rows.column.view().slice(0, entries));
    columns.place(lane, got.column, rows.column.view().slice(entries, more));
    lane.synchronize();
    return all;
  });
}

template <class B>
RowsThere<B> gathered(const Context<B>& context, const std::vector<Index>& first_row,
                      const std::vector<Index>& needed_rows, RowsThere<B>&& t,
                      Scratch<B>& scratch) {
  const Control& control = context.control;
  if (control.size() == 1) return std::move(t);
  const Stream<B>& lane = context.ahead;
  const Index begin = first_row[at(control.rank())];
  const Index own = first_row[at(control.rank()) + 1] - begin;
  const std::vector<Index> old = std::move(t.needed);
  const ColumnNumbers number = columns_of(control, t.first, old);
  std::vector<Index> bounds;
  for (const Index end : first_row)
    bounds.push_back(own + (std::lower_bound(needed_rows.begin(), needed_rows.end(), end) -
                            needed_rows.begin()));
  const ArrivedRows<B> got =
      exchanged(context, t.rows.view(), bounds, number, &needed_rows, scratch);
  return collectively(control, [&] {
    const MoreColumns<B> more(lane, number, got, scratch);
    RowsThere<B> sum{t.first, more.needed, {}};
    const Index columns = number.own + Index(sum.needed.size());
    const Buffer<std::int32_t, B> column(got.column.size());
    more.place(lane, got.column, column.view());
    more.renumber(lane, t.rows.column.view());
    const ListedRows<B> others = sum_parts<B>(lane, {got.start, column, got.value, {}}, got.row,
                                              {begin, own}, columns, scratch);
    CsrRows<B> mine = t.rows.view();
    mine.start = mine.start.slice(0, own + 1);
    sum.rows = add_rows<B>(lane, mine, others.view(), columns, scratch);
    t.rows = {};
    drop_unused(lane, sum, number.own);
    return sum;
  });
}

template <class B>
RowsThere<B> whole_rows(const Context<B>& context, const RowsThere<B>& a, Scratch<B>& scratch) {
  const Stream<B>& lane = context.ahead;
  const Index n = a.first.back();
  const auto me = at(context.rank());
  const std::vector<Index> counts = context.control.gather_all(a.rows.nonzeros());
  std::vector<Index> entries(counts.size() + 1, 0);  // of the ranks before
  std::partial_sum(counts.begin(), counts.end(), entries.begin() + 1);
  RowsThere<B> all{{0, n}, {}, {}};
  SparseRows<B>& rows = all.rows;
  collectively(context.control, [&] {
    rows = {Buffer<Index, B>(n + 1), Buffer<std::int32_t, B>(entries.back()),
            Buffer<double, B>(entries.back()), n};
    const CsrRows<B> mine = a.rows.view();
    const Index begin = a.first[me], from = entries[me], count = mine.column.size;
    row_sizes<B>(lane, mine.start, rows.start.view().slice(begin, mine.rows()));
    const Buffer<Index, B> needed = uploaded(lane, a.needed);
    const Index left = std::lower_bound(a.needed.begin(), a.needed.end(), begin) - a.needed.begin();
    global_rows<B>(lane, mine, {begin, mine.rows()}, needed, left,
                   rows.column.view().slice(from, count), rows.value.view().slice(from, count));
    lane.synchronize();
  });
  gather_parts(context, a.first, rows.start.data());
  gather_parts(context, entries, rows.column.data());
  gather_parts(context, entries, rows.value.data());
  collectively(context.control, [&] {
    sizes_to_starts<B>(lane, rows.start.view(), 0, scratch);
    lane.synchronize();
  });
  return all;
}

template <class B>
RowsThere<B> CsrOperator<B>::rows_there(const Context<B>& context) const {
  const Stream<B>& lane = context.ahead;
  return collectively(context.control, [&] {
    CsrRows<B> outer = outer_.view();
    outer.column = outer_columns_;
    Scratch<B> scratch;
    return RowsThere<B>{
        first_, needed_,
        add_rows<B>(lane, inner_.view(), outer, rows_.count + Index(needed_.size()), scratch),
        halo_.asked()};
  });
}

template <class B>
CsrOperator<B>::CsrOperator(const Context<B>& context, RowsThere<B>& a, bool scattered,
                            Scratch<B>& scratch)
    : first_(a.first),
      rows_{a.first[at(context.rank())], a.rows.rows()},
      nonzeros_(context.control.reduce(a.rows.nonzeros(), Reduce::sum)),
      joined_(true),
      needed_(a.needed) {
  if (context.size() > 1) {
    if (a.asked.empty()) a.asked = asked_entries(context.control, first_, needed_);
    halo_ = Halo<B>(context.control, context.ahead, first_, needed_, a.asked);
  }
  collectively(context.control, [&] {
    inner_ = take_part(context.ahead, a, rows_.count, halo_.left(), scattered, true, scratch);
  });
}

#define TERRACE_INSTANTIATE(B)                                                                 \
  template RowsThere<B> uploaded_rows(const Stream<B>&, RankRows&&);                           \
  template CsrPart<B> take_part(const Stream<B>&, RowsThere<B>&, Index, Index, bool, bool,     \
                                Scratch<B>&);                                                  \
  template CsrPart<B> take_whole(const Stream<B>&, RowsThere<B>&, int, bool, Scratch<B>&);     \
  template ArrivedRows<B> exchanged(const Context<B>&, const CsrRows<B>&,                      \
                                    const std::vector<Index>&, const ColumnNumbers&,           \
                                    const std::vector<Index>*, Scratch<B>&);                   \
  template void drop_unused(const Stream<B>&, RowsThere<B>&, Index);                           \
  template class AskedRows<B>;                                                                 \
  template Buffer<double, B> AskedRows<B>::joined(const Context<B>&, const Buffer<double, B>&) \
      const;                                                                                   \
  template Buffer<Index, B> AskedRows<B>::joined(const Context<B>&, const Buffer<Index, B>&)   \
      const;                                                                                   \
  template RowsThere<B> gathered(const Context<B>&, const std::vector<Index>&,                 \
                                 const std::vector<Index>&, RowsThere<B>&&, Scratch<B>&);      \
  template RowsThere<B> whole_rows(const Context<B>&, const RowsThere<B>&, Scratch<B>&);       \
  template RowsThere<B> CsrOperator<B>::rows_there(const Context<B>&) const;                   \
  template CsrOperator<B>::CsrOperator(const Context<B>&, RowsThere<B>&, bool, Scratch<B>&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::cg
