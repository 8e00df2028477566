// Conjugate gradients as one writes them from library calls: the rivals of `bench cg`.
#pragma once
#include <string>
#include <vector>

#include "kernels/cg/products.hpp"

namespace terrace::cg {

/// What a rival's iterations left.
struct CgRivalAnswer {
  std::vector<double> x;
  double residual = 0;  ///< ||r|| / ||b|| by its recurrence
};

/// "blas", "blas-symv" on the CPU; "cublas", "cublas-symv", "cublas-symv-default" on CUDA.
bool is_cg_rival(Cpu, const std::string& name);
bool is_cg_rival(Cuda, const std::string& name);
/// Seconds of `iterations` iterations from x = 0 for A x = 1, A of order n with leading dimension
/// ld: gemv or symv (lower triangle; on CUDA with atomics, which do not repeat their bits, unless
/// "-default"), dot, axpy, axpy, dot, scal, axpy, with the scalars on the host. OpenBLAS uses all
/// threads.
double cg_rival(const Stream<Cpu>&, const std::string& name, Index n, Index ld,
                View<const double, Cpu> a, Index iterations, CgRivalAnswer& answer);
double cg_rival(const Stream<Cuda>&, const std::string& name, Index n, Index ld,
                View<const double, Cuda> a, Index iterations, CgRivalAnswer& answer);

/// "cusparse" on CUDA; none on the CPU.
bool is_csr_rival(Cpu, const std::string& name);
bool is_csr_rival(Cuda, const std::string& name);
/// The same loop for a square CSR matrix without a list of rows; the product is cuSPARSE's SpMV
/// (algorithm 1, with its preprocessing before the clock starts).
double cg_rival(const Stream<Cpu>&, const std::string& name, const CsrRows<Cpu>& a,
                Index iterations, CgRivalAnswer& answer);
double cg_rival(const Stream<Cuda>&, const std::string& name, const CsrRows<Cuda>& a,
                Index iterations, CgRivalAnswer& answer);

}  // namespace terrace::cg
