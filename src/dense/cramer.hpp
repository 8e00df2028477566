// Cramer's rule, the textbook baseline for tiny systems.
#pragma once
#include <vector>

#include "kernels/base/matrix.hpp"

namespace terrace {

constexpr Index cramer_limit = 32;

struct [[nodiscard]] CramerResult {
  Matrix<Cpu> x;  ///< n x right
  Index first_zero_pivot = -1;
  double log_abs_determinant = 0;
  int determinant_sign = 1;
};

/// x[j, r] = det(A with column j replaced by b_r) / det(A); each determinant by elimination with
/// partial pivoting. A n x n, B n x right. 2/3 n^4 flops a right-hand side.
CramerResult solve_by_cramer(const Matrix<Cpu>& a, const Matrix<Cpu>& b);

}  // namespace terrace
