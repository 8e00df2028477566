// Roofline: memory bandwidth; 16 bytes a number. Columns are copied; of other forms tiles of 32 x 32 are
// turned in shared memory, so that both sides are read and written along what lies side by side.
#include <algorithm>

#include "kernels/band/forms.hpp"
#include "kernels/base/cuda/runtime.cuh"

namespace terrace::band {
namespace {

constexpr int kTile = 32, kRows = 4;
constexpr int kCopyThreads = 256, kOfThread = 8;  // numbers of a thread that copies columns

constexpr int kRunsAtOnce = 64;  // the parameters of a launch hold 4 KiB
struct Runs {
  BandRun at[kRunsAtOnce];
};
static_assert(sizeof(Runs) <= 4000);

/// Thread (x, y) reads column x of the tile where columns lie side by side, else diagonal x; blockIdx.z
/// counts the runs.
__global__ void lower_kernel(const __grid_constant__ Runs runs, Index height, Index ld,
                             Index* not_finite) {
  __shared__ double tile[kTile][kTile + 1];  // [column][diagonal]
  const BandRun& r = runs.at[blockIdx.z];
  if (r.from.diagonal == 1) return;  // columns_kernel
  const bool along_columns = r.from.column == 1;
  bool finite = true;
  const Index j0 = Index(blockIdx.x) * kTile;
  if (j0 >= r.count) return;
  const int x = threadIdx.x;
  for (Index d0 = Index(blockIdx.y) * kTile; d0 < ld; d0 += Index(gridDim.y) * kTile) {
    for (int y = threadIdx.y; y < kTile; y += kRows) {
      const int c = along_columns ? x : y, e = along_columns ? y : x;
      const Index j = j0 + c, d = d0 + e;
      const bool inside = j < r.count && d < height && j + d < r.rows;
      const double number = inside ? r.from.data[j * r.from.column + d * r.from.diagonal] : 0.0;
      tile[c][e] = number;
      finite = finite && isfinite(number);
    }
    __syncthreads();
    for (int y = threadIdx.y; y < kTile; y += kRows)
      if (j0 + y < r.count && d0 + x < ld) r.to[(j0 + y) * ld + d0 + x] = tile[y][x];
    __syncthreads();
  }
  if (!finite && not_finite) *not_finite = 1;
}

/// Runs whose columns lie side by side, ld numbers of each after the other; blockIdx.y counts the runs.
__global__ void __launch_bounds__(kCopyThreads)
    columns_kernel(const __grid_constant__ Runs runs, Index height, Index ld, Index* not_finite) {
  const BandRun& r = runs.at[blockIdx.y];
  const Index size = r.count * ld;
  Index at = Index(blockIdx.x) * (kCopyThreads * kOfThread) + threadIdx.x;
  if (r.from.diagonal != 1 || at >= size) return;
  Index j = at / ld, d = at - j * ld;
  double some[kOfThread];
  bool finite = true;
#pragma unroll
  for (int k = 0; k < kOfThread; ++k) {
    const bool inside = j < r.count && d < height && j + d < r.rows;
    some[k] = inside ? r.from.data[j * r.from.column + d] : 0.0;
    for (d += kCopyThreads; d >= ld; d -= ld) ++j;
  }
#pragma unroll
  for (int k = 0; k < kOfThread; ++k, at += kCopyThreads) {
    if (at < size) r.to[at] = some[k];
    finite = finite && isfinite(some[k]);
  }
  if (!finite && not_finite) *not_finite = 1;
}

}  // namespace

void lower_columns(const Stream<Cuda>& stream, std::span<const BandRun> runs, Index height,
                   Index ld, Index* not_finite) {
  for (; !runs.empty(); runs = runs.subspan(std::min<std::size_t>(runs.size(), kRunsAtOnce))) {
    Runs some{};
    Index columns = 0, turned = 0;  // most of a run
    const auto count = std::min<std::size_t>(runs.size(), kRunsAtOnce);
    for (std::size_t k = 0; k < count; ++k) {
      some.at[k] = runs[k];
      Index& most = runs[k].from.diagonal == 1 ? columns : turned;
      most = std::max(most, runs[k].count);
    }
    if (columns > 0 && ld > 0) {
      const dim3 blocks(unsigned(ceil_div(columns * ld, kCopyThreads * kOfThread)),
                        unsigned(count));
      columns_kernel<<<blocks, kCopyThreads, 0, native(stream)>>>(some, height, ld, not_finite);
      check_launch();
    }
    if (turned > 0 && ld > 0) {
      const dim3 blocks(unsigned(ceil_div(turned, kTile)),
                        unsigned(std::min<Index>(ceil_div(ld, kTile), 65535)), unsigned(count));
      lower_kernel<<<blocks, dim3(kTile, kRows), 0, native(stream)>>>(some, height, ld, not_finite);
      check_launch();
    }
  }
}

}  // namespace terrace::band
