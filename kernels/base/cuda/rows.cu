// Roofline: memory bandwidth; 16 bytes an element of scatter_rows, a sector of 32 read and written
// for each word of mask_words.
#include "kernels/base/cuda/items.cuh"
#include "kernels/base/cuda/runtime.cuh"
#include "kernels/base/rows.hpp"

namespace terrace {
namespace {

__global__ void scatter_kernel(Index total, Index columns, const Index* __restrict__ place,
                               const Word* __restrict__ from, Word* __restrict__ to, Index to_ld) {
  for (Index i = first_item(); i < total; i += item_stride()) {
    const Index row = i / columns;
    if (place[row] >= 0) to[place[row] * to_ld + i - row * columns] = from[i];
  }
}

__global__ void mask_kernel(Index rows, Word mask, Word* __restrict__ data, Index ld) {
  for (Index i = first_item(); i < rows; i += item_stride()) data[i * ld] &= mask;
}

}  // namespace

void scatter_rows(const Stream<Cuda>& stream, View<const Index, Cuda> place, Index columns,
                  const Word* from, Word* to, Index to_ld) {
  const Index total = place.size * columns;
  if (total == 0) return;
  scatter_kernel<<<blocks_for(total), block_threads, 0, native(stream)>>>(
      total, columns, place.data, from, to, to_ld);
  check_launch();
}

void mask_words(const Stream<Cuda>& stream, Index rows, Word mask, Word* data, Index ld) {
  if (rows == 0) return;
  mask_kernel<<<blocks_for(rows), block_threads, 0, native(stream)>>>(rows, mask, data, ld);
  check_launch();
}

}  // namespace terrace
