// Rivals of the inversion, measured beside it by `terrace bench dense`.
#pragma once
#include <functional>

#include "kernels/base/buffer.hpp"

namespace terrace::dense {

/// The time of a rival's inversion, and LAPACK's info: 0, or why there is no inverse.
struct RivalInverse {
  double seconds = 0;
  Index info = 0;
};
/// LAPACK's getrf + getri on a random matrix of order n (seed as dense::fill_random), with OpenBLAS
/// on thread_count() threads. The inverse, n x n row by row, is left in `inverse`.
RivalInverse lapack_inverse(Index n, Word seed, View<double, Cpu> inverse);
/// The same by cuSOLVER's getrf + getrs(I), timed by events; 16 n^2 bytes and its workspace beside.
RivalInverse cusolver_inverse(const Stream<Cuda>& stream, Index n, Word seed,
                              View<double, Cuda> inverse);

/// A lap on a lane: the host's clock on the CPU, events on CUDA.
double lap_seconds(const Stream<Cpu>& stream, const std::function<void()>& work);
double lap_seconds(const Stream<Cuda>& stream, const std::function<void()>& work);

}  // namespace terrace::dense
