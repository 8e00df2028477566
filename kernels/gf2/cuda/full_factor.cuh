// A step of a wide panel: its factorization by a cluster.
#pragma once
#include "kernels/base/cuda/cluster.cuh"
#include "kernels/gf2/cuda/choose.cuh"
#include "kernels/gf2/full_panel.hpp"

namespace terrace::gf2::full {

constexpr int step_words = int(max_panel_words);
constexpr int blocks = 8;     ///< of the cluster
constexpr int threads = 576;  ///< of a block, all alike

/// T of step k, 512 x step_words: of the last two steps there is one.
__device__ __forceinline__ Word* transform(const FullPanel<Cuda>& p, Index k) {
  return p.scratch + k % 2 * (full_columns * step_words);
}
/// The words of the next step's columns in its candidates, full_candidates x step_words.
__device__ __forceinline__ Word* ahead(const FullPanel<Cuda>& p) {
  return p.scratch + 2 * full_columns * step_words;
}
constexpr Index scratch_words = (2 * full_columns + full_candidates) * step_words;

constexpr int block_rows = int(full_candidates) / blocks;
constexpr int offered = tried / blocks;  ///< rows that a block offers at a time
static_assert(threads == block_rows * step_words);
constexpr int most_turns = 8;  ///< choices in 64 columns

/// Shared memory of one block.
struct FactorMemory {
  Word board[tried];                     ///< words that all blocks offer
  Word pivot_rows[64][step_words];       ///< S, by column, word w already in place
  Word transform[64];                    ///< T, by column
  Word sums[16][16][step_words];         ///< of every 4 of the pivot rows
  Word factors[16][16];                  ///< of every 4 rows of T
  Word found;                            ///< columns that got a pivot
  alignas(8) unsigned char wanting[24];  ///< rows of each warp that could become pivots
  short column[tried];                   ///< of the row at this place of the board, or -1
};

/// One warp: the choice among the board's rows.
__device__ __forceinline__ void choose_on_board(FactorMemory& memory, Word open, int lane) {
  Word word[3];
  int row[2];
#pragma unroll
  for (int i = 0; i < 3; ++i) word[i] = memory.board[lane + 32 * i];
  const Word found = choose(word, row, open, lane);
#pragma unroll
  for (int i = 0; i < 3; ++i) memory.column[lane + 32 * i] = -1;
  __syncwarp();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (row[h] >= 0)
      memory.column[row[h]] = short(lane + 32 * h);
    else
      memory.transform[lane + 32 * h] = 0;
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    const int column = memory.column[lane + 32 * i];
    if (column >= 0) memory.transform[column] = word[i] & found;
  }
  if (lane == 0) memory.found = found;
}

/// Sums of four words each way: to[0 ... 3] are those with bits 0 and 1; `quarter` has bits 2 and 3.
/// Entries are `pitch` words apart.
__device__ __forceinline__ void add_up(const Word (&s)[4], int quarter, Word* to, int pitch) {
  const Word base = ((quarter & 1) ? s[2] : 0) ^ ((quarter & 2) ? s[3] : 0);
  to[0] = base;
  to[pitch] = base ^ s[0];
  to[2 * pitch] = base ^ s[1];
  to[3 * pitch] = base ^ s[0] ^ s[1];
}

/// All combinations of every four pivot rows, and of their rows of T.
__device__ __forceinline__ void make_tables(FactorMemory& memory, Word found, int row, int u) {
  Word s[4];
  if (row < 64) {
    const int group = row / 4, quarter = row % 4;
#pragma unroll
    for (int j = 0; j < 4; ++j)
      s[j] = ((found >> (4 * group + j)) & 1) ? memory.pivot_rows[4 * group + j][u] : 0;
    add_up(s, quarter, &memory.sums[group][4 * quarter][u], step_words);
  } else {
    const int x = (row - 64) * step_words + u, group = x / 4, quarter = x % 4;
#pragma unroll
    for (int j = 0; j < 4; ++j) s[j] = memory.transform[4 * group + j];
    add_up(s, quarter, &memory.factors[group][4 * quarter], 1);
  }
}

/// Where the i-th row that a block offers stands: the choice takes the first rows of every 32, and so as
/// many of each block, which else would have none left for the last columns.
__device__ __forceinline__ int place_on_board(int i) {
  constexpr int each = 32 / blocks;
  return i / each * 32 + i % each * blocks + int(device::cluster_rank());
}

/// A thread of the factorization: word u of one candidate.
struct Candidate {
  int row, u, place;  ///< row of the block; place among all candidates
  Index from;         ///< row of the panel, or -1
  int pivot;          ///< its column in the step; -1: none yet; -2: there is no row
  Word a;

  [[nodiscard]] __device__ __forceinline__ Word word(int w) const {
    return __shfl_sync(~0u, a, int(threadIdx.x) % 32 / step_words * step_words + w);
  }

  /// The first rows of each block that could become pivots go to all boards; returns this row's
  /// place there, or -1. One barrier.
  __device__ __forceinline__ int offer(FactorMemory& memory, Word bits, Word open) const {
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
    const bool wants = pivot == -1 && (bits & open) != 0;
    const unsigned mask = __ballot_sync(~0u, wants && u == 0);
    if (lane == 0) memory.wanting[warp] = static_cast<unsigned char>(__popc(mask));
    __syncthreads();
    int before = __popc(mask & ((1u << lane / step_words * step_words) - 1)), all = 0;
#pragma unroll
    for (int i = 0; i < threads / 32; ++i) {
      const int count = memory.wanting[i];
      before += i < warp ? count : 0;
      all += count;
    }
    // Thread u of a row sends to block u.
    const bool takes_part = wants && before < offered;
    if (takes_part) *device::in_block(&memory.board[place_on_board(before)], unsigned(u)) = bits;
    if (row < offered && row >= all)
      *device::in_block(&memory.board[place_on_board(row)], unsigned(u)) = 0;
    return takes_part ? place_on_board(before) : -1;
  }

  /// What a row gets: its bits in the pivots' columns, times T.
  [[nodiscard]] __device__ __forceinline__ Word combination(const FactorMemory& memory,
                                                            Word bits) const {
    Word part = memory.factors[2 * u][(bits >> (8 * u)) & 15] ^
                memory.factors[2 * u + 1][(bits >> (8 * u + 4)) & 15];
#pragma unroll
    for (int s = 1; s < step_words; s *= 2) part ^= __shfl_xor_sync(~0u, part, s);
    return part;
  }

  /// One choice in the `open` columns of word w and what follows from it, in place; returns the
  /// columns that got a pivot.
  __device__ __forceinline__ Word turn(FactorMemory& memory, int w, Word open) {
    const Word bits = word(w);
    const int on_board = offer(memory, bits, open);
    device::meet_cluster();
    if (threadIdx.x < 32) choose_on_board(memory, open, int(threadIdx.x));
    __syncthreads();
    const Word found = memory.found;
    if (found == 0) return 0;
    const int column = on_board >= 0 ? memory.column[on_board] : -1;
    // In place: the pivot columns' word is the identity, which becomes T.
    const Word kept = u == w ? a & ~found : a;
    if (column >= 0) {
      const Word sent = u == w ? kept | Word(1) << column : kept;
#pragma unroll
      for (int b = 0; b < blocks; ++b)
        *device::in_block(&memory.pivot_rows[column][u], unsigned(b)) = sent;
      pivot = 64 * w + column;
    }
    device::meet_cluster();
    make_tables(memory, found, row, u);
    __syncthreads();
    const Word others = combination(memory, bits & found);
    const Word selected = column >= 0 ? memory.transform[column] : others;
    a = column >= 0 ? 0 : kept;
#pragma unroll
    for (int g = 0; g < 16; ++g) a ^= memory.sums[g][(selected >> (4 * g)) & 15][u];
    return found;
  }
};

/// A step by a cluster of `blocks` blocks: T, pivots, the next candidates; false, in all blocks alike,
/// and none of that: there are no 512 pivots.
__device__ __forceinline__ bool factor(FactorMemory& memory, const FullPanel<Cuda>& p, Index k) {
  const int row = int(threadIdx.x) / step_words, u = int(threadIdx.x) % step_words;
  Candidate c{row, u, row * blocks + int(device::cluster_rank()), -1, -2, 0};
  c.from = p.candidates[c.place];
  if (c.from >= 0) {
    c.pivot = -1;
    c.a = k == 0 ? p.before(0)[c.from * p.pitch + u] : ahead(p)[c.place * step_words + u];
  }
  device::meet_cluster();  // all blocks are there
#pragma unroll 1
  for (int w = 0; w < step_words; ++w) {
    Word open = ~Word(0);
#pragma unroll 1
    for (int turn = 0; open != 0; ++turn) {
      const Word found = turn < most_turns ? c.turn(memory, w, open) : 0;
      if (found == 0) return false;
      open &= ~found;
    }
  }
  if (c.pivot >= 0) {
    transform(p, k)[c.pivot * step_words + u] = c.a;
    if (u == 0) {
      const Index q = full_columns * k + c.pivot, next = full_candidates + q;
      p.pivots[q] = c.from;
      p.numbers[c.from] = q;
      p.candidates[c.place] = next < p.count ? next : -1;
    }
  }
  return true;
}

}  // namespace terrace::gf2::full
