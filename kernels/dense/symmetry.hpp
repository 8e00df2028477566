// Rows of a matrix in host memory, taken for the lower half of a symmetric one.
#pragma once
#include "kernels/base/backend.hpp"

namespace terrace::dense {

/// Row i of A, all n numbers of it.
struct WholeRow {
  Index n = 0, i = 0;
  const double* row = nullptr;
  const Word* r = nullptr;  ///< n odd numbers
  const Word* s = nullptr;  ///< n others
  double* out = nullptr;    ///< n numbers, or none
  // Results.
  mutable Word hash = 0;
  mutable double norm = 0;
};

/// hash := r[i] sum_{j > i} s[j] bits(A[i, j]) - s[i] sum_{j < i} r[j] bits(A[i, j]), so that the
/// sum over all rows is zero where A[i, j] = A[j, i] bit by bit, -0 being 0; with random r and s it
/// misses a difference once in 2^60. norm := sum_j |A[i, j]|. out := A[i, i .. n - 1], then zeros.
/// One pass: 8 n bytes read, 8 n written.
void take_row(const WholeRow& p);

}  // namespace terrace::dense
