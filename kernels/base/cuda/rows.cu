// Roofline: memory bandwidth; 16 bytes an element of scatter_rows, a sector of 32 read and written
// for each word of mask_words.
#include <algorithm>

#include "kernels/base/cuda/items.cuh"
#include "kernels/base/cuda/runtime.cuh"
#include "kernels/base/rows.hpp"

namespace terrace {
namespace {

constexpr int narrow = 64;  // columns: a warp takes several rows

/// Threads x take columns, threads y rows.
__global__ void scatter_kernel(Index rows, Index columns, const Index* __restrict__ place,
                               const Word* __restrict__ from, Index from_ld, Word* __restrict__ to,
                               Index to_ld) {
  for (Index row = Index(blockIdx.x) * blockDim.y + threadIdx.y; row < rows;
       row += Index(gridDim.x) * blockDim.y) {
    const Index at = place[row];
    if (at < 0) continue;
    for (Index j = threadIdx.x; j < columns; j += blockDim.x)
      to[at * to_ld + j] = from[row * from_ld + j];
  }
}

__global__ void mask_kernel(Index rows, Word mask, Word* __restrict__ data, Index ld) {
  for (Index i = first_item(); i < rows; i += item_stride()) data[i * ld] &= mask;
}

}  // namespace

void scatter_rows(const Stream<Cuda>& stream, View<const Index, Cuda> place, Index columns,
                  const Word* from, Index from_ld, Word* to, Index to_ld) {
  if (place.size == 0 || columns == 0) return;
  unsigned across = 1;  // threads of a row: a power of two
  while (across < columns && across < (columns < narrow ? 32u : unsigned(block_threads)))
    across *= 2;
  const dim3 threads(across, block_threads / across);
  scatter_kernel<<<int(std::min<Index>(ceil_div(place.size, threads.y), 1 << 16)), threads, 0,
                   native(stream)>>>(place.size, columns, place.data, from, from_ld, to, to_ld);
  check_launch();
}

void mask_words(const Stream<Cuda>& stream, Index rows, Word mask, Word* data, Index ld) {
  if (rows == 0) return;
  mask_kernel<<<blocks_for(rows), block_threads, 0, native(stream)>>>(rows, mask, data, ld);
  check_launch();
}

void clear_columns(const Stream<Cuda>& stream, Index rows, Index columns, double* data, Index ld) {
  if (rows > 0 && columns > 0)
    check(cudaMemset2DAsync(data, std::size_t(ld) * 8, 0, std::size_t(columns) * 8,
                            std::size_t(rows), native(stream)));
}

}  // namespace terrace
