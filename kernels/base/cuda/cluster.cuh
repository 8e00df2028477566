// Blocks of one cluster: places in each other's shared memory, and their barrier. Compute
// capability 9.0 and later; nothing on others.
#pragma once
#include <cuda_runtime.h>

#include "kernels/base/backend.hpp"

namespace terrace::device {

/// Number of this block in its cluster.
__device__ inline unsigned cluster_rank() {
  unsigned rank = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  return rank;
}
/// The place of `here`, in this block's shared memory, in that of block `rank`, which has to be there
/// (meet_cluster()) and may not have ended.
template <class T>
__device__ inline T* in_block(T* here, unsigned rank) {
#if __CUDA_ARCH__ >= 900
  T* there;
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(here), "r"(rank));
  return there;
#else
  return here;
#endif
}
/// All threads of all blocks of the cluster; what was written before is seen after it.
__device__ inline void meet_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

}  // namespace terrace::device
