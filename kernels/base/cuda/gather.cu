// Roofline: memory bandwidth; 16 bytes (of 32-bit numbers 12) and a sector of 32 an element.
#include "kernels/base/cuda/items.cuh"
#include "kernels/base/cuda/runtime.cuh"
#include "kernels/base/gather.hpp"

namespace terrace {
namespace {

template <class T>
__global__ void gather_kernel(Index n, const Index* __restrict__ index, const T* __restrict__ from,
                              T* __restrict__ to) {
  for (Index i = first_item(); i < n; i += item_stride()) to[i] = from[index[i]];
}
template <class T>
void gather_numbers(const Stream<Cuda>& stream, View<const Index, Cuda> index,
                    View<const T, Cuda> from, View<T, Cuda> to) {
  if (index.size == 0) return;
  gather_kernel<<<blocks_for(index.size), block_threads, 0, native(stream)>>>(
      index.size, index.data, from.data, to.data);
  check_launch();
}

}  // namespace

void gather(const Stream<Cuda>& stream, View<const Index, Cuda> index,
            View<const double, Cuda> from, View<double, Cuda> to) {
  gather_numbers(stream, index, from, to);
}
void gather(const Stream<Cuda>& stream, View<const Index, Cuda> index, View<const Index, Cuda> from,
            View<Index, Cuda> to) {
  gather_numbers(stream, index, from, to);
}
void gather(const Stream<Cuda>& stream, View<const Index, Cuda> index,
            View<const std::int32_t, Cuda> from, View<std::int32_t, Cuda> to) {
  gather_numbers(stream, index, from, to);
}

TERRACE_PREPARED(base);

}  // namespace terrace
