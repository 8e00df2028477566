// Entries of test problems as formulas: any rank, thread and backend gets the same matrix from the
// seed, without communication. Host and device.
#pragma once
#include "kernels/base/random.hpp"

namespace terrace {

/// A[i, j] of a symmetric, strictly diagonally dominant (so positive definite) band matrix of order
/// n and half-bandwidth m: random in (-1, 1) off the diagonal, 2 m + 1 + random on it. Zero
/// outside.
constexpr double band_spd_entry(Word seed, Index n, Index m, Index i, Index j) {
  if (i < j) {
    const Index upper = i;
    i = j;
    j = upper;
  }
  if (j < 0 || i >= n || i - j > m) return 0.0;
  const double u = random_uniform(seed, i, j);
  return i == j ? 2.0 * double(m < n ? m : n - 1) + 1.0 + u : u;
}

/// A[i, j] of a symmetric matrix with eigenvalues within about 1.155 of `diagonal`, which stands on
/// the diagonal; random in (-1, 1) times `scale` = 1 / sqrt(n) off it.
constexpr double dense_cg_entry(Word seed, double scale, Index i, Index j, double diagonal = 2) {
  if (i == j) return diagonal;
  return scale * (i > j ? random_uniform(seed, i, j) : random_uniform(seed, j, i));
}

}  // namespace terrace
