// Floor: 12 bytes a number from and to HBM; one thread per number.
#include "kernels/base/cuda/items.cuh"
#include "kernels/base/cuda/runtime.cuh"
#include "kernels/cg/heads.hpp"

namespace terrace::cg {
namespace {

__global__ void heads_kernel(View<const double, Cuda> from, std::uint32_t* to) {
  for (Index k = first_item(); k < from.size; k += item_stride())
    to[k] = head_of(Word(__double_as_longlong(from.data[k])));
}

}  // namespace

void take_heads(const Stream<Cuda>& stream, View<const double, Cuda> from,
                View<std::uint32_t, Cuda> to) {
  if (from.size == 0) return;
  heads_kernel<<<blocks_for(from.size), block_threads, 0, native(stream)>>>(from, to.data);
  check_launch();
}

}  // namespace terrace::cg
