// Matrix times up to 16 vectors on CUDA, vectors row-major: which kernel. The matrix comes from HBM
// once; beside it 16 bytes a row and column of vectors. The kernels here are those for any number of
// columns: lanes side by side take the columns of a row of p.
#include <algorithm>

#include "kernels/cg/cuda/column_sums.cuh"
#include "kernels/cg/cuda/products.cuh"
#include "kernels/cg/cuda/products_columns_band.cuh"
#include "kernels/cg/cuda/products_columns_csr.cuh"
#include "kernels/cg/cuda/products_columns_strips.cuh"

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

/// Blocks of a launch, each taking every gridDim.x-th group: 8 a multiprocessor of an H200, so that
/// few partial sums are left to add.
unsigned column_blocks(Index groups) { return sum_blocks(groups, 1056); }

template <int wide>
__global__ void __launch_bounds__(sum_threads)
    csr_columns_kernel(CsrRows<Cuda> m, const double* __restrict__ p, double* __restrict__ q,
                       SumTarget<Cuda> sums, int columns, const double* skip) {
  if (skip && *skip != 0) return;
  constexpr int together = sum_threads / wide;  // rows of a block
  const int group = threadIdx.x / wide, c = threadIdx.x % wide;
  const Index rows = c < columns ? m.start.size - 1 : 0;
  ColumnProducts<1> products;
  for (Index k = Index(blockIdx.x) * together + group; k < rows; k += Index(gridDim.x) * together) {
    const Index from = m.start.data[k], to = m.start.data[k + 1];
    if (m.longs.size > 0 && to - from > csr_chunk_entries) continue;  // of the kernel below
    const double sum = gather_column(m, p + c, columns, from, to, 1);
    const Index at = (m.row.size > 0 ? m.row.data[k] : k) * columns + c;
    products.add(0, __ldg(p + at), sum, !sums.add);
    q[at] = sums.add ? q[at] + sum : sum;
  }
  products.finish<wide, sum_threads>(sums, columns, columns);
}

/// A block a long row; its threads share the entries and the columns. `add`: onto q; the sums are
/// added to those of the other rows.
template <int wide>
__global__ void __launch_bounds__(sum_threads)
    long_columns_kernel(CsrRows<Cuda> m, const double* __restrict__ p, double* __restrict__ q,
                        bool add, SumTarget<Cuda> sums, int columns, const double* skip) {
  if (skip && *skip != 0) return;
  constexpr int shares = sum_threads / wide;
  __shared__ double parts[shares][wide];
  const int share = threadIdx.x / wide, c = threadIdx.x % wide;
  ColumnProducts<1> products;
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
      products.add(0, __ldg(p + at), sum, !add);
      q[at] = add ? q[at] + sum : sum;
    }
    __syncthreads();
  }
  products.finish<wide, sum_threads>(sums, columns, columns);
}

// Of 16 to 32 warps and batches of 6 to 9, on an H200; rows of up to 8 entries on average in batches
// of 7, as a stencil of 7 points has: what is left of a row takes as long as a batch.
constexpr int columns_teams = 12, columns_batch = 9, short_batch = 7;

template <int lanes, int batch, class C>
void stream_columns(cudaStream_t lane, const CsrRows<Cuda>& m, const C* column, const double* p,
                    double* q, const SumTarget<Cuda>& sums, const double* skip) {
  constexpr auto kernel = csr_columns_stream_kernel<columns_teams, lanes, batch, C>;
  constexpr Index bytes = columns_teams * csr_stage_bytes<csr_chunk_entries, double, C>();
  static OncePerDevice<Index> once;
  const Index resident = once([] { return resident_blocks(kernel, 64 * columns_teams, bytes); });
  const Index blocks = std::min(resident, ceil_div(m.chunk.size / 2 - 1, Index(columns_teams)));
  kernel<<<unsigned(blocks), 64 * columns_teams, bytes, lane>>>(
      m, column, reinterpret_cast<const double2*>(p), reinterpret_cast<double2*>(q), sums, skip);
  check_launch();
}
template <int lanes, class C>
void stream_columns(cudaStream_t lane, const CsrRows<Cuda>& m, const C* column, const double* p,
                    double* q, const SumTarget<Cuda>& sums, const double* skip) {
  if (m.value.size <= 8 * m.rows())
    stream_columns<lanes, short_batch>(lane, m, column, p, q, sums, skip);
  else
    stream_columns<lanes, columns_batch>(lane, m, column, p, q, sums, skip);
}
template <int lanes>
void stream_columns(cudaStream_t lane, const CsrRows<Cuda>& m, const double* p, double* q,
                    const SumTarget<Cuda>& sums, const double* skip) {
  if (m.listed.size > 0)
    stream_columns<lanes>(lane, m, m.listed.data, p, q, sums, skip);
  else if (m.near.size > 0)
    stream_columns<lanes>(lane, m, m.near.data, p, q, sums, skip);
  else
    stream_columns<lanes>(lane, m, m.column.data, p, q, sums, skip);
}

/// Without its long rows.
template <int wide>
void launch_rows(cudaStream_t lane, const CsrRows<Cuda>& m, const double* p, double* q,
                 const SumTarget<Cuda>& sums, int columns, const double* skip) {
  if constexpr (wide >= 8)
    if (columns == wide && m.strip.size > 0 && !sums.add)
      return strips::launch<std::conditional_t<wide == 8, double, double2>>(lane, m, p, q, sums,
                                                                            skip);
  if constexpr (wide > 1)
    if (columns == wide && m.chunk.size >= 4 && has_bulk_copies())
      return stream_columns<wide / 2>(lane, m, p, q, sums, skip);
  const unsigned blocks = column_blocks(ceil_div(m.rows(), Index(sum_threads / wide)));
  csr_columns_kernel<wide><<<blocks, sum_threads, 0, lane>>>(m, p, q, sums, columns, skip);
  check_launch();
}
template <int wide>
void launch_csr(cudaStream_t lane, const CsrRows<Cuda>& m, const double* p, double* q,
                const SumTarget<Cuda>& sums, int columns, const double* skip) {
  launch_rows<wide>(lane, m, p, q, sums, columns, skip);
  if (m.longs.size == 0) return;
  SumTarget<Cuda> more = sums;
  more.add = true;
  long_columns_kernel<wide><<<column_blocks(m.longs.size / 3), sum_threads, 0, lane>>>(
      m, p, q, sums.add, more, columns, skip);
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

/// p.q and p.p by a pass of their own: within the kernel above they cost more, by the registers of a
/// loop over its tiles.
template <int wide>
__global__ void __launch_bounds__(sum_threads)
    column_products_kernel(Index rows, const double* __restrict__ p, const double* __restrict__ q,
                           SumTarget<Cuda> sums, int columns, const double* skip) {
  if (skip && *skip != 0) return;
  constexpr int together = sum_threads / wide;  // rows of a block
  const int c = threadIdx.x % wide;
  if (c >= columns) rows = 0;
  ColumnProducts<1> products;
#pragma unroll 2
  for (Index i = Index(blockIdx.x) * together + threadIdx.x / wide; i < rows;
       i += Index(gridDim.x) * together)
    products.add(0, p[i * columns + c], q[i * columns + c]);
  products.finish<wide, sum_threads>(sums, columns, columns);
}

template <int wide>
void launch_band(cudaStream_t lane, const BandRows<Cuda>& b, const double* p, double* q,
                 const SumTarget<Cuda>& sums, int columns, const double* skip) {
  if (b.rows > 0) {
    const Index blocks = ceil_div(b.rows, Index(sum_threads / wide * 8));
    band_columns_kernel<wide><<<unsigned(blocks), sum_threads, 0, lane>>>(b, p, q, columns, skip);
    check_launch();
  }
  const unsigned blocks = column_blocks(ceil_div(b.rows, Index(sum_threads / wide)));
  column_products_kernel<wide><<<blocks, sum_threads, 0, lane>>>(b.rows, p, q, sums, columns, skip);
  check_launch();
}

/// Shared memory that a block may have; 0 where there are no FP64 tensor cores.
Index most_shared() {
  static OncePerDevice<Index> once;
  return once([] {
    int device = 0, major = 0, bytes = 0;
    check(cudaGetDevice(&device));
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    return Index(major >= 8 ? bytes : 0);
  });
}

template <int halves, int buffers>
void launch_band_tiles(cudaStream_t lane, const BandRows<Cuda>& b, const double* p, double* q,
                       const SumTarget<Cuda>& sums, int columns, int p_ld, const double* skip) {
  const auto kernel = band_tiles_kernel<halves, buffers>;
  const Index bytes = band_tiles::shared_bytes(b.half_bandwidth, halves, buffers);
  const Index resident = resident_blocks(kernel, 32 * band_tiles::warps, bytes);
  const Index strip = round_up(ceil_div(b.rows + 1, resident), Index(band_tiles::wide));
  kernel<<<unsigned(ceil_div(b.rows + 1, strip)), 32 * band_tiles::warps, bytes, lane>>>(
      b, p, q, columns, p_ld, strip, sums, skip);
  check_launch();
}
/// False where the band is too wide for the rings, wider than the slice, or so narrow that the kernel
/// above is faster.
bool launch_band_tiles(cudaStream_t lane, const BandRows<Cuda>& b, const double* p, double* q,
                       const SumTarget<Cuda>& sums, int columns, const double* skip) {
  const Index m = b.half_bandwidth, most = most_shared();
  const auto fits = [&](int halves, int buffers) {
    return band_tiles::shared_bytes(m, halves, buffers) <= most;
  };
  if (m > b.rows || columns % 2 != 0 || m * std::max(columns, 4) < 152 || !fits(1, 2)) return false;
  if (columns > 8 && fits(2, 3))
    launch_band_tiles<2, 3>(lane, b, p, q, sums, columns, columns, skip);
  else if (columns > 8 && fits(2, 2))
    launch_band_tiles<2, 2>(lane, b, p, q, sums, columns, columns, skip);
  else
    for (int c = 0; c < columns; c += 8) {
      SumTarget<Cuda> part = sums;
      part.result = sums.result.slice(c, sums.result.size - c);
      const auto launch = fits(1, 3) ? launch_band_tiles<1, 3> : launch_band_tiles<1, 2>;
      launch(lane, b, p + c, q + c, part, std::min(8, columns - c), columns, skip);
    }
  return true;
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
                      View<double, Cuda> q, const SumTarget<Cuda>& sums, Index columns,
                      const double* skip) {
  const cudaStream_t lane = native(stream);
  switch (lanes_for(columns)) {
    case 1:
      return launch_csr<1>(lane, m, p, q.data, sums, int(columns), skip);
    case 2:
      return launch_csr<2>(lane, m, p, q.data, sums, int(columns), skip);
    case 4:
      return launch_csr<4>(lane, m, p, q.data, sums, int(columns), skip);
    case 8:
      return launch_csr<8>(lane, m, p, q.data, sums, int(columns), skip);
    default:
      return launch_csr<16>(lane, m, p, q.data, sums, int(columns), skip);
  }
}

void multiply_columns(const Stream<Cuda>& stream, const BandRows<Cuda>& b, const double* p,
                      View<double, Cuda> q, View<double, Cuda>, const SumTarget<Cuda>& sums,
                      Index columns, const double* skip) {
  const cudaStream_t lane = native(stream);
  if (launch_band_tiles(lane, b, p, q.data, sums, int(columns), skip)) return;
  switch (lanes_for(columns)) {
    case 1:
      return launch_band<1>(lane, b, p, q.data, sums, int(columns), skip);
    case 2:
      return launch_band<2>(lane, b, p, q.data, sums, int(columns), skip);
    case 4:
      return launch_band<4>(lane, b, p, q.data, sums, int(columns), skip);
    case 8:
      return launch_band<8>(lane, b, p, q.data, sums, int(columns), skip);
    default:
      return launch_band<16>(lane, b, p, q.data, sums, int(columns), skip);
  }
}

}  // namespace terrace::cg
