// What product_kernel of kernels/dense/cuda/emulated.cu works on, and its way back: from residues
// to A.
#pragma once
#include "kernels/dense/cuda/emulated.cuh"

namespace terrace::dense::emulated {

constexpr int tile_rows = 128;     // of a block; two warpgroups of 64, two blocks a cluster
constexpr int tile_columns = 256;  // shared by the blocks of a cluster
constexpr int chunk = 128;         // inner numbers a stage: one row of a swizzled block
constexpr int left_bytes = tile_rows * chunk, right_bytes = tile_columns * chunk;
constexpr int stage_bytes = left_bytes + right_bytes;
constexpr int stages = 4;
constexpr int shared_bytes = stages * stage_bytes + 1024;
constexpr int threads = 4 * 128;          // two warpgroups multiply, one makes doubles, one loads
constexpr Index strip = 8;                // tiles side by side that share rows of N in L2
constexpr int pieces = 16;                // of 8 residues, of a thread and a modulus
constexpr Index launch_chunks = 1 << 12;  // of a block, of all moduli: 2 to 3 ms

/// [modulus][tile of `rows` vectors][chunk][rows x 128 bytes], swizzled as descriptors expect.
template <int rows>
struct Packed {
  unsigned char* data;
  Index tiles, chunks;
  __host__ __device__ Index block(Index plane, Index tile) const {
    return (plane * tiles + tile) * chunks * rows * chunk;
  }
  __device__ uint4* at(Index plane, Index vector, Index piece) const {
    const auto r = int(vector % rows), c = int(piece % 8);
    return reinterpret_cast<uint4*>(data + block(plane, vector / rows) + piece / 8 * rows * chunk +
                                    r * 128 + ((c ^ (r & 7)) << 4));
  }
};

struct Product {
  Packed<tile_rows> left;
  Packed<tile_columns> right;
  const int *row_exponents, *column_exponents;
  double* a;
  Index lda, m, n;
  bool pairs;  // of columns can be read at once
  unsigned char* scratch;
  Index first, end;  // tiles of this launch
  Index wave;        // clusters
  Scheme s;
};

/// Rows and columns of cluster tile k: strips of `strip` tiles, row by row.
__device__ __forceinline__ void tile_at(const Product& p, Index k, Index& row, Index& column) {
  const Index row_pairs = p.left.tiles / 2, per_strip = strip * row_pairs;
  const Index s = k / per_strip, rest = k % per_strip;
  const Index width = min(strip, p.right.tiles - s * strip);
  row = rest / width;
  column = s * strip + rest % width;
}

/// Residues of a block: [tile % 2][modulus][piece][thread of 256], 8 bytes each.
__device__ __forceinline__ uint2* scratch_at(const Product& p, int half, int modulus, int piece,
                                             int thread) {
  return reinterpret_cast<uint2*>(p.scratch) +
         (((Index(blockIdx.x) * 2 + half) * p.s.count + modulus) * pieces + piece) * 256 + thread;
}

/// Byte e of word 4 g + j becomes byte j of to[e][g].
template <int groups>
__device__ __forceinline__ void transpose(unsigned (&to)[4][groups],
                                          const unsigned (&r)[4 * groups]) {
#pragma unroll
  for (int g = 0; g < groups; ++g) {
    const unsigned a = r[4 * g], b = r[4 * g + 1], c = r[4 * g + 2], d = r[4 * g + 3];
    const unsigned low = __byte_perm(a, b, 0x5140), high = __byte_perm(a, b, 0x7362);
    const unsigned low2 = __byte_perm(c, d, 0x5140), high2 = __byte_perm(c, d, 0x7362);
    to[0][g] = __byte_perm(low, low2, 0x5410);
    to[1][g] = __byte_perm(low, low2, 0x7632);
    to[2][g] = __byte_perm(high, high2, 0x5410);
    to[3][g] = __byte_perm(high, high2, 0x7632);
  }
}

/// This block's part of A, rows x columns of it, and exponents.
struct Tile {
  double* a;
  const int *row_exponents, *column_exponents;
  int rows, columns;
};

__device__ __forceinline__ double changed(const Product& p, double a, double x, int row,
                                          int column) {
  const double v = subtract(a, x, p.s.mantissa, p.s.exponent - row - column);
  return row == not_finite || column == not_finite ? __longlong_as_double(0x7ff8ll << 48) : v;
}

/// Eight numbers of A, as a multiplying thread holds their sums: two words, of four each.
template <int groups>
struct Piece {
  unsigned r[2][4 * groups];  ///< residues of a word's numbers, one modulus each

  __device__ __forceinline__ void load(const Product& p, const uint2* from) {
#pragma unroll
    for (int q = 0; q < 4 * groups; ++q) {
      const uint2 both = q < p.s.count ? __ldcg(from + q * pieces * 256) : uint2{0, 0};
      r[0][q] = both.x;
      r[1][q] = both.y;
    }
  }

  /// A -= product in rows i, i + 8 and columns j, j + 1 (a word), j + 8, j + 9. `load_next` is done
  /// while A comes.
  template <class LoadNext>
  __device__ __forceinline__ void finish(const Product& p, const Tile& tile, int i, int j,
                                         const LoadNext& load_next) {
    double2 a[2][2];
    int row[2], column[2][2];
    double* const at = tile.a + i * p.lda + j;
#pragma unroll
    for (int h = 0; h < 2; ++h) row[h] = i + 8 * h < tile.rows ? tile.row_exponents[i + 8 * h] : 0;
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      const int in = tile.columns - j - 8 * w;  // columns
#pragma unroll
      for (int e = 0; e < 2; ++e) column[w][e] = e < in ? tile.column_exponents[j + 8 * w + e] : 0;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        a[w][h] = double2{0, 0};
        if (i + 8 * h >= tile.rows) continue;
        const double* const here = at + 8 * h * p.lda + 8 * w;
        if (p.pairs && in > 1) {
          a[w][h] = *reinterpret_cast<const double2*>(here);
        } else {
          if (in > 0) a[w][h].x = here[0];
          if (in > 1) a[w][h].y = here[1];
        }
      }
    }
    unsigned t[2][4][groups];
    transpose(t[0], r[0]);
    transpose(t[1], r[1]);
    load_next();
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      const int in = tile.columns - j - 8 * w;
      double x[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) x[e] = fraction(t[w][e], p.s);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const double2 v{changed(p, a[w][h].x, x[2 * h], row[h], column[w][0]),
                        changed(p, a[w][h].y, x[2 * h + 1], row[h], column[w][1])};
        if (i + 8 * h >= tile.rows) continue;
        double* const here = at + 8 * h * p.lda + 8 * w;
        if (p.pairs && in > 1) {
          *reinterpret_cast<double2*>(here) = v;
        } else {
          if (in > 0) here[0] = v.x;
          if (in > 1) here[1] = v.y;
        }
      }
    }
  }
};

}  // namespace terrace::dense::emulated
