// A step of a wide panel: T S for some columns, and rows of these, by binary tensor cores.
#pragma once
#include "kernels/gf2/cuda/bit_mma.cuh"
#include "kernels/gf2/cuda/full_factor.cuh"

namespace terrace::gf2::full {

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

}  // namespace terrace::gf2::full
