// For .cu files only: native handles behind Stream<Cuda>, and checks.
#pragma once
#include <cuda_runtime.h>

#include <mutex>
#include <optional>
#include <source_location>
#include <vector>

#include "kernels/base/buffer.hpp"
#include "kernels/base/cuda/libraries.hpp"
#include "kernels/base/error.hpp"
#include "kernels/base/stream.hpp"

namespace terrace {

/// Throw Error(fault) naming the place; out of memory is Error(resources).
void check(cudaError_t code, std::source_location where = std::source_location::current());
void check(cublasStatus_t code, std::source_location where = std::source_location::current());
void check(cusolverStatus_t code, std::source_location where = std::source_location::current());
void check(cusparseStatus_t code, std::source_location where = std::source_location::current());
inline void check_launch(std::source_location where = std::source_location::current()) {
  check(cudaGetLastError(), where);
}

namespace detail {
/// A device is bound: PinnedBuffers are page-locked.
void pin_from_now();
struct PreparedFile {
  PreparedFile(const char* family, const void* kernel);
};
}  // namespace detail
/// This file's kernels are among those that prepare_kernels({#family}) loads.
#define TERRACE_PREPARED(family) TERRACE_PREPARED_AS(family, __COUNTER__)
#define TERRACE_PREPARED_AS(family, number) TERRACE_PREPARED_NAMED(family, number)
#define TERRACE_PREPARED_NAMED(family, number)             \
  static __global__ void file_of_##family##_##number() {}  \
  const detail::PreparedFile prepared_##family##_##number( \
      #family, reinterpret_cast<const void*>(&file_of_##family##_##number))

inline cudaStream_t native(const Stream<Cuda>& stream) {
  return static_cast<cudaStream_t>(stream.native());
}
/// The code that runs on the current device was compiled for compute capability 9: bulk copies, early
/// launches.
bool compiled_for_hopper();
/// The ordinal of the current device; 0 where there is none, or an assumed one.
int current_ordinal();

/// What is found or allowed once for each device: a kernel's dynamic shared memory beyond 48 KiB, the
/// blocks of it that are resident. A static variable of the function that launches it.
template <class T>
class OncePerDevice {
 public:
  /// find(), which returns a T, on the current device; the first time only.
  template <class F>
  T operator()(F&& find) {
    const auto device = std::size_t(current_ordinal());
    const std::lock_guard lock(guard_);
    if (known_.size() <= device) known_.resize(device + 1);
    if (!known_[device]) known_[device] = T(find());
    return *known_[device];
  }

 private:
  std::mutex guard_;
  std::vector<std::optional<T>> known_;  // by ordinal
};

/// A kernel's dynamic shared memory beyond 48 KiB, on the current device. True.
template <class Kernel>
bool allow_shared(Kernel* kernel, Index bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)));
  return true;
}

/// Library handles with the stream set; made at first use, one set a stream.
cublasHandle_t cublas(const Stream<Cuda>& stream);
cusolverDnHandle_t cusolver(const Stream<Cuda>& stream);
cusparseHandle_t cusparse(const Stream<Cuda>& stream);

}  // namespace terrace
