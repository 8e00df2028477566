// Bounds of the machine, measured in the same run as the figures held against them.
#pragma once
#include "kernels/base/stream.hpp"

namespace terrace {

/// GFLOP/s of C -= A B^T, square of order n, random data: OpenBLAS on all threads, cuBLAS. The best
/// of three after a warm-up. n = 0: an order that fills the machine (2,048 on the CPU, 8,192 on
/// CUDA). Takes 24 n^2 bytes.
double dgemm_rate(const Stream<Cpu>&, Index n = 0);
double dgemm_rate(const Stream<Cuda>&, Index n = 0);

/// GB/s of reading memory once: a sum over `bytes` (0: 256 MiB on the CPU, 2 GiB on CUDA), the best
/// of three.
double read_rate(const Stream<Cpu>&, Index bytes = 0);
double read_rate(const Stream<Cuda>&, Index bytes = 0);

/// GB/s of copies between page-locked host memory and memory of the backend, in pieces of 64 MiB.
struct CopyRates {
  double to_device = 0, to_host = 0;  ///< both ways at the same time
  double to_device_alone = 0;
};
/// `bytes` each way (0: 64 MiB on the CPU, 2 GiB on CUDA) on two streams, the best of three. On the
/// CPU the copies share one memory: one after the other, each timed as both together.
CopyRates copy_rates(const Stream<Cpu>& up, const Stream<Cpu>& down, Index bytes = 0);
CopyRates copy_rates(const Stream<Cuda>& up, const Stream<Cuda>& down, Index bytes = 0);

}  // namespace terrace
