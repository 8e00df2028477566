// Conjugate gradients as one writes them from library calls: the rival of `bench cg --kind dense`.
#pragma once
#include <string>

#include "kernels/buffer.hpp"

namespace terrace {

/// "blas", "blas-symv" on the CPU; "cublas", "cublas-symv" on CUDA.
bool is_cg_rival(Cpu, const std::string& name);
bool is_cg_rival(Cuda, const std::string& name);
/// Seconds of `iterations` iterations from x = 0 for A x = 1, A of order n with leading dimension
/// ld: gemv or symv (lower triangle; atomics allowed on CUDA), dot, axpy, axpy, dot, scal, axpy,
/// with the scalars on the host. OpenBLAS uses all threads.
double cg_rival(const Stream<Cpu>&, const std::string& name, Index n, Index ld,
                View<const double, Cpu> a, Index iterations);
double cg_rival(const Stream<Cuda>&, const std::string& name, Index n, Index ld,
                View<const double, Cuda> a, Index iterations);

}  // namespace terrace
