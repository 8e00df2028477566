// Substitution with parts, inside: what the kernels are given, and products of 64 x 64 tiles.
//
// Both directions are one recurrence over steps t = 0, 1, ...: step t solves tile column t going
// forward, tile column tiles - 1 - t going backward. With s = t - d the step before it by d,
//   solved(t) = D (b - sum_{d = 2..M} T_d solved(t - d)) - (D T_1) solved(t - 1),
// T_d the tile at distance d (transposed going backward), D the inverse of the diagonal block (or
// its transpose). Going backward, s = -1, -2, ... are the tile rows of the window; going forward,
// t = tiles, ... are those of the window, which only gather.
#pragma once
#include "kernels/band/parts.hpp"
#include "kernels/base/cuda/dmma.cuh"
#include "kernels/base/cuda/runtime.cuh"

namespace terrace::band {
using namespace device;

constexpr int kTile = 64;           // the width
constexpr int kTileSize = 64 * 64;  // doubles
constexpr int kPartsAtOnce = 64;    // parts of one launch: its parameters hold 4 KiB
constexpr int kFewColumns = 8;      // right-hand sides of the kernel for few
constexpr int kFewDistances = 2;    // D T_d is formed beforehand for d = 1 .. this (many: 1)
/// Those that are inside the band.
__host__ __device__ constexpr int few_distances(Index reach) {
  return reach > kTile ? kFewDistances : 1;
}

struct SolvePart {
  const double* band;
  const double* inverse;
  double* rows;     ///< right-hand sides, this launch's first column
  double* product;  ///< D T_d: step by step, each kTileSize
  Word* board;      ///< few: numbers under way; many: solved rows (doubles)
  unsigned* flags;  ///< many: steps done, a flag a chain
  int tiles, window;
};
struct SolveParts {
  SolvePart part[kPartsAtOnce];
  Index reach, stride;  ///< stride: numbers a row of the right-hand sides
  int count, steps;     ///< steps: most steps of a part
  int columns;          ///< right-hand sides of this launch
};
static_assert(sizeof(SolveParts) <= 4096);

/// Launches of one direction. few: columns <= 8; many: columns in chains of 32 or 64.
void form_products(cudaStream_t, const SolveParts&, bool transposed, bool few);
void substitute_few(cudaStream_t, const SolveParts&, bool transposed);
void substitute_many(cudaStream_t, const SolveParts&, bool transposed);
/// Words of SolvePart::board.
Index few_board(Index tiles, Index columns);
Index many_board(Index tiles, Index window, Index columns);
Index many_chains(Index columns);
constexpr Index kFlagStride = 32;  // unsigned numbers from one chain's flag to the next

/// Blocks of `kernel` that are resident together; allows it that much shared memory.
template <class Kernel>
int resident_blocks(Kernel kernel, int threads, int bytes) {
  int device = 0, processors = 0, each = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  allow_shared(kernel, bytes);
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, threads, std::size_t(bytes)));
  return each * processors;
}
template <class Kernel>
void launch_together(Kernel kernel, int blocks, int threads, int bytes, cudaStream_t stream,
                     SolveParts s) {
  void* arguments[] = {&s};
  check(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(kernel), dim3(unsigned(blocks)),
                                    dim3(unsigned(threads)), arguments, std::size_t(bytes),
                                    stream));
}

/// Tile column of step t, or of the window (t < 0 going backward).
template <bool transposed>
__device__ inline Index column_of(const SolvePart& p, int t) {
  return transposed ? p.tiles - 1 - t : t;
}
/// Tile at distance d that step t takes.
template <bool transposed>
__device__ inline const double* tile_of(const SolvePart& p, Index reach, int t, int d) {
  const Index column = transposed ? p.tiles - 1 - t : t - d;
  return p.band + column * kTile * (reach + 1) + d * kTile;
}
/// Distances, far to near, of the tiles that step t gathers: down to `nearest`, or, in the window,
/// to the last tile column.
template <bool transposed, class Take>
__device__ inline void for_each_distance(const SolvePart& p, Index reach, int t, int nearest,
                                         Take take) {
  const int far = min(int((reach + kTile - 1) / kTile), transposed ? t + p.window : t);
  const int near = t < p.tiles ? nearest : t - p.tiles + 1;
#pragma unroll 1
  for (int d = far; d >= near; --d) take(d);
}
/// Entries of rows r, r + 1 in column c of the tile at distance d that are inside the band, as
/// bytes.
__device__ inline int bytes_inside(Index reach, int d, int r, int c) {
  const Index inside = reach - Index(d) * kTile + c - r + 1;
  return inside >= 2 ? 16 : inside == 1 ? 8 : 0;
}
/// `threads` threads copy a tile to shared memory, column by column, leading dimension `to_ld`;
/// zeros outside the band. Not yet waited for. reach < 0: a dense tile, leading dimension 64.
template <int threads>
__device__ inline void copy_tile(double* to, int to_ld, const double* from, Index reach, int d,
                                 int thread) {
  static_assert(kTileSize / 2 % threads == 0);
  const bool edge = reach >= 0 && Index(d) * kTile + kTile - 1 > reach;
  const Index ld = reach >= 0 ? reach : kTile;
#pragma unroll 4
  for (int at = thread; at < kTileSize / 2; at += threads) {
    const int c = at / (kTile / 2), r = at % (kTile / 2) * 2;
    const int bytes = edge ? bytes_inside(reach, d, r, c) : 16;
    copy16(to + c * to_ld + r, bytes > 0 ? from + c * ld + r : from, bytes);
  }
}

/// `threads` threads copy 64 rows of `columns` numbers to shared memory. Not yet waited for.
template <int threads, int columns>
__device__ inline void copy_rows(double* to, int to_ld, const double* from, int thread) {
  static_assert(kTile * columns / 2 % threads == 0);
#pragma unroll 4
  for (int at = thread; at < kTile * columns / 2; at += threads) {
    const int r = at / (columns / 2), c = at % (columns / 2) * 2;
    copy16(to + r * to_ld + c, from + r * columns + c, 16);
  }
}

/// Tiles in shared memory for the tensor cores, eight warps. A warp makes 32 x 16 (or, of 32
/// columns, 16 x 16) of the product of a left and a right tile; leading dimensions keep the banks
/// of 16-byte loads apart.
///   left:  column by column; taken as it is, or transposed
///   right: row by row, `columns` a row
template <bool transposed, int columns = kTile>
struct TileProduct {
  static_assert(columns == 32 || columns == 64);
  static constexpr int blocks = columns / 32;  ///< of 16 rows a warp
  static constexpr int groups = 4 / blocks;    ///< of a warp's rows
  static constexpr int left_ld = transposed ? 72 : 68, right_ld = columns + (transposed ? 2 : 4);
  static constexpr int left_size = kTile * left_ld, right_size = kTile * right_ld;
  int row, column;  ///< of this lane's first number

  __device__ TileProduct(int warp, int lane)
      : row(warp % groups * 16 * blocks + lane / 4 * (transposed ? 1 : 2)),
        column(warp / groups * 16 + lane % 4 * 4) {}
  /// Row of c[m][.][2 h ..]: four neighbouring columns from `column` on: c[m][0][2 h],
  /// c[m][1][2 h], c[m][0][2 h + 1], c[m][1][2 h + 1].
  __device__ int row_of(int m, int h) const { return row + 16 * m + h * (transposed ? 8 : 1); }

  /// c -= left right.
  __device__ void subtract(double (&c)[blocks][2][4], const double* left, const double* right,
                           int warp, int lane) const {
    const int g = lane / 4, t = lane % 4, first = warp % groups * 16 * blocks;
    const double* const l =
        transposed ? left + (first + g) * left_ld + 2 * t : left + t * left_ld + first + 2 * g;
    const double* const r =
        right + (transposed ? 2 * t : t) * right_ld + warp / groups * 16 + 2 * g;
#pragma unroll
    for (int k = 0; k < kTile; k += 16) {
      double a[blocks][8], b[2][4];
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        // Product index of fragment q: k + 4 q + t, or, transposed, k + 8 (q / 2) + 2 t + q % 2.
        const int here = transposed ? k + q / 2 * 8 + q % 2 : k + 4 * q;
        const double2 both = *reinterpret_cast<const double2*>(r + here * right_ld);
        b[0][q] = both.x;
        b[1][q] = both.y;
      }
#pragma unroll
      for (int m = 0; m < blocks; ++m)
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          // Rows 2 g, 2 g + 1 of one column; transposed, two product indices of row g (or g + 8).
          const double* const at = transposed ? l + (16 * m + q % 2 * 8) * left_ld + k + q / 2 * 8
                                              : l + (k + 4 * q) * left_ld + 16 * m;
          const double2 both = *reinterpret_cast<const double2*>(at);
          a[m][transposed ? 4 * (q / 2) + q % 2 : 2 * q] = -both.x;
          a[m][transposed ? 4 * (q / 2) + 2 + q % 2 : 2 * q + 1] = -both.y;
        }
#pragma unroll
      for (int m = 0; m < blocks; ++m)
#pragma unroll
        for (int n = 0; n < 2; ++n) dmma(c[m][n], a[m], b[n]);
    }
  }
};

}  // namespace terrace::band
