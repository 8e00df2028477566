#include "src/cg/eigen_estimate.hpp"

#include <cmath>
#include <limits>
#include <tuple>

#include "src/frame/tridiagonal.hpp"

namespace terrace::cg {

double EigenEstimate::condition() const {
  if (iterations == 0) return 0;
  return smallest > 0 ? largest / smallest : std::numeric_limits<double>::infinity();
}

EigenEstimate estimate_eigenvalues(const std::vector<double>& alpha,
                                   const std::vector<double>& beta) {
  const auto usable = [](double v) { return v > 0 && std::isfinite(v) && std::isfinite(1 / v); };
  std::vector<double> diagonal, beside;
  for (std::size_t k = 0; k < alpha.size() && usable(alpha[k]); ++k) {
    if (k == 0) {
      diagonal.push_back(1 / alpha[0]);
      continue;
    }
    if (k - 1 >= beta.size() || !usable(beta[k - 1])) break;
    diagonal.push_back(1 / alpha[k] + beta[k - 1] / alpha[k - 1]);
    beside.push_back(std::sqrt(beta[k - 1]) / alpha[k - 1]);
  }
  EigenEstimate result;
  result.iterations = Index(diagonal.size());
  std::tie(result.smallest, result.largest) = extreme_eigenvalues(diagonal, beside);
  return result;
}

}  // namespace terrace::cg
