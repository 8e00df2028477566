// Roofline: memory bandwidth; 16 bytes a number. Tiles of 32 x 32 are turned in shared memory, so that
// both sides are read and written along what lies side by side.
#include <algorithm>

#include "kernels/band/forms.hpp"
#include "kernels/base/cuda/runtime.cuh"

namespace terrace::band {
namespace {

constexpr int kTile = 32, kRows = 8;

/// Thread (x, y) reads column x of the tile where columns lie side by side, else diagonal x.
__global__ void lower_kernel(BandForm from, Index n, Index first, Index count, Index height,
                             bool along_columns, double* __restrict__ to, Index ld,
                             Index* not_finite) {
  __shared__ double tile[kTile][kTile + 1];  // [column][diagonal]
  bool finite = true;
  const Index j0 = Index(blockIdx.x) * kTile;
  const int x = threadIdx.x;
  for (Index d0 = Index(blockIdx.y) * kTile; d0 < height; d0 += Index(gridDim.y) * kTile) {
    for (int y = threadIdx.y; y < kTile; y += kRows) {
      const int c = along_columns ? x : y, r = along_columns ? y : x;
      const Index j = j0 + c, d = d0 + r;
      const bool inside = j < count && d < height && first + j + d < n;
      const double number = inside ? from.data[j * from.column + d * from.diagonal] : 0.0;
      tile[c][r] = number;
      finite = finite && isfinite(number);
    }
    __syncthreads();
    for (int y = threadIdx.y; y < kTile; y += kRows)
      if (j0 + y < count && d0 + x < height) to[(j0 + y) * ld + d0 + x] = tile[y][x];
    __syncthreads();
  }
  if (!finite && not_finite) *not_finite = 1;
}

}  // namespace

void lower_columns(const Stream<Cuda>& stream, const BandForm& from, Index n, Index first,
                   Index count, Index height, double* to, Index ld, Index* not_finite) {
  if (count == 0 || height == 0) return;
  const dim3 blocks(unsigned(ceil_div(count, kTile)),
                    unsigned(std::min<Index>(ceil_div(height, kTile), 65535)));
  lower_kernel<<<blocks, dim3(kTile, kRows), 0, native(stream)>>>(
      from, n, first, count, height, from.column == 1, to, ld, not_finite);
  check_launch();
}

}  // namespace terrace::band
