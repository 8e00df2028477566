#include "src/cg/multigrid.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "distrib/agree.hpp"
#include "kernels/base/clock.hpp"
#include "kernels/base/kept_memory.hpp"
#include "src/cg/coarse_rows.hpp"
#include "src/cg/rows_there.hpp"

namespace terrace::cg {
namespace {

/// The first row of all ranks whose diagonal is not positive, or has no inverse; -1: none.
Index bad_diagonal(const Control& control, const RankRows& a, const std::vector<double>& diagonal) {
  Index bad = a.first.back();
  for (Index i = 0; i < Index(diagonal.size()) && bad == a.first.back(); ++i)
    if (!(diagonal[at(i)] > 0 && std::isfinite(1 / diagonal[at(i)])))
      bad = a.first[at(control.rank())] + i;
  bad = control.reduce(bad, Reduce::min);
  return bad < a.first.back() ? bad : -1;
}

Range own_range(const Control& control, const RankRows& a) {
  return {a.first[at(control.rank())], a.rows.rows()};
}

}  // namespace

double MultigridNotes::operator_complexity() const {
  double sum = 0;
  for (const Level& level : levels) sum += double(level.nonzeros);
  return levels.empty() || levels.front().nonzeros == 0 ? 1 : sum / double(levels.front().nonzeros);
}

template <class B>
OperatorMemory Multigrid<B>::memory(Index rows, Index nonzeros, Index vectors, bool alone) {
  // Coarse matrices have up to 1.5 times A's nonzeros, P up to 5 a row and vector. On the host: A,
  // flags, A P. A device has scratch for strong entries or A P instead.
  const Index columns = std::max<Index>(1, vectors);
  // Levels that each rank has whole, while they are made.
  const Index few = std::min(Index(levels::whole_nonzeros<B>), 8 * nonzeros);
  const Index whole = std::max(few, Index(levels::whole_part<B> * double(nonzeros)));
  const Index kept =
      18 * nonzeros + 250 * columns * rows + 24 * default_coarsest * 256 + (alone ? 0 : 30 * whole);
  if (std::is_same_v<B, Cuda>) {
    const Index joined = alone ? 0 : 12 * nonzeros + 8 * rows;  // own and other columns together
    const Index host = vectors > 0 ? 16 * nonzeros + (80 + 120 * columns) * rows : 0;
    return {24 * default_coarsest * 256 + host, kept + 32 * nonzeros + 50 * rows + joined};
  }
  return {30 * nonzeros + (80 + 120 * columns) * rows, kept};
}

template <class B>
Multigrid<B>::Multigrid(const Context<B>& context, const Product& product, Operand<B>&& p,
                        const MatrixSource<B>& a, NodeVectors vectors, Index coarsest)
    : coarsest_(coarsest), vectors_(std::move(vectors)) {
  notes_.vectors = vectors_.columns;
  notes_.unknowns = vectors_.columns > 0 ? vectors_.unknowns : 0;
  collectively(context.control, [&] {
    sums_.emplace(context.ahead);
    ignored_ = Buffer<double, B>(2);
  });
  build(context, product, std::move(p), a);
}

template <class B>
void Multigrid<B>::update(const Context<B>& context, const Product& product, Operand<B>&& p,
                          const MatrixSource<B>& a) {
  MultigridNotes notes;
  notes.updates = notes_.updates + 1;
  notes.vectors = notes_.vectors;
  notes.unknowns = notes_.unknowns;
  notes_ = notes;
  levels_.clear();
  build(context, product, std::move(p), a);
}

template <class B>
void Multigrid<B>::build(const Context<B>& context, const Product& product, Operand<B>&& p,
                         const MatrixSource<B>& a) {
  const auto start = Clock::now();
  const Control& control = context.control;
  const KeepsMemory kept;  // from level to level
  RankRows rows;
  bool more = true;
  // Blocks of nodes are faster on CPUs than products by tables.
  const bool there = notes_.vectors == 0 || std::is_same_v<B, Cuda>;
  if (!a.matrix || !there || (notes_.vectors > 0 && patterns_.empty())) rows = a.host();
  if (there) {
    const bool alone = a.matrix && control.size() == 1;
    RowsThere<B> made;
    if (alone)
      made.first = {0, a.matrix->rows()};
    else if (a.matrix)
      made = a.there();
    else
      made = collectively(control, [&] { return uploaded_rows<B>(context.ahead, RankRows(rows)); });
    if (notes_.vectors == 0) rows = {};
    CsrRows<B> first = alone ? *a.matrix : made.rows.view();
    first.scattered = a.matrix && a.matrix->scattered;
    more = build_there(context, product, p, std::move(made), first, rows);
  }
  const auto host = Clock::now();
  if (more && is_whole(levels_.size())) {
    collectively_alone(control, [&] { build_on_host(alone_on(context), product, p, rows); });
  } else if (more) {
    whole_from_.reset();
    build_on_host(context, product, p, rows);
  }
  notes_.bytes = control.reduce(notes_.bytes, Reduce::sum);
  if (is_whole(levels_.size())) notes_.whole = Index(levels_.size() - *whole_from_);
  context.ahead.synchronize();
  note_time(notes_.there > 0 ? "last levels on the host" : "on the host", since(host));
  notes_.seconds = control.reduce(since(start), Reduce::max);
}

template <class B>
void Multigrid<B>::build_on_host(const Context<B>& context, const Product& product, Operand<B>& p,
                                 RankRows& rows) {
  const Control& control = context.control;
  Product multiply = product;
  for (bool more = true; more && !notes_.indefinite;) {
    const Index n = rows.first.back();
    notes_.levels.push_back({n, control.reduce(rows.rows.nonzeros(), Reduce::sum)});
    const std::vector<double> diagonal =
        collectively(control, [&] { return diagonal_of(rows.rows); });
    const Index bad = bad_diagonal(control, rows, diagonal);
    if (bad >= 0 && levels_.empty()) notes_.bad_row = bad;
    if (bad >= 0) notes_.indefinite = true;
    if (bad >= 0) break;
    levels_.push_back(std::make_unique<Level>());
    Level& level = *levels_.back();
    if (levels_.size() > 1) {
      level.a.emplace(context, rows);
      multiply = product_of(context, *level.a);
      p = level.a->operand(context);
      collectively(control, [&] { level.r = Buffer<double, B>(rows.rows.rows()); });
    }
    more = n > coarsest_;
    if (more)
      more = coarsen(context, multiply, std::exchange(p, {}), rows, diagonal);
    else if (n > 0)
      invert(context, rows);
    else
      levels_.pop_back();
  }
}

template <class B>
void Multigrid<B>::note_cycle(Index rows, Index nonzeros, bool last) {
  const Index products = last ? smoothing::last_degree : 2 * smoothing::degree + 2;
  if (levels_.size() == 1) notes_.products = products;
  notes_.bytes += double(rows) * (last ? 40.0 + 64.0 * double(products) : 328.0);
  if (levels_.size() > 1)
    notes_.bytes += double(products) * (12.0 * double(nonzeros) + 8.0 * double(rows));
}

template <class B>
void Multigrid<B>::note_time(const char* part, double seconds) {
  for (auto& [name, sum] : notes_.parts)
    if (name == part) return void(sum += seconds);
  notes_.parts.emplace_back(part, seconds);
}

template <class B>
RankRows Multigrid<B>::prolong(const Control& control, const RankRows& rows,
                               const std::vector<double>& diagonal) {
  const std::size_t l = levels_.size() - 1;
  const double threshold = std::ldexp(levels::strength, -int(l));
  const bool made = l < patterns_.size();
  if (!made) patterns_.emplace_back();
  Pattern& pattern = patterns_[l];
  if (notes_.vectors == 0)
    return prolongation_of(control, rows, diagonal, threshold, pattern.aggregates, pattern.smooth);
  NodeVectors& vectors = vectors_of(l);
  if (!made) {
    pattern.nodes = aggregate_nodes(control, rows, diagonal, threshold, vectors);
    vectors = {};
  }
  return pattern.nodes.prolongation;
}

template <class B>
bool Multigrid<B>::coarsen(const Context<B>& context, const Product& product, Operand<B>&& p,
                           RankRows& rows, const std::vector<double>& diagonal) {
  const Control& control = context.control;
  Level& level = *levels_.back();
  const Index n = rows.first.back(), own = rows.rows.rows();
  const double bound = control.reduce(gershgorin_bound(rows.rows, diagonal), Reduce::max);
  RankRows p_rows = prolong(control, rows, diagonal);
  Pattern& pattern = patterns_[levels_.size() - 1];
  const Index coarse = p_rows.first.back();
  const bool last = coarse == 0 || double(coarse) > levels::least_gain * double(n);
  const Buffer<double, B> there = collectively(control, [&] { return Buffer<double, B>(own); });
  upload(context.ahead, there.view(), diagonal.data());
  level.smoother = Chebyshev<B>(context, product, std::move(p), own_range(control, rows), there,
                                last ? smoothing::last_degree : smoothing::degree,
                                last ? 0 : smoothing::ratio, bound);
  notes_.indefinite = level.smoother.notes().indefinite;
  note_cycle(own, rows.rows.nonzeros(), last);
  if (last || notes_.indefinite) return false;
  if (notes_.vectors > 0 && pattern.smooth)
    p_rows = smoothed_nodes(control, rows, diagonal, p_rows,
                            levels::damping / level.smoother.notes().high);
  const bool alone = control.size() == 1;
  RankRows fetched = alone ? RankRows{} : with_needed_rows(control, rows, p_rows);
  HostRows turned = collectively(control, [&] { return transposed(p_rows.rows); });
  if (!std::exchange(pattern.chosen, true)) {
    double nonzeros = expected_nonzeros(control, rows, p_rows, turned, alone ? p_rows : fetched);
    for (const MultigridNotes::Level& above : notes_.levels) nonzeros += double(above.nonzeros);
    pattern.smooth = nonzeros <= levels::most_nonzeros * double(notes_.levels.front().nonzeros);
    if (!pattern.smooth) {
      p_rows = prolong(control, rows, diagonal);
      if (!alone) fetched = with_needed_rows(control, rows, p_rows);
      turned = collectively(control, [&] { return transposed(p_rows.rows); });
    }
  }
  notes_.bytes += 24.0 * double(p_rows.rows.nonzeros());
  level.prolongation = Transfer<B>(context, p_rows);
  level.correction = level.prolongation.operand(context);
  level.restriction = Transfer<B>(context, restriction_of(control, p_rows, turned, rows.first));
  if (level.restriction.crosses()) level.rest = level.restriction.operand(context);
  bool definite = true;
  rows = coarse_rows(control, rows, p_rows, turned, alone ? p_rows : fetched, diagonal, definite);
  notes_.indefinite = !definite;
  return true;
}

template <class B>
void Multigrid<B>::invert(const Context<B>& context, const RankRows& rows) {
  const Control& control = context.control;
  const Index n = rows.first.back();
  const Range own = own_range(control, rows);
  const CsrSlice a = collectively(control, [&] { return rows.slice(control.rank()); });
  std::vector<double> all(at(n * n), 0.0);
  for (Index i = 0; i < own.count; ++i)
    for (Index e = a.start[at(i)]; e < a.start[at(i) + 1]; ++e)
      all[at((own.first + i) * n + a.column[at(e)])] += a.value[at(e)];
  control.reduce(all, Reduce::sum);
  notes_.indefinite = !invert_definite(n, all);
  if (notes_.indefinite) return;
  CsrSlice inverse;
  for (Index i = own.first; i < own.end(); ++i) {
    for (Index j = 0; j < n; ++j) inverse.column.push_back(j);
    inverse.value.insert(inverse.value.end(), all.begin() + i * n, all.begin() + (i + 1) * n);
    inverse.start.push_back(Index(inverse.column.size()));
  }
  Level& level = *levels_.back();
  level.inverse.emplace(context, rows.first, std::move(inverse));
  level.p = level.inverse->operand(context);
  notes_.bytes += 12.0 * double(own.count) * double(n);
}

template <class B>
typename Multigrid<B>::Product Multigrid<B>::product_of(const Context<B>& context,
                                                        const CsrOperator<B>& a) const {
  return [this, &context, &a](const Operand<B>& p, View<double, B> q, const double* skip) {
    a.apply(context, p, q, ignored_.view(), *sums_, skip);
  };
}

template <class B>
void Multigrid<B>::cycle(const Context<B>& context, std::size_t l, const Product& product,
                         View<const double, B> r, View<double, B> z, const double* skip) const {
  const Level& level = *levels_[l];
  if (level.inverse) {
    copy(context.ahead, level.p.own(), r);
    return level.inverse->apply(context, level.p, z, ignored_.view(), *sums_, skip);
  }
  const Chebyshev<B>& smoother = level.smoother;
  if (l + 1 == levels_.size()) return smoother.apply(context, product, r, z, skip);
  smoother.smooth(context, product, r, z, skip);
  descend(context, l, smoother.residual(context, product, r, skip), skip);
  level.prolongation.apply(context, level.correction, smoother.correction(), ignored_.view(),
                           *sums_, skip);
  smoother.improve(context, product, z, skip);
}

template <class B>
void Multigrid<B>::descend(const Context<B>& context, std::size_t l, View<const double, B> rest,
                           const double* skip) const {
  const Level &level = *levels_[l], &next = *levels_[l + 1];
  const bool becomes_whole = is_whole(l + 1) && !is_whole(l);
  View<double, B> own = next.r.view();
  if (becomes_whole)
    own = own.slice(patterns_[l].first[at(context.rank())], level.restriction.rows());
  if (level.restriction.crosses()) {
    copy(context.ahead, level.rest.own(), rest);
    level.restriction.apply(context, level.rest, own, ignored_.view(), *sums_, skip);
  } else {
    level.restriction.apply(context, rest, own, ignored_.view(), *sums_, skip);
  }
  const auto go_on = [&](const Context<B>& on) {
    cycle(on, l + 1, product_of(on, *next.a), next.r, level.correction.own(), skip);
  };
  if (!becomes_whole) return go_on(context);
  gather_parts(context, patterns_[l].first, next.r.view().data);
  go_on(alone_on(context));
}

template <class B>
Context<B> Multigrid<B>::alone_on(const Context<B>& context) {
  static const Control control = Control::alone();
  static const Communicator<B> comm(control, true);
  return {control, comm, context.ahead, context.bulk, context.device};
}

template <class B>
RankRows rank_rows(const Context<B>& context, const CsrOperator<B>& a) {
  return collectively(context.control, [&] { return a.all_rows(context); });
}

template <class B>
RankRows rank_rows(const Context<B>& context, const BandOperator<B>& a) {
  const BandRows<B> band = a.matrix();
  const Index n = a.n(), m = band.half_bandwidth, w = band.lead(), rows = band.rows;
  const Index r0 = a.rows().first;
  std::vector<Index> first = context.control.gather_all(rows);
  for (Index sum = 0; Index & f : first) f = std::exchange(sum, sum + f);
  first.push_back(n);
  return collectively(context.control, [&] {
    std::vector<double> s(at((m + 1) * band.ld));
    download(context.ahead, s.data(), band.s.slice(0, (m + 1) * band.ld));
    context.ahead.synchronize();
    CsrSlice slice;
    const auto put = [&](Index j, double v) {
      slice.column.push_back(j);
      slice.value.push_back(v);
    };
    for (Index i = 0; i < rows; ++i) {
      for (Index d = std::min(m, r0 + i); d > 0; --d)
        if (const double v = s[at(d * band.ld + w + i - std::min(d, w))]; v != 0)
          put(r0 + i - d, v);
      for (Index d = 0; d <= std::min(m, n - 1 - r0 - i); ++d)
        if (const double v = s[at(d * band.ld + w + i)]; v != 0 || d == 0) put(r0 + i + d, v);
      slice.start.push_back(Index(slice.column.size()));
    }
    return numbered(std::move(first), context.rank(), slice);
  });
}

#define TERRACE_INSTANTIATE(B)                                           \
  template class Multigrid<B>;                                           \
  template RankRows rank_rows(const Context<B>&, const CsrOperator<B>&); \
  template RankRows rank_rows(const Context<B>&, const BandOperator<B>&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::cg
