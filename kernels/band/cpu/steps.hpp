// Steps of the band substitutions on the CPU, in the calling thread's stream: shared by
// kernels/band/cpu/band.cpp and kernels/band/cpu/parts_solve.cpp.
#pragma once
#include "kernels/band/band.hpp"

namespace terrace::band {

/// y (w x nrhs) := L^-1 y with the diagonal block of a tile column; below (rows x nrhs) -= panel y.
void band_forward_step(const BandShape& s, Index rows, const double* tile, Index nrhs, double* y,
                       double* below);
/// x (w x nrhs) := L^-T (x - panel^T below).
void band_backward_step(const BandShape& s, Index rows, const double* tile, Index nrhs, double* x,
                        const double* below);

}  // namespace terrace::band
