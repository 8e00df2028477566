// Bounds of the machine, measured in the same run as the figures held against them.
#pragma once
#include "kernels/stream.hpp"

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

}  // namespace terrace
