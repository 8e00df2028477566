// Dense pieces in memory: turned, and searched for NaN and Inf, by all threads.
#pragma once
#include "kernels/backend.hpp"

namespace terrace::io {

/// to[c][r] = from[r][c] for r < rows, c < columns; both row-major without gaps.
void transpose(double* to, const double* from, Index rows, Index columns);
/// Number of the first element that is NaN or Inf, -1 when there is none.
Index first_not_finite(const double* data, Index size);

}  // namespace terrace::io
