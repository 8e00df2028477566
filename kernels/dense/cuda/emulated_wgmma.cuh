// What the products of kernels/dense/cuda/emulated.cu are made of, sm_90a: clusters of two blocks,
// bulk copies to one or both of them, and asynchronous products of bytes.
#pragma once
#include "kernels/base/cuda/barriers.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
namespace terrace::dense::emulated {
using namespace device;

__device__ __forceinline__ unsigned rank_in_cluster() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void meet_cluster() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
/// At this barrier of block `rank` of the cluster, after reads only: a release would wait, chunk by
/// chunk, until this thread's stores are seen by the whole device.
__device__ __forceinline__ void arrive_at(const Word* barrier, unsigned rank) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [there];\n}" ::"r"(
          shared_address(barrier)),
      "r"(rank)
      : "memory");
}
/// copy_in_bulk to the same place in both blocks; each one's barrier counts the bytes.
__device__ __forceinline__ void copy_to_both(unsigned to, const void* from, unsigned bytes,
                                             const Word* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(shared_address(barrier)), "h"((unsigned short)(3))
      : "memory");
}
/// K-major block of 128-byte rows with the 128-byte swizzle; 8 rows are 1,024 bytes.
__device__ __forceinline__ Word descriptor(unsigned address) {
  return Word((address & 0x3ffff) >> 4) | Word(1) << 16 | Word(64) << 32 | Word(1) << 62;
}

#define TERRACE_D4(i) "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3])
#define TERRACE_D16(i) TERRACE_D4(i), TERRACE_D4(i + 4), TERRACE_D4(i + 8), TERRACE_D4(i + 12)
#define TERRACE_D64 TERRACE_D16(0), TERRACE_D16(16), TERRACE_D16(32), TERRACE_D16(48)
/// d (64 x 128 sums) = or += left (64 x 32 bytes) times right (128 x 32 bytes).
__device__ __forceinline__ void multiply_step(int (&d)[64], Word left, Word right, int add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,"
      "%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,"
      "%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, %64, %65, p;\n}\n"
      : TERRACE_D64
      : "l"(left), "l"(right), "r"(add));
}
/// 128 inner numbers: one group of asynchronous products.
__device__ __forceinline__ void multiply_chunk(int (&d)[64], Word left, Word right, int add) {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (int k = 0; k < 4; ++k) multiply_step(d, left + 2 * k, right + 2 * k, add | k);
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// All groups but the last `left` are done; d is one of them.
template <int left>
__device__ __forceinline__ void wait_products(int (&d)[64]) {
  asm volatile("wgmma.wait_group.sync.aligned %64;" : TERRACE_D64 : "n"(left) : "memory");
}
#undef TERRACE_D64
#undef TERRACE_D16
#undef TERRACE_D4

}  // namespace terrace::dense::emulated
#endif
