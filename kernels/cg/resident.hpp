// Whole iterations of conjugate gradients in one launch, for matrices that stay on the chip of one
// GPU: the lower triangle lives in the registers and the shared memory of the multiprocessors.
//
// Iterations, sums and stopping are those of kernels/cg/vectors.hpp on one device: iteration k
// leaves its row { p.q, p.p, r.r, r.z } at rows[(k % ring) * stride] and takes r.r and r.z from row
// k - 1. When it may not step, the launch ends: x, r and p stay, and the rows up to iteration first
// + count - 1 repeat the last one.
#pragma once
#include "kernels/cg/triangle.hpp"
#include "kernels/cg/vectors.hpp"

namespace terrace::cg {

/// Where iteration k of a launch leaves its row.
struct CgRing {
  View<double, Cuda> rows;
  Index ring = 0, stride = 0;  ///< rows; doubles from one to the next
};

/// True when this GPU takes an n x n system. False without CUDA.
bool resident_cg_fits(Index n);
/// Doubles of scratch.
Index resident_cg_scratch(Index n);
/// Iterations first, ..., first + count - 1 (count < 2^32), or fewer. All tile rows on this device;
/// p, x, r: padded(n), zero beyond n; `inverse_diagonal` of size 0 means D = 1. One cooperative
/// launch, which takes the whole device.
void resident_cg(const Stream<Cuda>&, const TriangleTiles<Cuda>&,
                 View<const double, Cuda> inverse_diagonal, View<double, Cuda> p,
                 View<double, Cuda> x, View<double, Cuda> r, const CgRing& rows, Index first,
                 Index count, CgLimits, View<double, Cuda> scratch);

}  // namespace terrace::cg
