// The devices of this host, and versions.
#include <cctype>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>

#include "kernels/base/assumed.hpp"
#include "kernels/base/cuda/runtime.cuh"
#include "kernels/base/kept_memory.hpp"
#include "kernels/base/reserve.hpp"

namespace terrace {

int cuda_device_count() {
  if (assumed_device()) return 1;
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return count;
}

DeviceInfo describe_cuda_device(int ordinal) {
  if (const AssumedDevice* const assumed = assumed_device()) return assumed->info;
  static std::mutex mutex;
  static std::map<int, DeviceInfo> described;  // the driver takes a while
  const std::lock_guard lock(mutex);
  if (const auto found = described.find(ordinal); found != described.end()) return found->second;
  cudaDeviceProp p{};
  check(cudaGetDeviceProperties(&p, ordinal));
  DeviceInfo info;
  info.name = p.name;
  char hex[3];
  for (unsigned char byte : p.uuid.bytes) {
    std::snprintf(hex, sizeof hex, "%02x", byte);
    info.uuid += hex;
  }
  char bus[32] = "";
  check(cudaDeviceGetPCIBusId(bus, sizeof bus, ordinal));
  for (const char* c = bus; *c; ++c) info.pci += char(std::tolower(*c));
  info.memory_bytes = Index(p.totalGlobalMem);
  info.compute_capability = p.major * 10 + p.minor;
  info.multiprocessors = p.multiProcessorCount;
  info.l2_bytes = p.l2CacheSize;
  return described[ordinal] = info;
}

DeviceInfo current_cuda_device() {
  if (const AssumedDevice* const assumed = assumed_device()) return assumed->info;
  int ordinal = 0;
  check(cudaGetDevice(&ordinal));
  DeviceInfo info = describe_cuda_device(ordinal);
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total));
  info.memory_bytes = Index(total);
  info.free_bytes = Index(free) + detail::free_parts(ordinal);
  return info;
}

Index shared_bytes_of_block() {
  if (const AssumedDevice* const assumed = assumed_device()) return assumed->shared_bytes;
  int device = 0, bytes = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return bytes;
}

DeviceInfo select_cuda_device(int ordinal) {
  if (assumed_device()) return current_cuda_device();
  check(cudaSetDevice(ordinal));
  detail::pin_from_now();
  check(cudaFree(nullptr));  // creates the context
  const DeviceInfo info = current_cuda_device();
  detail::keep_of_device(info.memory_bytes / 8);
  return info;
}

namespace {
std::string version_name(int v) {
  return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10);
}
}  // namespace

std::string cuda_build_version() { return version_name(CUDART_VERSION); }

std::string cuda_versions() {
  int runtime = 0, driver = 0;
  cudaRuntimeGetVersion(&runtime);
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  return "CUDA " + cuda_build_version() + " (run time " + version_name(runtime) + ", driver " +
         (driver ? version_name(driver) : std::string("none")) + ")";
}

namespace {
template <class Property>
std::string library_version(const char* name, Property&& property, int major, int minor,
                            int patch) {
  int at[3] = {0, 0, 0};
  try {
    property(MAJOR_VERSION, &at[0]);
    property(MINOR_VERSION, &at[1]);
    property(PATCH_LEVEL, &at[2]);
  } catch (const Error&) {
    return std::string(name) + " (not found)";
  }
  const auto text = [](int a, int b, int c) {
    return std::to_string(a) + "." + std::to_string(b) + "." + std::to_string(c);
  };
  return std::string(name) + " " + text(at[0], at[1], at[2]) + " (header " +
         text(major, minor, patch) + ")";
}
}  // namespace

std::string cuda_libraries() {
  return library_version("cuBLAS", cublasGetProperty, CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR,
                         CUBLAS_VER_PATCH) +
         ", " +
         library_version("cuSOLVER", cusolverGetProperty, CUSOLVER_VER_MAJOR, CUSOLVER_VER_MINOR,
                         CUSOLVER_VER_PATCH) +
         ", " +
         library_version("cuSPARSE", cusparseGetProperty, CUSPARSE_VER_MAJOR, CUSPARSE_VER_MINOR,
                         CUSPARSE_VER_PATCH);
}

}  // namespace terrace
