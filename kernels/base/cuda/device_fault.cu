// A kernel that fails; see kernels/base/device_fault.hpp.
#include "kernels/base/device_fault.hpp"

#include "kernels/base/cuda/runtime.cuh"

namespace terrace {
namespace {
__global__ void write_to(int* nowhere) { *nowhere = 1; }
}  // namespace

void fail_on_device() {
  write_to<<<1, 1>>>(reinterpret_cast<int*>(8));
  check(cudaGetLastError());
  check(cudaDeviceSynchronize());
  throw Error(Exit::fault, "CUDA failed: a kernel that writes nowhere ended well");
}

}  // namespace terrace
