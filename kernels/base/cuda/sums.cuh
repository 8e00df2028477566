// Deterministic pairs of sums in .cu files: block sums land in `partials`, the last block to finish
// adds them in order.
#pragma once
#include <algorithm>

#include "kernels/base/cuda/runtime.cuh"
#include "kernels/base/sums.hpp"

namespace terrace {

constexpr int sum_threads = 256;

/// Blocks of a launch over `groups` pieces of work, each block taking every gridDim.x-th.
inline unsigned sum_blocks(Index groups, Index most) {
  return unsigned(std::min(std::max<Index>(groups, 1), std::min(most, SumSpace<Cuda>::pieces)));
}

/// Sum over the block, in thread 0. All threads of a block of 32 to 1024 threads.
__device__ inline double2 block_sum(double2 v) {
  __shared__ double2 warps[32];
  for (int offset = 16; offset > 0; offset >>= 1) {
    v.x += __shfl_down_sync(0xffffffffu, v.x, offset);
    v.y += __shfl_down_sync(0xffffffffu, v.y, offset);
  }
  __syncthreads();  // an earlier use of `warps` is over
  if ((threadIdx.x & 31) == 0) warps[threadIdx.x >> 5] = v;
  __syncthreads();
  if (threadIdx.x == 0)
    for (unsigned w = 1; w < (blockDim.x + 31) / 32; ++w) {
      v.x += warps[w].x;
      v.y += warps[w].y;
    }
  return v;
}

/// add(load(k)) for k = from, from + step, ... < count, in this order, with `batch` loads under way at
/// once: a latency for each would bind. Loads the last one again where fewer are left.
template <int batch, class Load, class Add>
__device__ __forceinline__ void add_in_batches(int from, int count, int step, const Load& load,
                                               const Add& add) {
  for (int k = from; k < count; k += batch * step) {
    decltype(load(k)) held[batch];
#pragma unroll
    for (int u = 0; u < batch; ++u) held[u] = load(min(k + u * step, count - 1));
#pragma unroll
    for (int u = 0; u < batch; ++u)
      if (k + u * step < count) add(held[u]);
  }
}

/// Last statement of a kernel, by all threads: target.result (+)= sum of (a, b) over the grid.
__device__ inline void finish_sums(double a, double b, const SumTarget<Cuda>& target) {
  __shared__ bool last;
  double* const partials = target.partials.data;
  const double2 mine = block_sum(make_double2(a, b));
  if (threadIdx.x == 0) {
    partials[2 * blockIdx.x] = mine.x;
    partials[2 * blockIdx.x + 1] = mine.y;
    __threadfence();
    auto* const ticket = reinterpret_cast<unsigned long long*>(target.ticket.data);
    last = atomicAdd(ticket, 1ull) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (!last) return;
  double2 sum = make_double2(0, 0);
  add_in_batches<4>(
      int(threadIdx.x), int(gridDim.x), int(blockDim.x),
      [&](int k) { return __ldcg(reinterpret_cast<const double2*>(partials) + k); },
      [&](double2 part) { sum.x += part.x, sum.y += part.y; });
  sum = block_sum(sum);
  if (threadIdx.x == 0) {
    double* const result = target.result.data;
    result[0] = (target.add ? result[0] : 0.0) + sum.x;
    result[1] = (target.add ? result[1] : 0.0) + sum.y;
    target.ticket.data[0] = 0;
  }
}

}  // namespace terrace
