// Extreme eigenvalues of a (preconditioned) matrix from the coefficients of conjugate gradients.
#pragma once
#include <vector>

#include "kernels/base/backend.hpp"

namespace terrace::cg {

/// Estimates from k iterations: both lie within the spectrum of M A, so `condition` is a lower
/// bound.
struct EigenEstimate {
  double smallest = 0, largest = 0;
  Index iterations = 0;  ///< coefficients used; 0: no estimate
  /// largest / smallest, 0 without an estimate, infinity where the smallest is not positive.
  [[nodiscard]] double condition() const;
};

/// alpha[k] = r_k.z_k / p_k.A p_k and beta[k] = r_k+1.z_k+1 / r_k.z_k of iteration k = 0, 1, ...
/// (the last beta is not needed) are those of the Lanczos matrix
///   t[k, k] = 1 / alpha[k] + beta[k - 1] / alpha[k - 1],  t[k, k + 1] = sqrt(beta[k]) / alpha[k]
/// (Saad, Iterative Methods for Sparse Linear Systems, 2nd ed., 6.7.3). The coefficients belong to
/// one run without restarts; they are used up to the first that is not positive and finite.
EigenEstimate estimate_eigenvalues(const std::vector<double>& alpha,
                                   const std::vector<double>& beta);

}  // namespace terrace::cg
