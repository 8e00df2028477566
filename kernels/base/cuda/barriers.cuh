// Hand-overs: barriers in shared memory that copies arrive at, flags and tagged numbers in global
// memory between blocks of one launch.
#pragma once
#include <cuda_runtime.h>

#include "kernels/base/backend.hpp"

namespace terrace::device {

__device__ inline unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

/// A barrier of `count` arrivals a phase. One thread makes it, __syncthreads() shows it.
__device__ inline void make_barrier(Word* barrier, unsigned count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count)
               : "memory");
}
__device__ inline void arrive(Word* barrier) {
  asm volatile(
      "{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(shared_address(barrier))
      : "memory");
}
/// One arrival as soon as this thread's asynchronous copies so far are there.
__device__ inline void arrive_after_copies(Word* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
/// One arrival that also waits for that many bytes of bulk copies.
__device__ inline void arrive_for_bytes(Word* barrier, unsigned bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1; }" ::"r"(
                   shared_address(barrier)),
               "r"(bytes)
               : "memory");
#endif
}
/// Waits for the end of the phase of this parity; of a new barrier, parity 1 has ended.
__device__ inline void wait_for(Word* barrier, unsigned parity) {
  unsigned over = 0;
  do {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(over)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
#elif __CUDA_ARCH__ >= 800
    asm volatile(
        "{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(over)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
#endif
  } while (over == 0);
}
/// Barrier number `id` among `threads` threads of the block.
__device__ inline void meet(int id, int threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Copies whole pieces of 16 bytes to shared memory; the barrier counts their bytes.
__device__ inline void copy_in_bulk(unsigned to, const void* from, unsigned bytes, Word* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
#endif
}
__device__ inline void copy_in_bulk(void* to, const void* from, unsigned bytes, Word* barrier) {
  copy_in_bulk(shared_address(to), from, bytes, barrier);
}
/// The same with a policy of the second-level cache.
__device__ inline void copy_in_bulk(void* to, const void* from, unsigned bytes, Word* barrier,
                                    Word policy) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
#endif
}
/// A policy: what is read once shall not push other things out of the second-level cache.
__device__ inline Word read_once() {
  Word policy = 0;
#if __CUDA_ARCH__ >= 800
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
#endif
  return policy;
}
/// Between ordinary accesses and bulk copies of the same shared memory, in either order.
__device__ inline void order_shared_copies() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/// A warp gives a stage back, which copies will fill again. Without the fence the arrival may pass
/// the warp's loads: it does not wait for those whose numbers are not in use yet.
__device__ inline void give_back(Word* stage, int lane) {
  order_shared_copies();
  __syncwarp();
  if (lane == 0) arrive(stage);
}

/// Stages of a ring: the n-th use of it is stage n % count, round n / count.
template <int count>
struct Ring {
  int stage = 0;
  unsigned round = 0;
  __device__ unsigned filled() const { return round & 1; }         ///< parity for readers
  __device__ unsigned emptied() const { return (round & 1) ^ 1; }  ///< parity for writers
  __device__ void next() {
    if (++stage == count) {
      stage = 0;
      ++round;
    }
  }
};

/// A flag: what was written before the release is seen after the acquire.
__device__ inline void release_flag(unsigned* flag, unsigned value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
__device__ inline unsigned acquire_flag(const unsigned* flag) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

/// A flag that several add to.
__device__ inline void add_release(unsigned* flag, unsigned by) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(flag), "r"(by) : "memory");
}

/// A word between blocks, which carries no order of others with it.
__device__ inline void send_word(Word* slot, Word word) {
  asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(slot), "l"(word) : "memory");
}
__device__ inline Word look(const Word* slot) {
  Word word;
  asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(word) : "l"(slot) : "memory");
  return word;
}
/// A bare number: its place holds `nothing`, a NaN that no operation returns, until it is sent.
constexpr Word nothing = ~Word(0);
__device__ inline void send_bare(Word* slot, double value) {
  const Word bits = static_cast<Word>(__double_as_longlong(value));
  send_word(slot, bits == nothing ? 0x7ff8000000000000u : bits);
}

/// Numbers that say themselves that they are there: two words, each half of the bits and a tag
/// above them. A word is stored whole, so no fence and no flag is needed. Tag zero means: not yet.
__device__ inline void send_number(Word* slot, double value, unsigned tag = 1) {
  const Word bits = static_cast<Word>(__double_as_longlong(value)), mark = Word(tag) << 32;
  asm volatile("st.relaxed.gpu.global.v2.b64 [%0], {%1, %2};" ::"l"(slot),
               "l"((bits & 0xffffffffu) | mark), "l"((bits >> 32) | mark)
               : "memory");
}
__device__ inline bool number_arrived(const Word* slot, double& value, unsigned tag = 1) {
  Word low, high;
  asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];"
               : "=l"(low), "=l"(high)
               : "l"(slot)
               : "memory");
  value = __longlong_as_double(static_cast<long long>((high << 32) | (low & 0xffffffffu)));
  return unsigned(low >> 32) == tag && unsigned(high >> 32) == tag;
}

}  // namespace terrace::device
