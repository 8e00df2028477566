// Arrays of a test in the memory of a device.
#pragma once
#include "library.hpp"

#if TERRACE_WITH_CUDA
#include <cuda_runtime_api.h>

namespace library {

/// A copy in a device's memory, and back.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(std::vector<T>& host) : host_(host) {
    REQUIRE(cudaMalloc(&data_, std::max<std::size_t>(1, bytes())) == cudaSuccess);
    REQUIRE(cudaMemcpy(data_, host.data(), bytes(), cudaMemcpyHostToDevice) == cudaSuccess);
  }
  ~OnDevice() {
    cudaMemcpy(host_.data(), data_, bytes(), cudaMemcpyDeviceToHost);
    cudaFree(data_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  T* data() const { return static_cast<T*>(data_); }

 private:
  std::size_t bytes() const { return host_.size() * sizeof(T); }
  std::vector<T>& host_;
  void* data_ = nullptr;
};

/// Whether this test can run; says so where it cannot. The ranks take turns over the devices.
inline bool has_device() {
  int devices = 0, rank = 0;
  device_missing = cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0;
  if (device_missing) return false;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  REQUIRE(cudaSetDevice(rank % devices) == cudaSuccess);
  return true;
}

}  // namespace library
#endif
