#include "src/cg/csr_symmetry.hpp"

#include <algorithm>
#include <numeric>

#include "distrib/agree.hpp"
#include "src/cg/rows_there.hpp"

namespace terrace::cg {
namespace {

/// A row for each needed column, by own rows.
template <class B>
SparseRows<B> turned(const Stream<B>& lane, const Couplings<B>& a, Index own, Scratch<B>& scratch) {
  std::vector<std::int32_t> places(a.needed.size());
  std::iota(places.begin(), places.end(), 0);
  const Buffer<std::int32_t, B> to = uploaded(lane, places);
  const Buffer<std::int32_t, B> place(a.column.size);
  copy(lane, place.view(), a.column);
  renumber_columns<B>(lane, place.view(), own, to);
  SparseRows<B> t =
      transposed<B>(lane, {a.rows.start, place, a.rows.value, {}}, Index(a.needed.size()), scratch);
  const Buffer<std::int32_t, B> row(a.rows.row.size);
  locate<B>(lane, {}, {0, own}, a.rows.row, row.view());
  renumber_columns<B>(lane, t.column.view(), 0, row);
  lane.synchronize();
  return t;
}

}  // namespace

template <class B>
Index find_across(const Context<B>& context, const Couplings<B>& a, View<const double, B> diagonal,
                  Index best) {
  if (context.size() == 1) return best;
  const Stream<B>& lane = context.ahead;
  const ColumnNumbers number = columns_of(context.control, a.first, a.needed);
  const Index left = a.halo.left();
  Scratch<B> scratch;
  SparseRows<B> mine;
  Buffer<Index, B> column;          // of the whole matrix
  Buffer<double, B> all_diagonals;  // as the halo wants them
  collectively(context.control, [&] {
    mine = turned(lane, a, number.own, scratch);
    column = Buffer<Index, B>(a.column.size);
    const Buffer<Index, B> needed = uploaded(lane, a.needed);
    global_columns<B>(lane, a.column, {number.first, number.own}, needed, column.view());
    all_diagonals = Buffer<double, B>(left + number.own + a.halo.right());
    copy(lane, all_diagonals.view().slice(left, number.own), diagonal);
    lane.synchronize();
  });
  double* const diagonals = all_diagonals.data() + left;
  a.halo.exchange(context.comm, lane, diagonals);
  std::vector<Index> bounds;
  for (const Index end : a.first)
    bounds.push_back(std::lower_bound(a.needed.begin(), a.needed.end(), end) - a.needed.begin());
  const std::vector<Index> none;
  const ArrivedRows<B> got =
      exchanged(context, mine.view(), bounds, {number.own, number.first, none}, &a.needed, scratch);
  return collectively(context.control, [&] {
    const Buffer<Index, B> worst = uploaded<Index, B>(lane, {best});
    const Buffer<Index, B> first = uploaded(lane, a.first), begin = uploaded(lane, got.begin);
    find_outer_asymmetry(lane, a.rows, column.view(), number.first, a.first.back(), diagonals,
                         {first, begin, got.start, got.row, got.column, got.value}, worst.view());
    return downloaded(lane, View<const Index, B>(worst)).front();
  });
}

#define TERRACE_INSTANTIATE(B) \
  template Index find_across(const Context<B>&, const Couplings<B>&, View<const double, B>, Index);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::cg
