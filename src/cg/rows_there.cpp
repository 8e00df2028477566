#include "src/cg/rows_there.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "distrib/agree.hpp"
#include "distrib/deal.hpp"
#include "kernels/base/gather.hpp"
#include "kernels/base/parallel.hpp"
#include "src/cg/coarse_rows.hpp"

namespace terrace::cg {
namespace {

/// Where each of `old` stands in `all`, which has them too. Both ascend.
std::vector<std::int32_t> places_in(const std::vector<Index>& all, const std::vector<Index>& old) {
  std::vector<std::int32_t> places;
  places.reserve(old.size());
  for (const Index i : old)
    places.push_back(std::int32_t(std::lower_bound(all.begin(), all.end(), i) - all.begin()));
  return places;
}
template <class B>
void renumber(const Stream<B>& lane, View<std::int32_t, B> column, Index own,
              const std::vector<std::int32_t>& places) {
  const Buffer<std::int32_t, B> to = uploaded(lane, places);
  renumber_columns<B>(lane, column, own, to.view());
  lane.synchronize();
}

/// Global numbers of needed columns, and of those of `more` that are no own ones.
std::vector<Index> with_more(const ColumnNumbers& number, std::vector<Index> more) {
  std::erase_if(more, [&](Index c) { return number.owns(c); });
  more.insert(more.end(), number.needed.begin(), number.needed.end());
  return distinct(std::move(more));
}
std::int32_t local(const ColumnNumbers& number, const std::vector<Index>& needed, Index c) {
  if (number.owns(c)) return std::int32_t(c - number.first);
  return std::int32_t(number.own +
                      (std::lower_bound(needed.begin(), needed.end(), c) - needed.begin()));
}

/// Entries of rows beyond the `own` first, to the owners of these rows.
template <class B>
std::vector<std::vector<SentEntry>> sent_away(const Stream<B>& lane, int ranks,
                                              const std::vector<Index>& first_row,
                                              const std::vector<Index>& needed_rows, Index own,
                                              const SparseRows<B>& t, const ColumnNumbers& number) {
  std::vector<std::vector<SentEntry>> away(at(ranks));
  if (needed_rows.empty()) return away;
  const std::vector<Index> start =
      downloaded(lane, t.view().start.slice(own, Index(needed_rows.size()) + 1));
  const Index from = start.front(), count = start.back() - from;
  const auto column = downloaded(lane, t.view().column.slice(from, count));
  const auto value = downloaded(lane, t.view().value.slice(from, count));
  for (std::size_t k = 0; k < needed_rows.size(); ++k) {
    std::vector<SentEntry>& to = away[at(owner_of(first_row, needed_rows[k]))];
    for (auto e = at(start[k] - from); e < at(start[k + 1] - from); ++e)
      to.push_back({needed_rows[k], number(column[e]), value[e]});
  }
  return away;
}

/// Rows that other ranks sent parts of, local numbers; columns ascend.
struct Received {
  std::vector<Index> start{0}, row;
  std::vector<std::int32_t> column;
  std::vector<double> value;
};
/// `parts`: of each rank, whose rows ascend. Adds in the order of the ranks.
Received received_rows(const std::vector<std::vector<SentEntry>>& parts,
                       const ColumnNumbers& number, const std::vector<Index>& needed, Index begin) {
  Received got;
  for (const auto& part : parts)
    for (const SentEntry& e : part)
      if (got.row.empty() || got.row.back() != e.row) got.row.push_back(e.row);
  got.row = distinct(std::move(got.row));
  const auto each = [&](const auto& f) {
    for (const auto& part : parts) {
      std::size_t k = 0;
      for (const SentEntry& e : part) {
        while (got.row[k] != e.row) ++k;
        f(k, e);
      }
    }
  };
  std::vector<Index> start(got.row.size() + 1, 0);
  each([&](std::size_t k, const SentEntry&) { ++start[k + 1]; });
  for (std::size_t k = 0; k < got.row.size(); ++k) start[k + 1] += start[k];
  std::vector<std::pair<std::int32_t, double>> all(at(start.back()));
  std::vector<Index> next = start;
  each([&](std::size_t k, const SentEntry& e) {
    all[at(next[k]++)] = {local(number, needed, e.column), e.value};
  });
  for (std::size_t k = 0; k < got.row.size(); ++k) {
    const auto from = all.begin() + start[k], to = all.begin() + start[k + 1];
    std::stable_sort(from, to, [](const auto& x, const auto& y) { return x.first < y.first; });
    for (auto e = from; e != to; ++e) {
      if (e != from && e->first == (e - 1)->first) {
        got.value.back() += e->second;
        continue;
      }
      got.column.push_back(e->first);
      got.value.push_back(e->second);
    }
    got.start.push_back(Index(got.column.size()));
    got.row[k] -= begin;
  }
  return got;
}

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
CsrPart<B> take_inner(const Stream<B>& lane, RowsThere<B>& a, Index own, Index left, bool scattered,
                      Scratch<B>& scratch, CsrPart<B>& outer) {
  if (a.needed.empty()) return part_of(lane, std::move(a.rows), scattered, scratch);
  PartedRows<B> parts = part_rows<B>(lane, a.rows.view(), own, left, scratch);
  outer = part_of(lane, std::move(parts.outer), scattered, scratch);
  outer.row = std::move(parts.row);
  return part_of(lane, std::move(parts.inner), scattered, scratch);
}

template <class B>
void drop_unused(const Stream<B>& lane, RowsThere<B>& a, Index own) {
  if (a.needed.empty()) return;
  const Buffer<std::int32_t, B> used{Index(a.needed.size())};
  fill_zero(lane, used.view());
  mark_columns<B>(lane, a.rows.column, own, used.view());
  const std::vector<std::int32_t> marks = downloaded(lane, used.view());
  std::vector<Index> kept;
  for (std::size_t k = 0; k < marks.size(); ++k)
    if (marks[k] != 0) kept.push_back(a.needed[k]);
  if (kept.size() == a.needed.size()) return;
  renumber(lane, a.rows.column.view(), own, places_in(kept, a.needed));
  a.needed = std::move(kept);
  a.rows.columns = own + Index(a.needed.size());
}

template <class B>
AskedRows<B>::AskedRows(const Context<B>& context, const std::vector<Index>& first,
                        const std::vector<Index>& needed) {
  if (context.size() == 1) return;
  const auto asked = asked_rows(context.control, first, needed);
  collectively(context.control, [&] {
    std::vector<Index> all;
    for (const std::vector<Index>& rows : asked) {
      count_.push_back(Index(rows.size()));
      all.insert(all.end(), rows.begin(), rows.end());
    }
    all_ = Index(all.size());
    listed_ = uploaded(context.ahead, all);
  });
}

template <class B>
template <class T>
std::vector<T> AskedRows<B>::values(const Context<B>& context, View<const T, B> own) const {
  if (context.size() == 1) return {};
  std::vector<std::vector<T>> parts(count_.size());
  collectively(context.control, [&] {
    const Buffer<T, B> taken{all_};
    gather(context.ahead, listed_, own, taken.view());
    const std::vector<T> all = downloaded(context.ahead, taken.view());
    auto from = all.begin();
    for (std::size_t r = 0; r < parts.size(); from += count_[r++])
      parts[r].assign(from, from + count_[r]);
  });
  parts = deal(context.control, std::move(parts));
  return collectively(context.control, [&] {
    std::vector<T> all;
    for (const std::vector<T>& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  });
}

template <class B>
RowsThere<B> AskedRows<B>::with_needed_rows(const Context<B>& context, const RowsThere<B>& p,
                                            Scratch<B>& scratch) const {
  const Stream<B>& lane = context.ahead;
  const ColumnNumbers number = columns_of(context.control, p.first, p.needed);
  // Of each row the number of its entries and their columns; and beside it their values.
  std::vector<std::vector<Index>> lines(count_.size());
  std::vector<std::vector<double>> values(count_.size());
  collectively(context.control, [&] {
    const SparseRows<B> taken = take_rows<B>(lane, p.rows.view(), listed_.view(), scratch);
    const auto start = downloaded(lane, taken.start.view());
    const auto column = downloaded(lane, taken.column.view());
    const auto value = downloaded(lane, taken.value.view());
    std::size_t k = 0;
    for (std::size_t r = 0; r < lines.size(); ++r)
      for (Index i = 0; i < count_[r]; ++i, ++k) {
        lines[r].push_back(start[k + 1] - start[k]);
        for (auto e = at(start[k]); e < at(start[k + 1]); ++e) {
          lines[r].push_back(number(column[e]));
          values[r].push_back(value[e]);
        }
      }
  });
  lines = deal(context.control, std::move(lines));
  values = deal(context.control, std::move(values));
  return collectively(context.control, [&] {
    const Index own = p.rows.rows(), entries = p.rows.nonzeros();
    std::vector<Index> start, global;
    std::vector<double> value;
    for (std::size_t r = 0; r < lines.size(); ++r) {
      for (auto k = lines[r].begin(); k != lines[r].end();) {
        const Index count = *k++;
        global.insert(global.end(), k, k + count);
        start.push_back(entries + Index(global.size()));
        k += count;
      }
      value.insert(value.end(), values[r].begin(), values[r].end());
    }
    RowsThere<B> all{p.first, with_more(number, global), {}};
    std::vector<std::int32_t> column;
    column.reserve(global.size());
    for (const Index c : global) column.push_back(local(number, all.needed, c));
    const Index rows = own + Index(start.size()), size = entries + Index(column.size());
    all.rows = {Buffer<Index, B>(rows + 1), Buffer<std::int32_t, B>(size), Buffer<double, B>(size),
                number.own + Index(all.needed.size())};
    copy(lane, all.rows.start.view().slice(0, own + 1), p.rows.view().start);
    copy(lane, all.rows.column.view().slice(0, entries), p.rows.view().column);
    copy(lane, all.rows.value.view().slice(0, entries), p.rows.view().value);
    lane.synchronize();
    if (!p.needed.empty())
      renumber(lane, all.rows.column.view().slice(0, entries), number.own,
               places_in(all.needed, p.needed));
    upload(lane, all.rows.start.view().slice(own + 1, Index(start.size())), start.data());
    upload(lane, all.rows.column.view().slice(entries, Index(column.size())), column.data());
    upload(lane, all.rows.value.view().slice(entries, Index(value.size())), value.data());
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
  std::vector<std::vector<SentEntry>> away = collectively(control, [&] {
    return sent_away(lane, control.size(), first_row, needed_rows, own, t.rows, number);
  });
  away = deal(control, std::move(away));
  return collectively(control, [&] {
    std::vector<Index> columns;
    for (const auto& part : away)
      for (const SentEntry& e : part) columns.push_back(e.column);
    RowsThere<B> sum{t.first, with_more(number, std::move(columns)), {}};
    const Received got = received_rows(away, number, sum.needed, begin);
    const auto start = uploaded(lane, got.start), row = uploaded(lane, got.row);
    const auto column = uploaded(lane, got.column);
    const auto value = uploaded(lane, got.value);
    if (!old.empty()) renumber(lane, t.rows.column.view(), number.own, places_in(sum.needed, old));
    CsrRows<B> mine = t.rows.view();
    mine.start = mine.start.slice(0, own + 1);
    sum.rows = add_rows<B>(lane, mine, {start, column, value, row},
                           number.own + Index(sum.needed.size()), scratch);
    t.rows = {};
    drop_unused(lane, sum, number.own);
    return sum;
  });
}

template <class B>
RowsThere<B> CsrOperator<B>::rows_there(const Context<B>& context) const {
  const Stream<B>& lane = context.ahead;
  return collectively(context.control, [&] {
    CsrRows<B> outer = outer_.view();
    std::vector<std::int32_t> column = downloaded(lane, outer.column);
    for (std::int32_t& c : column) c += std::int32_t(halo_.left() + (c < 0 ? rows_.count : 0));
    const Buffer<std::int32_t, B> renumbered = uploaded(lane, column);
    outer.column = renumbered;
    Scratch<B> scratch;
    return RowsThere<B>{
        first_, needed_,
        add_rows<B>(lane, inner_.view(), outer, rows_.count + Index(needed_.size()), scratch)};
  });
}

template <class B>
CsrOperator<B>::CsrOperator(const Context<B>& context, RowsThere<B>& a, bool scattered,
                            Scratch<B>& scratch)
    : first_(a.first),
      rows_{a.first[at(context.rank())], a.rows.rows()},
      nonzeros_(context.control.reduce(a.rows.nonzeros(), Reduce::sum)),
      needed_(a.needed) {
  if (context.size() > 1) halo_ = Halo<B>(context.control, context.ahead, first_, needed_);
  collectively(context.control, [&] {
    inner_ = take_inner(context.ahead, a, rows_.count, halo_.left(), scattered, scratch, outer_);
  });
}

#define TERRACE_INSTANTIATE(B)                                                                     \
  template RowsThere<B> uploaded_rows(const Stream<B>&, RankRows&&);                               \
  template CsrPart<B> take_inner(const Stream<B>&, RowsThere<B>&, Index, Index, bool, Scratch<B>&, \
                                 CsrPart<B>&);                                                     \
  template void drop_unused(const Stream<B>&, RowsThere<B>&, Index);                               \
  template class AskedRows<B>;                                                                     \
  template std::vector<double> AskedRows<B>::values(const Context<B>&, View<const double, B>)      \
      const;                                                                                       \
  template std::vector<std::int32_t> AskedRows<B>::values(const Context<B>&,                       \
                                                          View<const std::int32_t, B>) const;      \
  template RowsThere<B> gathered(const Context<B>&, const std::vector<Index>&,                     \
                                 const std::vector<Index>&, RowsThere<B>&&, Scratch<B>&);          \
  template RowsThere<B> CsrOperator<B>::rows_there(const Context<B>&) const;                       \
  template CsrOperator<B>::CsrOperator(const Context<B>&, RowsThere<B>&, bool, Scratch<B>&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::cg
