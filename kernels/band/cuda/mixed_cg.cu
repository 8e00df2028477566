// Bound by HBM, at most 48 bytes an element and pass, or by its two launches: little beside the
// band itself. Sums are trees of fixed shape.
#include <algorithm>

#include "kernels/band/mixed_cg_passes.hpp"
#include "kernels/base/cuda/runtime.cuh"

namespace terrace::band {
namespace {

constexpr int kThreads = 256;
constexpr Index kBlocks = band_cg_scratch / (4 * band_cg_columns);

template <class Pass>
__device__ void combine(double& sum, double value) {
  sum = Pass::maximum ? (value > sum ? value : sum) : sum + value;
}
template <class Pass>
__device__ double start() {
  return Pass::maximum ? -band_cg_passes::kInfinity : 0.0;
}

/// sum[k] of each column over the block, at the threads below `columns`; thread t is of column
/// t % columns, a power of two.
template <class Pass>
__device__ void combine_block(double (&sum)[4], int columns) {
  __shared__ double shared[4][kThreads];
  for (int k = 0; k < Pass::values; ++k) shared[k][threadIdx.x] = sum[k];
  __syncthreads();
  for (int step = kThreads / 2; step >= columns; step /= 2) {
    if (int(threadIdx.x) < step)
      for (int k = 0; k < Pass::values; ++k)
        combine<Pass>(shared[k][threadIdx.x], shared[k][threadIdx.x + step]);
    __syncthreads();
  }
  for (int k = 0; k < Pass::values; ++k) sum[k] = shared[k][threadIdx.x];
}

template <class Pass>
__global__ void __launch_bounds__(kThreads)
    pass_kernel(Index rows, int nrhs, int columns, Pass pass, double* partials) {
  const int v = int(threadIdx.x) % columns;
  const Index step = Index(gridDim.x) * (kThreads / columns);
  double value[4] = {}, sum[4] = {start<Pass>(), start<Pass>(), start<Pass>(), start<Pass>()};
  if (v < nrhs) {
    const double coefficient = pass.coefficient(v);
    for (Index i = (Index(blockIdx.x) * kThreads + threadIdx.x) / columns; i < rows; i += step) {
      pass(i, v, i * nrhs + v, coefficient, value);
      for (int k = 0; k < Pass::values; ++k) combine<Pass>(sum[k], value[k]);
    }
  }
  if constexpr (Pass::values > 0) {
    combine_block<Pass>(sum, columns);
    if (int(threadIdx.x) < columns)
      for (int k = 0; k < Pass::values; ++k)
        partials[(Index(blockIdx.x) * band_cg_columns + v) * 4 + k] = sum[k];
  }
}

template <class Pass>
__global__ void __launch_bounds__(kThreads)
    last_kernel(int blocks, int nrhs, int columns, const double* partials, double* state) {
  const int v = int(threadIdx.x) % columns;
  double sum[4] = {start<Pass>(), start<Pass>(), start<Pass>(), start<Pass>()};
  for (int block = int(threadIdx.x) / columns; block < blocks; block += kThreads / columns)
    for (int k = 0; k < Pass::values; ++k)
      combine<Pass>(sum[k], partials[(Index(block) * band_cg_columns + v) * 4 + k]);
  combine_block<Pass>(sum, columns);
  if (int(threadIdx.x) < nrhs)
    for (int k = 0; k < Pass::values; ++k) state[(Pass::first + k) * nrhs + v] = sum[k];
}

template <class Pass>
void run(const Stream<Cuda>& stream, const BandCg<Cuda>& c, Index nrhs, const Pass& pass) {
  int columns = 1;
  while (columns < nrhs) columns *= 2;
  const Index blocks = std::clamp<Index>(ceil_div(c.rows * columns, Index(kThreads)), 1, kBlocks);
  pass_kernel<<<unsigned(blocks), kThreads, 0, native(stream)>>>(c.rows, int(nrhs), columns, pass,
                                                                 c.scratch.data);
  check_launch();
  if constexpr (Pass::values > 0) {
    last_kernel<Pass><<<1, kThreads, 0, native(stream)>>>(int(blocks), int(nrhs), columns,
                                                          c.scratch.data, c.state.data);
    check_launch();
  }
}

}  // namespace

TERRACE_BAND_CG_PASSES(Cuda)

}  // namespace terrace::band
