#include "src/cg/eigen_estimate.hpp"

#include <limits>

#include "tests/support/systems.hpp"

using namespace terrace;
using namespace terrace::cg;
using namespace terrace::test;

namespace {

struct Coefficients {
  std::vector<double> alpha, beta;
};

/// Textbook conjugate gradients on a diagonal matrix, with z = r / scale.
Coefficients run(const Vector& eigenvalues, Index steps, double scale = 1) {
  Vector r = random_vector(Index(eigenvalues.size()), 11), p = r;
  for (double& v : p) v /= scale;
  double rz = dot(r, p);
  Coefficients c;
  for (Index k = 0; k < steps; ++k) {
    double pq = 0;
    for (std::size_t i = 0; i < r.size(); ++i) pq += p[i] * eigenvalues[i] * p[i];
    c.alpha.push_back(rz / pq);
    double next = 0;
    for (std::size_t i = 0; i < r.size(); ++i) {
      r[i] -= c.alpha.back() * eigenvalues[i] * p[i];
      next += r[i] * r[i] / scale;
    }
    c.beta.push_back(next / rz);
    rz = next;
    for (std::size_t i = 0; i < r.size(); ++i) p[i] = r[i] / scale + c.beta.back() * p[i];
  }
  return c;
}

}  // namespace

TEST_CASE("after as many steps as eigenvalues the extreme ones are exact") {
  const Vector spectrum{0.25, 1, 2, 5, 7, 40};
  const auto [alpha, beta] = run(spectrum, 6);
  const EigenEstimate e = estimate_eigenvalues(alpha, beta);
  CHECK(e.iterations == 6);
  CHECK(std::fabs(e.smallest - 0.25) < 1e-10);
  CHECK(std::fabs(e.largest - 40) < 1e-10);
  CHECK(std::fabs(e.condition() - 160) < 1e-7);
  const auto scaled = run(spectrum, 6, 2);  // of M A with M = 1/2
  const EigenEstimate half = estimate_eigenvalues(scaled.alpha, scaled.beta);
  CHECK(std::fabs(half.smallest - 0.125) < 1e-10);
  CHECK(std::fabs(half.largest - 20) < 1e-10);
}

TEST_CASE("estimates grow with the iterations and stay within Laplace's spectrum") {
  const Index n = 400;  // 1-D Laplace: 2 - 2 cos(k pi / (n + 1))
  Vector spectrum;
  for (Index k = 1; k <= n; ++k)
    spectrum.push_back(2 - 2 * std::cos(double(k) * 3.14159265358979323846 / double(n + 1)));
  const auto [alpha, beta] = run(spectrum, 350);
  double low = std::numeric_limits<double>::infinity(), high = 0;
  for (std::size_t k = 1; k <= alpha.size(); ++k) {
    const EigenEstimate e = estimate_eigenvalues({alpha.begin(), alpha.begin() + Index(k)}, beta);
    REQUIRE(e.iterations == Index(k));
    REQUIRE(e.smallest <= low * (1 + 1e-9) + 1e-14);
    REQUIRE(e.largest >= high * (1 - 1e-14));
    REQUIRE(e.smallest >= spectrum.front() * (1 - 1e-7));
    REQUIRE(e.largest <= spectrum.back() * (1 + 1e-12));
    low = e.smallest;
    high = e.largest;
  }
  CHECK(low < 2 * spectrum.front());
  CHECK(high > 0.999 * spectrum.back());
}

TEST_CASE("coefficients that are not usable end the estimate") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(estimate_eigenvalues({}, {}).iterations == 0);
  CHECK(estimate_eigenvalues({}, {}).condition() == 0);
  CHECK(estimate_eigenvalues({0.0}, {}).iterations == 0);
  CHECK(estimate_eigenvalues({nan}, {}).iterations == 0);
  const EigenEstimate one = estimate_eigenvalues({0.5}, {});
  CHECK(one.iterations == 1);
  CHECK(std::fabs(one.smallest - 2) < 1e-14);
  CHECK(std::fabs(one.largest - 2) < 1e-14);
  CHECK(std::fabs(one.condition() - 1) < 1e-14);
  CHECK(estimate_eigenvalues({0.5, 0.5}, {}).iterations == 1);
  CHECK(estimate_eigenvalues({0.5, 0.5, 0.5}, {0.1, 0.0}).iterations == 2);
  CHECK(estimate_eigenvalues({0.5, -1, 0.5}, {0.1, 0.1}).iterations == 1);
}
