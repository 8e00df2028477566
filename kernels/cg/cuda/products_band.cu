// Symmetric band times vector on CUDA: which kernel, and how the band is cut.
#include <algorithm>
#include <cmath>

#include "kernels/cg/cuda/products.cuh"
#include "kernels/cg/cuda/products_band.cuh"

namespace terrace::cg {
namespace {

// Bands wider than the slice, or than the rings: 32 rows a block, one row a lane; its 8 warps share
// the diagonals. Each entry is read for its row and, m rows on at most, for its column: from L2.
template <bool absolute, class T>
__global__ void __launch_bounds__(sum_threads, 4)
    band_kernel(BandRows<Cuda> b, const T* __restrict__ entries, const double* __restrict__ p,
                double* __restrict__ q, SumTarget<Cuda> sums, const double* skip) {
  if (skip && *skip != 0) return;
  constexpr int warps = sum_threads / 32;
  __shared__ double parts[warps][32];
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const Index m = b.half_bandwidth, w = b.half_bandwidth < b.rows ? b.half_bandwidth : b.rows;
  double pq = 0, pp = 0;
  for (Index first = Index(blockIdx.x) * 32; first < b.rows; first += Index(gridDim.x) * 32) {
    const Index i = first + lane;
    double sum = 0;
    if (i < b.rows) {
      if (warp == 0) sum = entry<absolute>(entries[w + i]) * p[i];
#pragma unroll 4
      for (Index d = 1 + warp; d <= m; d += warps) {
        const T* const s = entries + d * b.ld;
        sum += entry<absolute>(s[w + i]) * p[i + d] +
               entry<absolute>(s[w + i - (d < w ? d : w)]) * p[i - d];
      }
    }
    parts[warp][lane] = sum;
    __syncthreads();
    if (warp == 0 && i < b.rows) {
      double total = 0;
#pragma unroll
      for (int k = 0; k < warps; ++k) total += parts[k][lane];
      q[i] = total;
      pq += p[i] * total;
      pp += p[i] * p[i];
    }
    __syncthreads();
  }
  finish_sums(pq, pp, sums);
}

/// `warps` a block; strips of about 16 m rows or more, in whole turns of all resident blocks.
template <int warps, bool absolute, class T>
void launch_strips(cudaStream_t lane, const BandRows<Cuda>& b, const T* entries, const double* p,
                   double* q, const SumTarget<Cuda>& sums, const double* skip) {
  // Of heads twice as many are under way, as many bytes.
  constexpr int height = 4, batch = 32 / sizeof(T), wide = 32 * height;
  const auto kernel = band_strip_kernel<warps, height, batch, 16 / warps, absolute, T>;
  const Index m = b.half_bandwidth;
  BandCut cut;
  cut.share = int(std::max<Index>(batch, round_up(ceil_div(m, Index(warps)), batch)));
  cut.ring = wide + cut.share;
  cut.block_ring = int(wide + m);
  const Index bytes = band_shared_bytes<warps, height>(cut.ring, cut.block_ring);
  const Index resident =
      std::min(resident_blocks(kernel, 32 * warps, bytes), SumSpace<Cuda>::pieces);
  const Index turns = std::max<Index>(1, b.rows / std::max<Index>(1024, 32 * m) / resident);
  constexpr Index skew = 16 / sizeof(T) - 1;  // at most
  cut.strip = round_up(ceil_div(b.rows + skew, turns * resident), wide);
  const unsigned blocks = sum_blocks(ceil_div(b.rows + skew, cut.strip), resident);
  kernel<<<blocks, 32 * warps, bytes, lane>>>(b, entries, p, q, cut, sums, skip);
  check_launch();
}

template <bool absolute, class T>
void launch_band(cudaStream_t lane, const BandRows<Cuda>& b, const T* entries, const double* p,
                 double* q, const SumTarget<Cuda>& sums, const double* skip) {
  constexpr Index widest = 8192;  // what the rings in shared memory hold
  const Index m = b.half_bandwidth;
  if (m > b.rows || m > widest) {
    const unsigned blocks = sum_blocks(ceil_div(b.rows, Index(32)), SumSpace<Cuda>::pieces);
    band_kernel<absolute><<<blocks, sum_threads, 0, lane>>>(b, entries, p, q, sums, skip);
    check_launch();
  } else if (m <= 48) {
    launch_strips<1, absolute>(lane, b, entries, p, q, sums, skip);
  } else if (m <= 112) {
    launch_strips<2, absolute>(lane, b, entries, p, q, sums, skip);
  } else {
    launch_strips<4, absolute>(lane, b, entries, p, q, sums, skip);
  }
}

}  // namespace

Index band_scratch(Cuda, Index, Index) { return 0; }

void multiply(const Stream<Cuda>& stream, const BandRows<Cuda>& b, const double* p,
              View<double, Cuda> q, View<double, Cuda>, const SumTarget<Cuda>& sums, bool absolute,
              const double* skip) {
  const cudaStream_t lane = native(stream);
  if (b.head.size > 0)
    launch_band<false>(lane, b, b.head.data, p, q.data, sums, skip);
  else if (absolute)
    launch_band<true>(lane, b, b.s.data, p, q.data, sums, skip);
  else
    launch_band<false>(lane, b, b.s.data, p, q.data, sums, skip);
}

}  // namespace terrace::cg
