#include "src/band/mixed_ends.hpp"

#include <algorithm>

#include "kernels/base/matrix.hpp"

namespace terrace::band {
namespace {

constexpr Index kBytes = sizeof(double);

/// Of a rank: the end's rows and S.
template <class B>
BandShape shape_of(const BandPlan& plan, int rank) {
  const Range own = plan.parts_of(rank);
  BandShape s = plan.shape;
  s.n = own.count == 0      ? 0
        : plan.parts() == 1 ? plan.shape.n
                            : plan.tiles(own.first) * s.width + plan.separator;
  return s;
}
/// Columns at a time: the norms are two.
Index columns_of(Index nrhs) { return std::clamp<Index>(nrhs, 2, kMixedGroup); }
template <class B>
Index separator_scratch(const BandPlan& plan, Index nrhs) {
  const BandPart<B> reduced = reduced_part<B>(plan);
  return plan.parts() > 1
             ? band_substitute_scratch(B{}, plan.reduced, {&reduced, 1}, columns_of(nrhs))
             : 0;
}

/// `bytes` bytes from one rank to another one.
template <class B>
void pass(Context<B>& c, int from, int to, const double* out, double* in, Index bytes) {
  const Piece send{to, const_cast<double*>(out), bytes}, receive{from, in, bytes};
  c.comm.exchange(c.ahead, {&send, c.rank() == from ? 1u : 0u},
                  {&receive, c.rank() == to ? 1u : 0u});
}

/// S in the tile columns.
template <class B>
View<double, B> window(const MixedEnds<B>& e) {
  const BandPart<B>& part = e.parts.parts[0];
  return {part.band + part.tiles * e.shape.tile(), e.separator() / e.shape.width * e.shape.tile()};
}

}  // namespace

template <class B>
MixedEndsMemory mixed_ends_memory(const BandPlan& plan, Index nrhs) {
  MixedEndsMemory m;
  m.parts = band_parts_memory<B>(plan, nrhs);
  for (int rank = 0; rank < std::min(plan.ranks, 2); ++rank) {
    const MixedMemory now = band_mixed_memory<B>(shape_of<B>(plan, rank), nrhs);
    if (now.total() > m.mixed.total()) m.mixed = now;
    m.rows = std::max(m.rows, shape_of<B>(plan, rank).padded() * kBytes);
  }
  if (plan.parts() < 2) return m;
  const Index s = plan.separator, group = columns_of(nrhs);
  m.separator = (s * plan.shape.column() + 3 * s * s + 2 * s * group +
                 plan.reduced.padded() * group + separator_scratch<B>(plan, nrhs)) *
                kBytes;
  return m;
}

template <class B>
MixedEnds<B> mixed_ends(Context<B>& context, const BandPlan& plan, Index nrhs) {
  MixedEnds<B> e;
  e.plan = plan;
  e.shape = shape_of<B>(plan, context.rank());
  e.parts = band_parts<B>(context, plan);
  if (plan.parts() < 2 || !e.here()) return e;
  const Index s = plan.separator, group = columns_of(nrhs);
  if (e.reversed()) e.own = Buffer<double, B>(s * plan.shape.column());
  for (Buffer<double, B>* square : {&e.tail, &e.turned, &e.t}) *square = Buffer<double, B>(s * s);
  for (Buffer<double, B>* rows : {&e.left, &e.solved}) *rows = Buffer<double, B>(s * group);
  if (context.rank() == 0) {
    e.reduced = Buffer<double, B>(plan.reduced.padded() * group);
    e.scratch = Buffer<Word, B>(separator_scratch<B>(plan, nrhs));
  }
  return e;
}

template <class B>
void load_mixed_ends(Context<B>& c, const BandProblem<B>& problem, MixedEnds<B>& e) {
  load_parts(c, problem, e.parts);
  if (e.plan.parts() < 2) return;
  // A_SS by way of the window of rank 1.
  const Index s = e.plan.separator, ld = e.plan.shape.column();
  const Index bytes = s * ld * kBytes;
  double* const here = e.here() ? window(e).data : nullptr;
  pass(c, 0, 1, here, here, bytes);
  if (!e.reversed()) return c.ahead.synchronize();
  fill_zero(c.ahead, e.own.view());
  band_reverse(c.ahead, s, 0, s, std::min(ld, s), here, ld, e.own.data(), ld);
  complete(c.ahead, e, false);
  c.ahead.synchronize();
}

template <class B>
void complete(const Stream<B>& lane, const MixedEnds<B>& e, bool whole) {
  if (!e.reversed()) return;
  if (whole)
    copy<double, B>(lane, window(e), View<const double, B>(e.own.view()));
  else
    fill_zero(lane, window(e));
  const std::vector<double> diagonal(std::size_t(e.padding()), whole ? 1.0 : 0.0);
  if (e.padding() > 0)
    copy_rows<double, B>(lane, e.parts.parts[0].band, e.shape.column(), diagonal.data(), 1, 1,
                         e.padding());
  lane.synchronize();
}

namespace {

/// Rank 0: record(0, 0) := T_0 + T_1 - A_SS - shift diag(A_SS), its lower part; record(0, 1) has T_1.
template <class B>
void assemble_separator(const Stream<B>& lane, const MixedEnds<B>& e, double shift) {
  const BandParts<B>& a = e.parts;
  const BandShape &s = e.shape, &r = e.plan.reduced;
  const Index side = e.plan.separator;
  const View<double, B> sum = a.record(0, 0), other = a.record(1, 1), part = a.record(0, 2);
  // There and back: lower parts alone.
  fill_zero(lane, sum);
  fill_zero(lane, part);
  band_reverse(lane, side, 0, side, side, e.t.data(), side + 1, part.data, side + 1);
  band_reverse(lane, side, 0, side, side, part.data, side + 1, sum.data, side + 1);
  add<B>(lane, 1.0, sum, 1.0, other, sum);
  fill_zero(lane, part);
  copy_rows<double, B>(lane, part.data, side + 1, window(e).data, s.column(),
                       std::min(s.column(), side), side);
  add<B>(lane, 1.0, sum, -1.0, part, sum);
  // The shift, on diagonals that lie apart: compact, added, and back.
  const View<double, B> one = other.slice(0, side), two = other.slice(side, side);
  copy_rows<double, B>(lane, one.data, 1, sum.data, side + 1, 1, side);
  copy_rows<double, B>(lane, two.data, 1, part.data, side + 1, 1, side);
  add<B>(lane, 1.0, one, -shift, two, one);
  copy_rows<double, B>(lane, sum.data, side + 1, one.data, 1, 1, side);
  fill_zero(lane, View<double, B>{a.reduced.band, r.tiles() * r.tile()});
  detail::unit_diagonal(lane, r, a.reduced.band + r.n * r.column(), r.padded() - r.n);
  copy_rows<double, B>(lane, a.reduced.band, r.column(), sum.data, side + 1, side, side);
}

}  // namespace

template <class B>
bool form_separator(Context<B>& c, MixedEnds<B>& e, std::type_identity_t<View<const Word, B>> low,
                    std::type_identity_t<View<const double, B>> scale, double shift) {
  const Stream<B>& lane = c.ahead;
  const BandPlan& plan = e.plan;
  if (plan.parts() < 2) return true;
  const Index s = plan.separator;
  const BandParts<B>& a = e.parts;
  if (e.here()) {
    band_low_tail(lane, e.shape, low, scale, e.interior() / e.shape.width, e.tail);
    transpose<B>(lane, s, s, e.tail.view(), s, e.turned.view(), s);
    multiply<B>(lane, s, s, s, 1.0, e.tail.view(), s, e.turned.view(), s, 0.0, e.t.view(), s);
  }
  if (e.reversed()) {
    fill_zero(lane, a.record(1, 1));
    band_reverse(lane, s, 0, s, s, e.t.data(), s + 1, a.record(1, 1).data, s + 1);
  }
  double* const record = e.here() ? a.record(1, 1).data : nullptr;
  pass(c, 1, 0, record, record, a.block() * kBytes);
  Index status = 0;
  if (c.rank() == 0) {
    assemble_separator(lane, e, shift);
    const View<Index, B> found = a.status.view().slice(0, 1);
    fill_zero(lane, found);
    band_factor_parts(lane, plan.reduced, {&a.reduced, 1}, found, a.scratch);
    download(lane, &status, found);
  }
  lane.synchronize();
  return c.control.reduce(status, Reduce::max) == 0;
}

template <class B>
void add_separator(Context<B>& c, const MixedEnds<B>& e, Index nrhs,
                   std::type_identity_t<View<double, B>> y) {
  if (e.plan.parts() < 2) return;
  const Stream<B>& lane = c.ahead;
  const Index size = e.separator() * nrhs;
  const View<double, B> rows = e.here() ? y.slice(e.interior() * nrhs, size) : View<double, B>{};
  const View<double, B> other = e.here() ? e.solved.view().slice(0, size) : View<double, B>{};
  if (e.reversed()) detail::turn_rows(lane, e.separator(), nrhs, rows.data, other.data);
  pass(c, 1, 0, other.data, other.data, size * kBytes);
  if (e.reversed()) return fill_zero(lane, rows);
  if (e.here()) add<B>(lane, 1.0, rows, 1.0, other, rows);
}

namespace {

/// x_S on both ends, in their order, in e.solved, from what they leave to S in e.left.
template <class B>
void solve_separator(Context<B>& c, const MixedEnds<B>& e, Index nrhs) {
  const Stream<B>& lane = c.ahead;
  const BandPlan& plan = e.plan;
  const Index s = e.separator(), size = s * nrhs;
  const View<double, B> left = e.here() ? e.left.view().slice(0, size) : View<double, B>{};
  const View<double, B> solved = e.here() ? e.solved.view().slice(0, size) : View<double, B>{};
  if (e.reversed()) detail::turn_rows(lane, s, nrhs, left.data, solved.data);
  pass(c, 1, 0, solved.data, solved.data, size * kBytes);
  if (c.rank() == 0) {
    fill_zero(lane, e.reduced.view());
    add<B>(lane, 1.0, left, 1.0, solved, e.reduced.view().slice(0, size));
    const BandPartVectors<B> rows{e.reduced.data(), nullptr};
    band_forward_parts(lane, plan.reduced, {&e.parts.reduced, 1}, {&rows, 1}, nrhs, e.scratch);
    band_backward_parts(lane, plan.reduced, {&e.parts.reduced, 1}, {&rows, 1}, nrhs, e.scratch);
    copy<double, B>(lane, solved, e.reduced.view().slice(0, size));
  }
  // Rank 1 takes them into e.left and turns them from there.
  pass(c, 0, 1, solved.data, left.data, size * kBytes);
  if (e.reversed()) detail::turn_rows(lane, s, nrhs, left.data, solved.data);
}

}  // namespace

template <class B>
void solve_ends(Context<B>& c, const MixedEnds<B>& e, const BandMixed<B>& m, Index nrhs,
                std::type_identity_t<View<const double, B>> r,
                std::type_identity_t<View<double, B>> z) {
  const Stream<B>& lane = c.ahead;
  const BandShape& s = e.shape;
  const Index t = e.separator(), all = s.padded() * nrhs, size = t * nrhs;
  const auto solve = [&](View<const double, B> from) {
    band_low_solve(lane, s, m.low, m.scale, nrhs, from, z, m.low_scratch);
  };
  if (t == 0) {
    if (e.here()) solve(r);
    return;
  }
  const View<double, B> rows = e.here() ? z.slice(all - size, size) : View<double, B>{};
  const View<double, B> left = e.here() ? e.left.view().slice(0, size) : View<double, B>{};
  const View<double, B> solved = e.here() ? e.solved.view().slice(0, size) : View<double, B>{};
  const auto times_t = [&] {  // left := T_e rows
    multiply<B>(lane, t, nrhs, t, 1.0, e.t.view(), t, rows, nrhs, 0.0, left, nrhs);
  };
  if (e.here()) {
    copy<double, B>(lane, z.slice(0, all), r.slice(0, all));
    fill_zero(lane, rows);
    solve(z);
    times_t();
    if (!e.reversed()) add<B>(lane, 1.0, left, 1.0, r.slice(all - size, size), left);
  }
  solve_separator(c, e, nrhs);
  if (!e.here()) return;
  add<B>(lane, 1.0, solved, -1.0, rows, rows);
  times_t();
  copy<double, B>(lane, z.slice(0, all - size), r.slice(0, all - size));
  copy<double, B>(lane, rows, left);
  solve(z);
  copy<double, B>(lane, rows, solved);
}

#define TERRACE_INSTANTIATE(B)                                                           \
  template MixedEndsMemory mixed_ends_memory<B>(const BandPlan&, Index);                 \
  template MixedEnds<B> mixed_ends(Context<B>&, const BandPlan&, Index);                 \
  template void load_mixed_ends(Context<B>&, const BandProblem<B>&, MixedEnds<B>&);      \
  template void complete(const Stream<B>&, const MixedEnds<B>&, bool);                   \
  template bool form_separator(Context<B>&, MixedEnds<B>&, View<const Word, B>,          \
                               View<const double, B>, double);                           \
  template void add_separator(Context<B>&, const MixedEnds<B>&, Index, View<double, B>); \
  template void solve_ends(Context<B>&, const MixedEnds<B>&, const BandMixed<B>&, Index, \
                           View<const double, B>, View<double, B>);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::band
