// Symmetric band times 2 to 16 vectors on FP64 tensor cores. Floor: 8 (m + 1) bytes a row for the
// matrix, 16 columns for p and q, all from HBM once; 4 (m + 1) columns flops a row.
//
// A block walks down a strip of rows, 64 columns of the band a step, 64 of their diagonals a stage,
// which pass through buffers in shared memory. What a buffer holds is used twice: as rows below the
// diagonal, whose sums wait in a ring for later columns, and transposed, for the rows of these
// columns, whose sums stay in registers. Rows of p are in a ring too. Tiles are 16 x 16 of the
// matrix; where they reach beyond the stage's diagonals they meet rows of zeros between the buffers.
#pragma once
#include "kernels/base/cuda/dmma.cuh"
#include "kernels/cg/cuda/column_sums.cuh"
#include "kernels/cg/cuda/products.cuh"

namespace terrace::cg {

namespace band_tiles {
constexpr int wide = 64;      // columns of a step, diagonals of a stage
constexpr int side = 16;      // of a tile; rows of zeros before each buffer and behind the last
constexpr int ld = wide + 4;  // of a buffer: keeps the banks apart
constexpr int warps = 8;      // 4 for the rows below, 4 for these columns, 5 tiles each
constexpr int buffer_rows(int buffers) { return buffers * (wide + side) + side; }
/// Numbers of a row of sums: 16 columns keep the banks apart by two more.
constexpr int sums_ld(int halves) { return halves == 2 ? 18 : 8; }
constexpr Index chunks(Index m) { return ceil_div(m, Index(wide)); }
/// Rows of p that a step reads, and those that its ring holds: of the steps whose stages are under way too.
constexpr Index step_rows(Index m) { return wide * chunks(m) + wide + 2 * side; }
constexpr Index p_rows(Index m, int buffers) {
  return step_rows(m) + wide * (chunks(m) == 1 ? buffers - 1 : 1);
}
/// Rows whose sums are under way.
constexpr Index sum_rows(Index m) { return m + 2 * wide; }
constexpr Index shared_bytes(Index m, int halves, int buffers) {
  return 8 * (Index(buffer_rows(buffers)) * ld + p_rows(m, buffers) * 8 * halves +
              sum_rows(m) * sums_ld(halves));
}
}  // namespace band_tiles

/// One strip: rows [first, to); columns from `top` on.
template <int halves, int buffers>
struct BandTiles {
  static constexpr int wide = band_tiles::wide, side = band_tiles::side, ld = band_tiles::ld;
  const BandRows<Cuda>& b;
  const double* const p;
  double* const q;
  const int columns, p_ld;  // of this product; from row to row of p and q
  double* const memory;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  const Index m = b.half_bandwidth, rows = b.rows, w = min(m, rows);
  const int chunks = int(band_tiles::chunks(m)), step_rows = int(band_tiles::step_rows(m)),
            p_rows = int(band_tiles::p_rows(m, buffers)), sum_rows = int(band_tiles::sum_rows(m));
  double* const p_ring = memory + band_tiles::buffer_rows(buffers) * ld;
  double* const sum_ring = p_ring + p_rows * 8 * halves;
  Index from = 0, to = 0, first = 0, top = 0;
  int p_slot = 0, sum_slot = 0;  // of row `base` of the current step

  /// Columns [base, base + 64), diagonals from 1 + 64 chunk on; base's place in the ring of p.
  struct Stage {
    Index base;
    int chunk, p_slot;
  };
  __device__ __forceinline__ Stage next(Stage s) const {
    if (++s.chunk >= chunks) s = {s.base + wide, 0, wrap(s.p_slot + wide, p_rows)};
    return reaching(s);
  }
  /// The first stage from s on whose sums reach the strip.
  __device__ __forceinline__ Stage reaching(Stage s) const {
    while (s.base + 1 + s.chunk * wide + 2 * wide - 2 < from) ++s.chunk;
    return s;
  }
  static __device__ __forceinline__ int wrap(int slot, int size) {
    return slot >= size ? slot - size : slot;
  }
  __device__ __forceinline__ double* buffer(int k) const {
    return memory + (side + k * (wide + side)) * ld;
  }
  /// Pair `pair` of a row of p, where a warp's reads of four rows meet no bank twice.
  __device__ __forceinline__ double* p_pair(int slot, int pair) const {
    const int turned = halves == 2 ? pair ^ 2 * (slot & 3) : pair ^ (slot & 2);
    return p_ring + slot * 8 * halves + 2 * turned;
  }

  /// Rows [row, row + count) of p, to `slot` on.
  __device__ __forceinline__ void fetch_p(Index row, int slot, int count) const {
    const int pair = threadIdx.x % 8;
    if (2 * pair >= columns) return;
    for (int k = threadIdx.x / 8; k < count; k += 4 * band_tiles::warps) {
      const Index i = row + k;
      const bool there = i >= -m && i < rows + m;
      device::copy16(p_pair(wrap(slot + k, p_rows), pair), there ? p + i * p_ld + 2 * pair : p,
                     there ? 16 : 0);
    }
  }
  /// Begins to load stage s into buffer k; `opens`: its step is new.
  __device__ __forceinline__ void fetch(Stage s, int k, bool opens) const {
    if (s.base < to) {
      const Index d0 = 1 + Index(s.chunk) * wide, j = s.base + 2 * lane;
      const bool column = w + j >= 0 && j < rows;
#pragma unroll
      for (int r = 0; r < wide; r += band_tiles::warps) {
        const bool there = column && d0 + r + warp <= m;
        device::copy16(buffer(k) + (r + warp) * ld + 2 * lane,
                       there ? b.s.data + (d0 + r + warp) * b.ld + w + j : b.s.data,
                       there ? (j + 1 < rows ? 16 : 8) : 0);
      }
      if (opens) {
        const int ahead = s.base == top ? 0 : step_rows - wide;
        fetch_p(s.base + ahead, wrap(s.p_slot + ahead, p_rows), step_rows - ahead);
      }
    }
    device::commit_copies();
  }

  /// 16 rows of p from `slot` on, as dmma() takes them; with two halves columns 2 g and 2 g + 1.
  /// `aligned`: slot is a multiple of 16.
  using Rows = double[halves][4];
  template <bool aligned>
  __device__ __forceinline__ void load_rows(Rows& v, int slot) const {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const double* at;
      if constexpr (aligned)
        at = p_pair(t, halves == 2 ? g : g / 2) + (slot + 4 * k) * 8 * halves;
      else
        at = p_pair(wrap(slot + 4 * k + t, p_rows), halves == 2 ? g : g / 2);
      if constexpr (halves == 2) {
        const double2 two = *reinterpret_cast<const double2*>(at);
        v[0][k] = two.x, v[1][k] = two.y;
      } else {
        v[0][k] = at[g % 2];
      }
    }
  }
  /// c (16 x 8 halves) += a tile of a buffer times those.
  template <bool transposed>
  __device__ __forceinline__ void tile(double (&c)[halves][4], const double* at,
                                       const Rows& v) const {
    double a[8];
    at += transposed ? (t - g) * ld + g : (g - t) * ld + t;
#pragma unroll
    for (int k = 0; k < 4; ++k)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        a[2 * k + h] = at[transposed ? (4 * k - 8 * h) * ld + 8 * h : (8 * h - 4 * k) * ld + 4 * k];
#pragma unroll
    for (int half = 0; half < halves; ++half) device::dmma(c[half], a, v[half]);
  }

  /// The lane's pairs of a row: f(pair, e); c[half][2 h + e] are columns 2 halves t + ...
  template <class F>
  __device__ __forceinline__ void each_pair(const F& f) const {
#pragma unroll
    for (int e = 0; e < halves; ++e)
      if (2 * (halves * t + e) < columns) f(halves * t + e, e);
  }
  __device__ __forceinline__ double2 pair(const double (&c)[halves][4], int h, int e) const {
    if constexpr (halves == 2)
      return make_double2(c[0][2 * h + e], c[1][2 * h + e]);
    else
      return make_double2(c[0][2 * h], c[0][2 * h + 1]);
  }
  __device__ __forceinline__ double2* sums_of(int ahead, int pair) const {
    return reinterpret_cast<double2*>(sum_ring + wrap(sum_slot + ahead, sum_rows) *
                                                     band_tiles::sums_ld(halves)) +
           pair;
  }

  /// Zero sums for the rows that these columns are the first to reach.
  __device__ __forceinline__ void enter(Index base) const {
    const int pair = threadIdx.x % 8, most = int(m) + wide;
    if (pair >= 4 * halves) return;
    for (int ahead = (base == top ? 0 : int(m)) + int(threadIdx.x) / 8; ahead < most;
         ahead += 4 * band_tiles::warps)
      *sums_of(ahead, pair) = make_double2(0, 0);
  }
  /// Rows 16 part ... and 16 (part + 4) ... of those below, onto their sums.
  __device__ __forceinline__ void lower(Stage s, const double* at, int part,
                                        const Rows (&v)[4]) const {
    double c[2][halves][4] = {};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const double* const tiles = at + (part - k) * side * ld + side * k;
      if (k <= part) tile<false>(c[0], tiles, v[k]);
      if (k >= part) tile<false>(c[1], tiles + 4 * side * ld, v[k]);
    }
#pragma unroll
    for (int u = 0; u < 2; ++u)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int ahead = 1 + s.chunk * wide + side * (part + 4 * u) + g + 8 * h;
        if (ahead >= m + wide) continue;
        each_pair([&](int pair_of, int e) {
          double2* const sum = sums_of(ahead, pair_of);
          const double2 more = pair(c[u], h, e), old = *sum;
          *sum = make_double2(old.x + more.x, old.y + more.y);
        });
      }
  }
  /// Rows 16 part ... of these columns, in registers.
  __device__ __forceinline__ void upper(Stage s, const double* at, int part,
                                        double (&c)[halves][4]) const {
    const int slot = s.p_slot + 1 + s.chunk * wide + side * part;
#pragma unroll
    for (int k = 0; k < 5; ++k) {
      Rows v;
      load_rows<true>(v, wrap(slot + side * k, p_rows));
      tile<true>(c, at + side * (part + k * ld), v);
    }
  }
  __device__ __forceinline__ void finish(Stage s, int part, const double (&c)[halves][4],
                                         const double (&diagonal)[2],
                                         ColumnProducts<2 * halves>& products) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int ahead = side * part + g + 8 * h;
      const Index row = s.base + ahead;
      if (row < first || row >= to) continue;
      each_pair([&](int pair_of, int e) {
        const double2 mine =
            *reinterpret_cast<const double2*>(p_pair(wrap(s.p_slot + ahead, p_rows), pair_of));
        const double2 below = *sums_of(ahead, pair_of), above = pair(c, h, e);
        const double2 sum = make_double2(diagonal[h] * mine.x + (below.x + above.x),
                                         diagonal[h] * mine.y + (below.y + above.y));
        reinterpret_cast<double2*>(q + row * p_ld)[pair_of] = sum;
        products.add(2 * e, mine.x, sum.x);
        products.add(2 * e + 1, mine.y, sum.y);
      });
    }
  }
};

/// 1 <= half_bandwidth <= rows; columns even, at most 8 halves, and p_ld too; strips of `strip`
/// rows, a multiple of 64.
template <int halves, int buffers>
__global__ void __launch_bounds__(32 * band_tiles::warps, 1)
    band_tiles_kernel(BandRows<Cuda> b, const double* __restrict__ p, double* __restrict__ q,
                      int columns, int p_ld, Index strip, SumTarget<Cuda> sums,
                      const double* skip) {
  if (skip && *skip != 0) return;
  constexpr int wide = band_tiles::wide;
  extern __shared__ __align__(128) unsigned char shared[];
  BandTiles<halves, buffers> work{b, p, q, columns, p_ld, reinterpret_cast<double*>(shared)};
  for (double* v = work.memory + threadIdx.x; v < work.sum_ring; v += 32 * band_tiles::warps)
    *v = 0;
  __syncthreads();
  work.from = Index(blockIdx.x) * strip - (work.w & 1);  // copies begin at multiples of 16 bytes
  work.to = min(work.from + strip, work.rows);
  work.first = max(work.from, Index(0));
  work.top = work.from - Index(work.chunks) * wide;
  // Rows of p from base + 1 on stand at multiples of 16.
  auto now = work.reaching({work.top, 0, band_tiles::side - 1}), coming = now;
  Index before = now.base - 1;  // of the stage that was fetched last
  const auto fetch = [&](int k) {
    work.fetch(coming, k, coming.base != before);
    before = coming.base;
    coming = work.next(coming);
  };
  for (int k = 0; k + 1 < buffers; ++k) fetch(k);
  const int part = work.warp & 3;
  double c[halves][4], diagonal[2];
  ColumnProducts<2 * halves> products;
  typename BandTiles<halves, buffers>::Rows own[4];
  int at = 0;
  for (Index open = now.base - 1; now.base < work.to; now = work.next(now)) {
    device::wait_copies<buffers - 2>();
    if (now.base != open) {
      work.enter(now.base);
#pragma unroll
      for (int half = 0; half < halves; ++half)
#pragma unroll
        for (int k = 0; k < 4; ++k) c[half][k] = 0;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const Index row = now.base + band_tiles::side * part + work.g + 8 * h;
        diagonal[h] = __ldg(b.s.data + work.w + max(work.first, min(row, work.to - 1)));
      }
    }
    __syncthreads();
    fetch(at == 0 ? buffers - 1 : at - 1);
    if (work.warp >= 4 && now.base != open)
#pragma unroll
      for (int k = 0; k < 4; ++k)
        work.template load_rows<false>(own[k],
                                       work.wrap(now.p_slot + band_tiles::side * k, work.p_rows));
    open = now.base;
    if (work.warp >= 4)
      work.lower(now, work.buffer(at), part, own);
    else if (now.base >= work.from)
      work.upper(now, work.buffer(at), part, c);
    at = at + 1 == buffers ? 0 : at + 1;
    if (now.chunk + 1 == work.chunks) {
      __syncthreads();
      if (work.warp < 4 && now.base >= work.from) work.finish(now, part, c, diagonal, products);
      work.sum_slot = work.wrap(work.sum_slot + wide, work.sum_rows);
    }
  }
  products.template finish<4, 32 * band_tiles::warps>(sums, columns, p_ld);
}

}  // namespace terrace::cg
