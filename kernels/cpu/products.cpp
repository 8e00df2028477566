// Matrix times vector on the CPU. Bound by memory: 8 bytes an entry of a dense or band matrix, 12 a
// nonzero of CSR, read once; each reaches most of the read rate of the host's memory.
#include "kernels/products.hpp"

#include <cblas.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "kernels/cpu/sums.hpp"
#include "kernels/problems.hpp"

namespace terrace {
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

Pair dots(const double* p, const double* q, Index count) {
  double a[2] = {}, b[2] = {};
  for (Index i = 0; i < count; ++i) {
    a[i & 1] += p[i] * q[i];
    b[i & 1] += p[i] * p[i];
  }
  return {a[0] + a[1], b[0] + b[1]};
}

}  // namespace

// --- dense
// ----------------------------------------------------------------------------------------

void multiply(const Stream<Cpu>& stream, const DenseRows<Cpu>& m, Index first,
              View<const double, Cpu> p, View<double, Cpu> q, const SumTarget<Cpu>& sums,
              bool absolute) {
  stream.run([=] {
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

// --- band
// ----------------------------------------------------------------------------------------- A tile
// of columns reads its part of the matrix once and uses each entry twice:
//   up[j] += a p[j + d]   (row j of the tile),   low[j + d] += a p[j]   (d rows further down).
// Rows below the tile collect in the tile's own scratch; a second pass adds up what each row got.
namespace {

constexpr Index strip = 1024;  // columns whose p, up and low stay in the first-level cache

Index band_tile(Index rows, Index m) {
  return round_up(std::max({Index(1), 2 * m, ceil_div(rows, Index(256)), strip}), strip);
}

template <bool absolute>
inline double entry(double v) {
  return absolute ? std::fabs(v) : v;
}

/// `count` columns of `wide` diagonals d, d + 1, ... at once: as many streams from memory, and up
/// and low pass through the cache once for all of them. s, p, up stand at column 0, p_up and low at
/// row d of it. Rows from `room` + d on belong to other slices: their low side is left out.
template <int wide, bool absolute>
[[gnu::always_inline]] inline void diagonals_of(const double* __restrict s, Index ld,
                                                const double* __restrict p,
                                                const double* __restrict p_up,
                                                double* __restrict up, double* __restrict low,
                                                Index count, Index room) {
  for (Index j = 0; j < count; ++j) {
    double sum[wide];
    for (int k = 0; k < wide; ++k) sum[k] = entry<absolute>(s[k * ld + j]) * p_up[j + k];
    for (int half = wide / 2; half > 0; half /= 2)
      for (int k = 0; k < half; ++k) sum[k] += sum[k + half];
    up[j] += sum[0];
  }
  // low[t] takes s_k[t - k] p[t - k]; rows [wide - 1, inside) get all of them.
  const Index inside = std::clamp<Index>(room - (wide - 1), 0, count);
  for (Index t = wide - 1; t < inside; ++t) {
    double sum[wide];
    for (int k = 0; k < wide; ++k) sum[k] = entry<absolute>(s[k * ld + t - k]) * p[t - k];
    for (int half = wide / 2; half > 0; half /= 2)
      for (int k = 0; k < half; ++k) sum[k] += sum[k + half];
    low[t] += sum[0];
  }
  for (int k = 0; k < wide; ++k) {
    const Index all = std::clamp<Index>(room - k, 0, count);
    const Index done = std::max<Index>(inside - k, wide - 1 - k);  // [wide - 1 - k, done) are in
    const auto add = [&](Index from, Index to) {
      for (Index j = from; j < to; ++j) low[j + k] += entry<absolute>(s[k * ld + j]) * p[j];
    };
    add(0, std::min<Index>(wide - 1 - k, all));
    add(std::min(done, all), all);
  }
}
TERRACE_VECTOR_CLONES
void eight_diagonals(const double* s, Index ld, const double* p, const double* p_up, double* up,
                     double* low, Index count, Index room, bool absolute) {
  absolute ? diagonals_of<8, true>(s, ld, p, p_up, up, low, count, room)
           : diagonals_of<8, false>(s, ld, p, p_up, up, low, count, room);
}
TERRACE_VECTOR_CLONES
void one_diagonal(const double* s, Index ld, const double* p, const double* p_up, double* up,
                  double* low, Index count, Index room, bool absolute) {
  absolute ? diagonals_of<1, true>(s, ld, p, p_up, up, low, count, room)
           : diagonals_of<1, false>(s, ld, p, p_up, up, low, count, room);
}
TERRACE_VECTOR_CLONES
void one_side(const double* __restrict s, const double* __restrict p, double* __restrict sum,
              Index count, bool absolute) {
  if (absolute)
    for (Index j = 0; j < count; ++j) sum[j] += std::fabs(s[j]) * p[j];
  else
    for (Index j = 0; j < count; ++j) sum[j] += s[j] * p[j];
}

}  // namespace

Index band_scratch(Cpu, Index rows, Index half_bandwidth) {
  const Index tile = band_tile(rows, half_bandwidth);
  return ceil_div(rows, tile) * (tile + half_bandwidth + strip);
}

void multiply(const Stream<Cpu>& stream, const BandRows<Cpu>& b, const double* p,
              View<double, Cpu> q, View<double, Cpu> scratch, const SumTarget<Cpu>& sums,
              bool absolute) {
  stream.run([=] {
    const Index m = b.half_bandwidth, rows = b.rows, w = b.lead();
    const Index tile = band_tile(rows, m), stride = tile + m + strip;
    parallel_ranges(rows, tile, [&](Index from, Index to) {
      double* low = scratch.data + (from / tile) * stride;  // low[i - from], and up behind it
      double* up = low + tile + m;
      std::fill(low, low + tile + m, 0.0);
      for (Index j0 = from; j0 < to; j0 += strip) {
        const Index j1 = std::min(j0 + strip, to);
        std::fill(up, up + strip, 0.0);
        const double* const s = b.s.data + w + j0;
        one_side(s, p + j0, up, j1 - j0, absolute);
        for (Index d = 1; d <= m;) {
          const bool eight = d + 7 <= m;
          (eight ? eight_diagonals : one_diagonal)(s + d * b.ld, b.ld, p + j0, p + j0 + d, up,
                                                   low + (j0 + d - from), j1 - j0, rows - d - j0,
                                                   absolute);
          d += eight ? 8 : 1;
        }
        for (Index j = j0; j < j1; ++j) q.data[j] = up[j - j0];
      }
    });
    sum_pieces(rows, piece_grain(rows, strip), sums, [&](Index from, Index to) {
      for (Index t = std::max<Index>(0, (from - m) / tile - 1); t * tile < to; ++t) {
        const double* low = scratch.data + t * stride;
        const Index end = std::min({to, t * tile + tile + m, rows});
        for (Index i = std::max(from, t * tile); i < end; ++i) q.data[i] += low[i - t * tile];
      }
      for (Index d = from + 1; d <= m; ++d) {  // columns of earlier slices
        const Index end = std::min({to, d, rows});
        if (from < end)
          one_side(b.s.data + d * b.ld + w - std::min(d, w) + from, p + from - d, q.data + from,
                   end - from, absolute);
      }
      return dots(p + from, q.data + from, to - from);
    });
  });
}

// --- CSR
// ------------------------------------------------------------------------------------------
namespace {

template <bool absolute>
inline double row_dot(const std::int32_t* column, const double* value, Index count,
                      const double* p) {
  double s[4] = {};
  Index k = 0;
  for (; k + 4 <= count; k += 4)
    for (int c = 0; c < 4; ++c) s[c] += entry<absolute>(value[k + c]) * p[column[k + c]];
  for (; k < count; ++k) s[0] += entry<absolute>(value[k]) * p[column[k]];
  return (s[0] + s[1]) + (s[2] + s[3]);
}

}  // namespace

void multiply(const Stream<Cpu>& stream, const CsrRows<Cpu>& m, const double* p,
              View<double, Cpu> q, const SumTarget<Cpu>& sums, bool absolute) {
  stream.run([=] {
    sum_pieces(m.rows(), piece_grain(m.rows(), 1024), sums, [&](Index from, Index to) {
      Pair s;
      for (Index k = from; k < to; ++k) {
        const Index begin = m.start.data[k], count = m.start.data[k + 1] - begin;
        const double v =
            absolute ? row_dot<true>(m.column.data + begin, m.value.data + begin, count, p)
                     : row_dot<false>(m.column.data + begin, m.value.data + begin, count, p);
        const Index i = m.row.size > 0 ? m.row.data[k] : k;
        q.data[i] = sums.add ? q.data[i] + v : v;
        s.a += p[i] * v;
        if (!sums.add) s.b += p[i] * p[i];
      }
      return s;
    });
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
                   View<double, Cpu> a) {
  stream.run([=] {
    const double scale = 1.0 / std::sqrt(double(n));
    parallel_for(rows, [&](Index i) {
      for (Index j = 0; j < n; ++j) a.data[i * ld + j] = dense_cg_entry(seed, scale, first + i, j);
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

}  // namespace terrace
