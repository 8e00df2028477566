// Dense matrix times vector on the CPU, bound by memory: 8 bytes an entry, read once. Symmetry of
// blocks, and the generated problems.
#include "kernels/cg/products.hpp"

#include <cblas.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "kernels/base/problems.hpp"
#include "kernels/cg/cpu/products.hpp"

namespace terrace::cg {
namespace {

TERRACE_VECTOR_CLONES
double absolute_dot(const double* a, const double* p, Index count) {
  double s[8] = {};
  Index j = 0;
  for (; j + 8 <= count; j += 8)
    for (int k = 0; k < 8; ++k) s[k] += std::fabs(a[j + k]) * p[j + k];
  for (; j < count; ++j) s[0] += std::fabs(a[j]) * p[j];
  return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

}  // namespace

// --- dense
// ----------------------------------------------------------------------------------------

void multiply(const Stream<Cpu>& stream, const DenseRows<Cpu>& m, Index first,
              View<const double, Cpu> p, View<double, Cpu> q, const SumTarget<Cpu>& sums,
              bool absolute, const double* skip) {
  stream.run([=] {
    if (skip && *skip != 0) return;
    sum_pieces(m.rows, piece_grain(m.rows, 16), sums, [&](Index from, Index to) {
      const double* a = m.a.data + from * m.ld;
      if (absolute) {
        for (Index i = from; i < to; ++i, a += m.ld) q.data[i] = absolute_dot(a, p.data, m.ld);
      } else {
        cblas_dgemv(CblasRowMajor, CblasNoTrans, int(to - from), int(m.ld), 1.0, a, int(m.ld),
                    p.data, 1, 0.0, q.data + from, 1);
      }
      return dots(p.data + first + from, q.data + from, to - from);
    });
  });
}

void multiply(const Stream<Cpu>& stream, Index rows,
              const std::function<void(const double*, double*)>& product, View<const double, Cpu> p,
              View<double, Cpu> q, const SumTarget<Cpu>& sums, const double* skip) {
  stream.run([=] {
    if (skip && *skip != 0) return;
    product(p.data, q.data);
    sum_pieces(rows, piece_grain(rows, 16), sums,
               [&](Index from, Index to) { return dots(p.data + from, q.data + from, to - from); });
  });
}

// --- symmetry and problems
// ------------------------------------------------------------------------

void find_asymmetry(const Stream<Cpu>& stream, const TransposedBlocks<Cpu>& t, Index n,
                    View<const double, Cpu> diagonal, View<Index, Cpu> worst) {
  stream.run([=] {
    constexpr Index tile = 64;
    const Index across = ceil_div(t.columns, tile), tiles = ceil_div(t.rows, tile) * across;
    const bool own = t.a == t.b;  // a diagonal block: half of the tiles is enough
    std::atomic<Index> best = worst.data[0];
    parallel_for(tiles, [&](Index k) {
      const Index i0 = k / across * tile, j0 = k % across * tile;
      if (own && j0 < i0) return;
      for (Index i = i0; i < std::min(i0 + tile, t.rows); ++i) {
        for (Index j = j0; j < std::min(j0 + tile, t.columns); ++j) {
          const Index gi = t.row + i, gj = t.column + j;
          const double scale =
              std::sqrt(std::fabs(diagonal.data[gi])) * std::sqrt(std::fabs(diagonal.data[gj]));
          if (symmetric_pair(t.a[i * t.lda + j], t.b[j * t.ldb + i], scale)) continue;
          const Index position = std::min(gi, gj) * n + std::max(gi, gj);
          Index seen = best;
          while (position < seen && !best.compare_exchange_weak(seen, position)) {
          }
        }
      }
    });
    worst.data[0] = best;
  });
}

void fill_dense_cg(const Stream<Cpu>& stream, Word seed, Index n, Index first, Index rows, Index ld,
                   View<double, Cpu> a, double diagonal) {
  stream.run([=] {
    const double scale = 1.0 / std::sqrt(double(n));
    parallel_for(rows, [&](Index i) {
      for (Index j = 0; j < n; ++j)
        a.data[i * ld + j] = dense_cg_entry(seed, scale, first + i, j, diagonal);
      std::fill(a.data + i * ld + n, a.data + (i + 1) * ld, 0.0);
    });
  });
}

void fill_band_spd(const Stream<Cpu>& stream, Word seed, Index n, Index r0, Index rows, Index m,
                   Index ld, View<double, Cpu> s) {
  stream.run([=] {
    const Index w = std::min(m, rows);
    parallel_for(m + 1, [&](Index d) {
      double* row = s.data + d * ld;
      std::fill(row, row + ld, 0.0);
      for (Index i = 0; i < std::min(d, rows); ++i)
        row[w + i - std::min(d, w)] = band_spd_entry(seed, n, m, r0 + i, r0 + i - d);
      for (Index j = 0; j < rows; ++j) row[w + j] = band_spd_entry(seed, n, m, r0 + j + d, r0 + j);
    });
  });
}

}  // namespace terrace::cg
