#include "src/cg/rows_there.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "distrib/agree.hpp"
#include "distrib/deal.hpp"
#include "kernels/base/gather.hpp"
#include "kernels/base/parallel.hpp"
#include "src/cg/row_parcels.hpp"

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

/// Rows beyond the `own` first, to the owners of these rows. Collective.
template <class B>
std::vector<RowParcel> sent_away(const Context<B>& context, const std::vector<Index>& first_row,
                                 const std::vector<Index>& needed_rows, Index own,
                                 const SparseRows<B>& t, const ColumnNumbers& number) {
  std::vector<Index> start;
  std::vector<std::int32_t> column;
  std::vector<double> value;
  collectively(context.control, [&] {
    const CsrRows<B> rows = t.view();
    start = downloaded(context.ahead, rows.start.slice(own, Index(needed_rows.size()) + 1));
    const Index count = start.back() - start.front();
    column = downloaded(context.ahead, rows.column.slice(start.front(), count));
    value = downloaded(context.ahead, rows.value.slice(start.front(), count));
  });
  return sent_to_owners(context.control, first_row, needed_rows, start.data(), column.data(),
                        value.data(), number);
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
  std::vector<RowParcel> parcels(count_.size());
  collectively(context.control, [&] {
    const SparseRows<B> taken = take_rows<B>(lane, p.rows.view(), listed_.view(), scratch);
    const auto start = downloaded(lane, taken.start.view());
    const auto column = downloaded(lane, taken.column.view());
    const auto value = downloaded(lane, taken.value.view());
    Index from = 0;
    for (std::size_t r = 0; r < parcels.size(); from += count_[r++])
      parcels[r] = parcel_of(start.data(), from, count_[r], column.data(), value.data(), number);
  });
  parcels = exchanged(context.control, std::move(parcels));
  return collectively(context.control, [&] {
    const Index own = p.rows.rows(), entries = p.rows.nonzeros();
    const MoreColumns columns(number, parcels);
    std::vector<Index> start;
    LargeVector<std::int32_t> column;
    LargeVector<double> value;
    for (const RowParcel& rows : parcels) {
      const auto from = Index(column.size());
      for (Index i = 1; i <= rows.rows(); ++i) start.push_back(entries + from + rows.start()[i]);
      column.resize(column.size() + at(rows.entries()));
      value.resize(column.size());
      columns.locate(rows, column.data() + from);
      std::copy_n(rows.value(), rows.entries(), value.data() + from);
    }
    RowsThere<B> all{p.first, columns.needed(), {}};
    const Index rows = own + Index(start.size()), size = entries + Index(column.size());
    all.rows = {Buffer<Index, B>(rows + 1), Buffer<std::int32_t, B>(size), Buffer<double, B>(size),
                number.own + Index(all.needed.size())};
    copy(lane, all.rows.start.view().slice(0, own + 1), p.rows.view().start);
    copy(lane, all.rows.column.view().slice(0, entries), p.rows.view().column);
    copy(lane, all.rows.value.view().slice(0, entries), p.rows.view().value);
    lane.synchronize();
    if (!p.needed.empty())
      renumber(lane, all.rows.column.view().slice(0, entries), number.own, columns.places());
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
  const std::vector<RowParcel> parcels =
      sent_away(context, first_row, needed_rows, own, t.rows, number);
  return collectively(control, [&] {
    const MoreColumns more(number, parcels);
    const SummedRows got = summed(parcels, more, begin);
    RowsThere<B> sum{t.first, more.needed(), {}};
    const auto start = uploaded(lane, got.start), row = uploaded(lane, got.row);
    const auto column = uploaded(lane, got.column);
    const auto value = uploaded(lane, got.value);
    if (!old.empty()) renumber(lane, t.rows.column.view(), number.own, more.places());
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
