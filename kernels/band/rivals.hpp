// What else factors a band matrix on this machine; for `bench band` alone.
#pragma once
#include "kernels/base/buffer.hpp"

namespace terrace::band {

/// ab ((m + 1) x n column by column, lower) := its Cholesky factor; returns LAPACK's info.
/// Cpu, "lapack": dpbtrf with OpenBLAS on all threads. Cuda, "chain": cuSOLVER potrf, cuBLAS trsm
/// and syrk, tile column by tile column of width w (w <= m).
Index band_rival(const Stream<Cpu>&, Index n, Index m, Index w, View<double, Cpu> ab);
Index band_rival(const Stream<Cuda>&, Index n, Index m, Index w, View<double, Cuda> ab);
/// x (n numbers) := (L L^T)^-1 x with that factor, by dpbtrs.
Index band_rival_solve(const Stream<Cpu>&, Index n, Index m, View<const double, Cpu> ab,
                       View<double, Cpu> x);
/// v := L (L^T v) by BLAS, L the factor in `ab`: what A v must be.
void band_rival_times(const Stream<Cpu>&, Index n, Index m, View<const double, Cpu> ab,
                      View<double, Cpu> v);
void band_rival_times(const Stream<Cuda>&, Index n, Index m, View<const double, Cuda> ab,
                      View<double, Cuda> v);
constexpr const char* band_rival_name(Cpu) { return "lapack"; }
constexpr const char* band_rival_name(Cuda) { return "chain"; }

}  // namespace terrace::band
