// Block-Jacobi and Chebyshev passes on CUDA. Bound by HBM: the blocks 4 (b + 2) + 16 bytes a row
// (each stored entry is used twice, the second time from the L1 cache), 3.3 TB/s of an H200 at b =
// 32; a Chebyshev pass 64 bytes a row, 3.9 TB/s.
#include "kernels/cg/preconditioner.hpp"

#include "kernels/base/cuda/items.cuh"
#include "kernels/base/cuda/runtime.cuh"

namespace terrace::cg {
namespace {

__device__ bool skipped(const double* skip) { return skip && *skip != 0; }

// One thread a row and vector.
template <bool one>
__global__ void __launch_bounds__(block_threads)
    blocks_kernel(Index rows, int b, Index many, const double* __restrict__ m,
                  const double* __restrict__ r, double* __restrict__ z, const double* skip) {
  if (skipped(skip)) return;
  const Index columns = one ? 1 : many;
  for (Index item = first_item(); item < rows * columns; item += item_stride()) {
    const Index row = item / columns, c = item - row * columns, k = row / b;
    const int i = int(row - k * b), h = int(min(Index(b), rows - k * b));
    const double* const values = m + k * DiagonalBlocks<Cuda>::stride(b);
    const double* const from = r + k * b * columns + c;
    double sum = values[i] * from[i * columns];
    const int pairs = (h - 1) / 2;
#pragma unroll 4
    for (int d = 1; d <= pairs; ++d) {
      int after = i + d, before = i - d;
      after -= after >= h ? h : 0;
      before += before < 0 ? h : 0;
      sum += values[d * h + i] * from[after * columns];
      sum += values[d * h + before] * from[before * columns];
    }
    if (h % 2 == 0) {
      const int across = i + h / 2 - (2 * i >= h ? h : 0);
      sum += values[h / 2 * h + i] * from[across * columns];
    }
    z[item] = sum;
  }
}

__global__ void __launch_bounds__(block_threads)
    start_kernel(Index size, double factor, Index columns, const double* __restrict__ s,
                 const double* __restrict__ r, double* d, double* z, const double* skip) {
  if (skipped(skip)) return;
  for (Index i = first_item(); i < size; i += item_stride()) {
    const double value = factor * (s[columns == 1 ? i : i / columns] * r[i]);
    d[i] = value;
    if (z) z[i] = value;
  }
}

template <bool first, bool last>
__global__ void __launch_bounds__(block_threads)
    step_kernel(Index size, double a, double b, Index columns, const double* __restrict__ s,
                const double* from, const double* __restrict__ q, double* rest, double* d,
                double* z, const double* skip) {
  if (skipped(skip)) return;
#pragma unroll 2
  for (Index i = first_item(); i < size; i += item_stride()) {
    const double left = from[i] - q[i], before = d[i];
    const double value = a * before + b * (s[columns == 1 ? i : i / columns] * left);
    if (!last) rest[i] = left;
    if (!last) d[i] = value;
    z[i] = (first ? before : z[i]) + value;
  }
}

__global__ void __launch_bounds__(block_threads)
    correct_kernel(Index size, double factor, Index columns, const double* __restrict__ s,
                   const double* __restrict__ q, double* __restrict__ rest, double* __restrict__ d,
                   double* __restrict__ z, const double* skip) {
  if (skipped(skip)) return;
#pragma unroll 2
  for (Index i = first_item(); i < size; i += item_stride()) {
    const double left = rest[i] - q[i];
    const double value = factor * (s[columns == 1 ? i : i / columns] * left);
    z[i] = (z[i] + d[i]) + value;
    rest[i] = left;
    d[i] = value;
  }
}

}  // namespace

void multiply_blocks(const Stream<Cuda>& stream, const DiagonalBlocks<Cuda>& blocks, Index columns,
                     View<const double, Cuda> r, View<double, Cuda> z, const double* skip) {
  if (blocks.rows == 0 || columns == 0) return;
  const auto kernel = columns == 1 ? blocks_kernel<true> : blocks_kernel<false>;
  kernel<<<blocks_for(blocks.rows * columns), block_threads, 0, native(stream)>>>(
      blocks.rows, int(blocks.block), columns, blocks.value.data, r.data, z.data, skip);
  check_launch();
}

void chebyshev_start(const Stream<Cuda>& stream, double factor, Index columns,
                     View<const double, Cuda> inverse_diagonal, View<const double, Cuda> r,
                     View<double, Cuda> d, View<double, Cuda> z, const double* skip) {
  const Index size = inverse_diagonal.size * columns;
  if (size == 0) return;
  start_kernel<<<blocks_for(size), block_threads, 0, native(stream)>>>(
      size, factor, columns, inverse_diagonal.data, r.data, d.data, z.data, skip);
  check_launch();
}

void chebyshev_step(const Stream<Cuda>& stream, double a, double b, Index columns,
                    View<const double, Cuda> inverse_diagonal, View<const double, Cuda> from,
                    View<const double, Cuda> q, View<double, Cuda> rest, View<double, Cuda> d,
                    View<double, Cuda> z, const ChebyshevStep& which, const double* skip) {
  const Index size = inverse_diagonal.size * columns;
  if (size == 0) return;
  const auto kernel = which.first
                          ? (which.last ? step_kernel<true, true> : step_kernel<true, false>)
                          : (which.last ? step_kernel<false, true> : step_kernel<false, false>);
  kernel<<<blocks_for(size), block_threads, 0, native(stream)>>>(
      size, a, b, columns, inverse_diagonal.data, from.data, q.data, rest.data, d.data, z.data,
      skip);
  check_launch();
}

void chebyshev_correct(const Stream<Cuda>& stream, double factor, Index columns,
                       View<const double, Cuda> inverse_diagonal, View<const double, Cuda> q,
                       View<double, Cuda> rest, View<double, Cuda> d, View<double, Cuda> z,
                       const double* skip) {
  const Index size = inverse_diagonal.size * columns;
  if (size == 0) return;
  correct_kernel<<<blocks_for(size), block_threads, 0, native(stream)>>>(
      size, factor, columns, inverse_diagonal.data, q.data, rest.data, d.data, z.data, skip);
  check_launch();
}

TERRACE_PREPARED(multigrid);

}  // namespace terrace::cg
