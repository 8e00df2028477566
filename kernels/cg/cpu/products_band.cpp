// Symmetric band times vector on the CPU. Bound by memory: 8 (m + 1) bytes per row, read once.
//
// A tile of columns reads its part of the matrix and uses each entry twice:
//   up[j] += a p[j + d]   (row j of the tile),   low[j + d] += a p[j]   (d rows further down).
// Rows below the tile collect in the tile's own scratch; a second pass adds up what each row got.
#include <algorithm>
#include <cmath>

#include "kernels/cg/cpu/products.hpp"
#include "kernels/cg/products.hpp"

namespace terrace::cg {
namespace {

constexpr Index strip = band_strip;

/// f(0) + .. + f(wide - 1), in pairs. (Sums in an array are not vectorized over the columns: 1.7 times as long.)
template <int wide, class F>
[[gnu::always_inline]] inline double sum_of(const F& f) {
  if constexpr (wide == 1)
    return f(0);
  else if constexpr (wide == 4)
    return (f(0) + f(2)) + (f(1) + f(3));
  else
    return ((f(0) + f(4)) + (f(2) + f(6))) + ((f(1) + f(5)) + (f(3) + f(7)));
}
/// `count` columns of `wide` diagonals d, d + 1, ... at once: as many streams from memory, and up
/// and low pass through the cache once for all of them. s, p, up stand at column 0, p_up and low at
/// row d of it. Rows from `room` + d on belong to other slices: their low side is left out.
template <int wide, bool absolute, class T>
[[gnu::always_inline]] inline void diagonals_of(const T* __restrict s, Index ld,
                                                const double* __restrict p,
                                                const double* __restrict p_up,
                                                double* __restrict up, double* __restrict low,
                                                Index count, Index room) {
  for (Index j = 0; j < count; ++j)
    up[j] += sum_of<wide>([&](int k) { return entry<absolute>(s[k * ld + j]) * p_up[j + k]; });
  // low[t] takes s_k[t - k] p[t - k]; rows [wide - 1, inside) get all of them.
  const Index inside = std::clamp<Index>(room - (wide - 1), 0, count);
  for (Index t = wide - 1; t < inside; ++t)
    low[t] += sum_of<wide>([&](int k) { return entry<absolute>(s[k * ld + t - k]) * p[t - k]; });
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
/// wide: 8, 4 or 1.
TERRACE_VECTOR_CLONES
void diagonals(Index wide, const double* s, Index ld, const double* p, const double* p_up,
               double* up, double* low, Index count, Index room, bool absolute) {
  if (wide == 8)
    absolute ? diagonals_of<8, true>(s, ld, p, p_up, up, low, count, room)
             : diagonals_of<8, false>(s, ld, p, p_up, up, low, count, room);
  else if (wide == 4)
    absolute ? diagonals_of<4, true>(s, ld, p, p_up, up, low, count, room)
             : diagonals_of<4, false>(s, ld, p, p_up, up, low, count, room);
  else
    absolute ? diagonals_of<1, true>(s, ld, p, p_up, up, low, count, room)
             : diagonals_of<1, false>(s, ld, p, p_up, up, low, count, room);
}
TERRACE_VECTOR_CLONES
void diagonals(Index wide, const std::uint32_t* s, Index ld, const double* p, const double* p_up,
               double* up, double* low, Index count, Index room, bool) {
  if (wide == 8)
    diagonals_of<8, false>(s, ld, p, p_up, up, low, count, room);
  else if (wide == 4)
    diagonals_of<4, false>(s, ld, p, p_up, up, low, count, room);
  else
    diagonals_of<1, false>(s, ld, p, p_up, up, low, count, room);
}
TERRACE_VECTOR_CLONES
void one_side(const double* __restrict s, const double* __restrict p, double* __restrict sum,
              Index count, bool absolute) {
  if (absolute)
    for (Index j = 0; j < count; ++j) sum[j] += std::fabs(s[j]) * p[j];
  else
    for (Index j = 0; j < count; ++j) sum[j] += s[j] * p[j];
}
TERRACE_VECTOR_CLONES
void one_side(const std::uint32_t* __restrict s, const double* __restrict p, double* __restrict sum,
              Index count, bool) {
  for (Index j = 0; j < count; ++j) sum[j] += entry<false>(s[j]) * p[j];
}

template <class T>
void multiply_band(const T* entries, const BandRows<Cpu>& b, const double* p, View<double, Cpu> q,
                   View<double, Cpu> scratch, const SumTarget<Cpu>& sums, bool absolute) {
  const Index m = b.half_bandwidth, rows = b.rows, w = b.lead();
  const Index tile = band_tile(rows, m), stride = tile + m + strip;
  parallel_ranges(rows, tile, [&](Index from, Index to) {
    double* low = scratch.data + (from / tile) * stride;  // low[i - from], and up behind it
    double* up = low + tile + m;
    std::fill(low, low + tile + m, 0.0);
    for (Index j0 = from; j0 < to; j0 += strip) {
      const Index j1 = std::min(j0 + strip, to);
      std::fill(up, up + strip, 0.0);
      const T* const s = entries + w + j0;
      one_side(s, p + j0, up, j1 - j0, absolute);
      for (Index d = 1; d <= m;) {
        const Index wide = d + 7 <= m ? 8 : d + 3 <= m ? 4 : 1;
        diagonals(wide, s + d * b.ld, b.ld, p + j0, p + j0 + d, up, low + (j0 + d - from), j1 - j0,
                  rows - d - j0, absolute);
        d += wide;
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
        one_side(entries + d * b.ld + w - std::min(d, w) + from, p + from - d, q.data + from,
                 end - from, absolute);
    }
    return dots(p + from, q.data + from, to - from);
  });
}

}  // namespace

Index band_scratch(Cpu, Index rows, Index half_bandwidth) {
  const Index tile = band_tile(rows, half_bandwidth);
  return ceil_div(rows, tile) * (tile + half_bandwidth + strip);
}

void multiply(const Stream<Cpu>& stream, const BandRows<Cpu>& b, const double* p,
              View<double, Cpu> q, View<double, Cpu> scratch, const SumTarget<Cpu>& sums,
              bool absolute, const double* skip) {
  stream.run([=] {
    if (skip && *skip != 0) return;
    if (b.head.size > 0)
      multiply_band(b.head.data, b, p, q, scratch, sums, false);
    else
      multiply_band(b.s.data, b, p, q, scratch, sums, absolute);
  });
}

}  // namespace terrace::cg
