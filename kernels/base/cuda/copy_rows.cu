// Copies of rows, in any direction between host and device.
//
// The driver's copies of two dimensions within a device move 1.2 TB/s where rows do not begin at
// multiples of 16 bytes (H200, NVIDIA's driver 580). Here rows of words are copied by a kernel: 1.15 GB
// take 0.9 ms less (jobs/results/library.md). Packing short rows there before they go to the host, or when they come from
// it, gained nothing.
#include <algorithm>
#include <cstdint>

#include "kernels/base/cuda/items.cuh"
#include "kernels/base/cuda/runtime.cuh"

namespace terrace {
namespace {

constexpr Index narrow = 64;  // words: threads take places, not rows

__global__ void copy_places(Index count, Index columns, const Word* __restrict__ from,
                            Index from_ld, Word* __restrict__ to, Index to_ld) {
  for (Index i = first_item(); i < count; i += item_stride()) {
    const Index row = i / columns, j = i % columns;
    to[row * to_ld + j] = from[row * from_ld + j];
  }
}
/// A block takes stretches of rows; words are T.
template <class T>
__global__ void copy_stretches(Index rows, Index columns, const T* __restrict__ from, Index from_ld,
                               T* __restrict__ to, Index to_ld) {
  constexpr int side_by_side = 4;
  const Index stretch = side_by_side * blockDim.x, across = (columns + stretch - 1) / stretch;
  for (Index item = blockIdx.x; item < rows * across; item += gridDim.x) {
    const Index row = item / across, first = item % across * stretch + threadIdx.x;
    const T* const source = from + row * from_ld;
    T* const goal = to + row * to_ld;
    T some[side_by_side];
#pragma unroll
    for (int k = 0; k < side_by_side; ++k)
      if (const Index j = first + k * Index(blockDim.x); j < columns) some[k] = source[j];
#pragma unroll
    for (int k = 0; k < side_by_side; ++k)
      if (const Index j = first + k * Index(blockDim.x); j < columns) goal[j] = some[k];
  }
}

/// In the memory of the device that this thread uses: a caller's may lie on another one.
bool is_here(const void* data) {
  cudaPointerAttributes found{};
  check(cudaPointerGetAttributes(&found, data));
  if (found.type != cudaMemoryTypeDevice) return false;
  int device = 0;
  check(cudaGetDevice(&device));
  return found.device == device;
}
bool whole_words(const void* data, Index pitch, Index size) {
  return (reinterpret_cast<std::uintptr_t>(data) | std::uintptr_t(pitch)) % std::uintptr_t(size) ==
         0;
}
template <class T>
void copy_words(const Stream<Cuda>& stream, void* to, Index to_pitch, const void* from,
                Index from_pitch, Index row_bytes, Index rows) {
  constexpr auto size = Index(sizeof(T));
  const Index columns = row_bytes / size;
  const auto* const source = static_cast<const T*>(from);
  auto* const goal = static_cast<T*>(to);
  if constexpr (std::is_same_v<T, Word>) {
    if (columns < narrow) {
      copy_places<<<blocks_for(rows * columns), block_threads, 0, native(stream)>>>(
          rows * columns, columns, source, from_pitch / size, goal, to_pitch / size);
      return check_launch();
    }
  }
  const Index items = rows * ceil_div(columns, 4 * Index(block_threads));
  copy_stretches<T>
      <<<unsigned(std::min<Index>(items, 1 << 16)), block_threads, 0, native(stream)>>>(
          rows, columns, source, from_pitch / size, goal, to_pitch / size);
  check_launch();
}
/// Within the device.
void copy_there(const Stream<Cuda>& stream, void* to, Index to_pitch, const void* from,
                Index from_pitch, Index row_bytes, Index rows) {
  const auto whole = [&](Index size) {
    return row_bytes % size == 0 && whole_words(to, to_pitch, size) &&
           whole_words(from, from_pitch, size);
  };
  if (whole(16) && row_bytes >= 8 * narrow)
    return copy_words<uint4>(stream, to, to_pitch, from, from_pitch, row_bytes, rows);
  if (whole(8)) return copy_words<Word>(stream, to, to_pitch, from, from_pitch, row_bytes, rows);
  check(cudaMemcpy2DAsync(to, std::size_t(to_pitch), from, std::size_t(from_pitch),
                          std::size_t(row_bytes), std::size_t(rows), cudaMemcpyDefault,
                          native(stream)));
}

}  // namespace

namespace detail {

void copy_rows_bytes(const Stream<Cuda>& stream, void* to, Index to_pitch, const void* from,
                     Index from_pitch, Index row_bytes, Index rows) {
  if (row_bytes == 0 || rows == 0) return;
  if (rows == 1 || (to_pitch == row_bytes && from_pitch == row_bytes))
    return copy_bytes(stream, to, from, row_bytes * rows);
  if (is_here(to) && is_here(from))
    return copy_there(stream, to, to_pitch, from, from_pitch, row_bytes, rows);
  check(cudaMemcpy2DAsync(to, std::size_t(to_pitch), from, std::size_t(from_pitch),
                          std::size_t(row_bytes), std::size_t(rows), cudaMemcpyDefault,
                          native(stream)));
}

}  // namespace detail
}  // namespace terrace
