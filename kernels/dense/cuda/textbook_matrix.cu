// The textbook's sum and products by plain kernels. The sum is bound by HBM; the products by the L1
// and L2 caches (16 bytes a multiply-add and thread), by atomic additions in the L2 cache, or by
// the reductions and starts of m n blocks.
#include <algorithm>

#include "kernels/base/cuda/runtime.cuh"
#include "kernels/dense/textbook_matrix.hpp"

namespace terrace::dense::textbook {
namespace {

constexpr int side = 32;  // of a block of threads
constexpr Index most_down = 65535;

dim3 tiles(Index rows, Index columns) {
  return {unsigned(ceil_div(columns, side)), unsigned(std::min(ceil_div(rows, side), most_down))};
}

__global__ void __launch_bounds__(side* side)
    add_kernel(Index rows, Index columns, const double* a, const double* b, double* c) {
  const Index j = Index(blockIdx.x) * side + threadIdx.x;
  for (Index i = Index(blockIdx.y) * side + threadIdx.y; i < rows; i += Index(gridDim.y) * side)
    if (j < columns) c[i * columns + j] = a[i * columns + j] + b[i * columns + j];
}

__global__ void __launch_bounds__(side* side)
    element_kernel(Index m, Index n, Index k, const double* a, const double* b, double* c) {
  const Index j = Index(blockIdx.x) * side + threadIdx.x;
  for (Index i = Index(blockIdx.y) * side + threadIdx.y; i < m; i += Index(gridDim.y) * side) {
    if (j >= n) continue;
    double sum = 0;
    for (Index l = 0; l < k; ++l) sum += a[i * k + l] * b[l * n + j];
    c[i * n + j] = sum;
  }
}

__global__ void __launch_bounds__(side* side)
    third_dimension_kernel(Index m, Index n, Index k, const double* a, const double* b, double* c) {
  const Index j = Index(blockIdx.x) * side + threadIdx.x, l = blockIdx.z;
  for (Index i = Index(blockIdx.y) * side + threadIdx.y; i < m; i += Index(gridDim.y) * side)
    if (j < n) atomicAdd(c + i * n + j, a[i * k + l] * b[l * n + j]);
}

/// Blocks of a power of two of threads.
__global__ void __launch_bounds__(1024)
    block_kernel(Index m, Index n, Index k, const double* a, const double* b, double* c) {
  __shared__ double part[1024];
  const Index j = blockIdx.x;
  for (Index i = blockIdx.y; i < m; i += gridDim.y) {
    double sum = 0;
    for (Index l = threadIdx.x; l < k; l += blockDim.x) sum += a[i * k + l] * b[l * n + j];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
      if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
      __syncthreads();
    }
    if (threadIdx.x == 0) c[i * n + j] = part[0];
    __syncthreads();
  }
}

}  // namespace

GridLimits grid_limits(Cuda) {
  int device = 0;
  check(cudaGetDevice(&device));
  const auto limit = [&](cudaDeviceAttr attribute) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, attribute, device));
    return Index(value);
  };
  return {limit(cudaDevAttrMaxGridDimX), limit(cudaDevAttrMaxGridDimY),
          limit(cudaDevAttrMaxGridDimZ), limit(cudaDevAttrMaxThreadsPerBlock)};
}

template <>
void add(const Stream<Cuda>& stream, Index rows, Index columns, View<const double, Cuda> a,
         View<const double, Cuda> b, View<double, Cuda> c) {
  if (rows == 0 || columns == 0) return;
  add_kernel<<<tiles(rows, columns), dim3(side, side), 0, native(stream)>>>(rows, columns, a.data,
                                                                            b.data, c.data);
  check_launch();
}

template <>
void multiply(const Stream<Cuda>& stream, Product product, Index m, Index n, Index k,
              View<const double, Cuda> a, View<const double, Cuda> b, View<double, Cuda> c) {
  if (m == 0 || n == 0) return;
  const cudaStream_t lane = native(stream);
  dim3 grid = tiles(m, n);
  switch (product) {
    case Product::element:
      element_kernel<<<grid, dim3(side, side), 0, lane>>>(m, n, k, a.data, b.data, c.data);
      break;
    case Product::third_dimension:
      fill_zero(stream, c);
      if (k == 0) return;
      grid.z = unsigned(k);
      third_dimension_kernel<<<grid, dim3(side, side), 0, lane>>>(m, n, k, a.data, b.data, c.data);
      break;
    case Product::block: {
      unsigned threads = side;
      while (threads < 1024 && Index(threads) < k) threads *= 2;
      const dim3 elements(unsigned(n), unsigned(std::min(m, most_down)));
      block_kernel<<<elements, threads, 0, lane>>>(m, n, k, a.data, b.data, c.data);
      break;
    }
  }
  check_launch();
}

}  // namespace terrace::dense::textbook
