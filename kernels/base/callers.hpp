// Settings of this process that belong to whoever calls the library.
#pragma once

namespace terrace {

/// Threads of OpenBLAS.
int blas_threads();
void set_blas_threads(int count);
/// The CUDA device of the calling thread; -1 without one. Starts nothing.
int current_device();
void set_current_device(int ordinal);
/// The CUDA device whose memory that is; -1: the host's. Starts nothing.
int device_of(const void* data);
/// What the caller has enqueued on this stream (cudaStream_t), or, null, on the current device, is
/// done.
void wait_for_caller(void* stream);

}  // namespace terrace
