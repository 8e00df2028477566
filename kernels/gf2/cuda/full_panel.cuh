// Body of the kernel in full_panel.cu: steps' factorizations by a cluster, updates by other blocks.
#pragma once
#include "kernels/base/cuda/barriers.cuh"
#include "kernels/gf2/cuda/full_update.cuh"

namespace terrace::gf2::full {

/// What blocks tell each other: zero before the kernel, and behind it again.
struct Signs {
  unsigned* ready;     ///< blocks whose part of the rows is there
  unsigned* factored;  ///< steps, and `ended`
  unsigned* updated;   ///< blocks that have updated a step, of all steps
  unsigned* left;      ///< blocks that look at these no more
  __device__ __forceinline__ explicit Signs(const FullPanel<Cuda>& p)
      : ready(reinterpret_cast<unsigned*>(p.done + 1)),
        factored(ready + 1),
        updated(ready + 2),
        left(ready + 3) {}
};
static_assert(full_signs >= 3);
constexpr unsigned ended = 1u << 31;  ///< no more steps than these

/// Shared memory of one block.
struct PanelMemory {
  union {
    FactorMemory factor;
    UpdateMemory update;
  };
  unsigned seen;
};

/// All threads of a block, until the flag says that `least` is reached, or that it never will be: what
/// it says then.
__device__ __forceinline__ unsigned wait_for(PanelMemory& memory, const unsigned* flag,
                                             unsigned least) {
  if (threadIdx.x == 0) {
    unsigned now = device::acquire_flag(flag);
    while (now < least) now = device::acquire_flag(flag);
    memory.seen = now;
  }
  __syncthreads();
  const unsigned seen = memory.seen;
  __syncthreads();
  return seen;
}

/// The cluster that factors: step after step, and in between what the next one needs of the update.
/// How many had full rank.
__device__ __forceinline__ Index lead(PanelMemory& memory, const FullPanel<Cuda>& p, Index steps,
                                      const Signs& signs, unsigned updaters) {
  constexpr int strips = step_words / strip_words, shares = blocks / strips;
  const int rank = int(device::cluster_rank());
  for (Index k = 0; k < steps; ++k) {
    const bool full = factor(memory.factor, p, k);
    device::meet_cluster();  // T, pivots and candidates are there
    if (rank == 0 && threadIdx.x == 0)
      device::release_flag(signs.factored, full ? unsigned(k + 1) : unsigned(k) | ended);
    if (!full) return k;
    if (k + 1 == steps) break;
    wait_for(memory, signs.updated, unsigned(k) * updaters);
    update_strip(memory.update, NextCandidates{p, k}, strips * (k + 1) + rank / shares,
                 rank % shares, int(full_candidates) / unit_rows, shares);
    device::meet_cluster();
  }
  return steps;
}

/// The other blocks, number `at` of `updaters`; returns the same.
__device__ __forceinline__ Index follow(PanelMemory& memory, const FullPanel<Cuda>& p, Index steps,
                                        const Signs& signs, unsigned at, unsigned updaters) {
  for (Index k = 0; k < steps; ++k) {
    const unsigned factored = wait_for(memory, signs.factored, unsigned(k + 1));
    if ((factored & ~ended) < unsigned(k + 1)) return k;
    wait_for(memory, signs.updated, unsigned(k) * updaters);
    update(memory.update, p, k, int(at), int(updaters));
    if (threadIdx.x == 0) device::add_release(signs.updated, 1);
  }
  return steps;
}

/// This block's part of the rows, and no pivots yet.
__device__ __forceinline__ void begin(const FullPanel<Cuda>& p,
                                      const BitRows<const Word, Cuda>& rows, int words) {
  const int pitch = int(p.pitch), all = int(gridDim.x) * threads;
  for (int x = int(blockIdx.x) * threads + int(threadIdx.x); x < int(p.count) * pitch; x += all) {
    const int i = x / pitch, w = x % pitch;
    p.before(0)[x] = w < words ? rows.data[rows.row(i) * rows.stride + w] : 0;
    if (w == 0) p.numbers[i] = -1;
  }
  if (blockIdx.x == 0) {
    const int x = int(threadIdx.x);
    p.candidates[x] = x < p.count ? x : -1;
  }
}
static_assert(threads == full_candidates);

/// This block's part of what the pivots of `done` steps make of `out`.
__device__ __forceinline__ void finish(const FullPanel<Cuda>& p, Index done, int words,
                                       const PanelFactor<Cuda>& out) {
  const int rank = int(full_columns * done), pitch = int(out.pitch);
  for (int x = int(blockIdx.x) * threads + int(threadIdx.x); x < rank * pitch;
       x += int(gridDim.x) * threads) {
    const int q = x / pitch, w = x % pitch;
    const Index row = p.pivots[q];
    if (w == 0) {
      out.info[1 + q] = q;
      out.info[1 + 64 * words + q] = row;
    }
    if (rank == 64 * words) out.transform[x] = p.before(done)[row * p.pitch + w];
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    out.info[0] = rank;
    *p.done = done;
  }
}

/// All of it by a cluster of `blocks` blocks and gridDim.x - blocks others, which are there together.
__device__ __forceinline__ void reduce(PanelMemory& memory, const FullPanel<Cuda>& p,
                                       const BitRows<const Word, Cuda>& rows, int words,
                                       const PanelFactor<Cuda>& out) {
  const Signs signs(p);
  const unsigned updaters = gridDim.x - blocks;
  const Index steps = words / step_words;
  begin(p, rows, words);
  __syncthreads();
  if (threadIdx.x == 0) device::add_release(signs.ready, 1);
  wait_for(memory, signs.ready, gridDim.x);
  const Index done = blockIdx.x < blocks
                         ? lead(memory, p, steps, signs, updaters)
                         : follow(memory, p, steps, signs, blockIdx.x - blocks, updaters);
  wait_for(memory, signs.updated, unsigned(done) * updaters);
  if (threadIdx.x == 0 && atomicAdd(signs.left, 1u) + 1 == gridDim.x)
    *signs.ready = *signs.factored = *signs.updated = *signs.left = 0;
  finish(p, done, words, out);
}

}  // namespace terrace::gf2::full
