// Floor: 8 bytes a number from HBM, 16 where it is written too; one thread per number.
#include "kernels/base/cuda/items.cuh"
#include "kernels/base/cuda/runtime.cuh"
#include "kernels/cg/diagonal.hpp"

namespace terrace::cg {
namespace {

__global__ void judge_diagonal_kernel(View<const double, Cuda> d, Index* first) {
  for (Index i = first_item(); i < d.size; i += item_stride()) {
    const double v = d.data[i];
    if (v < 0) atomicMin(reinterpret_cast<long long*>(first), (long long)i);
    if (!(v > 0) || !isfinite(1 / v))
      atomicMin(reinterpret_cast<long long*>(first + 1), (long long)i);
  }
}
__global__ void invert_kernel(View<const double, Cuda> d, double* to) {
  for (Index i = first_item(); i < d.size; i += item_stride()) to[i] = 1 / d.data[i];
}
__global__ void fill_kernel(View<double, Cuda> v, double value) {
  for (Index i = first_item(); i < v.size; i += item_stride()) v.data[i] = value;
}

}  // namespace

template <>
void judge_diagonal(const Stream<Cuda>& stream, View<const double, Cuda> d,
                    View<Index, Cuda> first) {
  if (d.size == 0) return;
  judge_diagonal_kernel<<<blocks_for(d.size), block_threads, 0, native(stream)>>>(d, first.data);
  check_launch();
}

template <>
void invert_each(const Stream<Cuda>& stream, View<const double, Cuda> d, View<double, Cuda> to) {
  if (d.size == 0) return;
  invert_kernel<<<blocks_for(d.size), block_threads, 0, native(stream)>>>(d, to.data);
  check_launch();
}

template <>
void fill(const Stream<Cuda>& stream, View<double, Cuda> v, double value) {
  if (v.size == 0) return;
  fill_kernel<<<blocks_for(v.size), block_threads, 0, native(stream)>>>(v, value);
  check_launch();
}

TERRACE_PREPARED(cg);

}  // namespace terrace::cg
