// The textbook's inversion by plain kernels, the launch shape as asked for. 16 bytes of HBM for
// every multiply-add at best; x runs over the rows, so neighbouring threads are n elements apart
// and a sector of 32 bytes serves one of them at a time. choose_pivot is a single thread's walk
// down a column: n^2 / 2 loads in all, bound by latency. All of this is what the study is about.
#include "kernels/base/cuda/runtime.cuh"
#include "kernels/dense/textbook.hpp"

namespace terrace::dense::textbook {

namespace {

__device__ Index first_x() { return Index(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ Index first_y() { return Index(blockIdx.y) * blockDim.y + threadIdx.y; }
__device__ Index stride_x() { return Index(gridDim.x) * blockDim.x; }
__device__ Index stride_y() { return Index(gridDim.y) * blockDim.y; }

__global__ void __launch_bounds__(1024) begin_kernel(System<Cuda> s) {
  for (Index i = first_x(); i < s.n; i += stride_x())
    for (Index j = first_y(); j < s.n; j += stride_y()) s.x.data[i * s.n + j] = i == j ? 1.0 : 0.0;
  if (first_x() == 0 && first_y() == 0) {
    s.info.data[0] = -1;
    s.info.data[1] = 0;
  }
}

__global__ void choose_pivot_kernel(System<Cuda> s, Index k) {
  Index row = k;
  double most = fabs(s.a.data[k * s.n + k]);
  for (Index i = k + 1; i < s.n; ++i) {
    const double value = fabs(s.a.data[i * s.n + k]);
    if (!(value <= most) && !isnan(most)) {
      row = i;
      most = value;
    }
  }
  s.pivot_row.data[k] = row;
  s.pivot.data[k] = s.a.data[row * s.n + k];
  if (s.info.data[0] < 0 && !(most > 0 && isfinite(most))) {
    s.info.data[0] = k;
    s.info.data[1] = most == 0 ? 1 : 2;
  }
}

__device__ void exchange(double& a, double& b) {
  const double kept = a;
  a = b;
  b = kept;
}

__global__ void exchange_rows_kernel(System<Cuda> s, Index k) {
  const Index row = s.pivot_row.data[k];
  if (row == k) return;
  for (Index j = first_x(); j < s.n; j += stride_x()) {
    exchange(s.a.data[k * s.n + j], s.a.data[row * s.n + j]);
    exchange(s.x.data[k * s.n + j], s.x.data[row * s.n + j]);
  }
}

/// Rows [from, to) of A in columns [left, right), and of X; row k outside of them.
__global__ void __launch_bounds__(1024)
    subtract_kernel(System<Cuda> s, Index k, Index from, Index to, Index left, Index right) {
  const double* const row_a = s.a.data + k * s.n;
  const double* const row_x = s.x.data + k * s.n;
  for (Index i = from + first_x(); i < to; i += stride_x()) {
    double* const a = s.a.data + i * s.n;
    double* const x = s.x.data + i * s.n;
    const double factor = a[k] / row_a[k];
    for (Index j = left + first_y(); j < right; j += stride_y()) a[j] -= factor * row_a[j];
    for (Index j = first_y(); j < s.n; j += stride_y()) x[j] -= factor * row_x[j];
  }
}

/// a[from ... to, k] := 0.
__global__ void clear_kernel(System<Cuda> s, Index k, Index from, Index to) {
  for (Index i = from + first_x(); i < to; i += stride_x()) s.a.data[i * s.n + k] = 0;
}

__global__ void __launch_bounds__(1024) divide_inverse_kernel(System<Cuda> s) {
  for (Index i = first_x(); i < s.n; i += stride_x())
    for (Index j = first_y(); j < s.n; j += stride_y())
      s.x.data[i * s.n + j] /= s.a.data[i * s.n + i];
}

__global__ void divide_matrix_kernel(System<Cuda> s) {
  for (Index i = first_x(); i < s.n; i += stride_x()) s.a.data[i * s.n + i] = 1;
}

/// Over the elements of a matrix ...
template <class... P, class... A>
void launch_plane(const Stream<Cuda>& stream, Launch shape, void (*kernel)(P...), A... arguments) {
  const dim3 blocks(unsigned(shape.grid), unsigned(shape.grid));
  const dim3 threads(unsigned(shape.threads), unsigned(shape.threads));
  kernel<<<blocks, threads, 0, native(stream)>>>(arguments...);
  check_launch();
}
/// ... and of a row or column.
template <class... P, class... A>
void launch_line(const Stream<Cuda>& stream, Launch shape, void (*kernel)(P...), A... arguments) {
  kernel<<<unsigned(shape.grid), unsigned(shape.threads), 0, native(stream)>>>(arguments...);
  check_launch();
}

}  // namespace

template <>
void begin(const Stream<Cuda>& stream, const System<Cuda>& s) {
  launch_plane(stream, s.launch, begin_kernel, s);
}

template <>
void choose_pivot(const Stream<Cuda>& stream, const System<Cuda>& s, Index k) {
  launch_line(stream, {1, 1}, choose_pivot_kernel, s, k);
}

template <>
void exchange_rows(const Stream<Cuda>& stream, const System<Cuda>& s, Index k) {
  launch_line(stream, s.launch, exchange_rows_kernel, s, k);
}

template <>
void subtract_below(const Stream<Cuda>& stream, const System<Cuda>& s, Index k) {
  launch_plane(stream, s.launch, subtract_kernel, s, k, k + 1, s.n, k + 1, s.n);
}

template <>
void clear_below(const Stream<Cuda>& stream, const System<Cuda>& s, Index k) {
  launch_line(stream, s.launch, clear_kernel, s, k, k + 1, s.n);
}

template <>
void subtract_above(const Stream<Cuda>& stream, const System<Cuda>& s, Index k) {
  launch_plane(stream, s.launch, subtract_kernel, s, k, Index(0), k, Index(0), k);
}

template <>
void clear_above(const Stream<Cuda>& stream, const System<Cuda>& s, Index k) {
  launch_line(stream, s.launch, clear_kernel, s, k, Index(0), k);
}

template <>
void divide_inverse(const Stream<Cuda>& stream, const System<Cuda>& s) {
  launch_plane(stream, s.launch, divide_inverse_kernel, s);
}

template <>
void divide_matrix(const Stream<Cuda>& stream, const System<Cuda>& s) {
  launch_line(stream, s.launch, divide_matrix_kernel, s);
}

}  // namespace terrace::dense::textbook
