// What the kernel of kernels/band/cuda/parts.cu is made of, 1: its launch.
#pragma once
#include "kernels/band/cuda/diagonal.cuh"
#include "kernels/band/parts.hpp"

namespace terrace::band::parts {

constexpr int kDepth = 16;            // columns of a tile in one stage
constexpr int kChunks = kW / kDepth;  // stages of a product of tiles
constexpr int kLDA = 2 * kW + 4;      // of two tile rows
constexpr int kB = kDepth * kLDA;     // where B lies in a stage
template <int NC>
constexpr int kLDB = NC* kW + 4;
constexpr int kFar = 1 << 29;  // offset of operands without a band
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
  int high;                   // tile rows of such a task
  int alone;                  // 1: that next to the diagonal has one tile row
  int diagonals;              // CTAs a part that do its diagonal blocks
  bool apart;                 // on multiprocessors that do nothing else
  bool rest;                  // only what comes after the columns
  int slope;                  // groups of tile columns that a pair is ahead of the next, / 65536
  Index most_ahead;
  Index window_groups, window_pairs, arrow_groups, arrow_pairs;
  int shares;                   // tasks of an arrow block, one after the other added to it
  unsigned long long* counter;  // the next of the others, the next diagonal task of each part
  unsigned* blocks;             // kBlockWords: see role()
  unsigned* turns;              // of arrow blocks: warps that have added their share
  Part parts[kMostParts];
  /// Groups that the at-th pair from the band's end is ahead of the last one.
  [[nodiscard]] __host__ __device__ Index ahead(int at) const { return Index(at) * slope >> 16; }
};
__device__ inline double* Part::tile(const Launch& l, Index k) const {
  return band + k % ring * (kW * (l.reach + 1));
}

/// Of a multiprocessor: CTAs that came to it, and what its first one does; before them all the
/// number of multiprocessors that have one.
constexpr int kMultiprocessors = 512, kBlockWords = 2 + 2 * kMultiprocessors;

constexpr int kMostStages = 8;
template <int NC>
constexpr int stage_doubles = kB + kDepth* kLDB<NC>;

__device__ inline double* dynamic_shared() { return shared_numbers<double>(); }

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

}  // namespace terrace::band::parts
