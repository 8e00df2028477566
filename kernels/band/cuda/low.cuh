// The half-precision factor of kernels/band/low.hpp on CUDA: where its tiles lie, and tensor-core
// products of them.
//
// Tile (k + d, k), 0 <= d <= M = ceil(reach / 64), is 64 x 64 numbers of half precision, row by
// row, 8 KiB; the M + 1 tiles of a tile column lie one after the other. Within a tile the eight
// 16-byte pieces of row r change places, piece q to q ^ (r % 8), so that reading rows or columns of
// pieces from shared memory meets each bank once. A factored diagonal tile holds the inverse of its
// factor, rounded; `rest` holds what the rounding lost.
#pragma once
#include <cuda_fp16.h>

#include "kernels/band/low.hpp"
#include "kernels/base/cuda/barriers.cuh"
#include "kernels/base/cuda/runtime.cuh"

namespace terrace::band::low {
using namespace device;

constexpr int kW = 64;
constexpr int kTile = kW * kW;         // numbers of a tile
constexpr int kTileBytes = 2 * kTile;  // 8 KiB
constexpr int kNear = 3;               // distances whose D T_d is formed beforehand
constexpr unsigned kAll = 0xffffffffu;

/// Where what lies in the words of a factor.
struct Factor {
  Index count = 0;          ///< tile columns
  int reach_tiles = 0;      ///< M
  __half* tiles = nullptr;  ///< count x (M + 1) tiles
  __half* rest = nullptr;   ///< count tiles
  float* near = nullptr;    ///< D T_d: 2 directions x count x kNear x 64 x 64 (band_low_solve.cu)

  Factor(const BandShape& s, const Word* words)
      : count(s.tiles()), reach_tiles(int(ceil_div(s.reach, kW))) {
    auto* const at = const_cast<__half*>(reinterpret_cast<const __half*>(words));
    tiles = at;
    rest = tiles + count * (reach_tiles + 1) * kTile;
    near = reinterpret_cast<float*>(rest + count * kTile);
  }
  [[nodiscard]] Index words() const {
    return (count * (reach_tiles + 2) * kTile * 2 + 2 * count * kNear * kTile * 4) / 8;
  }
  __host__ __device__ __half* tile(Index k, Index d) const {
    return tiles + (k * (reach_tiles + 1) + d) * kTile;
  }
};

/// Place of number (r, c) of a tile.
__host__ __device__ constexpr int place(int r, int c) {
  return r * kW + ((c / 8) ^ (r % 8)) * 8 + c % 8;
}

/// Four 8 x 8 blocks of half-precision numbers from shared memory.
__device__ inline void load_matrices(unsigned (&to)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
/// c (16 x 8) += a (16 x 16) b (16 x 8), single-precision sums. With g = lane / 4, t = lane % 4:
/// c[2 h + e] is row g + 8 h, column 2 t + e.
__device__ inline void multiply_halves(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                       unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// One warp: x (16 MT rows from `row` on, 8 NB columns) += A B^T for tiles A, B in shared memory.
template <int MT, int NB>
__device__ inline void multiply_tiles(float (&x)[MT][NB][4], unsigned a, unsigned b, int row,
                                      int lane, int blocks = NB) {
  // Row and 16-byte piece of this lane in a fragment; rows of fragments begin at multiples of 16.
  const unsigned left = a + unsigned(row + lane % 16) * 128;
  const unsigned left_piece = unsigned((lane / 16) ^ (lane % 8)) * 16;
  const unsigned right = b + unsigned(lane / 16 * 8 + lane % 8) * 128;
  const unsigned right_piece = unsigned((lane / 8 % 2) ^ (lane % 8)) * 16;
#pragma unroll
  for (unsigned k = 0; k < 4; ++k) {
    unsigned l[MT][4];
#pragma unroll
    for (int m = 0; m < MT; ++m)
      load_matrices(l[m], left + unsigned(m) * 2048 + (left_piece ^ (k * 32)));
#pragma unroll
    for (int n = 0; n < NB; n += 2) {
      if (n >= blocks) continue;
      unsigned r[4];
      load_matrices(r, right + unsigned(n) * 1024 + (right_piece ^ (k * 32)));
#pragma unroll
      for (int m = 0; m < MT; ++m) {
        multiply_halves(x[m][n], l[m], r[0], r[1]);
        multiply_halves(x[m][n + 1], l[m], r[2], r[3]);
      }
    }
  }
}

/// Between ordinary accesses and bulk copies of the same global memory, in either order.
__device__ inline void order_global_copies() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

/// Forms the products that band_low_solve needs; kernels/band/cuda/low_solve.cu.
void form_near(cudaStream_t stream, const Factor& f);

}  // namespace terrace::band::low
