// For .cu files only: native handles behind Stream<Cuda>, and checks.
#pragma once
#include <cuda_runtime.h>

#include <source_location>

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
}  // namespace detail

inline cudaStream_t native(const Stream<Cuda>& stream) {
  return static_cast<cudaStream_t>(stream.native());
}
/// Library handles with the stream set; made at first use, one set a stream.
cublasHandle_t cublas(const Stream<Cuda>& stream);
cusolverDnHandle_t cusolver(const Stream<Cuda>& stream);
cusparseHandle_t cusparse(const Stream<Cuda>& stream);

}  // namespace terrace
