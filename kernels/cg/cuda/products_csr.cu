// CSR times vector on CUDA: which kernel, and the pieces of long rows.
#include <algorithm>
#include <cmath>

#include "kernels/cg/cuda/products.cuh"
#include "kernels/cg/cuda/products_csr.cuh"

namespace terrace::cg {
namespace {

// Without chunks, or where the device has no bulk copies: `width` lanes a row.

template <int width, bool absolute, class T>
__global__ void __launch_bounds__(sum_threads)
    csr_kernel(CsrRows<Cuda> m, const T* __restrict__ value, Index rows,
               const double* __restrict__ p, double* __restrict__ q, SumTarget<Cuda> sums,
               const double* skip) {
  if (skip && *skip != 0) return;
  constexpr int together = sum_threads / width;  // rows of a block
  const int group = threadIdx.x / width, lane = threadIdx.x % width;
  const Index* const __restrict__ start = m.start.data;
  const std::int32_t* const __restrict__ column = m.column.data;
  double pq = 0, pp = 0;
  for (Index first = Index(blockIdx.x) * together; first < rows;
       first += Index(gridDim.x) * together) {
    const Index k = first + group;
    double sum = 0;
    if (k < rows) {
      const Index end = start[k + 1];
#pragma unroll 4
      for (Index e = start[k] + lane; e < end; e += width)
        sum += entry<absolute>(__ldcs(value + e)) * p[__ldcs(column + e)];
    }
#pragma unroll
    for (int offset = width / 2; offset > 0; offset >>= 1)
      sum += __shfl_down_sync(0xffffffffu, sum, offset, width);
    if (k < rows && lane == 0) {
      const Index i = m.row.size > 0 ? m.row.data[k] : k;
      q[i] = sums.add ? q[i] + sum : sum;
      pq += p[i] * sum;
      if (!sums.add) pp += p[i] * p[i];
    }
  }
  finish_sums(pq, pp, sums);
}

template <int width, bool absolute, class T>
void launch_csr(cudaStream_t stream, const CsrRows<Cuda>& m, const T* value, const double* p,
                double* q, const SumTarget<Cuda>& sums, const double* skip) {
  const unsigned blocks = sum_blocks(ceil_div(m.rows(), Index(sum_threads / width)), 4224);
  csr_kernel<width, absolute>
      <<<blocks, sum_threads, 0, stream>>>(m, value, m.rows(), p, q, sums, skip);
  check_launch();
}

template <bool absolute, class T>
void launch_plain(cudaStream_t lane, const CsrRows<Cuda>& m, const T* value, const double* p,
                  double* q, const SumTarget<Cuda>& sums, const double* skip) {
  const double mean = m.rows() > 0 ? double(m.value.size) / double(m.rows()) : 0;
  if (mean > 64)
    launch_csr<32, absolute>(lane, m, value, p, q, sums, skip);
  else if (mean > 32)
    launch_csr<16, absolute>(lane, m, value, p, q, sums, skip);
  else if (mean > 12)
    launch_csr<8, absolute>(lane, m, value, p, q, sums, skip);
  else if (mean > 4)
    launch_csr<4, absolute>(lane, m, value, p, q, sums, skip);
  else
    launch_csr<2, absolute>(lane, m, value, p, q, sums, skip);
}

/// A block a long row: its pieces' sums, in a fixed order.
__global__ void __launch_bounds__(sum_threads)
    long_rows_kernel(CsrRows<Cuda> m, const double* __restrict__ p, double* __restrict__ q,
                     bool add, SumTarget<Cuda> sums, const double* skip) {
  if (skip && *skip != 0) return;
  double pq = 0, pp = 0;
  for (Index l = blockIdx.x; l < m.longs.size / 3; l += gridDim.x) {
    const Index k = m.longs.data[3 * l], end = m.longs.data[3 * l + 2];
    double sum = 0;
    for (Index c = m.longs.data[3 * l + 1] + threadIdx.x; c < end; c += sum_threads)
      sum += m.partial.data[c];
    sum = block_sum(make_double2(sum, 0)).x;
    if (threadIdx.x == 0) {
      const Index i = m.row.size > 0 ? m.row.data[k] : k;
      const double own = p[i];
      q[i] = add ? q[i] + sum : sum;
      pq += own * sum;
      if (!add) pp += own * own;
    }
  }
  finish_sums(pq, pp, sums);
}

// Of batches of 5 to 14, 1 and 2 stages, 7 to 12 blocks. More entries a chunk leave fewer warps, but
// each has less to do beside its entries: cg.md.
constexpr int stream_warps = 4, stream_stages = 1, stream_batch = 9,
              stream_room = csr_chunk_entries;
/// Blocks of a multiprocessor: as many as shared memory holds, and registers.
template <class T, class C>
constexpr int stream_blocks() {
  constexpr int bytes = stream_warps * stream_stages * csr_stage_bytes<stream_room, T, C>() + 3072;
  return std::min(8, 228 * 1024 / bytes);
}

Index multiprocessors() {
  static OncePerDevice<Index> once;
  const Index count = once([] {
    int device = 0, value = 0;
    check(cudaGetDevice(&device));
    check(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, device));
    return Index(value);
  });
  return count;
}

template <bool absolute, class T, class C>
void launch_stream(cudaStream_t lane, const CsrRows<Cuda>& m, const T* value, const C* column,
                   const double* p, double* q, const SumTarget<Cuda>& sums, const double* skip) {
  constexpr auto kernel = csr_stream_kernel<stream_warps, stream_blocks<T, C>(), stream_stages,
                                            stream_batch, stream_room, absolute, T, C>;
  constexpr Index bytes = stream_warps * stream_stages * csr_stage_bytes<stream_room, T, C>();
  static OncePerDevice<Index> once;
  const Index resident = once([] { return resident_blocks(kernel, 32 * stream_warps, bytes); });
  const Index chunks = m.chunk.size / 2 - 1;
  // Scattered rows: about 90 KB of first-level cache instead of the most shared memory (0.64
  // against 1.25 ms for 2^22 rows of 16 random columns; a stencil loses a tenth by it).
  constexpr Index kept = 164 * 1024, all = 228 * 1024;
  const Index most =
      m.scattered ? std::min(resident, kept / (bytes + 1024) * multiprocessors()) : resident;
  cudaLaunchAttribute carveout{};
  carveout.id = cudaLaunchAttributePreferredSharedMemoryCarveout;
  carveout.val.sharedMemCarveout = unsigned(100 * kept / all);
  cudaLaunchConfig_t launch{};
  launch.gridDim = dim3(sum_blocks(ceil_div(chunks, Index(stream_warps)), most));
  launch.blockDim = dim3(32 * stream_warps);
  launch.dynamicSmemBytes = std::size_t(bytes);
  launch.stream = lane;
  launch.attrs = &carveout;
  launch.numAttrs = m.scattered ? 1 : 0;
  check(cudaLaunchKernelEx(&launch, kernel, m, value, column, p, q, sums, skip));
  if (m.longs.size == 0) return;
  SumTarget<Cuda> more = sums;
  more.add = true;
  long_rows_kernel<<<sum_blocks(m.longs.size / 3, 1056), sum_threads, 0, lane>>>(m, p, q, sums.add,
                                                                                 more, skip);
  check_launch();
}

template <bool absolute, class T>
void launch(const Stream<Cuda>& stream, const CsrRows<Cuda>& m, const T* value, const double* p,
            double* q, const SumTarget<Cuda>& sums, const double* skip) {
  if (m.chunk.size < 4 || !has_bulk_copies())
    launch_plain<absolute>(native(stream), m, value, p, q, sums, skip);
  else if (!absolute && m.listed.size > 0)
    launch_stream<false>(native(stream), m, value, m.listed.data, p, q, sums, skip);
  else if (!absolute && m.near.size > 0)
    launch_stream<false>(native(stream), m, value, m.near.data, p, q, sums, skip);
  else
    launch_stream<absolute>(native(stream), m, value, m.column.data, p, q, sums, skip);
}

}  // namespace

void multiply(const Stream<Cuda>& stream, const CsrRows<Cuda>& m, const double* p,
              View<double, Cuda> q, const SumTarget<Cuda>& sums, bool absolute,
              const double* skip) {
  if (m.head.size > 0)
    launch<false>(stream, m, m.head.data, p, q.data, sums, skip);
  else if (absolute)
    launch<true>(stream, m, m.value.data, p, q.data, sums, skip);
  else
    launch<false>(stream, m, m.value.data, p, q.data, sums, skip);
}

namespace {

/// A thread a row; entries of the block's rows come side by side, their products go through shared memory.
constexpr int short_block = 128, short_room = 1024;
__global__ void __launch_bounds__(short_block)
    short_rows_kernel(const Index* __restrict__ start, const std::int32_t* __restrict__ column,
                      const double* __restrict__ value, Index rows, const double* __restrict__ p,
                      double* __restrict__ q, const double* skip) {
  if (skip && *skip != 0) return;
  constexpr int batch = 4;
  __shared__ double product[short_room];
  const int t = int(threadIdx.x);
  const Index row = Index(blockIdx.x) * short_block + t, first = row - t;
  const Index begin = start[first], end = start[min(first + short_block, rows)];
  const Index from = start[min(row, rows)], to = start[min(row + 1, rows)];
  double sum = 0;
  for (Index tile = begin; tile < end; tile += short_room) {
    const int count = int(min(Index(short_room), end - tile));
    for (int e = t; e < count; e += batch * short_block) {
      double v[batch];
      int c[batch];
#pragma unroll
      for (int u = 0; u < batch; ++u) {
        const Index at = tile + min(e + u * short_block, count - 1);
        v[u] = __ldcs(value + at);
        c[u] = __ldcs(column + at);
      }
#pragma unroll
      for (int u = 0; u < batch; ++u) {
        const double x = p[c[u]];
        if (e + u * short_block < count) product[e + u * short_block] = v[u] * x;
      }
    }
    __syncthreads();
    const int last = int(min(to - tile, Index(count)));
    for (int e = int(max(from - tile, Index(0))); e < last; ++e) sum += product[e];
    __syncthreads();
  }
  if (row < rows) q[row] = sum;
}

}  // namespace

bool multiply_short_rows(const Stream<Cuda>& stream, const CsrRows<Cuda>& m, const double* p,
                         View<double, Cuda> q, const double* skip) {
  constexpr Index longest = 6;  // on average; of more the kernel above is faster
  const Index rows = m.rows();
  if (m.value.size > longest * rows || m.row.size > 0) return false;
  if (rows == 0) return true;
  short_rows_kernel<<<unsigned(ceil_div(rows, Index(short_block))), short_block, 0,
                      native(stream)>>>(m.start.data, m.column.data, m.value.data, rows, p, q.data,
                                        skip);
  check_launch();
  return true;
}

TERRACE_PREPARED(cg);

}  // namespace terrace::cg
