// Panels of Gauss-Jordan elimination: pivot search and elimination within b columns.
// Moves the panel (slots x b) once for every inner block of 16 columns and once a column within it,
// from the L2 cache: slots b^2 flops, about 5 ns a row and column; a few per cent of the
// elimination.
#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "kernels/cpu/dense_panel.hpp"
#include "kernels/parallel.hpp"

namespace terrace::dense {
namespace {

constexpr Index piece_rows = 2048;  // rows that one thread takes in a column step

bool better(const Best& a, const Best& b) {
  return a.key > b.key || (a.key == b.key && a.row < b.row);
}

/// Rows [from, to): l = x[j] / pivot, x[j0 ... j0 + 16) -= l p, x[j] = l; best of column `next`.
inline __attribute__((always_inline)) Best step_rows(const Strip& strip, Index from, Index to,
                                                     Index j0, Index j, Index next, double pivot,
                                                     const double* p) {
  Best best;
  for (Index s = from; s < to; ++s) {
    double* x = strip.x + s * strip.ld;
    const double l = x[j] / pivot;
    double* y = x + j0;
    for (Index c = 0; c < inner_width; ++c) y[c] -= l * p[c];
    x[j] = l;
    if (next < 0 || strip.column_of[s] >= 0) continue;
    const Best mine{pivot_key(x[next]), strip.id[s], s};
    if (better(mine, best)) best = mine;
  }
  return best;
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) Best step_avx512(const Strip& strip, Index from, Index to,
                                                    Index j0, Index j, Index next, double pivot,
                                                    const double* p) {
  return step_rows(strip, from, to, j0, j, next, pivot, p);
}
__attribute__((target("avx2,fma"))) Best step_avx2(const Strip& strip, Index from, Index to,
                                                   Index j0, Index j, Index next, double pivot,
                                                   const double* p) {
  return step_rows(strip, from, to, j0, j, next, pivot, p);
}
#endif
Best step_plain(const Strip& strip, Index from, Index to, Index j0, Index j, Index next,
                double pivot, const double* p) {
  return step_rows(strip, from, to, j0, j, next, pivot, p);
}

using Step = Best (*)(const Strip&, Index, Index, Index, Index, Index, double, const double*);
Step choose_step() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return step_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return step_avx2;
#endif
  return step_plain;
}

Best reduce_pieces(Index rows, const std::function<Best(Index, Index)>& piece) {
  std::vector<Best> found(std::max<Index>(1, ceil_div(rows, piece_rows)));
  parallel_ranges(rows, piece_rows,
                  [&](Index from, Index to) { found[from / piece_rows] = piece(from, to); });
  Best best;
  for (const Best& one : found)
    if (better(one, best)) best = one;
  return best;
}

}  // namespace

double pivot_key(double value) {
  const double size = std::fabs(value);
  return size < std::numeric_limits<double>::infinity() ? size
                                                        : std::numeric_limits<double>::infinity();
}

Best best_in_column(const Strip& strip, Index j) {
  return reduce_pieces(strip.rows, [&](Index from, Index to) {
    Best best;
    for (Index s = from; s < to; ++s) {
      if (strip.column_of[s] >= 0) continue;
      const Best mine{pivot_key(strip.x[s * strip.ld + j]), strip.id[s], s};
      if (better(mine, best)) best = mine;
    }
    return best;
  });
}

Best eliminate_in_strip(const Strip& strip, const Factors& factors, Index j) {
  static const Step step = choose_step();
  const Index width = strip.width, ld = factors.ld;
  const Index j0 = j / inner_width * inner_width, j1 = std::min(width, j0 + inner_width);
  const double* u = factors.lu + j * ld;
  double p[inner_width] = {};
  for (Index c = j + 1; c < j1; ++c) p[c - j0] = u[c];
  const Index next = j + 1 < j1 ? j + 1 : -1;
  const Best best = reduce_pieces(strip.rows, [&](Index from, Index to) {
    return step(strip, from, to, j0, j, next, u[j], p);
  });
  if (next >= 0 || j1 == width) return best;
  // Inner block done: U[j0:j1, j1:] = L^-1 (its rows), then all rows -= N[:, j0:j1] U[j0:j1, j1:].
  const int k = int(j1 - j0), rest = int(width - j1);
  double* const top = factors.lu + j0 * ld;
  cblas_dtrsm(CblasRowMajor, CblasLeft, CblasLower, CblasNoTrans, CblasUnit, k, rest, 1.0, top + j0,
              int(ld), top + j1, int(ld));
  parallel_ranges(strip.rows, strip.tile, [&](Index from, Index to) {
    double* const x = strip.x + from * strip.ld;
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, int(to - from), rest, k, -1.0, x + j0,
                int(strip.ld), top + j1, int(ld), 1.0, x + j1, int(strip.ld));
  });
  return best_in_column(strip, j1);
}

bool take_pivot(const Strip& strip, const Factors& factors, Index j, double key, Index row,
                const double* values) {
  if (factors.info[0] >= 0) return false;
  if (!(key > 0) || key == std::numeric_limits<double>::infinity()) {
    factors.info[0] = j;
    factors.info[1] = key > 0 ? 2 : 1;
    return false;
  }
  std::memcpy(factors.lu + j * factors.ld, values, std::size_t(strip.width) * sizeof(double));
  factors.pivots[j] = row;
  return true;
}

void factor_strip(const Strip& strip, const Factors& factors, Index first, bool skip) {
  Best best = best_in_column(strip, 0);
  for (Index j = 0; j < strip.width; ++j) {
    const double* const values = best.slot >= 0 ? strip.x + best.slot * strip.ld : nullptr;
    if (take_pivot(strip, factors, j, best.key, best.row, values)) {
      strip.column_of[best.slot] = first + j;
    } else if (skip) {
      if (factors.info[1] == 2) strip.column_of[best.slot] = first + j;  // not finite: let it show
      factors.info[0] = -1;
      std::fill_n(factors.lu + j * factors.ld, strip.width, 0.0);
      factors.lu[j * factors.ld + j] = 1;
    } else {
      return;
    }
    best = eliminate_in_strip(strip, factors, j);
  }
}

}  // namespace terrace::dense
