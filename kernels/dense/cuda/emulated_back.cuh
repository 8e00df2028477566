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
constexpr int threads = 4 * 128;          // two warpgroups multiply
constexpr int finishing = 7;              // warps that make doubles; the one after them loads
constexpr Index strip = 8;                // tiles side by side that share rows of N in L2
constexpr int pieces = 16;                // of 8 residues, of a thread and a modulus
constexpr Index launch_chunks = 1 << 11;  // of a block, of all moduli: about 1 ms

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

/// Beyond what one factor scales, and what is not finite.
__device__ __noinline__ double changed(double a, double fraction, double mantissa, int exponent,
                                       int row, int column) {
  return row == not_finite || column == not_finite
             ? __longlong_as_double(0x7ff8ll << 48)
             : subtract(a, fraction, mantissa, exponent - 64 - row - column);
}
/// Exponents of rows and columns whose products one factor scales.
__device__ __forceinline__ bool is_usual(int exponent) { return unsigned(exponent + 480) <= 960; }

/// a -= x P / 2^64, each by the exponents of its row and column; words first, then rows.
__device__ __forceinline__ void change(const Product& p, bool usual, double2 (&a)[2][2],
                                       const double (&x)[2][4], const int (&row)[2],
                                       const int (&column)[2][2]) {
  if (usual) {
    double factor[2][4];
    const int high = __double2hiint(p.s.mantissa) + ((p.s.exponent - 64) << 20);
#pragma unroll
    for (int w = 0; w < 2; ++w)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        factor[w][e] = __hiloint2double(high - ((row[e / 2] + column[w][e % 2]) << 20),
                                        __double2loint(p.s.mantissa));
#pragma unroll
    for (int w = 0; w < 2; ++w)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        a[w][h].x = fma(-x[w][2 * h], factor[w][2 * h], a[w][h].x);
        a[w][h].y = fma(-x[w][2 * h + 1], factor[w][2 * h + 1], a[w][h].y);
      }
  } else {
#pragma unroll
    for (int w = 0; w < 2; ++w)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        a[w][h].x =
            changed(a[w][h].x, x[w][2 * h], p.s.mantissa, p.s.exponent, row[h], column[w][0]);
        a[w][h].y =
            changed(a[w][h].y, x[w][2 * h + 1], p.s.mantissa, p.s.exponent, row[h], column[w][1]);
      }
  }
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

  /// A -= product in rows i, i + 8 and columns j, j + 1 (a word), j + 8, j + 9. `whole`: the tile
  /// is A's, in pairs.
  template <bool whole>
  __device__ __forceinline__ void finish(const Product& p, const Tile& tile, int i, int j) const {
    double* const at = tile.a + i * p.lda + j;
    const bool has[2] = {whole || i < tile.rows, whole || i + 8 < tile.rows};
    double2 a[2][2];
    double x[2][4];
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      const int in = whole ? 2 : tile.columns - j - 8 * w;  // columns
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        a[w][h] = double2{0, 0};
        if (!has[h]) continue;
        const double* const here = at + 8 * h * p.lda + 8 * w;
        if (whole || (p.pairs && in > 1)) {
          a[w][h] = *reinterpret_cast<const double2*>(here);
        } else {
          if (in > 0) a[w][h].x = here[0];
          if (in > 1) a[w][h].y = here[1];
        }
      }
      unsigned t[4][groups];
      transpose(t, r[w]);
#pragma unroll
      for (int e = 0; e < 4; ++e) x[w][e] = fraction(t[e], p.s);
    }
    int row[2], column[2][2];
    bool usual = true;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      row[h] = has[h] ? tile.row_exponents[i + 8 * h] : 0;
      usual = usual && is_usual(row[h]);
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        column[h][e] =
            whole || j + 8 * h + e < tile.columns ? tile.column_exponents[j + 8 * h + e] : 0;
        usual = usual && is_usual(column[h][e]);
      }
    }
    change(p, usual, a, x, row, column);
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      const int in = whole ? 2 : tile.columns - j - 8 * w;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (!has[h]) continue;
        double* const here = at + 8 * h * p.lda + 8 * w;
        if (whole || (p.pairs && in > 1)) {
          *reinterpret_cast<double2*>(here) = a[w][h];
        } else {
          if (in > 0) here[0] = a[w][h].x;
          if (in > 1) here[1] = a[w][h].y;
        }
      }
    }
  }
};

}  // namespace terrace::dense::emulated
