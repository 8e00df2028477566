#include "src/band/hybrid.hpp"

#include "distrib/agree.hpp"
#include "kernels/base/problems.hpp"
#include "tests/support/band.hpp"
#include "tests/support/stopped.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::band;
using namespace terrace::test;

namespace {}  // namespace

TEMPLATE_TEST_CASE("a factor with diagonal blocks of the host is the textbook factor", "",
                   TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  Progress progress(false, false);
  for (const Index n : {1, 16, 17, 130})
    for (const Index m : {Index(0), n / 3, n - 1})
      for (const Index width : {16, 32, 128}) {
        INFO("n " << n << " m " << m << " width " << width);
        const BandShape s = band_shape(n, m, width);
        BandTiles<TestType> a = band_tiles<TestType>(*c, s);
        fill_tiles(*c, a, n, m, spd(n, m));
        BandWork<TestType> work(s);
        work.host_diagonal = band_host_diagonal(s);
        REQUIRE(band_cholesky(*c, a, work, progress) == 0);
        std::vector<double> l;
        REQUIRE(dense_cholesky(n, spd(n, m), l) == 0);
        const std::vector<double> got = on_host(c->ahead, a.data.view());
        double worst = 0;
        for (Index j = 0; j < n; ++j)
          for (Index d = 0; d <= s.reach && j + d < n; ++d)
            if (a.columns.owner(j) == c->rank()) {
              const double want = d <= m ? l[std::size_t((j + d) * n + j)] : 0.0;
              const double error =
                  std::abs(got[std::size_t(a.columns.slot(j) * s.column() + d)] - want);
              worst = std::isfinite(error) ? std::max(worst, error) : INFINITY;
            }
        REQUIRE_ALL(worst < 1e-12);
      }
}

TEMPLATE_TEST_CASE("diagonal blocks of the host name the first bad minor", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  Progress progress(false, false);
  const Index n = 100, m = 20;
  for (const Index bad : {0, 15, 16, 57, 99}) {
    const Entry entry = [=](Index i, Index j) {
      if (i == bad && j == bad) return -1.0;
      return i == bad || j == bad ? 0.0 : band_spd_entry(7, n, m, i, j);
    };
    const BandShape s = band_shape(n, m, 16);
    BandTiles<TestType> a = band_tiles<TestType>(*c, s);
    fill_tiles(*c, a, n, m, entry);
    BandWork<TestType> work(s);
    work.host_diagonal = band_host_diagonal(s);
    const Index order = band_cholesky(*c, a, work, progress);
    REQUIRE_ALL(order == bad + 1);
  }
}

TEMPLATE_TEST_CASE("substitution by the host solves the system", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  Progress progress(false, false);
  for (const Index n : {1, 16, 17, 150, 400})
    for (const Index m : {Index(0), n / 5, n - 1})
      for (const Index nrhs : {1, 3}) {
        INFO("n " << n << " m " << m << " nrhs " << nrhs);
        const BandShape s = band_shape(n, m, 32);
        BandTiles<TestType> a = band_tiles<TestType>(*c, s);
        fill_tiles(*c, a, n, m, spd(n, m));
        BandWork<TestType> work(s);
        REQUIRE(band_cholesky(*c, a, work, progress) == 0);
        BandVectors<TestType> x = band_vectors<TestType>(*c, s, nrhs);
        std::vector<double> b(std::size_t(x.data.size()));
        for (std::size_t i = 0; i < b.size(); ++i) {
          const Index row = x.rows.global(Index(i) / nrhs, c->rank());
          b[i] = row < n ? random_uniform(11, row, Index(i) % nrhs) : 0.0;
        }
        HostSubstitution<TestType> host(*c, s, nrhs);
        for (int run = 0; run < 2; ++run) {  // its memory serves again
          upload(c->ahead, x.data.view(), b.data());
          c->ahead.synchronize();
          band_substitute_on_host(*c, a, x, host, progress);
          const std::vector<double> got = on_host(c->ahead, x.data.view());
          const double residual = band_residual<TestType>(
              *c, band_problem<TestType>(n, m, spd(n, m)), x.rows, got, b, nrhs);
          REQUIRE_ALL(residual < 30.0);
        }
      }
}

TEST_CASE("places that a backend does not have are refused") {
  REQUIRE_NOTHROW(check_places(Cpu{}, {"cpu", "cpu"}));
  REQUIRE_NOTHROW(check_places(Cuda{}, {"gpu", "cpu"}));
  REQUIRE_NOTHROW(check_places(Cuda{}, {"", ""}));
  REQUIRE_THROWS_AS(check_places(Cpu{}, {"gpu", ""}), Error);
  REQUIRE_THROWS_AS(check_places(Cpu{}, {"", "gpu"}), Error);
  REQUIRE_THROWS_AS(check_places(Cuda{}, {"tpu", ""}), Error);
}

TEMPLATE_TEST_CASE("substitution on the host may be stopped at each step", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  const Index n = 300, m = 40;
  const BandShape s = band_shape(n, m, 16);
  Progress quiet(false, false);
  const Index ticks = stopped_at_each_tick([&](Progress& progress, const auto& attempt) {
    BandTiles<TestType> a = band_tiles<TestType>(*c, s);
    fill_tiles(*c, a, n, m, spd(n, m));
    BandWork<TestType> work(s);
    REQUIRE(band_cholesky(*c, a, work, quiet) == 0);
    BandVectors<TestType> x = band_vectors<TestType>(*c, s, 2);
    fill_zero(c->ahead, x.data.view());
    HostSubstitution<TestType> host(*c, s, 2);
    attempt([&] { band_substitute_on_host(*c, a, x, host, progress); });
  });
  REQUIRE(ticks >= 2 * s.tiles());
}
