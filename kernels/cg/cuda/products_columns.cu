// Matrix times up to 16 vectors on CUDA, vectors row-major: lanes side by side take the columns of
// a row of p. The matrix comes from HBM once; beside it 16 bytes a row and column of vectors. CSR
// is bound by the gathers of p through L2, 8 columns bytes a nonzero; the band by L1.
#include <algorithm>

#include "kernels/cg/cuda/products.cuh"

namespace terrace::cg {
namespace {

/// Lanes for `columns` columns: a power of two.
int lanes_for(Index columns) {
  int wide = 1;
  while (wide < columns) wide *= 2;
  return wide;
}

/// Sum of value[e] p[column[e]][c] over e = from, from + step, ... < to.
__device__ __forceinline__ double gather_column(const CsrRows<Cuda>& m, const double* p,
                                                int columns, Index from, Index to, int step) {
  double sum = 0;
#pragma unroll 4
  for (Index e = from; e < to; e += step)
    sum += __ldg(m.value.data + e) * __ldg(p + Index(__ldg(m.column.data + e)) * columns);
  return sum;
}

template <int wide>
__global__ void __launch_bounds__(sum_threads)
    csr_columns_kernel(CsrRows<Cuda> m, const double* __restrict__ p, double* __restrict__ q,
                       bool add, int columns, const double* skip) {
  if (skip && *skip != 0) return;
  constexpr int together = sum_threads / wide;  // rows of a block
  const int group = threadIdx.x / wide, c = threadIdx.x % wide;
  const Index rows = m.start.size - 1;
  if (c >= columns) return;
  for (Index k = Index(blockIdx.x) * together + group; k < rows; k += Index(gridDim.x) * together) {
    const Index from = m.start.data[k], to = m.start.data[k + 1];
    if (m.longs.size > 0 && to - from > csr_chunk_entries) continue;  // of the kernel below
    const double sum = gather_column(m, p + c, columns, from, to, 1);
    const Index at = (m.row.size > 0 ? m.row.data[k] : k) * columns + c;
    q[at] = add ? q[at] + sum : sum;
  }
}

/// A block a long row; its threads share the entries and the columns.
template <int wide>
__global__ void __launch_bounds__(sum_threads)
    long_columns_kernel(CsrRows<Cuda> m, const double* __restrict__ p, double* __restrict__ q,
                        bool add, int columns, const double* skip) {
  if (skip && *skip != 0) return;
  constexpr int shares = sum_threads / wide;
  __shared__ double parts[shares][wide];
  const int share = threadIdx.x / wide, c = threadIdx.x % wide;
  for (Index l = blockIdx.x; l < m.longs.size / 3; l += gridDim.x) {
    const Index k = m.longs.data[3 * l];
    parts[share][c] = c < columns ? gather_column(m, p + c, columns, m.start.data[k] + share,
                                                  m.start.data[k + 1], shares)
                                  : 0.0;
    __syncthreads();
    if (share == 0 && c < columns) {
      double sum = 0;
      for (int s = 0; s < shares; ++s) sum += parts[s][c];
      const Index at = (m.row.size > 0 ? m.row.data[k] : k) * columns + c;
      q[at] = add ? q[at] + sum : sum;
    }
    __syncthreads();
  }
}

template <int wide>
void launch_csr(cudaStream_t lane, const CsrRows<Cuda>& m, const double* p, double* q, bool add,
                int columns, const double* skip) {
  const Index groups = ceil_div(m.rows(), Index(sum_threads / wide));
  csr_columns_kernel<wide>
      <<<unsigned(std::clamp<Index>(groups, 1, 1 << 20)), sum_threads, 0, lane>>>(m, p, q, add,
                                                                                  columns, skip);
  check_launch();
  if (m.longs.size == 0) return;
  long_columns_kernel<wide>
      <<<unsigned(std::min<Index>(m.longs.size / 3, 4096)), sum_threads, 0, lane>>>(m, p, q, add,
                                                                                    columns, skip);
  check_launch();
}

// A lane takes `height` rows of one column: the windows of p on both sides move by one row a
// diagonal. Each entry is read for its row and, m rows on at most, for its column: from L2.
template <int wide>
__global__ void __launch_bounds__(sum_threads)
    band_columns_kernel(BandRows<Cuda> b, const double* __restrict__ p, double* __restrict__ q,
                        int columns, const double* skip) {
  if (skip && *skip != 0) return;
  constexpr int height = 8;
  const int c = threadIdx.x % wide;
  const Index m = b.half_bandwidth, rows = b.rows, w = min(m, rows);
  const Index i = (Index(blockIdx.x) * (sum_threads / wide) + threadIdx.x / wide) * height;
  if (c >= columns || i >= rows) return;
  p += c;
  double above[height], below[height], sum[height];
  Index row[height];
#pragma unroll
  for (int r = 0; r < height; ++r) {
    row[r] = min(i + r, rows - 1);
    above[r] = below[r] = p[min(i + r, rows + m - 1) * columns];
    sum[r] = b.s.data[w + row[r]] * above[r];
  }
  for (Index d = 1; d <= m; ++d) {
    const double* const s = b.s.data + d * b.ld + w;
    const double* const t = s - min(d, w);
#pragma unroll
    for (int r = 0; r + 1 < height; ++r) above[r] = above[r + 1];
#pragma unroll
    for (int r = height - 1; r > 0; --r) below[r] = below[r - 1];
    above[height - 1] = p[min(i + d + height - 1, rows + m - 1) * columns];
    below[0] = p[(i - d) * columns];
#pragma unroll
    for (int r = 0; r < height; ++r)
      sum[r] += __ldg(s + row[r]) * above[r] + __ldg(t + row[r]) * below[r];
  }
#pragma unroll
  for (int r = 0; r < height; ++r)
    if (i + r < rows) q[(i + r) * columns + c] = sum[r];
}

template <int wide>
void launch_band(cudaStream_t lane, const BandRows<Cuda>& b, const double* p, double* q,
                 int columns, const double* skip) {
  const Index blocks = ceil_div(b.rows, Index(sum_threads / wide * 8));
  band_columns_kernel<wide><<<unsigned(blocks), sum_threads, 0, lane>>>(b, p, q, columns, skip);
  check_launch();
}

}  // namespace

// cuBLAS does not know `skip`: p of an iteration that has ended stays, and so does A p.
void multiply_columns(const Stream<Cuda>& stream, const DenseRows<Cuda>& m, const double* p,
                      View<double, Cuda> q, Index columns, const double*) {
  if (m.rows == 0) return;
  const double one = 1, zero = 0;
  check(cublasDgemm(cublas(stream), CUBLAS_OP_N, CUBLAS_OP_N, int(columns), int(m.rows), int(m.ld),
                    &one, p, int(columns), m.a.data, int(m.ld), &zero, q.data, int(columns)));
}

void multiply_columns(const Stream<Cuda>& stream, const CsrRows<Cuda>& m, const double* p,
                      View<double, Cuda> q, bool add, Index columns, const double* skip) {
  if (m.rows() == 0) return;
  const cudaStream_t lane = native(stream);
  switch (lanes_for(columns)) {
    case 1:
      return launch_csr<1>(lane, m, p, q.data, add, int(columns), skip);
    case 2:
      return launch_csr<2>(lane, m, p, q.data, add, int(columns), skip);
    case 4:
      return launch_csr<4>(lane, m, p, q.data, add, int(columns), skip);
    case 8:
      return launch_csr<8>(lane, m, p, q.data, add, int(columns), skip);
    default:
      return launch_csr<16>(lane, m, p, q.data, add, int(columns), skip);
  }
}

void multiply_columns(const Stream<Cuda>& stream, const BandRows<Cuda>& b, const double* p,
                      View<double, Cuda> q, View<double, Cuda>, Index columns, const double* skip) {
  if (b.rows == 0) return;
  const cudaStream_t lane = native(stream);
  switch (lanes_for(columns)) {
    case 1:
      return launch_band<1>(lane, b, p, q.data, int(columns), skip);
    case 2:
      return launch_band<2>(lane, b, p, q.data, int(columns), skip);
    case 4:
      return launch_band<4>(lane, b, p, q.data, int(columns), skip);
    case 8:
      return launch_band<8>(lane, b, p, q.data, int(columns), skip);
    default:
      return launch_band<16>(lane, b, p, q.data, int(columns), skip);
  }
}

}  // namespace terrace::cg
