// What the kernel of kernels/cuda/band_parts.cu is made of: its launch, its pipeline, and the
// factorization of a diagonal block.
#pragma once
#include <cfloat>

#include "kernels/band_parts.hpp"
#include "kernels/cuda/dmma.cuh"

namespace terrace::device::band_parts {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kW = 64;                             // width of a tile column
constexpr int kDepth = 16;                         // columns of a tile in one stage
constexpr int kChunks = kW / kDepth;               // stages of a product of tiles
constexpr int kLD = kW + 4;                        // keeps the banks apart
constexpr int kChunk = kDepth * kLD;               // doubles of a tile's columns in shared memory
constexpr unsigned kChunkBytes = kDepth * kW * 8;  // bytes brought for them
constexpr int kFar = 1 << 29;                      // offset of operands without a band
constexpr int kMostParts = 128;

struct Launch;
/// A part as the kernel sees it; sizes in tiles.
struct Part {
  double *band, *inverse, *spike, *arrow_block, *coupling;
  Index tiles, window, from, end, ring, arrow;
  bool complete;
  unsigned* flags;             // (end - from) x stride
  unsigned long long* failed;  // ~0, or the one-based column of the first bad pivot
  __device__ inline double* tile(const Launch& l, Index k) const;
  __device__ double* inverse_of(Index k) const { return inverse + k % ring * (kW * kW); }
};
/// Flags of tile column k: [0] its inverse, [d] tile (k + d, k), [reach_tiles + 1 + r] arrow row r.
/// A flag counts to four.
struct Launch {
  Index reach;
  int reach_tiles, stride, count;
  Index early, column_tasks;  // tasks of CTAs of their own; tasks of the columns
  int per_group, band_pairs;  // tasks of NC tile columns of a part
  Index window_groups, window_pairs, arrow_groups, arrow_pairs;
  unsigned long long* counter;
  Part parts[kMostParts];
};
__device__ inline double* Part::tile(const Launch& l, Index k) const {
  return band + k % ring * (kW * (l.reach + 1));
}

template <int NC, int S>
struct Shared {
  static constexpr int stage_doubles = (2 + NC) * kChunk;
  alignas(8) unsigned long long full[S], empty[S], task_full[2], task_empty[2];
};

__device__ inline unsigned address(const void* shared) {
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}
__device__ inline void init(unsigned long long& barrier, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(&barrier)), "r"(count)
               : "memory");
}
__device__ inline void wait(unsigned long long& barrier, unsigned parity) {
  unsigned done;
  do {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(address(&barrier)), "r"(parity)
        : "memory");
  } while (done == 0);
}
__device__ inline void arrive(unsigned long long& barrier) {
  asm volatile(
      "{\n.reg .b64 s;\nmbarrier.arrive.shared::cta.b64 s, [%0];\n}" ::"r"(address(&barrier))
      : "memory");
}
__device__ inline void arrive_expecting(unsigned long long& barrier, unsigned bytes) {
  asm volatile("{\n.reg .b64 s;\nmbarrier.arrive.expect_tx.shared::cta.b64 s, [%0], %1;\n}" ::"r"(
                   address(&barrier)),
               "r"(bytes)
               : "memory");
}
__device__ inline void bulk_copy(double* shared, const double* global, unsigned bytes,
                                 unsigned long long& barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(address(shared)),
      "l"(global), "r"(bytes), "r"(address(&barrier))
      : "memory");
}
/// Between ordinary accesses and the copy engine's.
__device__ inline void fence_proxy() { asm volatile("fence.proxy.async;" ::: "memory"); }
__device__ inline void fence_proxy_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ inline unsigned acquire(const unsigned* flag) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}
__device__ inline void add_release(unsigned* flag, unsigned by) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(flag), "r"(by) : "memory");
}
__device__ inline void barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ inline void barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Registers move from the warpgroup that copies to those that multiply.
template <int N>
__device__ inline void more_registers() {
#if defined(TERRACE_SM90A)
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
#endif
}
template <int N>
__device__ inline void fewer_registers() {
#if defined(TERRACE_SM90A)
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
#endif
}

/// 1 / p: 20 bits from the special function unit, then one step of third order.
__device__ inline double reciprocal(double p) {
  if (!(p > 1e-290 && p < 1e290)) return 1.0 / p;
  double r;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(p));
  const double e = fma(-p, r, 1.0);
  return fma(r, fma(e, e, e), r);
}

constexpr int kBeat = 8;  // columns between two meetings of a factorization and its followers

/// One warp: the 32 x 32 block at `block` (kLD) := L, inverses of its diagonal beside it; a lane
/// holds a row. Every kBeat columns it lets the followers of barriers id, id + 1 go on. The chain
/// of a column is reciprocal, product, multiply-add: each lane carries the pivot. Returns 0 or the
/// one-based number of the first pivot that is not positive and finite.
__device__ inline int lead(double* block, double* inverse, double (*column)[32], int lane, int id,
                           int threads) {
  double a[32];
#pragma unroll
  for (int j = 0; j < 32; ++j) a[j] = j <= lane ? block[j * kLD + lane] : 0.0;
  double pivot = __shfl_sync(kAll, a[0], 0);
  int failed = 0;
#pragma unroll
  for (int j = 0; j < 32; ++j) {
    if (!(pivot > 0.0 && pivot <= DBL_MAX) && failed == 0) failed = j + 1;
    double* const now = column[j % 2];
    now[lane] = a[j];
    const double over = reciprocal(pivot);
    const double beside = j < 31 ? __shfl_sync(kAll, a[j], j + 1 < 32 ? j + 1 : 31) : 0.0;
    const double next = j < 31 ? __shfl_sync(kAll, a[j + 1 < 32 ? j + 1 : 31], j + 1) : 0.0;
    __syncwarp();
    const double root = rsqrt(pivot);
    pivot = fma(-(beside * over), beside, next);
    const double scaled = a[j] * over;
#pragma unroll
    for (int c = j + 1; c < 32; ++c) a[c] = fma(-scaled, now[c], a[c]);
    if (lane >= j) block[j * kLD + lane] = a[j] * root;
    if (lane == j) inverse[j] = root;
    if (j % kBeat == kBeat - 1) {
      __syncwarp();
      barrier_arrive(id + j / kBeat % 2, threads);
    }
  }
  return failed;
}

/// One warp behind lead(): x (a row of 32 numbers a lane) := x L^-T.
__device__ inline void follow(double (&x)[32], const double* block, const double* inverse, int id,
                              int threads) {
#pragma unroll
  for (int j = 0; j < 32; ++j) {
    if (j % kBeat == 0) barrier(id + j / kBeat % 2, threads);
    x[j] *= inverse[j];
#pragma unroll
    for (int c = j + 1; c < 32; ++c) x[c] = fma(-x[j], block[j * kLD + c], x[c]);
  }
}
/// The inverse of that block, lower, column by column (kLD), zeros above the diagonal.
__device__ inline void follow_inverse(double* v, const double* block, const double* inverse,
                                      int lane, int id, int threads) {
  double x[32];
#pragma unroll
  for (int j = 0; j < 32; ++j) x[j] = j == lane ? 1.0 : 0.0;
  follow(x, block, inverse, id, threads);
#pragma unroll
  for (int j = 0; j < 32; ++j) v[lane * kLD + j] = x[j];
}

/// c (16 x 8 N) += A (16 x 32) B (32 x 8 N) from shared memory: A column by column at a (kLD), B
/// with row k of column n at b[n * ldb + k].
template <int N>
__device__ inline void small_product(double (&c)[N][4], const double* a, const double* b, int ldb,
                                     int lane) {
#pragma unroll
  for (int k = 0; k < 32; k += 16) {
    double left[8], right[4];
    load_negated_a(left, a + k * kLD, kLD, 0, lane);
#pragma unroll
    for (int e = 0; e < 8; ++e) left[e] = -left[e];
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int q = 0; q < 4; ++q) right[q] = b[(8 * n + lane / 4) * ldb + k + 4 * q + lane % 4];
      dmma(c[n], left, right);
    }
  }
}

/// Four warps: the lower triangle of the 64 x 64 block at s (column by column, kLD) := its factor
/// L; v := L^-1 with zeros above the diagonal; t: 32 x 36 + 192 doubles of scratch. Returns (in
/// warp 0) 0 or the one-based number of the first bad pivot. w^3 flops in all; Golub, Van Loan 4.2.
__device__ inline int factor_and_invert(double* s, double* v, double* t, int warp, int lane) {
  constexpr int ldt = 36;
  double(*const column)[32] = reinterpret_cast<double(*)[32]>(t + 32 * ldt);
  double* const roots = t + 32 * ldt + 64;  // 64: inverses of the diagonal
  int failed = 0;
  if (warp == 0) {
    failed = lead(s, roots, column, lane, 3, 96);
  } else if (warp == 1) {  // rows 32 .. 63
    double x[32];
#pragma unroll
    for (int j = 0; j < 32; ++j) x[j] = s[j * kLD + 32 + lane];
    follow(x, s, roots, 3, 96);
#pragma unroll
    for (int j = 0; j < 32; ++j) s[j * kLD + 32 + lane] = x[j];
  } else if (warp == 2) {
    follow_inverse(v, s, roots, lane, 3, 96);
  } else {
    for (int j = 0; j < 32; ++j) v[(32 + j) * kLD + lane] = 0.0;  // above the diagonal
  }
  barrier(2, 128);
  if (warp < 3) {  // s22 -= L21 L21^T, lower
    const int r0 = 32 + (warp > 0 ? 16 : 0), c0 = 32 + (warp > 1 ? 16 : 0);
    double c[2][4] = {};
#pragma unroll
    for (int k = 0; k < 32; k += 16) {
      double left[8], right[4];
      load_negated_a(left, s + k * kLD, kLD, r0, lane);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        load_b(right, s + k * kLD, kLD, c0 + 8 * n, lane);
        dmma(c[n], left, right);
      }
    }
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        s[(c0 + 8 * n + lane % 4 * 2 + e % 2) * kLD + r0 + lane / 4 + e / 2 * 8] += c[n][e];
  }
  barrier(2, 128);
  if (warp == 0) {
    const int here = lead(s + 32 * kLD + 32, roots + 32, column, lane, 3, 64);
    if (failed == 0 && here != 0) failed = 32 + here;
  } else if (warp == 2) {
    follow_inverse(v + 32 * kLD + 32, s + 32 * kLD + 32, roots + 32, lane, 3, 64);
  } else {  // t := L21 inverse11
    const int r0 = warp == 1 ? 0 : 16;
    double c[4][4] = {};
    small_product<4>(c, s + 32 + r0, v, kLD, lane);
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        t[(8 * n + lane % 4 * 2 + e % 2) * ldt + r0 + lane / 4 + e / 2 * 8] = c[n][e];
  }
  barrier(2, 128);
  {  // inverse21 := -inverse22 t
    const int r0 = warp % 2 * 16, c0 = warp / 2 * 16;
    double c[2][4] = {};
    small_product<2>(c, v + 32 * kLD + 32 + r0, t + c0 * ldt, ldt, lane);
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        v[(c0 + 8 * n + lane % 4 * 2 + e % 2) * kLD + 32 + r0 + lane / 4 + e / 2 * 8] = -c[n][e];
  }
  barrier(2, 128);
  return failed;
}

}  // namespace terrace::device::band_parts
