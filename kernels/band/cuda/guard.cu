// Check sums of tile columns on CUDA. Roofline: HBM bandwidth, one reading: the second
// one finds a batch of them in the L2 cache.
#include "kernels/band/guard.hpp"
#include "kernels/base/cuda/items.cuh"
#include "kernels/base/cuda/runtime.cuh"

namespace terrace::band {
namespace {

constexpr int kWarps = 8;
constexpr int kColumns = 32;  // of a tile column, that a block adds up for its rows

__global__ void weights_kernel(GuardTiles<Cuda> a, double* w) {
  const BandShape& s = a.shape;
  for (Index c = first_item(); c < a.count * s.width; c += item_stride()) {
    const Index j = (a.first + c / s.width * a.step) * s.width + c % s.width;
    w[j] = band_weight(a.data[c * s.column()], j);
  }
}

// A warp a column.
__global__ void columns_kernel(GuardTiles<Cuda> a, Index from, GuardSums to) {
  const BandShape& s = a.shape;
  const Index c = Index(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (c >= a.count * s.width) return;
  const Index j = (a.first + c / s.width * a.step) * s.width + c % s.width;
  const double* const column = a.data + c * s.column();
  double part = 0, size = 0;
#pragma unroll 4
  for (Index d = from + threadIdx.x % 32; d <= s.half_bandwidth; d += 32) {
    const double term = column[d] * to.w[j + d];
    part += term;
    size += fabs(term);
  }
  for (int step = 16; step > 0; step /= 2) {
    part += __shfl_down_sync(~0u, part, step);
    size += __shfl_down_sync(~0u, size, step);
  }
  if (threadIdx.x % 32 == 0) {
    to.t[j] += part;
    if (to.t_size) to.t_size[j] += size;
  }
}

// A thread a row of kColumns columns of a tile column.
__global__ void rows_kernel(GuardTiles<Cuda> a, Index slices, Index blocks, double alpha,
                            GuardSums to) {
  const BandShape& s = a.shape;
  const Index slice = blockIdx.x % slices, rest = blockIdx.x / slices;
  const Index q = rest / blocks, i = rest % blocks * blockDim.x + threadIdx.x;
  const Index begin = slice * kColumns, end = min(s.width, begin + kColumns);
  const Index top = (a.first + q * a.step) * s.width;
  const double* const tile = a.data + q * s.tile();
  const Index first = max(begin, i - s.half_bandwidth), last = min(end, i + 1);
  if (first >= last) return;
  double part = 0, size = 0;
#pragma unroll 4
  for (Index c = first; c < last; ++c) {
    const double entry = tile[c * s.reach + i];
    part += entry * to.x[top + c];
    if (to.size) size += fabs(entry * to.x_size[top + c]);
  }
  atomicAdd(to.sum + top + i, alpha * part);
  if (to.size) atomicAdd(to.size + top + i, size);
}

__global__ void judge_kernel(Index from, Index to, const double* w, const double* sum,
                             const double* size, double tolerance, double least, Index* bad) {
  for (Index i = from + first_item(); i < to; i += item_stride()) {
    const double bound = tolerance * (size ? size[i] : 1 / fabs(w[i])) + least;
    if (w[i] == 0 || fabs(sum[i]) <= bound) continue;
    atomicMin(reinterpret_cast<unsigned long long*>(bad), static_cast<unsigned long long>(i));
  }
}
__global__ void none_kernel(Index* bad, Index to) { *bad = to; }

}  // namespace

void weigh_band(const Stream<Cuda>& stream, GuardTiles<Cuda> a, Index from, double alpha,
                GuardSums to) {
  const BandShape& s = a.shape;
  const Index slices = ceil_div(s.width, Index(kColumns)),
              blocks = ceil_div(s.width + s.half_bandwidth, Index(256));
  // As many tile columns a launch as a grid has room for, and as the L2 cache keeps.
  const Index most =
      std::clamp<Index>((Index(1) << 21) / s.tile(), 1, (Index(1) << 30) / (slices * blocks));
  for (Index q = 0; q < a.count; q += most) {
    GuardTiles<Cuda> now = a;
    now.data += q * s.tile();
    now.first += q * a.step;
    now.count = std::min(most, a.count - q);
    if (from <= s.half_bandwidth)
      columns_kernel<<<unsigned(ceil_div(now.count * s.width, Index(kWarps))), 32 * kWarps, 0,
                       native(stream)>>>(now, from, to);
    rows_kernel<<<unsigned(slices * blocks * now.count), 256, 0, native(stream)>>>(
        now, slices, blocks, alpha, to);
    check_launch();
  }
}
void draw_weights(const Stream<Cuda>& stream, GuardTiles<Cuda> a, double* w) {
  if (a.count == 0) return;
  weights_kernel<<<blocks_for(a.count * a.shape.width), block_threads, 0, native(stream)>>>(a, w);
  check_launch();
}
void judge_band_rows(const Stream<Cuda>& stream, Index from, Index to, const double* w,
                     const double* sum, const double* size, double tolerance, double least,
                     Index* bad) {
  none_kernel<<<1, 1, 0, native(stream)>>>(bad, to);
  if (from < to)
    judge_kernel<<<blocks_for(to - from), 256, 0, native(stream)>>>(from, to, w, sum, size,
                                                                    tolerance, least, bad);
  check_launch();
}

}  // namespace terrace::band
