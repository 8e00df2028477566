// Shared by the dense .cu files: layout of a panel on the device.
#pragma once
#include "kernels/base/cuda/runtime.cuh"
#include "kernels/dense/dense.hpp"

namespace terrace::dense {

/// Panels are column-major, rows of a column next to each other: slot s, column c at s + c * ld.
inline Index panel_ld(Index slots) { return round_up(slots > 32 ? slots : 32, 32); }

/// Number within the panel of pivot column `column`, or -1.
__device__ inline Index place_in(Index column, Index first, Index width) {
  return column >= first && column < first + width ? column - first : -1;
}

inline unsigned grid_for(Index work, Index threads) { return unsigned(ceil_div(work, threads)); }

/// a[:, first ... first + width) = `slots` rows of a panel's columns.
void store_columns(const Stream<Cuda>& stream, Index slots, Index width, double* a, Index lda,
                   Index first, const double* panel, Index ldp);

}  // namespace terrace::dense
