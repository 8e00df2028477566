// The CSR operator: rows dealt by nonzeros, columns of other ranks renumbered for the halo, symmetry
// checked on the backend and, of entries that couple two ranks, by sending them to the other one.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "distrib/agree.hpp"
#include "kernels/base/matrix.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/cg/joined_rows.hpp"
#include "kernels/cg/resident.hpp"
#include "src/cg/csr_symmetry.hpp"
#include "src/cg/operators.hpp"

namespace terrace::cg {

void CsrSlice::normalise() {
  std::vector<Index> count(std::size_t(rows()), 0);
  parallel_ranges(rows(), 1024, [&](Index from, Index to) {
    std::vector<Index> order;
    std::vector<Index> old_column;
    std::vector<double> old_value;
    for (Index i = from; i < to; ++i) {
      const Index begin = start[std::size_t(i)], size = start[std::size_t(i) + 1] - begin;
      Index* const c = column.data() + begin;
      double* const v = value.data() + begin;
      count[std::size_t(i)] = size;
      if (std::adjacent_find(c, c + size, std::greater_equal<>()) == c + size) continue;
      order.resize(std::size_t(size));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](Index x, Index y) { return c[x] < c[y]; });
      old_column.assign(c, c + size);
      old_value.assign(v, v + size);
      Index last = -1;
      for (Index k : order) {
        if (last >= 0 && c[last] == old_column[std::size_t(k)]) {
          v[last] += old_value[std::size_t(k)];
        } else {
          ++last;
          c[last] = old_column[std::size_t(k)];
          v[last] = old_value[std::size_t(k)];
        }
      }
      count[std::size_t(i)] = last + 1;
    }
  });
  Index to = 0;
  for (Index i = 0; i < rows(); ++i) {
    const Index from = start[std::size_t(i)], size = count[std::size_t(i)];
    if (from != to) {
      std::copy_n(column.data() + from, size, column.data() + to);
      std::copy_n(value.data() + from, size, value.data() + to);
    }
    start[std::size_t(i)] = to;
    to += size;
  }
  start.back() = to;
  column.resize(std::size_t(to));
  value.resize(std::size_t(to));
}

namespace {

/// The columns named; to[k] becomes the number of the k-th behind `own` ones.
template <class B>
std::vector<Index> number_needed(const Stream<B>& lane, const OuterRows<B>& outer, Range own,
                                 View<std::int32_t, B> to) {
  Scratch<B> scratch;
  const Buffer<Index, B> column(outer.column.size());
  const Index all = std::numeric_limits<Index>::max();
  global_columns<B>(lane, outer.column, {own.first, all}, {}, column.view());
  const NumberRange range{own.first, own.count};
  const DistinctNumbers<B> needed = distinct_numbers<B>(lane, {column}, range, scratch);
  if (own.count + needed.ascending.size() > std::numeric_limits<std::int32_t>::max())
    throw Error(Exit::resources,
                "more than 2^31 rows and halo entries on one rank; in the CSR matrix; use more "
                "ranks");
  locate<B>(lane, needed, range, column, to);
  return downloaded(lane, needed.ascending.view());
}

/// Entries in columns of other ranks: columns numbered from the own part of p.
template <class B>
CsrPart<B> place_outer(const Stream<B>& lane, OuterRows<B>&& outer, Index own, Index needed,
                       Index left, View<const std::int32_t, B> columns) {
  std::vector<std::int32_t> places;
  for (Index k = 0; k < needed; ++k)
    places.push_back(std::int32_t(k < left ? k - left : own + k - left));
  const Buffer<std::int32_t, B> to = uploaded(lane, places);
  CsrPart<B> part;
  part.start = std::move(outer.start);
  part.row = std::move(outer.row);
  part.column = std::move(outer.column);
  part.value = std::move(outer.value);
  part.entries = part.column.size();
  copy(lane, part.column.view(), columns);
  renumber_columns<B>(lane, part.column.view(), own, to);
  part.prepare(lane);
  lane.synchronize();
  return part;
}

/// A slice on the host, its rows sorted, as if it were read.
template <class B>
CsrLoad<B> load(const Context<B>& context, std::vector<Index> first, CsrSlice&& given) {
  CsrSlice a = std::move(given);
  collectively(context.control, [&] { a.normalise(); });
  CsrLoad<B> to(context, std::move(first), a.start);
  to.put_columns(context, 0, Index(a.column.size()), a.column.data());
  a.column = LargeVector<Index>();  // "= {}" would keep the memory
  to.put_values(context, 0, Index(a.value.size()), a.value.data());
  (void)to.faults(context);  // of columns that are too far
  return to;
}

template <class B>
CsrLoad<B> load(const Context<B>& context, const RankRows& a) {
  if (context.size() > 1) {
    CsrSlice slice = collectively(context.control, [&] { return a.slice(context.rank()); });
    return load<B>(context, a.first, std::move(slice));
  }
  CsrLoad<B> to(context, a.first, a.rows.start);
  to.put_numbered(context, a.rows.column.data());
  to.put_values(context, 0, a.rows.nonzeros(), a.rows.value.data());
  return to;
}

}  // namespace

template <class B>
CsrOperator<B>::CsrOperator(const Context<B>& context, std::vector<Index> first, CsrSlice&& slice)
    : CsrOperator(context, load<B>(context, std::move(first), std::move(slice))) {}

template <class B>
CsrOperator<B>::CsrOperator(const Context<B>& context, CsrLoad<B>&& from)
    : CsrOperator(context, std::move(from), false) {}

template <class B>
CsrOperator<B>::CsrOperator(const Context<B>& context, const RankRows& a)
    : CsrOperator(context, load<B>(context, a), true) {}

template <class B>
CsrOperator<B>::CsrOperator(const Context<B>& context, CsrLoad<B>&& from, bool judged)
    : first_(from.first()), rows_(from.rows()) {
  const Control& control = context.control;
  OuterRows<B> outer;
  Index worst = no_position;
  const Index entries = from.entries();
  collectively(control, [&] {
    if (!judged) worst = from.asymmetry(context);
    outer = from.take_outer(context);
    outer_columns_ = Buffer<std::int32_t, B>(outer.column.size());
    if (context.size() > 1)
      needed_ = number_needed(context.ahead, outer, rows_, outer_columns_.view());
  });
  nonzeros_ = control.reduce(entries, Reduce::sum);
  halo_ = Halo<B>(control, context.ahead, first_, needed_);
  collectively(control, [&] {
    inner_ = from.take(context);
    outer_ = place_outer<B>(context.ahead, std::move(outer), rows_.count, Index(needed_.size()),
                            halo_.left(), outer_columns_);
  });
  if (!judged) asymmetry_ = describe_pair(context, find_across(context, from.diagonal(), worst));
}

template <class B>
Index CsrOperator<B>::find_across(const Context<B>& context, View<const double, B> diagonal,
                                  Index best) const {
  return cg::find_across<B>(context, {first_, needed_, halo_, outer_.view(), outer_columns_},
                            diagonal, best);
}

template <class B>
OperatorMemory CsrOperator<B>::memory(Index n, Index nonzeros, int ranks, bool heads) {
  // A slice whose rows must be sorted stands on the host, 16 bytes an entry, while it goes up.
  const Index rows = ceil_div(n, ranks), entries = ceil_div(nonzeros, ranks);
  const Index split = 16, alone = ranks == 1 ? resident_csr_size(B{}, n, nonzeros).bytes() : 0;
  const Index stored = heads ? 16 : 12;
  return {split * entries + 40 * rows, stored * entries + entries / 10 + 24 * rows + alone};
}

template <class B>
Operand<B> CsrOperator<B>::operand(const Context<B>& context, Index columns) {
  if (columns > 1) halo_columns_ = halo_of_columns(context, first_, needed_, columns);
  return collectively(context.control, [&] {
    const Index origin = round_up(halo_.left(), 32);
    Operand<B> p{Buffer<double, B>((origin + rows_.count + halo_.right()) * columns), origin,
                 rows_.count, columns};
    fill_zero(context.ahead, p.memory.view());
    return p;
  });
}

template <class B>
void CsrOperator<B>::product(const Context<B>& context, bool heads, const Operand<B>& p,
                             View<double, B> q, View<double, B> sums, const SumSpace<B>& space,
                             const double* skip, bool absolute, const Meanwhile& meanwhile) const {
  double* const own = p.own().data;
  const auto product = [&](const Stream<B>& lane, const CsrPart<B>& part, bool add) {
    if (p.columns > 1)
      multiply_columns(lane, part.view(), own, q, sums_to(space, sums, add), p.columns, skip);
    else
      multiply(lane, heads ? part.heads() : part.view(), own, q, sums_to(space, sums, add),
               absolute, skip);
  };
  const Halo<B>& halo = p.columns > 1 ? halo_columns_ : halo_;
  if (context.size() == 1 || joined_) {
    if (meanwhile) meanwhile();
    halo.exchange(context.comm, context.ahead, own);
    return product(context.ahead, inner_, false);
  }
  context.bulk.wait(context.ahead.record());
  product(context.bulk, inner_, false);
  if (meanwhile) meanwhile();
  halo.exchange(context.comm, context.ahead, own);
  context.ahead.wait(context.bulk.record());
  if (outer_.view().rows() > 0) product(context.ahead, outer_, true);
}

template <class B>
void CsrOperator<B>::apply(const Context<B>& context, const Operand<B>& p, View<double, B> q,
                           View<double, B> sums, const SumSpace<B>& space, const double* skip,
                           bool absolute, const Meanwhile& meanwhile) const {
  product(context, false, p, q, sums, space, skip, absolute, meanwhile);
}
template <class B>
void CsrOperator<B>::apply_head(const Context<B>& context, const Operand<B>& p, View<double, B> q,
                                View<double, B> sums, const SumSpace<B>& space,
                                const double* skip) const {
  product(context, true, p, q, sums, space, skip, false, {});
}
template <class B>
void CsrOperator<B>::shorten_columns(const Context<B>& context, Index columns, bool general) {
  const bool small = context.size() == 1 && resident_csr_size(B{}, n(), entries()).shares > 0;
  if (small) return;
  // Room for vectors, and as much again for the caller; or for multigrid's set-up and levels.
  const Index room =
      (general ? 64 : 2) * inner_.entries + 256 * std::min<Index>(columns, 16) * rows_.count;
  collectively(context.control, [&] {  // by ranks that have them and ranks that have not
    if (!std::exchange(short_columns_sought_, true))
      inner_.shorter = short_columns(context.ahead, inner_.view(), room);
    if (columns > 4 && !std::exchange(strips_sought_, true))
      inner_.strips = csr_strips(context.ahead, inner_.view(), room);
  });
}
template <class B>
void CsrOperator<B>::keep_heads(const Context<B>& context) {
  normalise(context, *this);
  collectively(context.control, [&] {
    inner_.keep_heads(context.ahead);
    outer_.keep_heads(context.ahead);
  });
  context.ahead.synchronize();  // products of own columns run on context.bulk
}

template <class B>
void CsrOperator<B>::multiply_by(const Context<B>& context, int power) {
  multiply_by_power<B>(context, inner_.values(), power);
  multiply_by_power<B>(context, outer_.values(), power);
}
template <class B>
double CsrOperator<B>::largest(const Context<B>& context) const {
  double most = 0;
  for (const CsrPart<B>* part : {&inner_, &outer_})
    most = std::max(most, max_abs<B>(context.ahead, 1, part->entries, part->values(),
                                     std::max<Index>(1, part->entries)));
  return context.control.reduce(most, Reduce::max);
}

template <class B>
void CsrOperator<B>::take_diagonal(const Context<B>& context, View<double, B> to) const {
  find_diagonal(context.ahead, inner_.view(), to);
}

template <class B>
LocalRows CsrOperator<B>::own_rows(const Context<B>& context, Index block) const {
  const auto host = [&]<class T>(View<const T, B> from) {
    std::vector<T> to(std::size_t(from.size));
    download(context.ahead, to.data(), from);
    return to;
  };
  const CsrRows<B> all = inner_.view();
  const std::vector<Index> start = host(all.start);
  const std::vector<std::int32_t> column = host(all.column);
  const std::vector<double> value = host(all.value);
  context.ahead.synchronize();
  LocalRows local;
  for (Index i = 0; i < rows_.count; ++i) {
    const Index least = block > 0 ? i / block * block : 0;
    for (Index k = start[std::size_t(i)]; k < start[std::size_t(i) + 1]; ++k) {
      const Index j = column[std::size_t(k)];
      if (j < least || j > i) continue;
      local.column.push_back(j);
      local.value.push_back(value[std::size_t(k)]);
    }
    local.start.push_back(Index(local.column.size()));
  }
  return local;
}

RowCuts::RowCuts(int ranks, Index n, Index nonzeros)
    : nonzeros_(nonzeros), first_(std::size_t(ranks) + 1, n) {
  first_.front() = 0;
}

// Boundary r is the first row with at least r / ranks of the nonzeros before it.
void RowCuts::note(Index first, std::span<const Index> pointers) {
  const Index ranks = Index(first_.size()) - 1;
  for (Index r = 1; r < ranks; ++r) {
    const Index target = nonzeros_ / ranks * r + nonzeros_ % ranks * r / ranks;
    const auto at = std::lower_bound(pointers.begin(), pointers.end(), target);
    Index& mine = first_[std::size_t(r)];
    if (at != pointers.end()) mine = std::min(mine, first + (at - pointers.begin()));
  }
}

std::vector<Index> RowCuts::agreed(const Control& control) const {
  std::vector<Index> result = first_;
  control.reduce(result, Reduce::min);
  return result;
}

std::vector<Index> balanced_rows(const Control& control, Index n, Index nonzeros, Index first,
                                 std::span<const Index> pointers) {
  RowCuts cuts(control.size(), n, nonzeros);
  cuts.note(first, pointers);
  return cuts.agreed(control);
}

#define TERRACE_INSTANTIATE(B) template class CsrOperator<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::cg
