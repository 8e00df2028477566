#include "kernels/base/problems.hpp"
#include "tests/support/band.hpp"
#include "tests/support/stopped.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::band;
using namespace terrace::test;

namespace {

Progress quiet() { return {false, false}; }

/// Factors, solves for nrhs known solutions, and returns the worst of both residual ratios.
template <class B>
double solve_and_check(Context<B>& c, Index n, Index m, Index width, Index nrhs, const Entry& entry,
                       const std::vector<double>& x_true, std::vector<double>* solution = nullptr) {
  Progress progress = quiet();
  const BandShape shape = band_shape(n, m, width);
  const BandProblem<B> problem = band_problem<B>(n, m, entry);
  BandTiles<B> a = band_tiles<B>(c, shape);
  fill_tiles(c, a, n, problem.half_bandwidth, entry);
  BandWork<B> work(shape);
  if (band_cholesky(c, a, work, progress) != 0) return INFINITY;
  double worst = band_factor_residual(c, problem, a, 5);
  BandVectors<B> x = band_vectors<B>(c, shape, nrhs);
  const std::vector<double> b = own_rows(
      x.rows, c.rank(), n, nrhs, band_product(n, problem.half_bandwidth, entry, x_true, nrhs));
  upload(c.ahead, x.data.view(), b.data());
  c.ahead.synchronize();
  band_substitute(c, a, x, progress);
  const std::vector<double> got = on_host(c.ahead, x.data.view());
  if (solution) *solution = got;
  return std::max(worst, band_residual<B>(c, problem, x.rows, got, b, nrhs));
}

std::vector<double> known_solution(Index n, Index nrhs) {
  std::vector<double> x(std::size_t(n * nrhs));
  for (Index i = 0; i < n * nrhs; ++i) x[std::size_t(i)] = random_uniform(11, i / nrhs, i % nrhs);
  return x;
}

/// Widths that straddle n and m on this backend.
template <class B>
std::vector<Index> widths() {
  if constexpr (std::is_same_v<B, Cpu>) return {1, 3, 16, 64};
  return {16, 32, 64, 256};  // the last as two halves
}

}  // namespace

TEMPLATE_TEST_CASE("the band factor is the textbook Cholesky factor", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  Progress progress = quiet();
  for (const Index n : {0, 1, 2, 3, 5, 10, 50, 65, 130})
    for (const Index m : {Index(0), Index(1), (n + 1) / 4, (3 * n - 1) / 4, n - 1, n + 7})
      for (const Index width : widths<TestType>()) {
        if (m < 0 || (n > 60 && m % 3 == 1)) continue;
        INFO("n " << n << " m " << m << " width " << width);
        const BandShape shape = band_shape(n, m, width);
        const Entry entry = spd(n, shape.half_bandwidth);
        BandTiles<TestType> a = band_tiles<TestType>(*c, shape);
        fill_tiles(*c, a, n, shape.half_bandwidth, entry);
        BandWork<TestType> work(shape);
        REQUIRE(band_cholesky(*c, a, work, progress) == 0);
        std::vector<double> l;
        REQUIRE(dense_cholesky(n, entry, l) == 0);
        const std::vector<double> got = on_host(c->ahead, a.data.view());
        double worst = 0;
        for (Index j = 0; j < n; ++j)
          for (Index d = 0; d <= shape.reach && j + d < n; ++d)
            if (a.columns.owner(j) == c->rank()) {
              const double want = d <= shape.half_bandwidth ? l[std::size_t((j + d) * n + j)] : 0.0;
              const double have = got[std::size_t(a.columns.slot(j) * shape.column() + d)];
              const double error = std::abs(have - want);
              worst = std::isfinite(error) ? std::max(worst, error) : INFINITY;
            }
        REQUIRE_ALL(worst < 1e-12);
      }
}

TEMPLATE_TEST_CASE("band systems are solved to LAPACK's measure", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  for (const Index n : {1, 2, 5, 10, 50, 129, 300})
    for (const Index m : {Index(0), Index(1), (n + 1) / 4, n - 1, n + 3})
      for (const Index nrhs : {1, 2, 15}) {
        const Index width = widths<TestType>()[std::size_t((n + m + nrhs) % 4)];
        INFO("n " << n << " m " << m << " nrhs " << nrhs << " width " << width);
        const Index clipped = std::min(m, n - 1);
        REQUIRE(solve_and_check(*c, n, m, width, nrhs, spd(n, clipped), known_solution(n, nrhs)) <
                30.0);
      }
}

TEMPLATE_TEST_CASE("wide and narrow bands of many tile columns are solved", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  struct Case {
    Index n, m, width, nrhs;
  };
  for (const Case& k : {Case{1000, 150, 32, 1}, Case{1000, 33, 128, 3}, Case{700, 300, 64, 40},
                        Case{2000, 5, 16, 1}, Case{777, 200, 128, 1}, Case{700, 300, 160, 3},
                        Case{900, 250, 208, 1}, Case{1000, 256, 256, 12}}) {
    INFO("n " << k.n << " m " << k.m << " nrhs " << k.nrhs << " width " << k.width);
    REQUIRE(solve_and_check(*c, k.n, k.m, k.width, k.nrhs, spd(k.n, k.m),
                            known_solution(k.n, k.nrhs)) < 30.0);
  }
}

TEMPLATE_TEST_CASE("matrices scaled near underflow and overflow are solved", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  for (const double scale : {1e-290, 1e290})
    REQUIRE(solve_and_check(*c, 90, 20, 32, 2, spd(90, 20, scale), known_solution(90, 2)) < 30.0);
}

TEMPLATE_TEST_CASE("the Laplace operator in one and two dimensions is solved", "",
                   TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  const Entry line = [](Index i, Index j) { return i == j ? 2.0 : i - j == 1 ? -1.0 : 0.0; };
  const Index side = 20;
  const Entry grid = [=](Index i, Index j) {
    return i == j ? 4.0 : i - j == side || (i - j == 1 && i % side != 0) ? -1.0 : 0.0;
  };
  std::vector<double> x;
  REQUIRE(solve_and_check(*c, 400, 1, 16, 1, line, std::vector<double>(400, 1.0), &x) < 30.0);
  double error = 0;
  const BlockCyclic rows{band_shape(400, 1, 16).padded(), 16, c->size()};
  for (std::size_t i = 0; i < x.size(); ++i)
    if (rows.global(Index(i), c->rank()) < 400) error = std::max(error, std::abs(x[i] - 1.0));
  REQUIRE_ALL(error < 1e-9);
  REQUIRE(solve_and_check(*c, side * side, side, 16, 2, grid, known_solution(side * side, 2)) <
          30.0);
}

TEMPLATE_TEST_CASE("ill conditioned bands keep a small residual", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  // L D L^T of a bidiagonal L with d graded over 14 decades: condition about 1e14.
  const Index n = 200;
  const auto d = [](Index i) { return std::pow(10.0, -14.0 * double(i % 50) / 49.0); };
  const Entry graded = [=](Index i, Index j) {
    const double l = 0.9;
    return i == j ? d(i) + (i > 0 ? l * l * d(i - 1) : 0.0) : i - j == 1 ? l * d(j) : 0.0;
  };
  REQUIRE(solve_and_check(*c, n, 1, 32, 1, graded, known_solution(n, 1)) < 30.0);
  const Index k = 60;  // Moler's matrix: condition grows like 4^n; order kept where it is definite
  const Entry moler = [](Index i, Index j) { return i == j ? double(i + 1) : double(j) - 1.0; };
  REQUIRE(solve_and_check(*c, Index(18), Index(17), 16, 1, moler, known_solution(18, 1)) < 30.0);
  const Entry minij = [](Index, Index j) { return double(j + 1); };
  REQUIRE(solve_and_check(*c, k, k - 1, 16, 15, minij, known_solution(k, 15)) < 30.0);
}

TEMPLATE_TEST_CASE("a matrix that is not positive definite names LAPACK's minor", "",
                   TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  Progress progress = quiet();
  for (const Index n : {1, 40, 200})
    for (const Index m : {Index(0), Index(3), n / 2})
      for (const Index bad : {Index(0), n / 2, n - 1})
        for (const double value : {0.0, -1.0, double(NAN)}) {
          INFO("n " << n << " m " << m << " bad " << bad << " value " << value);
          const BandShape shape = band_shape(n, m, 16);
          const Entry entry = [&](Index i, Index j) {
            if (i == bad && j == bad) return value;
            return i == bad || j == bad ? 0.0 : band_spd_entry(7, n, m, i, j);
          };
          BandTiles<TestType> a = band_tiles<TestType>(*c, shape);
          fill_tiles(*c, a, n, shape.half_bandwidth, entry);
          BandWork<TestType> work(shape);
          const Index order = band_cholesky(*c, a, work, progress);
          REQUIRE_ALL(order == bad + 1);
        }
}

TEST_CASE("bits of the CPU factor and solution do not depend on the number of ranks") {
  Context<Cpu>& c = *context<Cpu>();
  Context<Cpu> alone = make_context<Cpu>(Control::self());
  Progress progress = quiet();
  struct Case {
    Index n, m, width, nrhs;
  };
  for (const Case& k : {Case{500, 120, 32, 1}, Case{500, 120, 48, 7}, Case{300, 7, 16, 2}}) {
    const Entry entry = spd(k.n, k.m);
    const BandShape shape = band_shape(k.n, k.m, k.width);
    BandWork<Cpu> work(shape);
    const auto solve = [&](Context<Cpu>& who, BandTiles<Cpu>& a, BandVectors<Cpu>& x) {
      a = band_tiles<Cpu>(who, shape);
      fill_tiles(who, a, k.n, k.m, entry);
      REQUIRE(band_cholesky(who, a, work, progress) == 0);
      x = band_vectors<Cpu>(who, shape, k.nrhs);
      const std::vector<double> b =
          own_rows(x.rows, who.rank(), k.n, k.nrhs, known_solution(k.n, k.nrhs));
      upload(who.ahead, x.data.view(), b.data());
      who.ahead.synchronize();
      band_substitute(who, a, x, progress);
    };
    BandTiles<Cpu> together, single;
    BandVectors<Cpu> x, y;
    solve(c, together, x);
    solve(alone, single, y);
    bool same = true;
    for (Index slot = 0; slot < together.columns.slots(c.rank()); ++slot) {
      const Index j = together.columns.global(slot, c.rank());
      for (Index d = 0; d <= shape.reach; ++d)
        same = same && together.data.data()[slot * shape.column() + d] ==
                           single.data.data()[j * shape.column() + d];
      for (Index v = 0; v < k.nrhs; ++v)
        same = same && x.data.data()[slot * k.nrhs + v] == y.data.data()[j * k.nrhs + v];
    }
    REQUIRE_ALL(same);
  }
}

TEMPLATE_TEST_CASE("tile columns may be stopped at each step while lanes work", "",
                   TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  const BandShape s = band_shape(300, 40, 16);
  const Index ticks = stopped_at_each_tick([&](Progress& progress, const auto& attempt) {
    BandTiles<TestType> a = band_tiles<TestType>(*c, s);
    fill_tiles(*c, a, s.n, 40, spd(s.n, 40));
    BandWork<TestType> work(s);
    BandVectors<TestType> x = band_vectors<TestType>(*c, s, 2);
    fill_zero(c->ahead, x.data.view());
    attempt([&] {
      if (band_cholesky(*c, a, work, progress) == 0) band_substitute(*c, a, x, progress);
    });
  });
  REQUIRE(ticks >= 3 * s.tiles());
}
