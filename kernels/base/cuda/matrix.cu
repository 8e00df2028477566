// Row-major operations on device memory. multiply: 2 m n k flops by cuBLAS, bound by DGEMM; the
// others read (and write) every element once, bound by HBM.
#include "kernels/base/matrix.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/base/cuda/runtime.cuh"

namespace terrace {

namespace {

constexpr int threads = 256;
constexpr Index max_blocks = 65535;

int blocks_for(Index work) {
  return int(std::clamp<Index>(ceil_div(work, threads), 1, max_blocks));
}

__global__ void add_kernel(Index size, double alpha, const double* x, double beta, const double* y,
                           double* out) {
  const Index step = Index(gridDim.x) * blockDim.x;
  for (Index i = Index(blockIdx.x) * blockDim.x + threadIdx.x; i < size; i += step)
    out[i] = beta == 0 ? alpha * x[i] : alpha * x[i] + beta * y[i];
}

__global__ void subtract_identity_kernel(Index rows, const Index* column, double* a, Index ld) {
  const Index r = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  if (r < rows) a[r * ld + column[r]] -= 1;
}

__global__ void scale_columns_kernel(Index rows, Index columns, const Index* power, double* a,
                                     Index ld) {
  for (Index x = Index(blockIdx.x) * blockDim.x + threadIdx.x; x < rows * columns;
       x += Index(gridDim.x) * blockDim.x) {
    double& value = a[x / columns * ld + x % columns];
    value = scalbn(value, int(power[x % columns]));
  }
}

/// Sum over the block, in thread 0; the order is fixed.
__device__ double block_sum(double value) {
  __shared__ double part[threads / 32];
  for (int d = 16; d > 0; d /= 2) value += __shfl_down_sync(~0u, value, d);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int w = 1; w < threads / 32; ++w) value += part[w];
  __syncthreads();
  return value;
}

/// out[r * gridDim.x + piece] = that piece's part of row r; y null: of |scale x|.
__global__ void row_parts_kernel(Index rows, Index columns, double scale, const double* x,
                                 Index ldx, const double* y, Index ldy, double* out) {
  for (Index r = blockIdx.y; r < rows; r += gridDim.y) {
    double sum = 0;
    for (Index j = Index(blockIdx.x) * blockDim.x + threadIdx.x; j < columns;
         j += Index(gridDim.x) * blockDim.x) {
      const double u = scale * x[r * ldx + j];
      sum += y ? u * (scale * y[r * ldy + j]) : fabs(u);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[r * gridDim.x + blockIdx.x] = sum;
  }
}

__global__ void add_parts_kernel(Index rows, Index pieces, const double* parts, double* out) {
  const Index r = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  double sum = 0;
  for (Index p = 0; p < pieces; ++p) sum += parts[r * pieces + p];
  out[r] = sum;
}

void sum_rows(const Stream<Cuda>& stream, Index rows, Index columns, double scale, const double* x,
              Index ldx, const double* y, Index ldy, double* out) {
  if (rows == 0) return;
  const cudaStream_t lane = native(stream);
  const Index pieces = std::clamp<Index>(ceil_div(columns, 8192), 1, 256);
  const dim3 grid(unsigned(pieces), unsigned(std::min(rows, max_blocks)));
  if (pieces == 1) {
    row_parts_kernel<<<grid, threads, 0, lane>>>(rows, columns, scale, x, ldx, y, ldy, out);
    return check_launch();
  }
  const Buffer<double, Cuda> parts(rows * pieces);
  row_parts_kernel<<<grid, threads, 0, lane>>>(rows, columns, scale, x, ldx, y, ldy, parts.data());
  check_launch();
  add_parts_kernel<<<unsigned(ceil_div(rows, threads)), threads, 0, lane>>>(rows, pieces,
                                                                            parts.data(), out);
  check_launch();
  stream.synchronize();  // parts is released here
}

constexpr Index least_rows = 64;  // of a piece of columns

/// parts[piece * columns + j] = that piece's part of column j: `height` rows from piece * height on.
__global__ void column_parts_kernel(Index rows, Index columns, Index height, double scale,
                                    const double* a, Index ld, double* parts) {
  const Index j = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  if (j >= columns) return;
  const Index end = min(rows, (blockIdx.y + 1) * height);
  double sum = 0;
  for (Index r = blockIdx.y * height; r < end; ++r) sum += fabs(scale * a[r * ld + j]);
  parts[blockIdx.y * columns + j] = sum;
}

__global__ void add_rows_kernel(Index rows, Index columns, const double* a, double* out) {
  const Index j = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  if (j >= columns) return;
  double sum = 0;
  for (Index r = 0; r < rows; ++r) sum += a[r * columns + j];
  out[j] = sum;
}

constexpr int edge = 32, strips = 8;
/// A block turns 32 x 32 elements at a time, read and written along rows.
__global__ void transpose_kernel(Index rows, Index columns, const double* from, Index ld_from,
                                 double* to, Index ld_to) {
  __shared__ double tile[edge][edge + 1];
  const Index across = (columns + edge - 1) / edge, tiles = (rows + edge - 1) / edge * across;
  for (Index t = blockIdx.x; t < tiles; t += gridDim.x) {
    const Index i0 = t / across * edge, j0 = t % across * edge;
    for (int k = threadIdx.y; k < edge; k += strips)
      if (i0 + k < rows && j0 + threadIdx.x < columns)
        tile[k][threadIdx.x] = from[(i0 + k) * ld_from + j0 + threadIdx.x];
    __syncthreads();
    for (int k = threadIdx.y; k < edge; k += strips)
      if (j0 + k < columns && i0 + threadIdx.x < rows)
        to[(j0 + k) * ld_to + i0 + threadIdx.x] = tile[threadIdx.x][k];
    __syncthreads();
  }
}

/// Bits of non-negative doubles are in the order of the doubles, NaN above infinity. out: those of
/// the largest, and the complement of those of the least that is not zero.
__global__ void sizes_kernel(Index rows, Index columns, const double* a, Index ld,
                             unsigned long long* out) {
  unsigned long long found[2] = {0, 0};
  for (Index r = blockIdx.y; r < rows; r += gridDim.y)
    for (Index j = Index(blockIdx.x) * blockDim.x + threadIdx.x; j < columns;
         j += Index(gridDim.x) * blockDim.x) {
      const auto bits = static_cast<unsigned long long>(__double_as_longlong(fabs(a[r * ld + j])));
      found[0] = bits > found[0] ? bits : found[0];
      found[1] = bits != 0 && ~bits > found[1] ? ~bits : found[1];
    }
  for (int k = 0; k < 2; ++k) {
    for (int d = 16; d > 0; d /= 2) {
      const unsigned long long other = __shfl_down_sync(~0u, found[k], d);
      found[k] = other > found[k] ? other : found[k];
    }
    if (threadIdx.x % 32 == 0 && found[k] > *static_cast<volatile unsigned long long*>(out + k))
      atomicMax(out + k, found[k]);
  }
}

/// out[j]: bits of the largest of column j, NaN above infinity. A thread keeps to one column; as many
/// rows at a time as a block has threads for.
__global__ void largest_kernel(Index rows, Index columns, const double* a, Index ld,
                               unsigned long long* out) {
  const Index j = threadIdx.x % columns, across = blockDim.x / columns;
  if (threadIdx.x >= across * columns) return;
  unsigned long long found = 0;
  for (Index r = blockIdx.x * across + threadIdx.x / columns; r < rows; r += gridDim.x * across) {
    const auto bits = static_cast<unsigned long long>(__double_as_longlong(fabs(a[r * ld + j])));
    found = bits > found ? bits : found;
  }
  if (found > *static_cast<volatile unsigned long long*>(out + j)) atomicMax(out + j, found);
}

/// Of those bits.
double number_of(Word bits) {
  const double size = std::bit_cast<double>(bits);
  return size <= std::numeric_limits<double>::max() ? size
                                                    : std::numeric_limits<double>::infinity();
}

}  // namespace

template <>
void multiply(const Stream<Cuda>& stream, Index m, Index n, Index k, double alpha,
              View<const double, Cuda> a, Index lda, View<const double, Cuda> b, Index ldb,
              double beta, View<double, Cuda> c, Index ldc) {
  if (m == 0 || n == 0 || k == 0) return;
  if (n == 1 && std::max({m, k, lda, ldb, ldc}) < Index(1) << 31)  // rows of A are columns there
    return check(cublasDgemv(cublas(stream), CUBLAS_OP_T, int(k), int(m), &alpha, a.data, int(lda),
                             b.data, int(ldb), &beta, c.data, int(ldc)));
  check(cublasDgemm_64(cublas(stream), CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, &alpha, b.data, ldb,
                       a.data, lda, &beta, c.data, ldc));
}

template <>
void add(const Stream<Cuda>& stream, double alpha, View<const double, Cuda> x, double beta,
         View<const double, Cuda> y, View<double, Cuda> out) {
  if (out.size == 0) return;
  add_kernel<<<blocks_for(out.size), threads, 0, native(stream)>>>(out.size, alpha, x.data, beta,
                                                                   y.data, out.data);
  check_launch();
}

template <>
void subtract_identity(const Stream<Cuda>& stream, View<const Index, Cuda> column,
                       View<double, Cuda> a, Index ld) {
  if (column.size == 0) return;
  subtract_identity_kernel<<<unsigned(ceil_div(column.size, threads)), threads, 0,
                             native(stream)>>>(column.size, column.data, a.data, ld);
  check_launch();
}

template <>
void scale_columns(const Stream<Cuda>& stream, Index rows, View<const Index, Cuda> power,
                   View<double, Cuda> a, Index ld) {
  if (rows == 0 || power.size == 0) return;
  scale_columns_kernel<<<unsigned(std::min<Index>(ceil_div(rows * power.size, threads), 65535)),
                         threads, 0, native(stream)>>>(rows, power.size, power.data, a.data, ld);
  check_launch();
}

template <>
void row_products(const Stream<Cuda>& stream, Index rows, Index columns, double scale,
                  View<const double, Cuda> x, Index ldx, View<const double, Cuda> y, Index ldy,
                  View<double, Cuda> out) {
  sum_rows(stream, rows, columns, scale, x.data, ldx, y.data, ldy, out.data);
}

template <>
void column_sums(const Stream<Cuda>& stream, Index rows, Index columns, double scale,
                 View<const double, Cuda> a, Index ld, View<double, Cuda> out) {
  if (columns == 0) return;
  const Index height = std::max(least_rows, ceil_div(rows, 256));
  const Index pieces = std::max<Index>(1, ceil_div(rows, height));
  const Buffer<double, Cuda> parts(pieces > 1 ? pieces * columns : 0);
  const dim3 grid(unsigned(ceil_div(columns, 128)), unsigned(pieces));
  column_parts_kernel<<<grid, 128, 0, native(stream)>>>(rows, columns, height, scale, a.data, ld,
                                                        pieces > 1 ? parts.data() : out.data);
  check_launch();
  if (pieces == 1) return;
  add_rows_kernel<<<unsigned(ceil_div(columns, 128)), 128, 0, native(stream)>>>(
      pieces, columns, parts.data(), out.data);
  check_launch();
  stream.synchronize();  // parts is released here
}

template <>
void row_sums(const Stream<Cuda>& stream, Index rows, Index columns, double scale,
              View<const double, Cuda> a, Index ld, View<double, Cuda> out) {
  sum_rows(stream, rows, columns, scale, a.data, ld, nullptr, 0, out.data);
}

template <>
void transpose(const Stream<Cuda>& stream, Index rows, Index columns, View<const double, Cuda> from,
               Index ld_from, View<double, Cuda> to, Index ld_to) {
  const Index tiles = ceil_div(rows, edge) * ceil_div(columns, edge);
  if (tiles == 0) return;
  transpose_kernel<<<int(std::min(tiles, max_blocks)), dim3(edge, strips), 0, native(stream)>>>(
      rows, columns, from.data, ld_from, to.data, ld_to);
  check_launch();
}

template <>
Sizes sizes_of(const Stream<Cuda>& stream, Index rows, Index columns, View<const double, Cuda> a,
               Index ld) {
  Sizes sizes;
  if (rows == 0 || columns == 0) return sizes;
  const Buffer<Word, Cuda> found(2);
  fill_zero(stream, found.view());
  if (ld == columns) columns *= rows, rows = 1;
  const Index across = std::clamp<Index>(ceil_div(columns, 4 * threads), 1, 2048);
  const dim3 grid(unsigned(across), unsigned(std::clamp<Index>(2048 / across, 1, rows)));
  sizes_kernel<<<grid, threads, 0, native(stream)>>>(
      rows, columns, a.data, ld, reinterpret_cast<unsigned long long*>(found.data()));
  check_launch();
  Word bits[2] = {0, 0};
  check(cudaMemcpyAsync(bits, found.data(), sizeof bits, cudaMemcpyDeviceToHost, native(stream)));
  stream.synchronize();
  sizes.largest = number_of(bits[0]);
  if (bits[1] != 0) sizes.least = std::bit_cast<double>(~bits[1]);
  return sizes;
}

template <>
std::vector<double> largest_of_columns(const Stream<Cuda>& stream, Index rows, Index columns,
                                       View<const double, Cuda> a, Index ld) {
  std::vector<double> most(std::size_t(columns), 0.0);
  const Buffer<Word, Cuda> found(columns);
  fill_zero(stream, found.view());
  for (Index j = 0; j < columns && rows > 0; j += threads) {  // a block's width at a time
    const Index width = std::min<Index>(threads, columns - j), across = threads / width;
    const Index blocks = std::clamp<Index>(ceil_div(rows, 8 * across), 1, 2048);
    largest_kernel<<<unsigned(blocks), threads, 0, native(stream)>>>(
        rows, width, a.data + j, ld, reinterpret_cast<unsigned long long*>(found.data()) + j);
    check_launch();
  }
  std::vector<Word> bits(static_cast<std::size_t>(columns));
  download(stream, bits.data(), found.view());
  stream.synchronize();
  std::transform(bits.begin(), bits.end(), most.begin(), number_of);
  return most;
}

TERRACE_PREPARED(base);

}  // namespace terrace
