// Body of the kernel in full_panel.cu: steps' factorizations by a cluster, updates by other blocks.
#pragma once
#include "kernels/base/cuda/barriers.cuh"
#include "kernels/base/cuda/cluster.cuh"
#include "kernels/gf2/cuda/bit_mma.cuh"
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

// --- factorization -------------------------------------------------------------------------------

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

// --- update --------------------------------------------------------------------------------------

constexpr int strip_words = 4;  ///< of the rows, for one block
constexpr int strip_columns = 64 * strip_words;
constexpr int warps = threads / 32;
constexpr int unit_rows = 32;  ///< of a warp

/// Rows of 512 bits in pieces of 16 bytes.
struct alignas(16) Piece {
  unsigned part[4];
};
struct BitRow {
  Piece piece[4];
};

/// Shared memory of one block. Columns are ordered so that a lane finds the 64 bits of one word in
/// its own counts: number 64 t + 2 j + e of 256 is at place 8 j + 2 t + e.
struct UpdateMemory {
  BitRow transform[full_columns];  ///< T, rows in that order, 256 and 256
  BitRow turned[strip_columns];    ///< column of S, pieces in another order
  BitRow reduced[strip_columns];   ///< column of T S, pieces in another order
};
__device__ __forceinline__ int place_of(int column) {
  return column / 256 * 256 + column % 64 / 2 * 8 + column % 256 / 64 * 2 + column % 2;
}
/// Pieces of eight rows one after the other lie in different banks.
__device__ __forceinline__ int piece_at(int place, int piece) { return piece ^ ((place / 8) & 3); }

/// T of the step, and the columns of S turned: the words of S that become T are the identity.
__device__ __forceinline__ void load_step(UpdateMemory& memory, const FullPanel<Cuda>& p, Index k,
                                          Index strip) {
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const auto* pieces = reinterpret_cast<const Piece*>(transform(p, k));
  for (int x = int(threadIdx.x); x < int(full_columns) * 4; x += threads)
    memory.transform[place_of(x / 4)].piece[x % 4] = pieces[x];
  if (warp >= 16) return;
  // Word warp % 4 of 128 pivot rows, 32 at a time.
  const Index word = strip_words * strip + warp % 4;
  const int own = int(word - step_words * k);  // of the step's own words
  Piece low, high;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int q = warp / 4 * 128 + 32 * i + lane;
    Word bits = 0;
    if (own >= 0 && own < step_words)
      bits = q / 64 == own ? Word(1) << (q % 64) : 0;
    else
      bits = p.before(k)[p.pivots[full_columns * k + q] * p.pitch + word];
    low.part[i] = turn_bits(unsigned(bits), lane);
    high.part[i] = turn_bits(unsigned(bits >> 32), lane);
  }
  const int first = place_of(64 * (warp % 4) + lane),
            second = place_of(64 * (warp % 4) + lane + 32);
  memory.turned[first].piece[piece_at(first, warp / 4)] = low;
  memory.turned[second].piece[piece_at(second, warp / 4)] = high;
}

/// 16 rows of 512 bits: rows lane / 4 and + 8.
struct Tile {
  Piece row[2];
  /// d += these rows times the 8 columns of which b is this lane's piece.
  __device__ __forceinline__ void multiply(int (&d)[4], const Piece& b) const {
#pragma unroll
    for (int v = 0; v < 4; v += 2)
      add_bit_product(d, {row[0].part[v], row[1].part[v], row[0].part[v + 1], row[1].part[v + 1]},
                      b.part[v], b.part[v + 1]);
  }
};
/// The low bits of two counts go on top of a row's bits so far.
__device__ __forceinline__ void append(unsigned& bits, const int (&d)[4], int h) {
  bits = bits >> 1 | unsigned(d[2 * h]) << 31;
  bits = bits >> 1 | unsigned(d[2 * h + 1]) << 31;
}

/// reduced = (T S) turned: 64 columns of S with 128 rows of T, half of 256, per warp.
__device__ __forceinline__ void reduce_step(UpdateMemory& memory) {
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  if (warp >= 16) return;
  const int first = 64 * (warp / 4), block = warp % 4 / 2, half = warp % 2, quad = lane % 4;
  Tile tile[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int place = first + 16 * i + 8 * h + lane / 4;
      tile[i].row[h] = memory.turned[place].piece[piece_at(place, quad)];
    }
  unsigned bits[4][2] = {};
#pragma unroll 2
  for (int j = 16 * half; j < 16 * half + 16; ++j) {
    const Piece b = memory.transform[256 * block + 8 * j + lane / 4].piece[quad];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      int d[4] = {};
      tile[i].multiply(d, b);
      append(bits[i][0], d, 0);
      append(bits[i][1], d, 1);
    }
  }
  const int word = 4 * block + quad;  // of T S, 64 rows each
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int place = first + 16 * i + 8 * h + lane / 4;
      memory.reduced[place].piece[piece_at(place, word / 2)].part[word % 2 * 2 + half] = bits[i][h];
    }
}

/// Where rows of an update come from, -1: there is none, and where their words go.
struct PanelRows {
  const FullPanel<Cuda>& p;
  Index k;
  [[nodiscard]] __device__ __forceinline__ Index row(Index i) const { return i < p.count ? i : -1; }
  [[nodiscard]] __device__ __forceinline__ Word* place(Index i, Index word) const {
    return p.after(k) + i * p.pitch + word;
  }
};
/// The next step's candidates, whose words of its columns go ahead.
struct NextCandidates {
  const FullPanel<Cuda>& p;
  Index k;
  [[nodiscard]] __device__ __forceinline__ Index row(Index i) const { return p.candidates[i]; }
  [[nodiscard]] __device__ __forceinline__ Word* place(Index i, Index word) const {
    return ahead(p) + i * step_words + word - step_words * (k + 1);
  }
};

/// A row's bits in the step's columns and its old word; of a pivot row the unit vector and zero.
__device__ __forceinline__ void load_row(const FullPanel<Cuda>& p, Index k, Index i, Index word,
                                         int quad, Piece& bits, Word& old) {
  bits = {};
  old = 0;
  if (i < 0) return;
  // The next step's pivots may be there already.
  const Index own = p.numbers[i] - full_columns * k;
  const Word* row = p.before(k) + i * p.pitch;
  if (own >= 0 && own < full_columns) {
    const int at = int(own);
#pragma unroll
    for (int v = 0; v < 4; ++v) bits.part[v] = at / 32 == 4 * quad + v ? 1u << (at % 32) : 0;
    return;
  }
  bits = *(reinterpret_cast<const Piece*>(row + step_words * k) + quad);
  if (word < step_words * k || word >= step_words * (k + 1)) old = row[word];
}

/// 32 rows of the strip by one warp: A ^= A[:, P] (T S).
template <class Rows>
__device__ __forceinline__ void update_unit(const UpdateMemory& memory, const Rows& rows,
                                            Index strip, int unit) {
  const int lane = int(threadIdx.x) % 32, quad = lane % 4;
  const Index word = strip_words * strip + quad;
  Tile tile[2];
  Word old[2][2];
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      load_row(rows.p, rows.k, rows.row(unit_rows * unit + 16 * i + 8 * h + lane / 4), word, quad,
               tile[i].row[h], old[i][h]);
  unsigned bits[2][2][2] = {};  // half of the word, tile, row
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll 4
    for (int j = 16 * half; j < 16 * half + 16; ++j) {
      const int place = 8 * j + lane / 4;
      const Piece b = memory.reduced[place].piece[piece_at(place, quad)];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        int d[4] = {};
        tile[i].multiply(d, b);
        append(bits[half][i][0], d, 0);
        append(bits[half][i][1], d, 1);
      }
    }
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const Index at = unit_rows * unit + 16 * i + 8 * h + lane / 4;
      if (rows.row(at) >= 0)
        *rows.place(at, word) = old[i][h] ^ (Word(bits[1][i][h]) << 32 | bits[0][i][h]);
    }
}

/// Units first, first + step, ... below `end` of a strip, by the warps of this block.
template <class Rows>
__device__ __forceinline__ void update_strip(UpdateMemory& memory, const Rows& rows, Index strip,
                                             int first, int end, int step) {
  load_step(memory, rows.p, rows.k, strip);
  __syncthreads();
  reduce_step(memory);
  __syncthreads();
  for (int unit = first + step * (int(threadIdx.x) / 32); unit < end; unit += step * warps)
    update_unit(memory, rows, strip, unit);
  __syncthreads();
}

/// This block's part, number `at` of `all`, of step k.
__device__ __forceinline__ void update(UpdateMemory& memory, const FullPanel<Cuda>& p, Index k,
                                       int at, int all) {
  const int strips = int(p.pitch) / strip_words, units = int(ceil_div(p.count, Index(unit_rows)));
  const int shares = all > strips ? all / strips : 1;  // blocks for a strip
  for (int item = at; item < strips * shares; item += all)
    update_strip(memory, PanelRows{p, k}, item / shares, item % shares, units, shares);
}

// --- all steps -----------------------------------------------------------------------------------

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
