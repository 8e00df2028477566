// Rivals of the inversion and of the solution, measured beside it by `terrace bench dense`.
#pragma once
#include <functional>
#include <string>

#include "kernels/base/buffer.hpp"

namespace terrace::dense {

/// The time of a rival's run, LAPACK's info (0, or why there is no answer), and what it says.
struct RivalRun {
  double seconds = 0;
  Index info = 0;
  std::string note;
};
/// LAPACK's getrf + getri on a random matrix of order n (seed as dense::fill_random), with OpenBLAS
/// on thread_count() threads. The inverse, n x n row by row, is left in `inverse`.
RivalRun lapack_inverse(Index n, Word seed, View<double, Cpu> inverse);
/// The same by cuSOLVER's getrf + getrs(I), timed by events; 16 n^2 bytes and its workspace beside.
RivalRun cusolver_inverse(const Stream<Cuda>& stream, Index n, Word seed,
                          View<double, Cuda> inverse);

/// LAPACK's getrf + getrs; element (i, j) of A is random_uniform(seed, i, j), of B (i, n + j). X is
/// left column by column.
RivalRun lapack_solution(Index n, Index right, Word seed, View<double, Cpu> x);
/// The same by cuSOLVER, timed by events. `mixed`: its solver that factors in TF32 and refines to
/// FP64 (cusolverDnDXgesv); the note says how many steps it took, below zero where it fell back.
RivalRun cusolver_solution(const Stream<Cuda>& stream, Index n, Index right, Word seed,
                           View<double, Cuda> x, bool mixed);

/// A lap on a lane: the host's clock on the CPU, events on CUDA.
double lap_seconds(const Stream<Cpu>& stream, const std::function<void()>& work);
double lap_seconds(const Stream<Cuda>& stream, const std::function<void()>& work);

}  // namespace terrace::dense
