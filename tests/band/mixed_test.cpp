#include "src/band/mixed.hpp"

#include <cstring>

#include "kernels/base/problems.hpp"
#include "src/frame/tridiagonal.hpp"
#include "tests/support/band.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::band;
using namespace terrace::test;

namespace {

const Entry line = [](Index i, Index j) { return i == j ? 2.0 : i - j == 1 ? -1.0 : 0.0; };
Entry grid(Index side) {
  return [=](Index i, Index j) {
    return i == j ? 4.0 : i - j == side || (i - j == 1 && i % side != 0) ? -1.0 : 0.0;
  };
}
/// The square of the line's matrix.
Entry plate(Index n) {
  return [=](Index i, Index j) {
    if (i == j) return i == 0 || i == n - 1 ? 5.0 : 6.0;
    return i - j == 1 ? -4.0 : i - j == 2 ? 1.0 : 0.0;
  };
}

std::vector<double> random_rows(Index n, Index nrhs) {
  std::vector<double> b(std::size_t(n * nrhs));
  for (Index i = 0; i < n * nrhs; ++i) b[std::size_t(i)] = random_uniform(11, i / nrhs, i % nrhs);
  return b;
}

struct Solved {
  bool factored = false;
  MixedReason failure = MixedReason::converged;
  MixedResult result;
  double ratio = INFINITY, condition = 0, shift = 0;
  std::vector<double> x;
};

template <class B>
Solved solve(Context<B>& c, Index n, Index m, const Entry& entry, Index nrhs,
             const std::vector<double>& b, const MixedLimits& limits = {}) {
  const BandShape s = band_shape(n, m, band_low_width(B{}));
  BandTiles<B> a = band_tiles<B>(c, s);
  fill_tiles(c, a, n, s.half_bandwidth, entry);
  const View<double, B> tiles = a.data.view().slice(0, s.tiles() * s.tile());
  BandMixed<B> mixed = band_mixed<B>(s, nrhs);
  Solved solved;
  solved.factored = mixed_factor(c, tiles, mixed, limits);
  solved.failure = mixed.failure;
  solved.shift = mixed.shift;
  if (!solved.factored) return solved;
  std::vector<double> rows(std::size_t(s.padded() * nrhs), 0.0);
  std::copy(b.begin(), b.end(), rows.begin());
  Buffer<double, B> x(Index(rows.size()));
  upload(c.ahead, x.view(), rows.data());
  solved.result = mixed_solve(c, tiles, mixed, x, limits);
  download(c.ahead, rows.data(), x.view());
  c.ahead.synchronize();
  solved.x.assign(rows.begin(), rows.begin() + n * nrhs);
  if (solved.result.reason == MixedReason::converged) {
    solved.ratio =
        band_residual<B>(c, band_problem<B>(n, m, entry), Range{0, n}, solved.x, b, nrhs);
    solved.condition = mixed_condition(c, tiles, mixed, solved.result, limits);
  }
  return solved;
}

/// max |A^-1| row sum times that of A, by the textbook.
double condition(Index n, const Entry& entry) {
  std::vector<double> l;
  REQUIRE(dense_cholesky(n, entry, l) == 0);
  double most = 0, norm = 0;
  for (Index e = 0; e < n; ++e) {
    std::vector<long double> y(std::size_t(n), 0);
    y[std::size_t(e)] = 1;
    for (Index i = 0; i < n; ++i) {
      for (Index k = 0; k < i; ++k)
        y[std::size_t(i)] -= l[std::size_t(i * n + k)] * y[std::size_t(k)];
      y[std::size_t(i)] /= l[std::size_t(i * n + i)];
    }
    for (Index i = n - 1; i >= 0; --i) {
      for (Index k = i + 1; k < n; ++k)
        y[std::size_t(i)] -= l[std::size_t(k * n + i)] * y[std::size_t(k)];
      y[std::size_t(i)] /= l[std::size_t(i * n + i)];
    }
    long double sum = 0;
    for (const long double value : y) sum += std::abs(value);
    most = std::max(most, double(sum));
    double row = 0;
    for (Index j = 0; j < n; ++j) row += std::abs(e >= j ? entry(e, j) : entry(j, e));
    norm = std::max(norm, row);
  }
  return most * norm;
}

template <class B>
bool available() {
  return context<B>() && band_low_available(B{});
}

}  // namespace

TEMPLATE_TEST_CASE("well conditioned bands converge at once in mixed precision", "",
                   TERRACE_BACKENDS) {
  if (!available<TestType>()) return;
  Context<TestType>& c = *context<TestType>();
  const Index counts[] = {1, 2, 3, 8, 9, 17};
  Index turn = 0;
  for (const Index n : {1, 2, 3, 5, 10, 50, 63, 64, 65, 129, 300, 1000})
    for (const Index m : {Index(0), Index(1), (n + 1) / 4, n - 1, n + 3}) {
      if (fewer_cases && n > 300) continue;
      const Index nrhs = counts[turn++ % 6];
      const Solved s = solve(c, n, m, spd(n, m), nrhs, random_rows(n, nrhs));
      INFO("n " << n << " m " << m << " nrhs " << nrhs << " iterations " << s.result.iterations);
      REQUIRE(s.factored);
      REQUIRE(s.result.reason == MixedReason::converged);
      REQUIRE(s.ratio < 16.0);
      REQUIRE(s.ratio < 48.0 / double(n));
      REQUIRE(s.result.iterations <= 12);
      REQUIRE(s.result.backward_error < 2e-15);
      REQUIRE(s.shift == 2 * band_low_roundoff(TestType{}));
    }
}

TEMPLATE_TEST_CASE("no rows, and no right-hand sides, are solved in mixed precision", "",
                   TERRACE_BACKENDS) {
  if (!available<TestType>()) return;
  Context<TestType>& c = *context<TestType>();
  REQUIRE(solve(c, 0, 0, line, 1, {}).result.reason == MixedReason::converged);
  REQUIRE(solve(c, 100, 1, line, 0, {}).result.reason == MixedReason::converged);
}

TEMPLATE_TEST_CASE("Laplace and biharmonic operators in mixed precision", "", TERRACE_BACKENDS) {
  if (!available<TestType>()) return;
  Context<TestType>& c = *context<TestType>();
  struct Case {
    const char* name;
    Index n, m;
    Entry entry;
    bool must;  ///< converge
  };
  const Index side = 40, n = fewer_cases ? 600 : 3000;
  for (const Case& k : {Case{"line", n, 1, line, false},
                        {"short line", 100, 1, line, true},
                        {"grid", side * side, side, grid(side), true},
                        {"plate", n, 2, plate(n), false},
                        {"short plate", 60, 2, plate(60), true}})
    for (const Index nrhs : {1, 3}) {
      // Ones are a right-hand side that the smooth eigenvectors dominate.
      std::vector<double> b = random_rows(k.n, nrhs);
      for (Index i = 0; i < k.n; ++i) b[std::size_t(i * nrhs)] = 1.0;
      const Solved s = solve(c, k.n, k.m, k.entry, nrhs, b);
      INFO(k.name << " nrhs " << nrhs << " iterations " << s.result.iterations << " "
                  << to_string(s.result.reason) << " error " << s.result.backward_error
                  << " eigenvalues " << s.result.smallest << " " << s.result.largest << " restarts "
                  << s.result.restarts << " condition " << s.condition);
      if (k.must) REQUIRE(s.factored);
      if (!s.factored) continue;
      if (k.must) REQUIRE(s.result.reason == MixedReason::converged);
      if (s.result.reason != MixedReason::converged) continue;
      REQUIRE(s.ratio < 1.0);
      REQUIRE(s.result.backward_error < 2e-14);
      if (std::string(k.name) == "short line") {  // x = i (n + 1 - i) / 2, known exactly
        for (Index i = 0; i < k.n; ++i) {
          const double want = double(i + 1) * double(k.n - i) / 2;
          REQUIRE(std::abs(s.x[std::size_t(i * nrhs)] - want) < 1e-10 * want);
        }
      }
    }
}

TEMPLATE_TEST_CASE("condition estimates of known matrices in mixed precision", "",
                   TERRACE_BACKENDS) {
  if (!available<TestType>()) return;
  Context<TestType>& c = *context<TestType>();
  struct Case {
    Index n, m;
    Entry entry;
  };
  for (const Case& k : {Case{1, 0, line},
                        {2, 1, line},
                        {64, 1, line},
                        {150, 1, line},
                        {144, 12, grid(12)},
                        {200, 20, spd(200, 20)},
                        {50, 2, plate(50)}}) {
    const Solved s = solve(c, k.n, k.m, k.entry, 1, random_rows(k.n, 1));
    const double want = condition(k.n, k.entry);
    INFO("n " << k.n << " m " << k.m << " estimate " << s.condition << " condition " << want);
    REQUIRE(s.result.reason == MixedReason::converged);
    REQUIRE(s.condition < 1.1 * want);
    REQUIRE(s.condition > 0.3 * want);
  }
}

TEMPLATE_TEST_CASE("eigenvalues that the iteration sees bound those of the preconditioned matrix",
                   "", TERRACE_BACKENDS) {
  if (!available<TestType>()) return;
  Context<TestType>& c = *context<TestType>();
  const Solved s = solve(c, 500, 20, spd(500, 20), 1, random_rows(500, 1));
  REQUIRE(s.result.smallest > 0.9);
  REQUIRE(s.result.largest < 1.1);
  REQUIRE(s.result.smallest <= s.result.largest);
  // H of the line: smallest eigenvalue 1 - cos(pi / (n + 1)); M adds the shift to it.
  const Index n = 100;
  const Solved hard = solve(c, n, 1, line, 1, std::vector<double>(std::size_t(n), 1.0));
  const double least = 1 - std::cos(M_PI / double(n + 1));
  const double rounding = 4 * band_low_roundoff(TestType{});
  const double low = least / (least + hard.shift + rounding);
  const double high = least / std::max(least, least + hard.shift - rounding);
  INFO("smallest " << hard.result.smallest << " expected from " << low << " to " << high);
  REQUIRE(hard.result.smallest > 0.9 * low);
  REQUIRE(hard.result.smallest < 1.1 * high);
}

TEST_CASE("extreme eigenvalues of tridiagonal matrices with known spectra") {
  REQUIRE(extreme_eigenvalues({}, {}) == std::pair<double, double>{0, 0});
  for (const Index n : {1, 2, 3, 17, 200}) {
    const std::vector<double> diagonal(std::size_t(n), 2.0), beside(std::size_t(n - 1), 1.0);
    const auto [low, high] = extreme_eigenvalues(diagonal, beside);
    REQUIRE(std::abs(low - (2 - 2 * std::cos(M_PI / double(n + 1)))) < 1e-13);
    REQUIRE(std::abs(high - (2 + 2 * std::cos(M_PI / double(n + 1)))) < 1e-13);
  }
  const auto [low, high] = extreme_eigenvalues({3, -5, 0}, {0, 0});
  REQUIRE(std::abs(low + 5) < 1e-13);
  REQUIRE(std::abs(high - 3) < 1e-13);
}

TEMPLATE_TEST_CASE("badly scaled bands in mixed precision", "", TERRACE_BACKENDS) {
  if (!available<TestType>()) return;
  Context<TestType>& c = *context<TestType>();
  const Index n = 300, m = 40;
  const Entry even = spd(n, m);
  const auto d = [](Index k) { return std::ldexp(1.0, int(k * 97 % 665) - 332); };  // to 1e100
  const Entry entry = [=](Index i, Index j) { return even(i, j) * d(i) * d(j); };
  // b = D A D x with x = D^-1 y: every row of y counts alike.
  std::vector<double> y(std::size_t(n), 1.0), b = band_product(n, m, even, y, 1);
  for (Index i = 0; i < n; ++i) b[std::size_t(i)] *= d(i);
  const Solved s = solve(c, n, m, entry, 1, b);
  REQUIRE(s.result.reason == MixedReason::converged);
  REQUIRE(s.ratio < 1.0);
  for (Index i = 0; i < n; ++i) REQUIRE(std::abs(s.x[std::size_t(i)] * d(i) - 1.0) < 1e-13);
  for (const double size : {1e-290, 1e290}) {
    const Entry sized = [=](Index i, Index j) { return size * even(i, j); };
    for (const double right : {1e-290, 1.0, 1e290}) {
      if (right / size > 1e300) continue;  // no solution that is a number
      std::vector<double> rows = random_rows(n, 2);
      for (double& value : rows) value *= right;
      const Solved t = solve(c, n, m, sized, 2, rows);
      INFO("size " << size << " right-hand side " << right);
      REQUIRE(t.result.reason == MixedReason::converged);
      // Below 1e-300 solutions are denormal and keep few digits.
      if (right / size > 1e-280) REQUIRE(t.ratio < 1.0);
    }
  }
}

TEMPLATE_TEST_CASE("right-hand sides of very different magnitude in mixed precision", "",
                   TERRACE_BACKENDS) {
  if (!available<TestType>()) return;
  Context<TestType>& c = *context<TestType>();
  const Index n = 400, m = 70, nrhs = 11;
  const double magnitudes[nrhs] = {1e-290, 1, 1e290, 0, 1e10, 1e-10, 1e100, 1e-100, 0, 3, 1e200};
  std::vector<double> b = random_rows(n, nrhs);
  for (Index i = 0; i < n * nrhs; ++i) b[std::size_t(i)] *= magnitudes[i % nrhs];
  for (Index i = 0; i < n; ++i) b[std::size_t(i * nrhs + 9)] = i == 77 ? 3.0 : 0.0;
  const Solved s = solve(c, n, m, spd(n, m), nrhs, b);
  REQUIRE(s.result.reason == MixedReason::converged);
  REQUIRE(s.ratio < 1.0);
  for (Index v = 0; v < nrhs; ++v) {
    std::vector<double> one(static_cast<std::size_t>(n)), x(one.size());
    for (Index i = 0; i < n; ++i) {
      one[std::size_t(i)] = b[std::size_t(i * nrhs + v)];
      x[std::size_t(i)] = s.x[std::size_t(i * nrhs + v)];
    }
    INFO("column " << v);
    if (magnitudes[v] == 0) {
      for (const double value : x) REQUIRE(value == 0.0);
      continue;
    }
    // The same alone, to the accuracy of the matrix.
    const Solved alone = solve(c, n, m, spd(n, m), 1, one);
    REQUIRE(alone.result.reason == MixedReason::converged);
    double size = 0;
    for (const double value : alone.x) size = std::max(size, std::abs(value));
    for (std::size_t i = 0; i < x.size(); ++i) REQUIRE(std::abs(x[i] - alone.x[i]) < 5e-14 * size);
  }
}

TEMPLATE_TEST_CASE("what mixed precision cannot solve says why", "", TERRACE_BACKENDS) {
  if (!available<TestType>()) return;
  Context<TestType>& c = *context<TestType>();
  const Index n = 300, m = 50;
  const Entry even = spd(n, m);
  for (const Index bad : {Index(0), Index(63), Index(64), n - 1}) {
    const Entry negative = [=](Index i, Index j) {
      return i == bad && j == bad ? -1.0 : even(i, j);
    };
    const Solved s = solve(c, n, m, negative, 1, random_rows(n, 1));
    REQUIRE(!s.factored);
    REQUIRE(s.failure == MixedReason::not_definite);
  }
  // Indefinite behind a positive diagonal; far more than any shift.
  const Entry coupled = [=](Index i, Index j) {
    return i == j ? 1.0 : i == 101 && j == 100 ? 1.5 : 0.0;
  };
  const Solved s = solve(c, n, m, coupled, 1, random_rows(n, 1));
  REQUIRE(!s.factored);
  REQUIRE(s.failure == MixedReason::not_definite);
  REQUIRE(s.shift == 128 * band_low_roundoff(TestType{}));
  for (const double value : {double(NAN), double(INFINITY)}) {
    std::vector<double> b = random_rows(n, 3);
    b[std::size_t(3 * 200 + 1)] = value;
    REQUIRE(solve(c, n, m, even, 3, b).result.reason == MixedReason::not_finite);
  }
  MixedLimits few;
  few.iterations = 1;
  const Solved cut = solve(c, Index(1000), Index(1), line, 1, random_rows(1000, 1), few);
  REQUIRE(cut.factored);
  REQUIRE(cut.result.reason == MixedReason::iterations);
  REQUIRE(cut.result.iterations == 1);
}

TEMPLATE_TEST_CASE("a matrix that is barely indefinite is never passed off as solved", "",
                   TERRACE_BACKENDS) {
  if (!available<TestType>()) return;
  Context<TestType>& c = *context<TestType>();
  // The shift hides a negative eigenvalue from the factor; the residual still counts.
  const Index n = 200;
  const double shift = 2 * band_low_roundoff(TestType{});
  const Entry entry = [=](Index i, Index j) {
    return i == j ? 1.0 : i == 101 && j == 100 ? 1.0 + 0.25 * shift : 0.0;
  };
  const Solved s = solve(c, n, 1, entry, 1, random_rows(n, 1));
  INFO(to_string(s.result.reason) << " " << s.result.iterations);
  if (s.factored && s.result.reason == MixedReason::converged) REQUIRE(s.ratio < 1.0);
}

TEMPLATE_TEST_CASE("the bits of a solution in mixed precision repeat", "", TERRACE_BACKENDS) {
  if (!available<TestType>()) return;
  Context<TestType>& c = *context<TestType>();
  for (const Index nrhs : {1, 5, 12}) {
    const std::vector<double> b = random_rows(1600, nrhs);
    const Solved one = solve(c, 1600, 40, grid(40), nrhs, b),
                 two = solve(c, 1600, 40, grid(40), nrhs, b);
    REQUIRE(one.result.reason == MixedReason::converged);
    REQUIRE(one.result.iterations == two.result.iterations);
    REQUIRE(std::memcmp(one.x.data(), two.x.data(), one.x.size() * sizeof(double)) == 0);
  }
}
