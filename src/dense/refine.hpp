// Solutions of FP64's backward error from a factor in low precision: iterative refinement with FP64
// residuals, and GMRES with the factor on its right where that stagnates.
//
//   X += M^-1 (B - A X), M = L U ~ A        while every residual at least halves
//   A M^-1 U = B - A X, X += M^-1 U          GMRES, column by column in lock step
//
// A column is done when its residual is at most refined_limit(n) eps ||A|| ||x||, infinity norms, eps =
// 2^-53: half of what LAPACK's dsgesv asks for. LU in FP64 leaves 0.15 to 0.25 sqrt(n) of random
// matrices, n = 1,000 to 8,000.
//
// Sources: Carson, Higham, SIAM J. Sci. Comput. 40, 2018; Saad, Schultz 1986.
#pragma once
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "src/dense/elimination.hpp"

namespace terrace::dense {

struct RefineLimits {
  Index steps = 20;    ///< of plain refinement
  Index krylov = 100;  ///< of GMRES, for a group of columns
  Index restart = 40;  ///< after so many steps
  Index group = 16;    ///< columns in lock step
};

/// Residuals in units of eps ||A|| ||x||, eps = 2^-53, that are good.
inline double refined_limit(Index n) { return std::max(4.0, std::sqrt(double(n)) / 2); }

/// What refine() came to; the same on all ranks.
struct [[nodiscard]] Refinement {
  bool converged = false;
  Index steps = 0, krylov = 0;  ///< of refinement; of GMRES, all groups
  double backward_error = 0;    ///< largest ||b - A x|| / (||A|| ||x||), infinity norms
  std::string why;              ///< of what did not converge
};

/// Host bytes beside the matrix.
Index refine_bytes(Index n, Index slots, Index right);

/// The rows of A and what solves with their factor, of one rank. All members are collective.
template <class B>
class Refiner {
 public:
  /// `a`: this rank's rows of A as they lay at first, n numbers each, whose infinity norm is
  /// `norm`; `factor` has run and kept L. Both outlive this.
  Refiner(Context<B>& context, RowElimination<B>& factor, View<const double, B> a, double norm);

  /// x, n rows of `right` numbers on every rank, with A x = b, from an approximation; `b`: this
  /// rank's rows. `right` is at most the plan's room.
  Refinement refine(Index right, const std::vector<double>& b, std::vector<double>& x,
                    const RefineLimits& limits = {});

 private:
  using Values = std::vector<double>;
  struct Krylov;
  /// This rank's rows of A x, `columns` numbers each.
  Values times(Index columns, const Values& x);
  /// All rows of M^-1 r; `r`: this rank's rows.
  Values solved(Index columns, const Values& r);
  /// b - A x, and for every column its backward error.
  Values residual(Index columns, const Values& b, const Values& x, Values& error);
  void refine_group(Index columns, const Values& b, Values& x, const RefineLimits& limits,
                    Refinement& found);
  void orthogonalize(Krylov& k, Values& w);

  Context<B>& context_;
  RowElimination<B>& factor_;
  View<const double, B> a_;
  double norm_;
  Index n_, slots_;
};

}  // namespace terrace::dense
