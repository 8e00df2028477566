// Preconditioned conjugate gradients (Hestenes, Stiefel 1952), their variants of one reduction
// (Chronopoulos, Gear 1989; pipelined: Ghysels, Vanroose 2014), for one or several right-hand
// sides.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "src/cg/columns.hpp"
#include "src/cg/work.hpp"

namespace terrace::cg {

/// Why the iteration ended; the first two are success.
enum class CgReason {
  rtol,                       ///< norm of b - A x <= rtol times that of b
  atol,                       ///< norm of b - A x <= atol
  max_iterations,             ///< none of the others by then
  indefinite_matrix,          ///< p.A p <= 0, or a negative diagonal entry
  indefinite_preconditioner,  ///< r.M^-1 r < 0, or a diagonal entry that is not positive
  nan_or_inf,                 ///< an overflow
  breakdown,                  ///< the step is not a number that helps: A is numerically singular
  stagnation                  ///< the residual stopped falling
};
/// "rtol", "atol", "max-iterations", "indefinite-matrix", ...
std::string to_string(CgReason reason);
constexpr bool converged(CgReason reason) {
  return reason == CgReason::rtol || reason == CgReason::atol;
}

struct CgOptions {
  double rtol = 1e-10, atol = 0;
  Index max_iterations = -1;  ///< negative: 10 n + 1000
  bool jacobi = false;
  bool x_given = true;  ///< the start is x; otherwise zero, and x is not read
  CgNorm norm = CgNorm::unpreconditioned;
  /// Iterations with the heads of A's entries only, between reliable updates: a triangle that has
  /// planes, a band or CSR rows after keep_heads(); not in other variants than the classic one.
  bool mixed = false;
  bool guard = false;  ///< b and the diagonal are compared at the end: an agreed Error(fault)
  /// Called on every rank after each iteration with the recurrence's relative residual (the largest
  /// of the right-hand sides that go on).
  std::function<void(Index iteration, double residual)> observe;
  /// Called between batches, with the number of iterations launched.
  std::function<void(Index launched)> between;
  Checkpoints* checkpoints = nullptr;  ///< asked between batches; or null
  /// The caller's own state, in each checkpoint.
  std::function<void(Archive&)> archive;
};

struct CgResult {
  CgReason reason = CgReason::max_iterations;
  Index iterations = 0;
  double true_residual = 0;        ///< ||b - A x|| / ||b||, computed from the matrix at the end
  double recurrence_residual = 0;  ///< norm of r by that of b, of the last iteration
  double initial_residual = 0;     ///< ||b - A x0|| / ||b||
  double scaled_residual = 0;      ///< ||b - A x|| / (n ||A|| ||x|| eps), maximum norms; b for A x
                                   ///< where that is zero
  Index position = -1;             ///< global row of the diagonal entry that was refused
  Index restarts = 0;              ///< residuals computed from the matrix on the way
  bool beyond_range = false;       ///< not converged, as x is too large or too small for doubles
  std::vector<double> history;     ///< norm of r by that of b after iteration 1, 2, ...
  /// Lengths of the steps and ratios of r.z up to the first restart: the Lanczos matrix of M^-1 A,
  /// as the operator holds A.
  std::vector<double> alpha, beta;
  /// Of the first right-hand side: seconds of iterations in full flow, from when the host heard of
  /// the first batch to the last, and their number.
  double timed_seconds = 0;
  Index timed_iterations = 0;
};

void archive_result(Archive& archive, const std::string& name, CgResult& result);

/// Solves A x = b from the x given: `b` and `x` are this rank's rows of work.columns. The scalars stay on the device; iterations are launched ahead in batches (CUDA
/// graphs), stop by themselves, and the host hears of a batch while the next one runs, on every
/// rank alike. Classic: one product with A and 64 bytes per row and right-hand side.
///
/// Success is claimed from the residual computed with A itself: where the recurrence was too
/// hopeful, the iteration starts again from it. A is normalised and each b scaled by a power of
/// two, so that norms neither overflow nor underflow: 2^i A and 2^j b make the same iteration, bit
/// by bit, and x 2^(j - i). An x beyond the range of doubles has not converged.
template <class B, class A>
std::vector<CgResult> conjugate_gradients_columns(const Context<B>& context, A& a, CgWork<B>& work,
                                                  const CgOptions& options,
                                                  const CgRows<const double>& b,
                                                  const CgRows<double>& x);
/// One right-hand side.
template <class B, class A>
CgResult conjugate_gradients(const Context<B>& context, A& a, CgWork<B>& work,
                             const CgOptions& options, const CgRows<const double>& b,
                             const CgRows<double>& x) {
  return conjugate_gradients_columns(context, a, work, options, b, x).front();
}

}  // namespace terrace::cg
