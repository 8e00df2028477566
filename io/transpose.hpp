// Dense pieces in memory: turned, and searched for NaN and Inf, by all threads.
#pragma once
#include "kernels/base/backend.hpp"

namespace terrace::io {

/// to[c][r] = from[r][c] for r < rows, c < columns; both row-major without gaps.
void transpose(double* to, const double* from, Index rows, Index columns);
/// to[c * to_ld + r] = from[r * from_ld + c], in this thread; for tiles that fit the cache.
void turn(double* to, Index to_ld, const double* from, Index from_ld, Index rows, Index columns);
/// Number of the first element that is NaN or Inf, -1 when there is none; in this thread.
Index not_finite(const double* data, Index size);

}  // namespace terrace::io
