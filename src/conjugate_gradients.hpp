// Preconditioned conjugate gradients (Hestenes, Stiefel 1952) on row slices.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "distrib/context.hpp"
#include "kernels/vectors.hpp"
#include "src/operators.hpp"

namespace terrace {

/// Why the iteration ended; the first two are success.
enum class CgReason {
  rtol,                       ///< ||b - A x|| <= rtol ||b||
  atol,                       ///< ||b - A x|| <= atol
  max_iterations,             ///< none of the others by then
  indefinite_matrix,          ///< p.A p <= 0, or a negative diagonal entry
  indefinite_preconditioner,  ///< r.D r < 0, or a diagonal entry that is not positive
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
  /// Called on every rank after each iteration with the recurrence's relative residual.
  std::function<void(Index iteration, double residual)> observe;
};

struct CgResult {
  CgReason reason = CgReason::max_iterations;
  Index iterations = 0;
  double true_residual = 0;        ///< ||b - A x|| / ||b||, computed from the matrix at the end
  double recurrence_residual = 0;  ///< ||r|| / ||b|| of the last iteration
  double initial_residual = 0;     ///< ||b - A x0|| / ||b||
  double scaled_residual = 0;      ///< ||b - A x|| / (n ||A|| ||x|| eps), maximum norms
  Index position = -1;             ///< global row of the diagonal entry that was refused
  std::vector<double> history;     ///< ||r|| / ||b|| after iteration 1, 2, ...
};

/// The vectors of one solve on this rank, and what is known of A. Reusable over right-hand sides.
template <class B>
struct CgWork {
  /// Collective. Reads A once for its row-sum norm and its diagonal.
  template <class A>
  CgWork(const Context<B>& context, A& a, bool jacobi);
  static Index bytes(Index rows, bool jacobi) { return 8 * rows * (jacobi ? 5 : 4); }

  Buffer<double, B> b, x, r, q, inverse_diagonal;
  SumSpace<B> sums;
  Buffer<double, B> rows;     // scalars of the last four iterations, kernels/vectors.hpp
  PinnedBuffer<double> seen;  // the same on the host
  Stream<B> observer;         // copies the scalars out beside the iteration
  double norm = 0;            // largest row sum of |A|
  Index negative_row = -1, unusable_row = -1;  // global rows with a_ii < 0, a_ii <= 0
};

/// Solves A x = b from the x given: `b` and `x` are this rank's rows on the host. Two reductions an
/// iteration; alpha, beta and the norms stay on the device, and the host learns of iteration k
/// while k + 1 runs, on every rank alike. Per iteration one product with A and 72 bytes a row.
///
/// Success is claimed from the residual computed with A itself: where the recurrence was too
/// hopeful, the iteration starts again from it. b is scaled by a power of two, so norms neither
/// overflow nor underflow.
template <class B, class A>
CgResult conjugate_gradients(const Context<B>& context, A& a, CgWork<B>& work,
                             const CgOptions& options, const std::vector<double>& b,
                             std::vector<double>& x);

}  // namespace terrace
