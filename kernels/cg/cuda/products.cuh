// What the products on CUDA share.
#pragma once
#include "kernels/base/cuda/sums.cuh"
#include "kernels/cg/products.hpp"

namespace terrace::cg {

template <bool absolute>
__device__ __forceinline__ double entry(double v) {
  return absolute ? fabs(v) : v;
}
/// Of a head.
template <bool absolute>
__device__ __forceinline__ double entry(std::uint32_t v) {
  return entry<absolute>(__hiloint2double(int(v), 0));
}

/// Whether the device has the bulk copies by which products_csr.cuh streams a matrix.
inline bool has_bulk_copies() {
  static OncePerDevice<bool> once;
  const bool has = once([] {
    int device = 0, major = 0;
    check(cudaGetDevice(&device));
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    return major >= 9;
  });
  return has;
}

/// Blocks of `kernel` that the device holds at once, with `bytes` of dynamic shared memory each.
template <class Kernel>
Index resident_blocks(Kernel kernel, int threads, Index bytes) {
  int device = 0, processors = 0, blocks = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  allow_shared(kernel, int(bytes));
  check(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, std::size_t(bytes)));
  return std::max<Index>(1, Index(blocks) * processors);
}

}  // namespace terrace::cg
