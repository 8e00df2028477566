// For .cu files only: loops over items in strides of the whole grid.
#pragma once
#include <algorithm>

#include "kernels/base/backend.hpp"

namespace terrace {

constexpr int block_threads = 256;

/// Blocks for a loop over `total` items.
inline unsigned blocks_for(Index total) {
  return unsigned(std::min(ceil_div(total, block_threads), Index(1) << 16));
}
__device__ inline Index first_item() { return Index(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline Index item_stride() { return Index(gridDim.x) * blockDim.x; }

}  // namespace terrace
