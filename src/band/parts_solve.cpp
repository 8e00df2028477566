// Substitution with a band matrix that is factored in parts.
#include <algorithm>
#include <utility>

#include "kernels/base/matrix.hpp"
#include "src/band/parts.hpp"
#include "src/frame/kept_input.hpp"

namespace terrace::band {
namespace {

constexpr Index kTurned = Index(1) << 20;  // numbers of rows that are turned over at a time

/// Rows of a part's vectors, its window's included.
template <class B>
Index rows_of(const BandPlan& plan, const BandPart<B>& part) {
  return part.ring * plan.shape.width;
}

/// Block `which` (S_p, S_{p-1}) of part p's record.
template <class B>
View<double, B> record(const BandParts<B>& a, const BandPartRows<B>& x, Index p, int which) {
  const Index size = a.plan.separator * x.nrhs, at = p - (a.own.first == 0 ? 0 : a.own.first);
  return x.records.view().slice((2 * at + which) * size, size);
}

template <class B>
double* window_rows(const BandParts<B>& a, const BandPartRows<B>& x, Index i) {
  return x.parts[std::size_t(i)].rows + a.parts[std::size_t(i)].tiles * a.plan.shape.width * x.nrhs;
}

}  // namespace

template <class B>
void prepare_solves(Context<B>& context, BandParts<B>& a) {
  const auto each = [&](const auto& take) {
    for (BandPart<B>& part : a.parts) take(a.plan.shape, part);
    if (a.reduced.tiles > 0) take(a.plan.reduced, a.reduced);
  };
  if (a.prepared.size() > 0) return;
  Index total = 0;
  each([&](const BandShape& s, BandPart<B>& part) {
    part.prepared = nullptr;
    total += band_prepared_doubles(B{}, s, part);
  });
  if (total == 0 || free_bytes(context) < 2 * total * Index(sizeof(double))) return;
  try {
    a.prepared = Buffer<double, B>(total);
  } catch (const Error&) {  // another process was faster
    return;
  }
  double* at = a.prepared.data();
  each([&](const BandShape& s, BandPart<B>& part) {
    part.prepared = std::exchange(at, at + band_prepared_doubles(B{}, s, part));
  });
  band_prepare(context.ahead, a.plan.shape, a.parts);
  if (a.reduced.tiles > 0) band_prepare(context.ahead, a.plan.reduced, {&a.reduced, 1});
}

template <class B>
BandPartRows<B> band_part_rows(const BandParts<B>& a, Index nrhs) {
  const BandPlan& plan = a.plan;
  BandPartRows<B> x;
  x.nrhs = nrhs;
  Index rows = 0, at = 0;
  for (const BandPart<B>& part : a.parts) rows += rows_of(plan, part);
  x.rows = Buffer<double, B>(rows * nrhs);
  x.records = Buffer<double, B>(
      a.block() > 0 ? a.records.size() / (3 * a.block()) * 2 * plan.separator * nrhs : 0);
  for (Index i = 0; i < a.own.count; ++i) {
    const BandPart<B>& part = a.parts[std::size_t(i)];
    x.parts.push_back({x.rows.data() + at * nrhs,
                       part.arrow > 0 ? record(a, x, a.own.first + i, 1).data : nullptr});
    at += rows_of(plan, part);
  }
  Index scratch = a.parts.empty() ? 0 : band_substitute_scratch(B{}, plan.shape, a.parts, nrhs);
  if (a.reduced.tiles > 0) {
    x.reduced = Buffer<double, B>(plan.reduced.padded() * nrhs);
    scratch = std::max(scratch, band_substitute_scratch(B{}, plan.reduced, {&a.reduced, 1}, nrhs));
  }
  x.scratch = Buffer<Word, B>(scratch);
  return x;
}

namespace {

/// piece(first, count, at, turned): rows first .. of the reversed part p lie at row `at` of its
/// vectors, in opposite order; `turned` has room for them on the host.
template <class Piece>
void each_turned(const BandPlan& plan, Index nrhs, Index p, Piece&& piece) {
  const Range rows = plan.rows(p);
  const Index most = std::min(rows.count, std::max<Index>(1, kTurned / nrhs));
  std::vector<double> turned(std::size_t(most * nrhs));
  for (Index first = rows.first; first < rows.end(); first += most) {
    const Index count = std::min(most, rows.end() - first);
    piece(first, count, plan.padding(p) + rows.end() - first - count, turned);
  }
}

}  // namespace

template <class B>
void set_rows(Context<B>& context, const BandParts<B>& a, BandPartRows<B>& x, const double* from,
              bool there) {
  const Stream<B>& lane = context.ahead;
  const BandPlan& plan = a.plan;
  if (x.nrhs == 0) return;
  fill_zero(lane, x.rows.view());
  fill_zero(lane, x.records.view());
  const Index top = plan.rows_of(context.rank()).first;
  std::vector<BlockCopy> copies;  // there
  for (Index i = 0; i < a.own.count; ++i) {
    const Index p = a.own.first + i;
    const Range rows = plan.rows(p);
    double* to = x.parts[std::size_t(i)].rows;
    const double* const own = from + (rows.first - top) * x.nrhs;
    if (there) {
      copies.push_back(plan.reversed(p) ? detail::in_opposite_order(rows.count, x.nrhs, own,
                                                                    to + plan.padding(p) * x.nrhs)
                                        : detail::in_order(rows.count, x.nrhs, own, to));
      continue;
    }
    if (!plan.reversed(p)) {
      upload(lane, View<double, B>{to, rows.count * x.nrhs}, own);
      continue;
    }
    each_turned(plan, x.nrhs, p, [&](Index first, Index count, Index at, auto& turned) {
      for (Index r = 0; r < count; ++r)
        std::copy_n(from + (first - top + r) * x.nrhs, x.nrhs,
                    turned.begin() + (count - 1 - r) * x.nrhs);
      upload(lane, View<double, B>{to + at * x.nrhs, count * x.nrhs}, turned.data());
      lane.synchronize();
    });
  }
  copy_blocks(lane, copies);
  if (!there) lane.synchronize();
}

template <class B>
void get_rows(Context<B>& context, const BandParts<B>& a, const BandPartRows<B>& x, double* to,
              bool there) {
  const Stream<B>& lane = context.ahead;
  const BandPlan& plan = a.plan;
  if (x.nrhs == 0) return;
  const Index top = plan.rows_of(context.rank()).first;
  std::vector<BlockCopy> copies;  // there
  for (Index i = 0; i < a.own.count; ++i) {
    const Index p = a.own.first + i;
    const Range rows = plan.rows(p);
    double* from = x.parts[std::size_t(i)].rows;
    double* const own = to + (rows.first - top) * x.nrhs;
    if (there) {
      copies.push_back(
          plan.reversed(p)
              ? detail::in_opposite_order(rows.count, x.nrhs, from + plan.padding(p) * x.nrhs, own)
              : detail::in_order(rows.count, x.nrhs, from, own));
      continue;
    }
    if (!plan.reversed(p)) {
      download(lane, own, View<double, B>{from, rows.count * x.nrhs});
      continue;
    }
    each_turned(plan, x.nrhs, p, [&](Index first, Index count, Index at, auto& turned) {
      download(lane, turned.data(), View<double, B>{from + at * x.nrhs, count * x.nrhs});
      lane.synchronize();
      for (Index r = 0; r < count; ++r)
        std::copy_n(turned.begin() + (count - 1 - r) * x.nrhs, x.nrhs,
                    to + (first - top + r) * x.nrhs);
    });
  }
  copy_blocks(lane, copies);
  lane.synchronize();
}

namespace {

/// The separators' rows: summed on rank 0, solved, and back to the parts.
template <class B>
void solve_separators(Context<B>& c, const BandParts<B>& a, BandPartRows<B>& x) {
  const Stream<B>& lane = c.ahead;
  const BandPlan& plan = a.plan;
  const Index nrhs = x.nrhs, side = plan.separator, size = side * nrhs;
  const auto windows = [&](bool back) {  // to their records, or from there
    std::vector<BlockCopy> copies;
    for (Index i = 0; i < a.own.count; ++i) {
      const Index p = a.own.first + i;
      const bool reversed = plan.reversed(p);
      double *from = window_rows(a, x, i), *to = record(a, x, p, reversed ? 1 : 0).data;
      if (back) std::swap(from, to);
      copies.push_back(reversed ? detail::in_opposite_order(side, nrhs, from, to)
                                : detail::in_order(side, nrhs, from, to));
    }
    copy_blocks(lane, copies);
  };
  windows(false);
  detail::exchange_records(c, plan, x.records, 2 * size, true);
  if (a.reduced.tiles > 0) {
    const BandPartVectors<B> rows{x.reduced.data(), nullptr};
    std::vector<BlockCopy> sums, solved;
    for (Index q = 0; q + 1 < plan.parts(); ++q) {
      double *const block = x.reduced.data() + q * size, *const own = record(a, x, q, 0).data,
                    *const next = record(a, x, q + 1, 1).data;
      sums.push_back(detail::in_order(side, nrhs, own, block));
      sums.back().plus = next;
      for (double* const to : {own, next})
        solved.push_back(detail::in_order(side, nrhs, block, to));
    }
    fill_zero(lane, x.reduced.view());
    copy_blocks(lane, sums);
    band_forward_parts(lane, plan.reduced, {&a.reduced, 1}, {&rows, 1}, nrhs, x.scratch);
    band_backward_parts(lane, plan.reduced, {&a.reduced, 1}, {&rows, 1}, nrhs, x.scratch);
    copy_blocks(lane, solved);
  }
  detail::exchange_records(c, plan, x.records, 2 * size, false);
  windows(true);
}

}  // namespace

template <class B>
void solve_parts(Context<B>& context, const BandParts<B>& a, BandPartRows<B>& x) {
  const Stream<B>& lane = context.ahead;
  const BandPlan& plan = a.plan;
  if (x.nrhs == 0 || plan.shape.n == 0) return;
  if (a.own.count > 0) band_forward_parts(lane, plan.shape, a.parts, x.parts, x.nrhs, x.scratch);
  if (plan.parts() > 1) solve_separators(context, a, x);
  if (a.own.count > 0) band_backward_parts(lane, plan.shape, a.parts, x.parts, x.nrhs, x.scratch);
  lane.synchronize();
}

#define TERRACE_INSTANTIATE(B)                                                                     \
  template void prepare_solves(Context<B>&, BandParts<B>&);                                        \
  template BandPartRows<B> band_part_rows(const BandParts<B>&, Index);                             \
  template void set_rows(Context<B>&, const BandParts<B>&, BandPartRows<B>&, const double*, bool); \
  template void get_rows(Context<B>&, const BandParts<B>&, const BandPartRows<B>&, double*, bool); \
  template void solve_parts(Context<B>&, const BandParts<B>&, BandPartRows<B>&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::band
