// Check sums over rows on CUDA. Roofline: HBM bandwidth, each row is read once.
#include "kernels/base/cuda/items.cuh"
#include "kernels/base/cuda/runtime.cuh"
#include "kernels/dense/guard.hpp"

namespace terrace::dense {
namespace {

// The bits of doubles that are not negative order as integers.
__device__ void raise(double* to, double value) {
  atomicMax(reinterpret_cast<unsigned long long*>(to),
            static_cast<unsigned long long>(__double_as_longlong(value)));
}

__global__ void column_sizes_kernel(GuardRows<Cuda> a, Index columns, double* largest) {
  constexpr Index height = 64;
  const Index groups = (a.slots + height - 1) / height;
  for (Index x = first_item(); x < groups * columns; x += item_stride()) {
    const Index g = x / columns, j = x % columns, end = min(a.slots, (g + 1) * height);
    double most = 0;
    for (Index i = g * height; i < end; ++i) most = fmax(most, fabs(a.data[i * a.ld + j]));
    raise(largest + j, most);
  }
}

// A block a row.
__global__ void weigh_rows_kernel(GuardRows<Cuda> a, Index from, Index to, const double* weight,
                                  double* sum, double* size, const Index* begin) {
  __shared__ double parts[2][32];
  for (Index i = blockIdx.x; i < a.slots; i += gridDim.x) {
    double s = 0, z = 0;
    const Index first = begin ? max(from, begin[i]) : from;
    for (Index j = first + threadIdx.x; j < to; j += blockDim.x) {
      const double term = a.data[i * a.ld + j] * weight[j];
      s += term;
      z += fabs(term);
    }
    for (int step = 16; step > 0; step /= 2) {
      s += __shfl_down_sync(~0u, s, step);
      z += __shfl_down_sync(~0u, z, step);
    }
    const int warp = int(threadIdx.x) / 32, warps = int(blockDim.x) / 32;
    if (threadIdx.x % 32 == 0) parts[0][warp] = s, parts[1][warp] = z;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int w = 1; w < warps; ++w) s += parts[0][w], z += parts[1][w];
      sum[i] += s;
      size[i] += z;
    }
    __syncthreads();
  }
}

__global__ void follow_column_kernel(GuardRows<Cuda> a, Index column, double* largest) {
  for (Index i = first_item(); i < a.slots; i += item_stride())
    largest[i] = fmax(largest[i], fabs(a.data[i * a.ld + column]));
}

__global__ void judge_rows_kernel(GuardRows<Cuda> a, Index column, const double* sum,
                                  const double* more, const double* size, double* largest,
                                  double tolerance, double* worst) {
  for (Index i = first_item(); i < a.slots; i += item_stride()) {
    const double off = fabs(sum[i] + more[i] - a.data[i * a.ld + column]);
    largest[i] = fmax(largest[i], size[i] + fabs(more[i]));
    if (!isfinite(off) || !isfinite(largest[i]))
      raise(worst, guard_not_finite);
    else if (off > 0)
      raise(worst, off / (tolerance * largest[i]));
  }
}
__global__ void assign_kernel(Index slots, const Index* column_of, const double* w, const double* v,
                              double* weight, double* more) {
  for (Index i = first_item(); i < slots; i += item_stride()) {
    const Index j = column_of[i];
    if (j >= 0) weight[j] = v[i];
    more[i] = j >= 0 ? w[j] : v[i];
  }
}
__global__ void set_zero_kernel(double* value) { *value = 0; }

// A thread a row.
__global__ void weigh_columns_kernel(const double* n, Index ld, Index slots, Index width,
                                     const double* weight, double* sum, double* size) {
  for (Index i = first_item(); i < slots; i += item_stride()) {
    double s = 0, z = 0;
    for (Index t = 0; t < width; ++t) {
      const double term = n[t * ld + i] * weight[t];
      s += term;
      z += fabs(term);
    }
    sum[i] += s;
    size[i] += z;
  }
}

}  // namespace

void column_sizes(const Stream<Cuda>& stream, GuardRows<Cuda> a, Index columns, double* largest) {
  if (a.slots <= 0 || columns <= 0) return;
  column_sizes_kernel<<<blocks_for((a.slots + 63) / 64 * columns), 256, 0, native(stream)>>>(
      a, columns, largest);
  check_launch();
}
void weigh_rows(const Stream<Cuda>& stream, GuardRows<Cuda> a, Index from, Index to,
                const double* weight, double* sum, double* size, const Index* begin) {
  if (a.slots <= 0 || to <= from) return;
  weigh_rows_kernel<<<unsigned(std::min<Index>(a.slots, 65535)), 256, 0, native(stream)>>>(
      a, from, to, weight, sum, size, begin);
  check_launch();
}
void follow_column(const Stream<Cuda>& stream, GuardRows<Cuda> a, Index column, double* largest) {
  if (a.slots <= 0) return;
  follow_column_kernel<<<blocks_for(a.slots), 256, 0, native(stream)>>>(a, column, largest);
  check_launch();
}
void assign_weights(const Stream<Cuda>& stream, Index slots, const Index* column_of,
                    const double* w, const double* v, double* weight, double* more) {
  if (slots <= 0) return;
  assign_kernel<<<blocks_for(slots), 256, 0, native(stream)>>>(slots, column_of, w, v, weight,
                                                               more);
  check_launch();
}
void judge_rows(const Stream<Cuda>& stream, GuardRows<Cuda> a, Index column, const double* sum,
                const double* more, const double* size, double* largest, double tolerance,
                double* worst) {
  set_zero_kernel<<<1, 1, 0, native(stream)>>>(worst);
  if (a.slots > 0)
    judge_rows_kernel<<<blocks_for(a.slots), 256, 0, native(stream)>>>(a, column, sum, more, size,
                                                                       largest, tolerance, worst);
  check_launch();
}

void weigh_columns(const Stream<Cuda>& stream, const double* n, Index ld, Index slots, Index width,
                   const double* weight, double* sum, double* size) {
  if (slots <= 0 || width <= 0) return;
  weigh_columns_kernel<<<blocks_for(slots), 256, 0, native(stream)>>>(n, ld, slots, width, weight,
                                                                      sum, size);
  check_launch();
}

}  // namespace terrace::dense
