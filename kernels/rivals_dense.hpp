// Rivals of the inversion, measured beside it by `terrace bench dense`.
#pragma once
#include <functional>

#include "kernels/buffer.hpp"

namespace terrace {

/// Seconds of LAPACK's getrf + getri on a random matrix of order n (seed as dense::fill_random),
/// with OpenBLAS on thread_count() threads; 16 n^2 bytes.
double lapack_inverse_seconds(Index n, Word seed);
/// Seconds (events) of cuSOLVER's getrf + getrs(I); 24 n^2 bytes and its workspace.
double cusolver_inverse_seconds(const Stream<Cuda>& stream, Index n, Word seed);

/// A lap on a lane: the host's clock on the CPU, events on CUDA.
double lap_seconds(const Stream<Cpu>& stream, const std::function<void()>& work);
double lap_seconds(const Stream<Cuda>& stream, const std::function<void()>& work);

}  // namespace terrace
