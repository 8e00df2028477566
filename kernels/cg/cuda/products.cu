// Dense matrix times vector on CUDA. Bound by HBM: 8 bytes an entry; two flops an entry are 40
// times below the FP64 rate. Symmetry of blocks, and the generated problems.
#include "kernels/cg/products.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/base/problems.hpp"
#include "kernels/cg/cuda/products.cuh"

namespace terrace::cg {
namespace {

// --- dense: a block of 256 threads sweeps `height` rows at once, and reads p once for all of them
// ---

template <int height, bool absolute>
__global__ void __launch_bounds__(sum_threads, height > 4 ? 2 : 3)
    dense_kernel(DenseRows<Cuda> m, const double* __restrict__ p_own, const double* __restrict__ p,
                 double* __restrict__ q, SumTarget<Cuda> sums, const double* skip) {
  if (skip && *skip != 0) return;
  __shared__ double parts[height][sum_threads / 32];
  const Index half = m.ld / 2;  // 16-byte pieces of a row
  const auto* const a2 = reinterpret_cast<const double2*>(m.a.data);
  const auto* const p2 = reinterpret_cast<const double2*>(p);
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  double pq = 0, pp = 0;
  for (Index first = Index(blockIdx.x) * height; first < m.rows;
       first += Index(gridDim.x) * height) {
    const double2* row[height];
    double sum[height];
#pragma unroll
    for (int r = 0; r < height; ++r) {
      row[r] = a2 + (first + r < m.rows ? first + r : m.rows - 1) * half;
      sum[r] = 0;
    }
#pragma unroll 2
    for (Index j = threadIdx.x; j < half; j += sum_threads) {
      const double2 v = p2[j];
      double2 w[height];
#pragma unroll
      for (int r = 0; r < height; ++r) w[r] = __ldcs(row[r] + j);
#pragma unroll
      for (int r = 0; r < height; ++r)
        sum[r] += entry<absolute>(w[r].x) * v.x + entry<absolute>(w[r].y) * v.y;
    }
#pragma unroll
    for (int r = 0; r < height; ++r) {
      for (int offset = 16; offset > 0; offset >>= 1)
        sum[r] += __shfl_down_sync(0xffffffffu, sum[r], offset);
      if (lane == 0) parts[r][warp] = sum[r];
    }
    __syncthreads();
    if (threadIdx.x < height && first + threadIdx.x < m.rows) {
      double total = 0;
#pragma unroll
      for (int w = 0; w < sum_threads / 32; ++w) total += parts[threadIdx.x][w];
      const double own = p_own[first + threadIdx.x];
      q[first + threadIdx.x] = total;
      pq += own * total;
      pp += own * own;
    }
    __syncthreads();
  }
  finish_sums(pq, pp, sums);
}

template <int height>
void launch_dense(cudaStream_t stream, const DenseRows<Cuda>& m, const double* p_own,
                  const double* p, double* q, const SumTarget<Cuda>& sums, bool absolute,
                  const double* skip) {
  const unsigned blocks = sum_blocks(ceil_div(m.rows, Index(height)), SumSpace<Cuda>::pieces);
  const auto kernel = absolute ? dense_kernel<height, true> : dense_kernel<height, false>;
  kernel<<<blocks, sum_threads, 0, stream>>>(m, p_own, p, q, sums, skip);
  check_launch();
}

// --- symmetry: 32 x 32 tiles, the transposed one through shared memory
// -----------------------------

__global__ void asymmetry_kernel(TransposedBlocks<Cuda> t, Index tiles, Index across, bool own,
                                 Index n, const double* __restrict__ diagonal, Index* worst) {
  __shared__ double transposed[32][33];
  const int tx = threadIdx.x & 31, ty = threadIdx.x >> 5;
  for (Index tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const Index i0 = tile / across * 32, j0 = tile % across * 32;
    if (own && j0 < i0) continue;  // the same for all threads
    for (int k = ty; k < 32; k += sum_threads / 32)
      if (j0 + k < t.columns && i0 + tx < t.rows)
        transposed[k][tx] = t.b[(j0 + k) * t.ldb + i0 + tx];
    __syncthreads();
    for (int k = ty; k < 32; k += sum_threads / 32) {
      if (i0 + k >= t.rows || j0 + tx >= t.columns) continue;
      const Index gi = t.row + i0 + k, gj = t.column + j0 + tx;
      const double scale = sqrt(fabs(diagonal[gi])) * sqrt(fabs(diagonal[gj]));
      if (!symmetric_pair(t.a[(i0 + k) * t.lda + j0 + tx], transposed[tx][k], scale))
        atomicMin(reinterpret_cast<long long*>(worst),
                  static_cast<long long>((gi < gj ? gi : gj) * n + (gi < gj ? gj : gi)));
    }
    __syncthreads();
  }
}

// --- problems
// --------------------------------------------------------------------------------------

__global__ void fill_dense_kernel(Word seed, Index n, double scale, Index first, Index rows,
                                  Index ld, double diagonal, double* a) {
  const Index count = rows * ld, stride = Index(gridDim.x) * blockDim.x;
  for (Index k = Index(blockIdx.x) * blockDim.x + threadIdx.x; k < count; k += stride) {
    const Index i = k / ld, j = k % ld;
    a[k] = j < n ? dense_cg_entry(seed, scale, first + i, j, diagonal) : 0.0;
  }
}

__global__ void fill_band_kernel(Word seed, Index n, Index r0, Index rows, Index m, Index w,
                                 Index ld, double* s) {
  const Index count = (m + 1) * ld, stride = Index(gridDim.x) * blockDim.x;
  for (Index k = Index(blockIdx.x) * blockDim.x + threadIdx.x; k < count; k += stride) {
    const Index d = k / ld, at = k % ld;
    double v = 0;
    if (at >= w && at < w + rows) {
      v = band_spd_entry(seed, n, m, r0 + at - w + d, r0 + at - w);
    } else if (at < w) {
      const Index i = at - w + (d < w ? d : w);
      if (i >= 0 && i < d && i < rows) v = band_spd_entry(seed, n, m, r0 + i, r0 + i - d);
    }
    s[k] = v;
  }
}

}  // namespace

void multiply(const Stream<Cuda>& stream, const DenseRows<Cuda>& m, Index first,
              View<const double, Cuda> p, View<double, Cuda> q, const SumTarget<Cuda>& sums,
              bool absolute, const double* skip) {
  const double* const own = p.data + first;
  // Few rows: one row a block, so that every multiprocessor has work.
  if (m.rows >= 8192)
    launch_dense<8>(native(stream), m, own, p.data, q.data, sums, absolute, skip);
  else if (m.rows >= 2048)
    launch_dense<4>(native(stream), m, own, p.data, q.data, sums, absolute, skip);
  else
    launch_dense<1>(native(stream), m, own, p.data, q.data, sums, absolute, skip);
}

void find_asymmetry(const Stream<Cuda>& stream, const TransposedBlocks<Cuda>& t, Index n,
                    View<const double, Cuda> diagonal, View<Index, Cuda> worst) {
  const Index across = ceil_div(t.columns, Index(32)), tiles = ceil_div(t.rows, Index(32)) * across;
  if (tiles == 0) return;
  asymmetry_kernel<<<unsigned(std::min<Index>(tiles, 8448)), sum_threads, 0, native(stream)>>>(
      t, tiles, across, t.a == t.b, n, diagonal.data, worst.data);
  check_launch();
}

void fill_dense_cg(const Stream<Cuda>& stream, Word seed, Index n, Index first, Index rows,
                   Index ld, View<double, Cuda> a, double diagonal) {
  if (rows * ld == 0) return;
  fill_dense_kernel<<<8448, sum_threads, 0, native(stream)>>>(seed, n, 1.0 / std::sqrt(double(n)),
                                                              first, rows, ld, diagonal, a.data);
  check_launch();
}

void fill_band_spd(const Stream<Cuda>& stream, Word seed, Index n, Index r0, Index rows, Index m,
                   Index ld, View<double, Cuda> s) {
  if (ld == 0) return;
  fill_band_kernel<<<8448, sum_threads, 0, native(stream)>>>(seed, n, r0, rows, m,
                                                             std::min(m, rows), ld, s.data);
  check_launch();
}

}  // namespace terrace::cg
