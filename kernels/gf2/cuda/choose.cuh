// Pivots of 64 columns among 96 rows, by one warp.
#pragma once
#include "kernels/base/cuda/cluster.cuh"

namespace terrace::gf2::full {

constexpr int tried = 96;  ///< rows that one choice looks at, three a lane

/// Lane i holds row i of 32 x 32 bits, and afterwards column i.
__device__ __forceinline__ unsigned turn_bits(unsigned x, int lane) {
#pragma unroll
  for (int s = 16; s > 0; s /= 2) {
    const unsigned low = ~0u / ((1u << s) + 1);  // columns whose bit s is zero
    const unsigned y = __shfl_xor_sync(~0u, x, s);
    x = (lane & s) ? (x & ~low) | ((y >> s) & low) : (x & low) | ((y & low) << s);
  }
  return x;
}

/// Bits of a column in 96 rows.
struct Column {
  unsigned rows[3];
};
/// to += d where `bits` has a one. A predicate in place of a mask: one operation per word of 32 rows.
__device__ __forceinline__ void add_where(unsigned bits, Column& to, const Column& d) {
#ifdef __CUDA_ARCH__
  asm("{ .reg .pred where; setp.ne.u32 where, %3, 0; @where xor.b32 %0, %0, %4; "
      "@where xor.b32 %1, %1, %5; @where xor.b32 %2, %2, %6; }"
      : "+r"(to.rows[0]), "+r"(to.rows[1]), "+r"(to.rows[2])
      : "r"(bits), "r"(d.rows[0]), "r"(d.rows[1]), "r"(d.rows[2]));
#else
  for (int k = 0; k < 3; ++k) to.rows[k] ^= bits != 0 ? d.rows[k] : 0;
#endif
}
/// Column `from` of the warp's.
__device__ __forceinline__ Column broadcast(const Column& mine, int from) {
  Column c;
#pragma unroll
  for (int k = 0; k < 3; ++k) c.rows[k] = __shfl_sync(~0u, mine.rows[k], from);
  return c;
}

/// Gauss-Jordan in place on 64 columns of 96 rows, a lane holding columns lane and lane + 32: the
/// pivot column c goes to all lanes, and every other column with a one in the pivot row gets c
/// without that row. What stays in c is the column of the transform.
struct Elimination {
  Column y[2];      ///< this lane's columns
  Column pivot[2];  ///< one bit: the row that became the column's pivot
  Column free;      ///< rows that are no pivots

  __device__ __forceinline__ void load(const Word (&word)[3], int lane) {
#pragma unroll
    for (int k = 0; k < 3; ++k) {
      y[0].rows[k] = turn_bits(unsigned(word[k]), lane);
      y[1].rows[k] = turn_bits(unsigned(word[k] >> 32), lane);
      pivot[0].rows[k] = pivot[1].rows[k] = 0;
      free.rows[k] = ~0u;
    }
  }
  __device__ __forceinline__ void store(Word (&word)[3], int lane) const {
#pragma unroll
    for (int k = 0; k < 3; ++k)
      word[k] = Word(turn_bits(y[1].rows[k], lane)) << 32 | turn_bits(y[0].rows[k], lane);
  }

  /// Column `bit` of half h, c, with a pivot among rows 32 K ... 32 K + 31, if one has a one there:
  /// returns what others get. The chain of a step is this: two operations, a comparison, a sum.
  template <int h, int K>
  __device__ __forceinline__ Column quick_step(const Column& c, int bit, int lane, unsigned& p) {
    const unsigned own = lane == bit ? 0 : y[h].rows[K];
    const unsigned f = c.rows[K] & free.rows[K];
    p = f & (0 - f);
    Column rest = c;
    rest.rows[K] ^= p;
    add_where(own & p, y[h], rest);
    add_where(y[1 - h].rows[K] & p, y[1 - h], rest);
    free.rows[K] ^= p;
    pivot[h].rows[K] = lane == bit ? p : pivot[h].rows[K];
    return rest;
  }
  /// Columns [bit, end) of half h, two at a time: one broadcast for both.
  template <int h, int K>
  __device__ __forceinline__ void quick_steps(int bit, int end, int lane) {
#pragma unroll 1
    for (; bit < end; bit += 2) {
      const Column c = broadcast(y[h], bit);
      Column d = broadcast(y[h], bit + 1);
      unsigned p = 0, unused = 0;
      const Column rest = quick_step<h, K>(c, bit, lane, p);
      add_where(d.rows[K] & p, d, rest);
      (void)quick_step<h, K>(d, bit + 1, lane, unused);
    }
  }
  /// All columns; of random rows hardly ever one is left without a pivot.
  __device__ __forceinline__ void quickly(int lane) {
    quick_steps<0, 0>(0, 22, lane);
    quick_steps<0, 1>(22, 32, lane);
    quick_steps<1, 1>(0, 12, lane);
    quick_steps<1, 2>(12, 32, lane);
  }

  /// The `open` columns of half h, with a pivot among all rows.
  template <int h>
  __device__ __forceinline__ void careful_steps(unsigned open, int lane) {
#pragma unroll 1
    for (; open != 0; open &= open - 1) {
      const int bit = __ffs(int(open)) - 1;
      const Column c = broadcast(y[h], bit);
      unsigned f[3];
#pragma unroll
      for (int k = 0; k < 3; ++k) f[k] = c.rows[k] & free.rows[k];
      const Column p = {
          {f[0] & (0 - f[0]), f[0] ? 0 : f[1] & (0 - f[1]), f[0] | f[1] ? 0 : f[2] & (0 - f[2])}};
      Column rest = c;
      unsigned hit[2] = {};
#pragma unroll
      for (int k = 0; k < 3; ++k) {
        rest.rows[k] ^= p.rows[k];
        free.rows[k] ^= p.rows[k];
        hit[0] |= y[h].rows[k] & p.rows[k];
        hit[1] |= y[1 - h].rows[k] & p.rows[k];
      }
      add_where(lane != bit ? hit[0] : 0, y[h], rest);
      add_where(hit[1], y[1 - h], rest);
      if (lane == bit) pivot[h] = p;
    }
  }

  /// The pivot row of column lane + 32 h, or -1.
  [[nodiscard]] __device__ __forceinline__ int row(int h) const {
    int found = -1;
#pragma unroll
    for (int k = 0; k < 3; ++k)
      if (pivot[h].rows[k] != 0) found = 32 * k + __ffs(int(pivot[h].rows[k])) - 1;
    return found;
  }
  /// The columns with a pivot.
  [[nodiscard]] __device__ __forceinline__ Word found() const {
    return Word(__ballot_sync(~0u, row(1) >= 0)) << 32 | __ballot_sync(~0u, row(0) >= 0);
  }
};

/// One warp: pivots in the `open` columns of 96 rows, word[k] that of row lane + 32 k, which ends
/// reduced in place: row of T in the pivot columns. row[h]: the pivot row of column lane + 32 h, or
/// -1. Returns the columns with a pivot. A call of its own: its registers are not the other warps'.
__device__ __attribute__((noinline)) static Word choose(Word (&word)[3], int (&row)[2], Word open,
                                                        int lane) {
  Elimination e;
  Word found = 0;
  if (open == ~Word(0)) {
    e.load(word, lane);
    e.quickly(lane);
    found = e.found();
  }
  if (found != ~Word(0)) {
    e.load(word, lane);
    e.careful_steps<0>(unsigned(open), lane);
    e.careful_steps<1>(unsigned(open >> 32), lane);
    found = e.found();
  }
  e.store(word, lane);
  row[0] = e.row(0);
  row[1] = e.row(1);
  return found;
}

}  // namespace terrace::gf2::full
