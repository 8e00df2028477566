// Check sums over rows on CUDA. Roofline: HBM bandwidth, each row is read once.
#include "kernels/base/cuda/items.cuh"
#include "kernels/base/cuda/runtime.cuh"
#include "kernels/base/guard.hpp"

namespace terrace {
namespace {

__global__ void xor_groups_kernel(WordRows out, WordRows rows, Index words, Index height) {
  for (Index x = first_item(); x < out.count * words; x += item_stride()) {
    const Index g = x / words, w = x % words;
    const Index end = min(rows.count, (g + 1) * height);
    Word sum = 0;
#pragma unroll 8
    for (Index i = g * height; i < end; ++i) sum ^= rows.data[i * rows.stride + w];
    out.data[g * out.stride + w] = sum;
  }
}

}  // namespace

void xor_groups(const Stream<Cuda>& stream, WordRows out, WordRows rows, Index words,
                Index height) {
  if (out.count <= 0 || words <= 0) return;
  xor_groups_kernel<<<blocks_for(out.count * words), 256, 0, native(stream)>>>(out, rows, words,
                                                                               height);
  check_launch();
}

}  // namespace terrace
