#include "kernels/base/peer_memory.hpp"

#include <cstring>

#include "kernels/base/cuda/runtime.cuh"

namespace terrace {

namespace {

bool good(cudaError_t code) {
  if (code == cudaSuccess) return true;
  cudaGetLastError();
  return false;
}

}  // namespace

void* take_shareable(Index bytes) {
  void* data = nullptr;
  if (!good(cudaMalloc(&data, std::size_t(bytes)))) return nullptr;
  if (good(cudaMemset(data, 0, std::size_t(bytes))) && good(cudaDeviceSynchronize())) return data;
  cudaFree(data);
  return nullptr;
}
void free_shareable(void* data) noexcept { cudaFree(data); }
std::string handle_of_shareable(void* data) {
  cudaIpcMemHandle_t handle{};
  if (!good(cudaIpcGetMemHandle(&handle, data))) return {};
  return {reinterpret_cast<const char*>(&handle), sizeof handle};
}
void* map_shareable(const std::string& text) {
  cudaIpcMemHandle_t handle{};
  void* data = nullptr;
  if (text.size() != sizeof handle) return nullptr;
  std::memcpy(&handle, text.data(), sizeof handle);
  return good(cudaIpcOpenMemHandle(&data, handle, cudaIpcMemLazyEnablePeerAccess)) ? data : nullptr;
}
void unmap_shareable(void* data) noexcept { cudaIpcCloseMemHandle(data); }
int* take_stop() {
  int* stop = nullptr;
  if (!good(cudaHostAlloc(reinterpret_cast<void**>(&stop), sizeof *stop, cudaHostAllocMapped)))
    return nullptr;
  *stop = 0;
  return stop;
}
void free_stop(int* stop) noexcept { cudaFreeHost(stop); }

}  // namespace terrace
