// Eigenvalues of small symmetric tridiagonal matrices.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace terrace {

/// Smallest and largest eigenvalue of a symmetric tridiagonal matrix (`beside` has one entry less
/// than `diagonal`), zeros when it is empty or not finite. Bisection (Golub, Van Loan, Matrix
/// Computations, 4th ed., 8.4.1).
inline std::pair<double, double> extreme_eigenvalues(const std::vector<double>& diagonal,
                                                     const std::vector<double>& beside) {
  if (diagonal.empty()) return {0, 0};
  constexpr double infinity = std::numeric_limits<double>::infinity();
  double low = infinity, high = -infinity;
  for (std::size_t i = 0; i < diagonal.size(); ++i) {
    const double reach = (i > 0 ? beside[i - 1] : 0) + (i < beside.size() ? beside[i] : 0);
    low = std::min(low, diagonal[i] - reach);
    high = std::max(high, diagonal[i] + reach);
  }
  if (!std::isfinite(low) || !std::isfinite(high)) return {0, 0};
  const auto below = [&](double at) {  // eigenvalues below `at`
    std::size_t count = 0;
    double pivot = 1;
    for (std::size_t i = 0; i < diagonal.size(); ++i) {
      pivot = diagonal[i] - at - (i > 0 ? beside[i - 1] * beside[i - 1] / pivot : 0);
      if (pivot == 0) pivot = -std::numeric_limits<double>::min();
      count += pivot < 0;
    }
    return count;
  };
  const auto bisect = [&](std::size_t rank) {  // the smallest `at` with more than `rank` below
    double from = low, to = high;
    for (int step = 0; step < 60; ++step) {
      const double middle = 0.5 * (from + to);
      (below(middle) > rank ? to : from) = middle;
    }
    return to;
  };
  return {bisect(0), bisect(diagonal.size() - 1)};
}

}  // namespace terrace
