// 2 rows columns depth flops on 16 rows columns bytes of A, depth / 8 flop a byte: bound by the
// multiply-add units; 93 % of their peak at a depth of 144 (AVX2, Zen 3), where OpenBLAS, which
// packs both operands for every call, reaches 85 %. A sliver of Y stays in the first cache, slivers
// of N come from the second, 4 x 12 or 8 x 24 entries of A are sums in registers.
#include "kernels/dense/cpu/product.hpp"

#include <algorithm>
#include <cstring>

namespace terrace::dense {
namespace {

/// c (L x V L, rows of ld) -= n y; n: L entries for every k, y: rows of ldy.
template <int L, int V>
TERRACE_INLINE void tile(Index depth, const double* n, const double* y, Index ldy, double* c,
                         Index ld) {
  using Reals = typename Lanes<L>::Reals;
  Reals sum[L][V];
#pragma GCC unroll 8
  for (int r = 0; r < L; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < V; ++v) sum[r][v] = Reals{};
    for (int v = 0; v < V * L; v += 8) __builtin_prefetch(c + r * ld + v, 1);
    __builtin_prefetch(c + r * ld + V * L - 1, 1);
  }
#pragma GCC unroll 4
  for (Index k = 0; k < depth; ++k) {
    Reals row[V];
#pragma GCC unroll 3
    for (int v = 0; v < V; ++v) row[v] = *reinterpret_cast<const Reals*>(y + k * ldy + v * L);
#pragma GCC unroll 8
    for (int r = 0; r < L; ++r) {
#pragma GCC unroll 3
      for (int v = 0; v < V; ++v) sum[r][v] += n[k * L + r] * row[v];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < L; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < V; ++v) *reinterpret_cast<Reals*>(c + r * ld + v * L) -= sum[r][v];
  }
}

/// One column of c.
template <int L>
TERRACE_INLINE void tile_column(Index depth, const double* n, const double* y, Index ldy, double* c,
                                Index ld) {
  using Reals = typename Lanes<L>::Reals;
  Reals sum = {};
  for (Index k = 0; k < depth; ++k) sum += *reinterpret_cast<const Reals*>(n + k * L) * y[k * ldy];
  for (int r = 0; r < L; ++r) c[r * ld] -= sum[r];
}

/// `columns` <= 3 L columns of c.
template <int L>
TERRACE_INLINE void tile_columns(Index columns, Index depth, const double* n, const double* y,
                                 Index ldy, double* c, Index ld) {
  if (columns == 3 * L) return tile<L, 3>(depth, n, y, ldy, c, ld);
  Index j = 0;
  for (; j + L <= columns; j += L) tile<L, 1>(depth, n, y + j, ldy, c + j, ld);
  for (; j < columns; ++j) tile_column<L>(depth, n, y + j, ldy, c + j, ld);
}

/// First row of Y that is not zero in columns [from, to).
TERRACE_INLINE Index first_row(const PackedRows& y, Index from, Index to) {
  return from >= y.unit && to <= y.unit_end ? from - y.unit : 0;
}

template <int L>
TERRACE_INLINE void product_body(const Product& p) {
  constexpr Index W = 3 * L;
  double edge[L * W];
  for (Index first = p.c0 / W * W; first < p.c1; first += W) {
    const Index width = std::min(W, p.y.length - first);
    const Index from = std::max(p.c0, first), to = std::min(p.c1, first + width);
    const Index k0 = first_row(p.y, from, to), depth = p.y.depth - k0;
    const double* const y = p.y.y + first * p.y.depth + k0 * width + from - first;
    for (Index i = p.row; i < p.row_end; i += L) {
      const double* const n = p.n.x + i / L * p.n.stride + k0 * L;
      double* const a = p.a + i * p.ld + from;
      if (i + L <= p.row_end) {
        tile_columns<L>(to - from, depth, n, y, width, a, p.ld);
        continue;
      }
      const Index rows = p.row_end - i;
      const std::size_t bytes = std::size_t(to - from) * sizeof(double);
      std::memset(edge, 0, sizeof edge);
      for (Index r = 0; r < rows; ++r) std::memcpy(edge + r * W, a + r * p.ld, bytes);
      tile_columns<L>(to - from, depth, n, y, width, edge, W);
      for (Index r = 0; r < rows; ++r) std::memcpy(a + r * p.ld, edge + r * W, bytes);
    }
  }
}

/// y[t, :] -= L[t, from ... t) y, rows of `width`.
TERRACE_INLINE void solve_row(const double* l, Index ld, Index t, Index from, double* y,
                              Index width) {
  double* const out = y + t * width;
  for (Index k = from; k < t; ++k) {
    const double factor = l[t * ld + k];
    const double* const in = y + k * width;
    for (Index c = 0; c < width; ++c) out[c] -= factor * in[c];
  }
}

template <int L>
TERRACE_INLINE void lower_body(const LowerSolve& p) {
  constexpr Index W = 3 * L;
  for (Index q = p.begin; q < p.end; ++q) {
    const Index first = q * W, width = std::min(W, p.y.length - first), depth = p.y.depth;
    double* const y = p.y.y + first * depth;
    for (Index t = 0; t < depth; ++t)
      std::memcpy(y + t * width, p.p + t * p.y.length + first, std::size_t(width) * sizeof(double));
    for (Index c = std::max(first, p.y.unit); c < std::min(first + width, p.y.unit_end); ++c)
      for (Index t = 0; t < depth; ++t) y[t * width + c - first] = t == c - p.y.unit ? 1.0 : 0.0;
    const Index k0 = first_row(p.y, first, first + width);
    const double* packed = p.packed;
    for (Index t = 0; t < depth; packed += t * L, t += L) {
      const bool whole = t + L <= depth;
      const Index done = whole ? t : k0;
      if (whole && t > k0)  // the same order for any width: no column's bits depend on others
        tile_columns<L>(width, t - k0, packed + k0 * L, y + k0 * width, width, y + t * width,
                        width);
      for (Index r = t; r < std::min(t + L, depth); ++r)
        solve_row(p.l, p.ld, r, std::max(done, k0), y, width);
    }
  }
}

}  // namespace

TERRACE_LANES(subtract_product, product_body, Product)
TERRACE_LANES(solve_lower_slivers, lower_body, LowerSolve)

void pack_lower(const double* l, Index ld, Index depth, double* packed) {
  const Index width = lanes();
  for (Index t = 0; t + width <= depth; t += width)
    for (Index k = 0; k < t; ++k)
      for (Index r = 0; r < width; ++r) *packed++ = l[(t + r) * ld + k];
}

}  // namespace terrace::dense
