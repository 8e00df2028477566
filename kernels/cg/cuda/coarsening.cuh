// For .cu files only: groups of lanes that share a row, launches, and CUB on memory of a Scratch.
#pragma once
#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/base/cuda/items.cuh"
#include "kernels/base/cuda/runtime.cuh"
#include "kernels/cg/coarsening.hpp"
#include "kernels/cg/coarsening_rules.hpp"

namespace terrace::cg::coarsening {

/// `width` neighbouring lanes of a warp: 1, 2, 4 ... 32. All of them call.
template <int width>
struct Lanes {
  int lane = int(threadIdx.x) % width;
  unsigned mask = width == 32 ? 0xffffffffu
                              : ((1u << (width % 32)) - 1) << ((threadIdx.x & 31) / width * width);
  __device__ __forceinline__ void sync() const {
    if constexpr (width > 1) __syncwarp(mask);
  }
  template <class T>
  __device__ __forceinline__ T sum(T value) const {
#pragma unroll
    for (int offset = width / 2; offset > 0; offset >>= 1)
      value += __shfl_xor_sync(mask, value, offset);
    return value;
  }
  template <class T>
  __device__ __forceinline__ T least(T value) const {
#pragma unroll
    for (int offset = width / 2; offset > 0; offset >>= 1) {
      const T other = __shfl_xor_sync(mask, value, offset);
      value = other < value ? other : value;
    }
    return value;
  }
  __device__ __forceinline__ bool any(bool value) const {
    if constexpr (width == 1) return value;
    return (__ballot_sync(mask, value) & mask) != 0;
  }
  /// Lanes before this one where `value` holds; and all of them.
  __device__ __forceinline__ int before(bool value, int& all) const {
    if constexpr (width == 1) return all = value, 0;
    const unsigned found = __ballot_sync(mask, value) & mask;
    all = __popc(found);
    return __popc(found & ((1u << (threadIdx.x & 31)) - 1));
  }
};

/// f(i, lanes) of each row, `width` lanes a row.
template <int width, class F>
__device__ __forceinline__ void over_rows(Index rows, const F& f) {
  const Lanes<width> lanes;
  for (Index i = first_item() / width; i < rows; i += item_stride() / width) f(i, lanes);
}

/// The first of the entries [low, high) of a row whose column is not below j.
__device__ __forceinline__ Index first_from(const CsrRows<Cuda>& m, Index low, Index high,
                                            Index j) {
  while (low < high) {
    const Index middle = (low + high) / 2;
    if (m.column.data[middle] < j)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/// How many lanes a row gets: `few`; `some` where the mean row has `some_from` entries or more; 32
/// where it has `all_from` or more.
struct RowLanes {
  int few = 1, some = 4;
  Index some_from = 11, all_from = 49;
};
/// launch<width>(blocks), with `lanes` for so many rows and entries.
template <RowLanes lanes = RowLanes{}, class Launch>
void with_lanes(Index rows, Index entries, const Launch& launch) {
  if (rows == 0) return;
  if (entries >= lanes.all_from * rows)
    launch.template operator()<32>(blocks_for(rows * 32));
  else if (entries >= lanes.some_from * rows)
    launch.template operator()<lanes.some>(blocks_for(rows * lanes.some));
  else
    launch.template operator()<lanes.few>(blocks_for(rows * lanes.few));
  check_launch();
}

/// kernel(arguments...), one thread per item.
template <class... Parameters, class... Arguments>
void launch(const Stream<Cuda>& stream, Index items, void (*kernel)(Parameters...),
            Arguments&&... arguments) {
  if (items == 0) return;
  kernel<<<blocks_for(items), block_threads, 0, native(stream)>>>(
      std::forward<Arguments>(arguments)...);
  check_launch();
}

/// The first number of device memory `from`. Waits.
template <class T>
T read_one(const Stream<Cuda>& stream, const T* from) {
  T value{};
  detail::copy_bytes(stream, &value, from, Index(sizeof(T)));
  stream.synchronize();
  return value;
}

/// v[i] = v[0] + ... + v[i - 1], in place.
void sum_before(const Stream<Cuda>& stream, View<Index, Cuda> v, Scratch<Cuda>& scratch);
void sum_before(const Stream<Cuda>& stream, View<std::int32_t, Cuda> v, Scratch<Cuda>& scratch);

}  // namespace terrace::cg::coarsening
