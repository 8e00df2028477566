// Clusters of blocks on the CPU, one thread after the other, for the bodies of kernels: tests the
// code of a device without one. Threads change at barriers and where they look at a flag, in random
// order.
//
// A kernel's body takes its shared memory as an argument, and names only what stands here; headers
// with instructions have a twin in tests/emulated, which stands first in the include path.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "kernels/base/backend.hpp"

struct EmulatedIndex {
  unsigned x = 0, y = 0;
};
inline EmulatedIndex threadIdx, blockIdx, gridDim;

namespace terrace::test {

class EmulatedGpu {
 public:
  /// kernel(memory) by all threads of `blocks` blocks, each with its own memory, which are clusters of
  /// `cluster` blocks. Throws where threads wait at barriers for ever.
  template <class Memory, class Kernel>
  void launch(unsigned blocks, unsigned cluster, unsigned threads, unsigned seed, Kernel kernel) {
    std::vector<Memory> memory(blocks);
    std::memset(static_cast<void*>(memory.data()), 0xa5, blocks * sizeof(Memory));
    memory_ = reinterpret_cast<char*>(memory.data());
    memory_bytes_ = sizeof(Memory);
    warps_ = threads / 32;
    in_block_.assign(blocks, Barrier{threads});
    in_warp_.assign(std::size_t(blocks) * warps_, Barrier{32});
    slots_.resize(in_warp_.size());
    cluster_ = cluster;
    in_cluster_.assign(blocks / cluster, Barrier{cluster * threads});
    gridDim = {blocks, 1};
    body_ = [&, kernel] { kernel(memory[block()]); };
    run(blocks * threads, threads, seed);
  }
  [[nodiscard]] unsigned block() const { return now_ / threads_; }
  template <class T>
  T* in_block(T* here, unsigned rank) {
    auto* first = reinterpret_cast<char*>(here) - cluster_rank() * memory_bytes_;
    return reinterpret_cast<T*>(first + rank * memory_bytes_);
  }
  [[nodiscard]] unsigned cluster_rank() const { return block() % cluster_; }
  void meet_cluster() { meet(in_cluster_[block() / cluster_]); }
  /// Lets others go on.
  void give_way() {
    ready_.push_back(now_);
    leave();
  }
  void meet_block() { meet(in_block_[block()]); }
  void meet_warp() { meet(in_warp_[warp()]); }
  /// What each lane of the warp gives.
  template <class T>
  const std::array<T, 32>& exchange(const T& mine) {
    Slots& slots = slots_[warp()];
    auto& place = slots.bytes[states_[now_].turn++ % 2];
    static_assert(sizeof(std::array<T, 32>) <= sizeof(place));
    auto& all = *reinterpret_cast<std::array<T, 32>*>(place);
    all[now_ % 32] = mine;
    meet_warp();
    return all;
  }

 private:
  struct Barrier {
    unsigned size = 0;
    std::vector<unsigned> waiting{};
  };
  struct Slots {
    alignas(16) char bytes[2][32 * 32];  // by turns: the last one may still be read
  };
  struct Thread {
    ucontext_t begin;  ///< its own stack; later changes are jumps, ten times as fast
    jmp_buf here;
    std::unique_ptr<char[]> stack;
    unsigned turn = 0;
    bool begun = false, done = false;
  };
  static constexpr std::size_t stack_bytes = 64 << 10;

  [[nodiscard]] std::size_t warp() const { return now_ / 32; }
  void meet(Barrier& barrier) {
    if (barrier.waiting.size() + 1 == barrier.size) {
      ready_.insert(ready_.end(), barrier.waiting.begin(), barrier.waiting.end());
      barrier.waiting.clear();
      return;
    }
    barrier.waiting.push_back(now_);
    leave();
  }
  void leave() {
    if (_setjmp(states_[now_].here) == 0) _longjmp(main_, 1);
  }
  static void enter();
  [[gnu::noinline]] void resume() {
    if (_setjmp(main_) != 0) return;
    if (states_[now_].begun) _longjmp(states_[now_].here, 1);
    states_[now_].begun = true;
    setcontext(&states_[now_].begin);
  }
  /// A thread of those that are ready, drawn; by turns of the seed the first or the last blocks are
  /// often ahead of the others.
  std::size_t next(unsigned seed) {
    const std::size_t one = random_() % ready_.size(), other = random_() % ready_.size();
    if (seed % 3 == 0) return one;
    return (ready_[one] < ready_[other]) == (seed % 3 == 1) ? one : other;
  }
  void run(unsigned total, unsigned threads, unsigned seed) {
    threads_ = threads;
    states_ = std::vector<Thread>(total);
    for (unsigned t = 0; t < total; ++t) {
      Thread& thread = states_[t];
      thread.stack.reset(new char[stack_bytes]);
      getcontext(&thread.begin);
      thread.begin.uc_stack.ss_sp = thread.stack.get();
      thread.begin.uc_stack.ss_size = stack_bytes;
      makecontext(&thread.begin, &EmulatedGpu::enter, 0);
      ready_.push_back(t);
    }
    random_.seed(seed);
    while (!ready_.empty()) {
      std::swap(ready_[next(seed)], ready_.back());
      now_ = ready_.back();
      ready_.pop_back();
      threadIdx.x = now_ % threads_;
      blockIdx.x = block();
      resume();
    }
    if (std::any_of(states_.begin(), states_.end(), [](const Thread& t) { return !t.done; }))
      throw std::runtime_error("threads of an emulated kernel wait for each other");
  }

  jmp_buf main_;
  std::mt19937 random_;
  std::function<void()> body_;
  std::vector<Thread> states_;
  std::vector<unsigned> ready_;
  std::vector<Barrier> in_block_, in_warp_, in_cluster_;
  std::vector<Slots> slots_;
  char* memory_ = nullptr;
  std::size_t memory_bytes_ = 0;
  unsigned now_ = 0, threads_ = 1, warps_ = 0, cluster_ = 1;
};

inline EmulatedGpu& gpu() {
  static EmulatedGpu one;
  return one;
}
inline void EmulatedGpu::enter() {
  gpu().body_();
  gpu().states_[gpu().now_].done = true;
  _longjmp(gpu().main_, 1);
}

}  // namespace terrace::test

// What device code calls.
#define __device__
#define __forceinline__ inline
inline void __syncthreads() { terrace::test::gpu().meet_block(); }
inline void __syncwarp() { terrace::test::gpu().meet_warp(); }
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  return terrace::test::gpu().exchange(value)[std::size_t(lane)];
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int bits) {
  return terrace::test::gpu().exchange(value)[threadIdx.x % 32 ^ unsigned(bits)];
}
inline unsigned __ballot_sync(unsigned, bool value) {
  const auto& all = terrace::test::gpu().exchange(value);
  unsigned result = 0;
  for (unsigned lane = 0; lane < 32; ++lane) result |= unsigned(all[lane]) << lane;
  return result;
}
inline unsigned atomicAdd(unsigned* to, unsigned by) {
  const unsigned before = *to;
  *to += by;
  return before;
}
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(unsigned(x)) + 1; }
using std::min;
