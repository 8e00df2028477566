// Numbers between blocks of one launch that say themselves that they are there, and sums over a
// block: for resident.cuh and resident_csr.cuh.
#pragma once
#include "kernels/base/cuda/barriers.cuh"

namespace terrace::cg::resident {

constexpr int threads = 256, warps = threads / 32;

using device::nothing;

/// What is there now; zero where it is not wanted.
__device__ inline Word look(const Word* place, bool wanted) {
  Word bits = 0;
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p ld.relaxed.gpu.global.b64 %0, [%1]; }"
               : "+l"(bits)
               : "l"(place), "r"(unsigned(wanted))
               : "memory");
  return bits;
}

/// v[0] + v[1] + ..., in pairs. Not a loop: that would keep v in local memory.
template <int count>
__device__ __forceinline__ double sum_in_pairs(const double (&v)[count]) {
  if constexpr (count == 1) {
    return v[0];
  } else {
    double half[count / 2];
#pragma unroll
    for (int i = 0; i < count / 2; ++i) half[i] = v[i] + v[i + count / 2];
    return sum_in_pairs(half);
  }
}
/// The sum of one number of each warp.
template <int stride, int count = warps>
__device__ __forceinline__ double sum_of_warps(const double* from) {
  double v[count];
#pragma unroll
  for (int i = 0; i < count; ++i) v[i] = from[i * stride];
  return sum_in_pairs(v);
}

/// Sum over the block of `count` warps, the same in all threads. `space`: 2 count doubles, not used
/// before the next __syncthreads() but one.
template <int count = warps>
__device__ inline double2 sum_for_all(double2 v, double* space) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) {
    v.x += __shfl_xor_sync(0xffffffffu, v.x, offset);
    v.y += __shfl_xor_sync(0xffffffffu, v.y, offset);
  }
  if (threadIdx.x % 32 == 0) {
    space[threadIdx.x / 32] = v.x;
    space[count + threadIdx.x / 32] = v.y;
  }
  __syncthreads();
  return make_double2(sum_of_warps<1, count>(space), sum_of_warps<1, count>(space + count));
}

/// Waits for numbers of this iteration, all on their way at once.
template <int count>
__device__ inline void receive(const Word* const (&slot)[count], unsigned tag,
                               double (&value)[count]) {
  bool all;
  do {
    bool here[count];
#pragma unroll
    for (int u = 0; u < count; ++u) here[u] = device::number_arrived(slot[u], value[u], tag);
    all = true;
#pragma unroll
    for (int u = 0; u < count; ++u) all = all && here[u];
  } while (!all);
}

}  // namespace terrace::cg::resident
