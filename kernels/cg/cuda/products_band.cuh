// Symmetric band times vector on CUDA, by diagonals. Floor: 8 (m + 1) bytes a row for the matrix
// (4 (m + 1) from its heads) and 16 for p and q, all from HBM once.
//
// Measured on an H200 (read rate 4.5 TB/s), of this floor: m = 16 3.80 TB/s, m = 64 3.85, m = 100
// 3.6, m = 256 3.94; each entry read twice through L2 gave 1.5 to 2.6.
//
// A block streams down a strip of rows, `height` columns a lane and 32 height a step; its warps
// share the diagonals. Each entry s_d[j] is read once and used twice: for row j, where the sums
// stay in registers, and for row j + d. There the targets move down a row with each diagonal, so
// the sums move a register up and, at the end, to the lane above. What leaves a warp's window waits
// in its ring in shared memory for the next columns; what is complete goes to the block's ring.
// Before its strip a block reads the part of the m columns above it that reaches into it: on
// average m / (2 strip) of the matrix, from L2 where the block above is about as far.
#pragma once
#include "kernels/cg/cuda/products.cuh"

namespace terrace::cg {

/// v[r] = from[r] for r in [0, height); what is outside [begin, end) is zero. `from`, `begin` and
/// `end` lie at multiples of 16 bytes.
template <int height>
__device__ __forceinline__ void load_entries(const std::uint32_t* from, Index begin, Index end,
                                             bool there, std::uint32_t (&v)[height]) {
#pragma unroll
  for (int r = 0; r < height; r += 4) {
    v[r] = v[r + 1] = v[r + 2] = v[r + 3] = 0;
    if (there && r >= begin && r < end)
      asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(v[r]), "=r"(v[r + 1]), "=r"(v[r + 2]), "=r"(v[r + 3])
                   : "l"(from + r));
  }
}
template <int height>
__device__ __forceinline__ void load_entries(const double* from, Index begin, Index end, bool there,
                                             double (&v)[height]) {
#pragma unroll
  for (int r = 0; r < height; r += 2) {
    double2 two = make_double2(0, 0);
    if (there && r >= begin && r < end)
      asm volatile("ld.global.nc.L1::no_allocate.v2.f64 {%0, %1}, [%2];"
                   : "=d"(two.x), "=d"(two.y)
                   : "l"(from + r));
    v[r] = two.x;
    v[r + 1] = two.y;
  }
}

/// How a band is cut: diagonals a warp (a multiple of `batch`), rows a block and turn, slots of a
/// warp's ring (32 height + share) and of the block's (32 height + m).
struct BandCut {
  int share = 0, ring = 0, block_ring = 0;
  Index strip = 0;
};
template <int warps, int height>
__host__ __device__ constexpr Index band_shared_bytes(int ring, int block_ring) {
  return 8 * (warps * Index(ring) + block_ring + 2 * 2 * warps * 32 * height);
}

/// A warp's diagonals of one strip, and what is in shared memory.
template <int warps, int height, int batch, bool absolute, class T>
struct BandStrip {
  static constexpr int wide = 32 * height;        // columns of a step
  static constexpr int aligned = 16 / sizeof(T);  // entries
  const BandRows<Cuda>& b;
  const T* const matrix;
  const double* const p;
  const BandCut& cut;
  double* const rings;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  double* const ring = rings + warp * cut.ring;
  double* const gathered = rings + warps * cut.ring;  // the block's ring
  double* const out = gathered + cut.block_ring;      // [turn][up, low][warp][wide]
  const Index m = b.half_bandwidth, rows = b.rows, w = min(m, rows), p_last = rows + m - 1;
  const int skew = int(w & (aligned - 1));  // steps start where the memory is aligned to 16 bytes
  const int d0 = 1 + warp * cut.share;
  const int diagonals = int(max(Index(0), min(Index(cut.share), m + 1 - d0)));
  const int padded = (diagonals + batch - 1) / batch * batch;
  Index from = 0, to = 0, first = 0;  // rows of the strip
  int at = 0, left = 0;  // ring slot of row `base` + d0; slots from there that hold sums
  int block_at = 0;      // slot of row `base` in the block's ring

  static __device__ __forceinline__ int wrap(int slot, int size) {
    return slot >= size ? slot - size : slot;
  }
  __device__ __forceinline__ void open(Index s0) {
    from = s0 - skew, to = min(from + cut.strip, rows), first = max(from, Index(0));
    for (int k = threadIdx.x; k < cut.block_ring; k += 32 * warps) gathered[k] = 0;
    at = left = block_at = 0;
  }
  [[nodiscard]] __device__ __forceinline__ bool reaches(Index base) const {
    return diagonals > 0 && base + wide - 1 + d0 + diagonals - 1 >= first;
  }
  [[nodiscard]] __device__ __forceinline__ double* sums_of(int turn, int low, int v) const {
    return out + ((turn * 2 + low) * warps + v) * wide;
  }

  /// Diagonals d0 + d .. of the columns at `base`, and what p's window takes in after each.
  __device__ __forceinline__ void fetch(Index base, int d, T (&s)[batch][height],
                                        double (&coming)[batch]) const {
    const Index j = base + lane * height;
    const bool before = base < from;
    const T* const entries = matrix + (w + j) + (d0 + d) * b.ld;
#pragma unroll
    for (int u = 0; u < batch; ++u) {
      const bool there = d + u < diagonals && (!before || j + height - 1 + d0 + d + u >= first);
      load_entries<height>(entries + u * b.ld, -w - j, b.ld - w - j, there, s[u]);
    }
#pragma unroll
    for (int u = 0; u < batch; ++u)
      coming[u] = before ? 0.0 : p[min(j + d0 + d + u + height, p_last)];
  }
  /// The columns at `base`: own numbers of p, and sums of the main diagonal in warp 0.
  __device__ __forceinline__ void begin(Index base, double (&own)[height],
                                        double (&up)[height]) const {
    const Index j = base + lane * height;
#pragma unroll
    for (int r = 0; r < height; ++r) {
      own[r] = j + r >= -w && j + r < rows ? p[j + r] : 0.0;
      up[r] = 0;
    }
    if (warp == 0 && base >= from) {
      T s[height];
      load_entries<height>(matrix + (w + j), -w - j, b.ld - w - j, true, s);
#pragma unroll
      for (int r = 0; r < height; ++r) up[r] = entry<absolute>(s[r]) * own[r];
    }
  }
  /// All diagonals of the warp at these columns: onto `up`, and through the ring to out_low.
  __device__ __forceinline__ void multiply(Index base, const double (&own)[height],
                                           double (&up)[height], double* out_low) {
    double window[height], low[height], coming[batch];
    T s[batch][height];
#pragma unroll
    for (int r = 0; r < height; ++r) {
      const int k = lane * height + r;
      low[r] = k < left ? ring[wrap(at + k, cut.ring)] : 0.0;
      window[r] = base < from ? 0.0 : p[min(base + k + d0, p_last)];
    }
    __syncwarp();
    for (int d = 0; d < padded; d += batch) {
      fetch(base, d, s, coming);
#pragma unroll
      for (int u = 0; u < batch; ++u) {
#pragma unroll
        for (int r = 0; r < height; ++r) {
          const double v = entry<absolute>(s[u][r]);
          up[r] += v * window[r];
          low[r] += v * own[r];
        }
        // One diagonal on: every target moves down a row.
        double enters = 0;
        if (lane == 31 && d + u + wide < left) enters = ring[wrap(at + d + u + wide, cut.ring)];
        if (lane == 0) ring[wrap(at + d + u, cut.ring)] = low[0];
        const double next = __shfl_down_sync(0xffffffffu, low[0], 1);
#pragma unroll
        for (int r = 0; r + 1 < height; ++r) {
          window[r] = window[r + 1];
          low[r] = low[r + 1];
        }
        window[height - 1] = coming[u];
        low[height - 1] = lane == 31 ? enters : next;
      }
    }
#pragma unroll
    for (int r = 0; r < height; ++r) ring[wrap(at + padded + lane * height + r, cut.ring)] = low[r];
    __syncwarp();
#pragma unroll
    for (int r = 0; r < height; ++r)
      out_low[lane * height + r] = ring[wrap(at + lane * height + r, cut.ring)];
    left = padded;
    at = wrap(at + wide, cut.ring);
  }
  /// One warp: sums of all warps, in their order, for the rows below. Lane stride 1.
  __device__ __forceinline__ void gather(Index base, const double* lows) const {
    for (int v = 0; v < warps; ++v) {
      const int ahead_of = 1 + v * cut.share;
      if (ahead_of > m) break;
#pragma unroll
      for (int r = 0; r < height; ++r) {
        const int k = lane + 32 * r;
        const Index row = base + k + ahead_of;
        if (row >= first && row <= base + wide - 1 + m)
          gathered[wrap(block_at + k + ahead_of, cut.block_ring)] += lows[v * wide + k];
      }
      __syncwarp();
    }
  }
  /// The same warp: ends rows [base, base + wide).
  __device__ __forceinline__ void finish(Index base, const double* ups, double* __restrict__ q,
                                         double& pq, double& pp) const {
#pragma unroll
    for (int r = 0; r < height; ++r) {
      const int k = lane + 32 * r, slot = wrap(block_at + k, cut.block_ring);
      double total = 0;
      for (int v = 0; v < warps; ++v) total += ups[v * wide + k];
      total += gathered[slot];
      gathered[slot] = 0;
      const Index row = base + k;
      if (row >= first && row < to) {
        const double mine = p[row];
        q[row] = total;
        pq += mine * total;
        pp += mine * mine;
      }
    }
  }
};

/// half_bandwidth <= rows; `entries`: of b, or their heads.
template <int warps, int height, int batch, int blocks, bool absolute, class T>
__global__ void __launch_bounds__(32 * warps, blocks)
    band_strip_kernel(BandRows<Cuda> b, const T* entries, const double* __restrict__ p,
                      double* __restrict__ q, BandCut cut, SumTarget<Cuda> sums,
                      const double* skip) {
  if (skip && *skip != 0) return;
  extern __shared__ __align__(128) unsigned char memory[];
  BandStrip<warps, height, batch, absolute, T> strip{b, entries, p, cut,
                                                     reinterpret_cast<double*>(memory)};
  constexpr int wide = strip.wide;
  const int ahead = int((strip.m + wide - 1) / wide);
  double pq = 0, pp = 0;
  for (Index s0 = Index(blockIdx.x) * cut.strip; s0 < strip.rows + strip.skew;
       s0 += Index(gridDim.x) * cut.strip) {
    strip.open(s0);
    int turn = 0;
    const Index top = strip.from - Index(ahead) * wide;
    for (Index base = top; base < strip.to; base += wide) {
      double own[height], up[height];
      strip.begin(base, own, up);
      double* const out_up = strip.sums_of(turn, 0, strip.warp) + strip.lane * height;
      double* const out_low = strip.sums_of(turn, 1, strip.warp);
      if (strip.reaches(base)) {
        strip.multiply(base, own, up, out_low);
      } else {
#pragma unroll
        for (int r = 0; r < height; ++r) out_low[strip.lane * height + r] = 0;
      }
#pragma unroll
      for (int r = 0; r < height; ++r) out_up[r] = up[r];
      __syncthreads();
      if (strip.warp == int((base - top) / wide % warps)) {
        strip.gather(base, strip.sums_of(turn, 1, 0));
        if (base >= strip.from) strip.finish(base, strip.sums_of(turn, 0, 0), q, pq, pp);
      }
      strip.block_at = strip.wrap(strip.block_at + wide, cut.block_ring);
      turn ^= 1;
    }
    __syncthreads();
  }
  finish_sums(pq, pp, sums);
}

}  // namespace terrace::cg
