// Solutions of FP64's backward error from a factor in low precision: iterative refinement with FP64
// residuals, and GMRES with the factor on its right where that is slow: one small singular value slows
// refinement and costs GMRES one step.
//
//   X += M^-1 (B - A X), M = L U ~ A        while every residual falls sixteen times
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
#include <functional>
#include <string>
#include <vector>

#include "distrib/context.hpp"

namespace terrace::dense {

struct RefineLimits {
  Index steps = 20;    ///< of plain refinement
  double fall = 16;    ///< of every residual, in such a step
  Index krylov = 100;  ///< of GMRES, for a group of columns
  Index restart = 40;  ///< after so many steps
  Index group = 16;    ///< columns in lock step
};

/// Residuals in units of eps ||A|| ||x||, eps = 2^-53, that are good.
inline double refined_limit(Index n) { return std::max(4.0, std::sqrt(double(n)) / 2); }

/// What refine() came to; the same on all ranks.
struct [[nodiscard]] Refinement {
  bool converged = false;
  bool halves = true;           ///< every residual, in every step of refinement: M is nearly A
  Index steps = 0, krylov = 0;  ///< of refinement; of GMRES, all groups
  double seconds = 0;           ///< that it took
  double backward_error = 0;    ///< largest ||b - A x|| / (||A|| ||x||), infinity norms
  std::string why;              ///< of what did not converge
};

/// Host bytes beside the matrix.
Index refine_bytes(Index n, Index slots, Index right);

/// The rows of A of one rank, and what solves with their factor. All members are collective.
template <class B>
class Refiner {
 public:
  using Values = std::vector<double>;
  /// All rows of M^-1 R, on every rank, from this rank's rows of R; as many numbers each.
  using Solve = std::function<Values(Index columns, const Values& r)>;
  /// `a`: this rank's `slots` rows of A, n numbers each and `lda` apart, whose infinity norm is
  /// `norm`. What is given outlives this.
  struct System {
    View<const double, B> a;
    Index lda = 0, n = 0, slots = 0;
    double norm = 0;
  };
  Refiner(Context<B>& context, const System& system, Solve solve);

  /// x, n rows of `right` numbers on every rank, with A x = b, from an approximation; `b`: this
  /// rank's rows. `right` is at most what `solve` has room for.
  Refinement refine(Index right, const std::vector<double>& b, std::vector<double>& x,
                    const RefineLimits& limits = {});

 private:
  struct Krylov;
  /// This rank's rows of A x, `columns` numbers each.
  Values times(Index columns, const Values& x);
  /// b - A x, and for every column its backward error.
  Values residual(Index columns, const Values& b, const Values& x, Values& error);
  void refine_group(Index columns, const Values& b, Values& x, const RefineLimits& limits,
                    Refinement& found);
  void orthogonalize(Krylov& k, Values& w);

  Context<B>& context_;
  Solve solve_;
  View<const double, B> a_;
  Index lda_, n_, slots_;
  double norm_;
  Buffer<double, B> x_, product_;  // of times()
};

}  // namespace terrace::dense
