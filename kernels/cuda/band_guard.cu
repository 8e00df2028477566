// Check sums of tile columns on CUDA. Roofline: HBM bandwidth, each kernel reads them once.
#include "kernels/band_guard.hpp"
#include "kernels/cuda/items.cuh"
#include "kernels/cuda/runtime.cuh"

namespace terrace {
namespace {

constexpr int kWarps = 8;
constexpr int kColumns = 32;  // of a tile column, that a block adds up for its rows

// A warp a column.
__global__ void columns_kernel(GuardTiles<Cuda> a, Index from, const double* w, double* sum,
                               double* size) {
  const BandShape& s = a.shape;
  const Index c = Index(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (c >= a.count * s.width) return;
  const Index j = (a.first + c / s.width * a.step) * s.width + c % s.width;
  const double* const column = a.data + c * s.column();
  double part = 0, part_size = 0;
#pragma unroll 4
  for (Index d = from + threadIdx.x % 32; d <= s.half_bandwidth; d += 32) {
    const double term = column[d] * w[j + d];
    part += term;
    part_size += fabs(term);
  }
  for (int step = 16; step > 0; step /= 2) {
    part += __shfl_down_sync(~0u, part, step);
    part_size += __shfl_down_sync(~0u, part_size, step);
  }
  if (threadIdx.x % 32 == 0) {
    atomicAdd(sum + j, part);
    atomicAdd(size + j, part_size);
  }
}

// A thread a row of kColumns columns of a tile column.
__global__ void rows_kernel(GuardTiles<Cuda> a, Index slices, Index blocks, double alpha,
                            const double* x, const double* x_size, double* sum, double* size) {
  const BandShape& s = a.shape;
  const Index slice = blockIdx.x % slices, rest = blockIdx.x / slices;
  const Index q = rest / blocks, i = rest % blocks * blockDim.x + threadIdx.x;
  const Index begin = slice * kColumns, end = min(s.width, begin + kColumns);
  const Index top = (a.first + q * a.step) * s.width;
  const double* const tile = a.data + q * s.tile();
  const Index first = max(begin, i - s.half_bandwidth), last = min(end, i + 1);
  if (first >= last) return;
  double part = 0, part_size = 0;
#pragma unroll 4
  for (Index c = first; c < last; ++c) {
    const double entry = tile[c * s.reach + i];
    part += entry * x[top + c];
    part_size += fabs(entry * x_size[top + c]);
  }
  atomicAdd(sum + top + i, alpha * part);
  atomicAdd(size + top + i, part_size);
}

__global__ void judge_kernel(Index from, Index to, const double* sum, const double* size,
                             double tolerance, double least, Index* bad) {
  for (Index i = from + first_item(); i < to; i += item_stride()) {
    auto* const found = reinterpret_cast<unsigned long long*>(bad);
    if (!isfinite(sum[i]))
      atomicMin(found + 1, static_cast<unsigned long long>(i));
    else if (fabs(sum[i]) > tolerance * size[i] + least)
      atomicMin(found, static_cast<unsigned long long>(i));
  }
}
__global__ void none_kernel(Index* bad, Index to) { bad[0] = bad[1] = to; }

}  // namespace

void weigh_band_columns(const Stream<Cuda>& stream, GuardTiles<Cuda> a, Index from, const double* w,
                        double* sum, double* size) {
  if (a.count <= 0 || from > a.shape.half_bandwidth) return;
  columns_kernel<<<unsigned(ceil_div(a.count * a.shape.width, kWarps)), 32 * kWarps, 0,
                   native(stream)>>>(a, from, w, sum, size);
  check_launch();
}
void weigh_band_rows(const Stream<Cuda>& stream, GuardTiles<Cuda> a, double alpha, const double* x,
                     const double* x_size, double* sum, double* size) {
  if (a.count <= 0) return;
  const Index slices = ceil_div(a.shape.width, kColumns),
              blocks = ceil_div(a.shape.width + a.shape.half_bandwidth, 256);
  // As many tile columns a launch as a grid has room for.
  const Index most = std::max<Index>(1, (Index(1) << 30) / (slices * blocks));
  for (Index q = 0; q < a.count; q += most) {
    GuardTiles<Cuda> now = a;
    now.data += q * a.shape.tile();
    now.first += q * a.step;
    now.count = std::min(most, a.count - q);
    rows_kernel<<<unsigned(slices * blocks * now.count), 256, 0, native(stream)>>>(
        now, slices, blocks, alpha, x, x_size, sum, size);
    check_launch();
  }
}
void judge_band_rows(const Stream<Cuda>& stream, Index from, Index to, const double* sum,
                     const double* size, double tolerance, double least, Index* bad) {
  none_kernel<<<1, 1, 0, native(stream)>>>(bad, to);
  if (from < to)
    judge_kernel<<<blocks_for(to - from), 256, 0, native(stream)>>>(from, to, sum, size, tolerance,
                                                                    least, bad);
  check_launch();
}

}  // namespace terrace
