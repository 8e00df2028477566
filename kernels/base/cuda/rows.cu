// Roofline: memory bandwidth; 16 bytes an element of scatter_rows, a sector of 32 read and written
// for each word of mask_words. copy_blocks is for many small blocks, each of which would be a launch
// of 6 us by the host.
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

__global__ void finite_kernel(Index rows, Index columns, const double* __restrict__ data, Index ld,
                              Index* not_finite) {
  bool finite = true;
  for (Index k = first_item(); k < rows * columns; k += item_stride())
    finite = finite && isfinite(data[k / columns * ld + k % columns]);
  if (!finite) *not_finite = 1;
}

constexpr int kBlocksAtOnce = 48;  // the parameters of a launch hold 4 KiB
constexpr int kEach = 8;           // numbers of a thread
struct Blocks {
  BlockCopy at[kBlocksAtOnce];
  Index first[kBlocksAtOnce];  ///< thread block of each one's first numbers
  int count;
};
static_assert(sizeof(Blocks) <= 4000);

__global__ void __launch_bounds__(block_threads)
    blocks_kernel(const __grid_constant__ Blocks blocks) {
  int which = 0;
  while (which + 1 < blocks.count && blocks.first[which + 1] <= blockIdx.x) ++which;
  const BlockCopy& b = blocks.at[which];
  const Index size = b.rows * b.columns;
  const Index first = (blockIdx.x - blocks.first[which]) * block_threads * kEach + threadIdx.x;
  const bool small = (size >> 32) == 0;  // numbers of 32 bits divide faster
  double number[kEach];
  Index goal[kEach];
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const Index k = min(first + e * block_threads, size - 1);
    const Index i = small ? Index(unsigned(k) / unsigned(b.columns)) : k / b.columns,
                j = k - i * b.columns;
    number[e] = b.from ? b.from[i * b.from_ld + j] : b.fill;
    if (b.plus) number[e] += b.plus[i * b.from_ld + j];
    goal[e] = i * b.to_ld + j;
  }
#pragma unroll
  for (int e = 0; e < kEach; ++e)
    if (first + e * block_threads < size) b.to[goal[e]] = number[e];
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

void note_not_finite(const Stream<Cuda>& stream, Index rows, Index columns, const double* data,
                     Index ld, Index* not_finite) {
  if (rows * columns == 0) return;
  finite_kernel<<<std::min(blocks_for(rows * columns), 2048u), block_threads, 0, native(stream)>>>(
      rows, columns, data, ld, not_finite);
  check_launch();
}

void copy_blocks(const Stream<Cuda>& stream, std::span<const BlockCopy> blocks) {
  while (!blocks.empty()) {
    Blocks some{};
    Index launched = 0;
    for (; !blocks.empty() && some.count < kBlocksAtOnce; blocks = blocks.subspan(1)) {
      const BlockCopy& block = blocks.front();
      if (block.rows * block.columns == 0) continue;
      some.at[some.count] = block;
      some.first[some.count++] = launched;
      launched += ceil_div(block.rows * block.columns, Index(block_threads) * kEach);
    }
    if (some.count == 0) continue;
    blocks_kernel<<<unsigned(launched), block_threads, 0, native(stream)>>>(some);
    check_launch();
  }
}

}  // namespace terrace
