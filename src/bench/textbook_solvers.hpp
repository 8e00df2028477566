// Solvers of the article behind jobs/cg_seed.sh, as the textbook writes them: what conjugate
// gradients and Cramer's rule by elimination are held against.
#pragma once
#include "kernels/base/matrix.hpp"

namespace terrace::dense::textbook {

template <class B>
struct [[nodiscard]] CgOutcome {
  Matrix<B> x;
  Index iterations = 0;
  bool converged = false;
};

/// Conjugate gradients with the containers' sums and scalar products, a thread a row of A x, and
/// the host in every step. A n x n, b n x 1, x0 = 0; until ||r|| <= rtol ||b||, at most `most`
/// steps, or p.A p <= 0.
template <class B>
CgOutcome<B> conjugate_gradients(const Matrix<B>& a, const Matrix<B>& b, double rtol, Index most);

constexpr Index expansion_limit = 10;

/// Determinant by expansion along the first row, n! products. n <= expansion_limit.
double expanded_determinant(const Matrix<Cpu>& a);
/// x[j] = det(A with column j replaced by b) / det(A), determinants by expansion: (n + 1)!
/// products. Empty when det(A) is zero. Throws Error(usage) above the limit.
Matrix<Cpu> solve_by_expansion(const Matrix<Cpu>& a, const Matrix<Cpu>& b);

}  // namespace terrace::dense::textbook
