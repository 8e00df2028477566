// What of CUDA is prepared beside the caller.
#include "kernels/base/preparations.hpp"

#include <cuda.h>
#include <glob.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kernels/base/cuda/runtime.cuh"
#include "kernels/base/timeline.hpp"

namespace terrace {

#if CUDA_VERSION >= 12040
#define TERRACE_DRIVER(function) TERRACE_LATE(TERRACE_SONAME("cuda", 1), function)
TERRACE_DRIVER(cuFuncGetModule);
TERRACE_DRIVER(cuFuncLoad);
TERRACE_DRIVER(cuModuleEnumerateFunctions);
TERRACE_DRIVER(cuModuleGetFunctionCount);
#undef TERRACE_DRIVER
#endif

namespace {
/// Never freed: the program may end while they run.
std::vector<std::thread>& preparations() {
  static auto* const all = new std::vector<std::thread>;
  return *all;
}
std::atomic<bool> over{false};
template <class F>
void prepare(const char* what, const F& work) {
  preparations().emplace_back([what, work] {
    const Noted noted("device", what);
    try {
      work();
    } catch (const Error&) {  // where it is used it is thrown again
    }
    cudaGetLastError();
  });
}

struct Prepared {
  const char* family;
  const void* kernel;
};
/// Filled before main().
std::vector<Prepared>& prepared() {
  static std::vector<Prepared> all;
  return all;
}
/// All kernels of the file that `kernel` is in.
void load_file(const void* kernel) {
#if CUDA_VERSION >= 12040
  if (over) return;
  cudaFunction_t function = nullptr;
  check(cudaGetFuncBySymbol(&function, kernel));
  CUmodule module = nullptr;
  unsigned count = 0;
  if (cuFuncGetModule(&module, function) != CUDA_SUCCESS) return;
  if (cuModuleGetFunctionCount(&count, module) != CUDA_SUCCESS) return;
  std::vector<CUfunction> all(count);
  if (cuModuleEnumerateFunctions(all.data(), count, module) != CUDA_SUCCESS) return;
  for (const CUfunction one : all)
    if (!over) cuFuncLoad(one);
#endif
}
}  // namespace

detail::PreparedFile::PreparedFile(const char* family, const void* kernel) {
  prepared().push_back({family, kernel});
}

void see_one_device() {
  const auto some = [](const char* pattern) {
    glob_t found{};
    const bool any = glob(pattern, GLOB_NOSORT, nullptr, &found) == 0;
    globfree(&found);
    return any;
  };
  const char* const seen = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string all = seen ? seen : "0";
  if (seen ? all.find(',') == all.npos : !some("/dev/nvidia[1-9]*")) return;
  if (some("/proc/driver/nvidia/capabilities/gpu*/mig/gi*")) return;  // parts have other names
  setenv("CUDA_VISIBLE_DEVICES", all.substr(0, all.find(',')).c_str(), 1);
}

void prepare_device(bool certain, bool products) {
  prepare("CUDA", [certain] {
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess && certain && count == 1) cudaSetDevice(0);
  });
  int driver = 0;  // 0: none, so there is no device; cuBLAS takes more than the rest of a start
  if (products && cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0)
    prepare("cuBLAS", [] { (void)cublasGetStatusString(CUBLAS_STATUS_SUCCESS); });
}

void prepare_products() {
  int ordinal = 0;
  check(cudaGetDevice(&ordinal));
  prepare("first product", [ordinal] {
    check(cudaSetDevice(ordinal));
    const Stream<Cuda> stream;
    constexpr int n = 1024, k = 256;
    // Not counted as the problem's, and never freed: that waits for the device. A pool of memory takes
    // 17 ms to make.
    double* room = nullptr;
    check(cudaMalloc(&room, sizeof(double) * n * (n + k)));
    const double one = 1.0, zero = 0.0;
    check(cublasDgemm(cublas(stream), CUBLAS_OP_N, CUBLAS_OP_T, n, n, k, &one, room + n * n, n,
                      room + n * n, n, &zero, room, n));
    check(cudaStreamSynchronize(native(stream)));
  });
}

void prepare_kernels(const std::vector<const char*>& families) {
  int ordinal = 0;
  check(cudaGetDevice(&ordinal));
  prepare("kernels", [families, ordinal] {
    check(cudaSetDevice(ordinal));
    for (const std::string_view family : families)
      for (const Prepared& one : prepared())
        if (one.family == family) load_file(one.kernel);
  });
}

void end_preparations() {
  over = true;
  for (std::thread& thread : preparations()) thread.join();
  preparations().clear();
}

}  // namespace terrace
