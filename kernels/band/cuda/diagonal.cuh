// Cholesky factor of a 64 x 64 block and the inverse of that factor, by four warps, in shared
// memory.
#pragma once
#include "kernels/base/cuda/barriers.cuh"
#include "kernels/base/cuda/dmma.cuh"

namespace terrace::band::parts {
using namespace device;

constexpr unsigned kAll = 0xffffffffu;
constexpr int kW = 64;       // width of a tile column
constexpr int kLD = kW + 4;  // of a tile in shared memory: keeps the banks apart

/// Shared memory by its own name, so that it is read as such.
template <class Real>
__device__ inline Real* shared_numbers() {
  extern __shared__ __align__(1024) unsigned char memory[];
  return reinterpret_cast<Real*>(memory);
}
/// An arrival at barrier number `id` that does not wait.
__device__ inline void barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// 1 / p for p that is normal with a normal inverse: the special function unit, one Newton step.
__device__ inline float reciprocal(float p) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(p));
  return fmaf(r, fmaf(-p, r, 1.0f), r);
}
/// True when p is positive and p and 1 / p are normal numbers.
__device__ inline bool usable(double p) {
  return unsigned(__double2hiint(p)) - 0x00200000u < 0x7fc00000u - 0x00200000u;
}
__device__ inline bool usable(float p) {
  return unsigned(__float_as_int(p)) - 0x01000000u < 0x7e000000u - 0x01000000u;
}

constexpr int kBeat = 8;  // columns between two meetings of a factorization and its followers

/// One warp: the 32 x 32 block at `block` (kLD) := L D^(1/2), L its factor, D its pivots, whose
/// inverses come to `over`; a lane holds a row, of which the columns move on by kBeat a beat, so
/// that the code is short. After every beat the followers of one more barrier from id on may go on.
/// The chain of a column is reciprocal, product, multiply-add: each lane carries the pivot, and no
/// root is taken. Returns 0 or the one-based number of the first pivot that is not usable().
__device__ inline int lead(float* block, float* over, float (*column)[64], int lane, int id,
                           int threads) {
  float a[32];
#pragma unroll
  for (int c = 0; c < 32; ++c) a[c] = c <= lane ? block[c * kLD + lane] : float(0);
  float pivot = __shfl_sync(kAll, a[0], 0);
  int failed = 0;
#pragma unroll 1
  for (int beat = 0; beat < 32 / kBeat; ++beat) {
#pragma unroll
    for (int q = 0; q < kBeat; ++q) {
      const int j = beat * kBeat + q;
      failed = failed == 0 && !usable(pivot) ? j + 1 : failed;
      column[q % 2][lane] = a[q];
      const float inverse = reciprocal(pivot);
      const float beside = __shfl_sync(kAll, a[q], j + 1);
      const float next = __shfl_sync(kAll, a[q + 1], j + 1);
      __syncwarp();
      pivot = fma(-(beside * inverse), beside, next);
      const float scaled = a[q] * inverse;
      const float* const now = column[q % 2] + beat * kBeat;
#pragma unroll
      for (int c = q + 1; c < 32; ++c) a[c] = fma(-scaled, now[c], a[c]);
      if (lane >= j) block[j * kLD + lane] = a[q];
      if (lane == j) over[j] = inverse;
    }
    __syncwarp();
    barrier_arrive(id + beat, threads);
#pragma unroll
    for (int c = 0; c < 32; ++c) a[c] = c + kBeat < 32 ? a[c + kBeat] : float(0);
  }
  return failed;
}

/// One warp behind lead(): a lane's row x of 32 numbers := x L^-T D^(1/2), handed to store(column,
/// number).
template <class Store>
__device__ inline void follow(float (&x)[32], const float* block, const float* over, int id,
                              int threads, Store&& store) {
#pragma unroll 1
  for (int beat = 0; beat < 32 / kBeat; ++beat) {
    meet(id + beat, threads);
#pragma unroll
    for (int q = 0; q < kBeat; ++q) {
      const int j = beat * kBeat + q;
      store(j, x[q]);
      const float scaled = x[q] * over[j];
      const float* const column = block + j * kLD + beat * kBeat;
#pragma unroll
      for (int c = q + 1; c < 32; ++c) x[c] = fma(-scaled, column[c], x[c]);
    }
#pragma unroll
    for (int c = 0; c < 32; ++c) x[c] = c + kBeat < 32 ? x[c + kBeat] : float(0);
  }
}

/// to (16 x 16, column by column, kLD) := factor * A S B (+ to, with `add`) from shared memory: A
/// is 16 x 32, column by column (kLD); row k of column n of B lies at b[n * ldb + k * step]; S
/// diagonal. One code for all its uses: instructions come slowly the first time. Single precision
/// goes through the FP64 tensor cores too: its own units take several times as long.
__device__ __noinline__ inline void product16(int to, int a, int scale, int b, int ldb, int step,
                                              float factor, bool add, int lane) {
  float* const m = shared_numbers<float>();
  double c[2][4] = {};
#pragma unroll
  for (int k = 0; k < 32; k += 16) {
    double left[8], right[4];
#pragma unroll
    for (int q = 0; q < 8; ++q)
      left[q] = double(m[a + (k + q / 2 * 4 + lane % 4) * kLD + lane / 4 + q % 2 * 8] *
                       (factor * m[scale + k + q / 2 * 4 + lane % 4]));
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int q = 0; q < 4; ++q)
        right[q] = double(m[b + (8 * n + lane / 4) * ldb + (k + 4 * q + lane % 4) * step]);
      dmma(c[n], left, right);
    }
  }
#pragma unroll
  for (int n = 0; n < 2; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float& at = m[to + (8 * n + lane % 4 * 2 + e % 2) * kLD + lane / 4 + e / 2 * 8];
      at = add ? at + float(c[n][e]) : float(c[n][e]);
    }
}

/// What a diagonal task keeps in shared memory, in numbers: the block, its inverse, and (a tile's
/// room behind it) scratch.
constexpr int kInverse = kW * kLD, kScratch = 3 * kW * kLD;
constexpr int kOver = kScratch + 128;   // inverses of the pivots
constexpr int kRoots = kScratch + 192;  // and their roots
constexpr int kOnes = kScratch + 256;
constexpr int kFactorNumbers = kScratch + 288;

/// Four warps. Lower triangle of the 64 x 64 block s at 0 (column by column, kLD): s := L D^(1/2),
/// v at kInverse := D^(1/2) L^-1 (what is above v's diagonal has no meaning), where D are the
/// pivots of L; kRoots := D^(-1/2), whose entry q scales column q of s and row q of v. Returns (in
/// warp 0) 0 or the one-based number of the first bad pivot. w^3 flops in all; Golub, Van Loan 4.2.
__device__ inline int factor_and_invert(int warp, int lane) {
  constexpr int second = 32 * kLD + 32;
  constexpr int t = kInverse + 32 * kLD;  // above v's diagonal
  float* const s = shared_numbers<float>();
  float* const v = s + kInverse;
  int failed = 0;
#pragma unroll 1
  for (int half = 0; half < 2 && warp < 3; ++half) {
    float* const block = s + half * second;
    float* const over = s + kOver + 32 * half;
    const int threads = half == 0 ? 96 : 64;
    if (warp == 0) {
      const int here =
          lead(block, over, reinterpret_cast<float(*)[64]>(s + kScratch), lane, 3, threads);
      if (failed == 0 && here != 0) failed = 32 * half + here;
    } else if (warp == 2 || half == 0) {  // the inverse; rows 32 .. 63
      float x[32];
#pragma unroll
      for (int c = 0; c < 32; ++c) x[c] = warp == 2 ? float(c == lane) : s[c * kLD + 32 + lane];
      float* const to = warp == 2 ? v + half * second + lane * kLD : s + 32 + lane;
      const int step = warp == 2 ? 1 : kLD;
      follow(x, block, over, 3, threads, [&](int j, float value) { to[j * step] = value; });
    } else {  // t := L21 L11^-1, which D does not scale
      s[kOnes + lane] = 1;
      s[kRoots + lane] = rsqrt(s[lane * kLD + lane]);
#pragma unroll 1
      for (int q = 0; q < 4; ++q) {
        const int r0 = q % 2 * 16, c0 = q / 2 * 16;
        product16(t + c0 * kLD + r0, 32 + r0, kOver, kInverse + c0 * kLD, kLD, 1, 1, false, lane);
      }
    }
    if (half == 0) {
      meet(7, 96);
      const int r0 = 32 + (warp > 0 ? 16 : 0), c0 = 32 + (warp > 1 ? 16 : 0);
      product16(c0 * kLD + r0, r0, kOver, c0, 1, kLD, -1, true,
                lane);  // s22 -= L21 L21^T, lower
      meet(7, 96);
    }
  }
  meet(2, 128);
  {  // v21 := -L22^-1 t, scaled
    const int r0 = warp % 2 * 16, c0 = warp / 2 * 16;
    if (warp == 3) s[kRoots + 32 + lane] = rsqrt(s[second + lane * kLD + lane]);
    product16(kInverse + c0 * kLD + 32 + r0, kInverse + second + r0, kOnes, t + c0 * kLD, kLD, 1,
              -1, false, lane);
  }
  meet(2, 128);
  return failed;
}

}  // namespace terrace::band::parts
