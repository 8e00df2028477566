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
__device__ __forceinline__ bool meets(const Column& a, const Column& b) {
  return ((a.rows[0] & b.rows[0]) | (a.rows[1] & b.rows[1]) | (a.rows[2] & b.rows[2])) != 0;
}
__device__ __forceinline__ void add_where(bool where, Column& to, const Column& d) {
  const unsigned mask = where ? ~0u : 0;
#pragma unroll
  for (int k = 0; k < 3; ++k) to.rows[k] ^= d.rows[k] & mask;
}
/// The first of the `free` rows with a one in c; none where `wanted` is zero, else ~0.
__device__ __forceinline__ Column first_row(const Column& c, const Column& free, unsigned wanted) {
  unsigned f[3], p[3];
#pragma unroll
  for (int k = 0; k < 3; ++k) {
    f[k] = c.rows[k] & free.rows[k] & wanted;
    p[k] = f[k] & (0 - f[k]);
  }
  return {{p[0], f[0] ? 0 : p[1], f[0] | f[1] ? 0 : p[2]}};
}

/// Gauss-Jordan in place on 64 columns, a lane holding columns lane and lane + 32: the pivot column
/// c goes to all lanes, and every other column with a one in the pivot row p gets c without p. What
/// stays in c is the column of the transform. Only the `open` columns get pivots.
struct Elimination {
  Column y[2];      ///< this lane's columns
  Column pivot[2];  ///< one bit: the row that became the column's pivot
  Column free{{~0u, ~0u, ~0u}};

  /// Columns `bit` and bit + 1 of half h: broadcast together, so that one step of the chain has no
  /// shuffle in it.
  template <int h>
  __device__ __forceinline__ void two_columns(int bit, int lane, unsigned open) {
    Column c, d;
#pragma unroll
    for (int k = 0; k < 3; ++k) {
      c.rows[k] = __shfl_sync(~0u, y[h].rows[k], bit);
      d.rows[k] = __shfl_sync(~0u, y[h].rows[k], bit + 1);
    }
    const Column p = eliminate<h>(c, bit, lane, 0 - (open & 1));
    add_where(meets(d, p), d, without(c, p));
    (void)eliminate<h>(d, bit + 1, lane, 0 - ((open >> 1) & 1));
  }
  /// Pivot of column c, number `column` of half h, and all other columns.
  template <int h>
  __device__ __forceinline__ Column eliminate(const Column& c, int column, int lane,
                                              unsigned wanted) {
    const Column p = first_row(c, free, wanted), rest = without(c, p);
#pragma unroll
    for (int k = 0; k < 3; ++k) free.rows[k] ^= p.rows[k];
    const bool mine = lane == column;
    add_where(meets(y[h], p) && !mine, y[h], rest);
    add_where(meets(y[1 - h], p), y[1 - h], rest);
#pragma unroll
    for (int k = 0; k < 3; ++k) pivot[h].rows[k] = mine ? p.rows[k] : pivot[h].rows[k];
    return p;
  }
  __device__ __forceinline__ static Column without(const Column& c, const Column& p) {
    return {{c.rows[0] ^ p.rows[0], c.rows[1] ^ p.rows[1], c.rows[2] ^ p.rows[2]}};
  }
};

/// One warp: pivots in the `open` columns of 96 rows, word[k] that of row lane + 32 k, which ends
/// reduced in place: row of T in the pivot columns. row[h]: the pivot row of column lane + 32 h, or
/// -1. Returns the columns with a pivot.
__device__ __forceinline__ Word choose(Word (&word)[3], int (&row)[2], Word open, int lane) {
  Elimination e;
#pragma unroll
  for (int k = 0; k < 3; ++k) {
    e.y[0].rows[k] = turn_bits(unsigned(word[k]), lane);
    e.y[1].rows[k] = turn_bits(unsigned(word[k] >> 32), lane);
  }
#pragma unroll 1
  for (int bit = 0; bit < 32; bit += 2) e.two_columns<0>(bit, lane, unsigned(open) >> bit);
#pragma unroll 1
  for (int bit = 0; bit < 32; bit += 2) e.two_columns<1>(bit, lane, unsigned(open >> 32) >> bit);
#pragma unroll
  for (int k = 0; k < 3; ++k)
    word[k] = Word(turn_bits(e.y[1].rows[k], lane)) << 32 | turn_bits(e.y[0].rows[k], lane);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    row[h] = -1;
#pragma unroll
    for (int k = 0; k < 3; ++k)
      if (e.pivot[h].rows[k] != 0) row[h] = 32 * k + __ffs(int(e.pivot[h].rows[k])) - 1;
  }
  return Word(__ballot_sync(~0u, row[1] >= 0)) << 32 | __ballot_sync(~0u, row[0] >= 0);
}

}  // namespace terrace::gf2::full
