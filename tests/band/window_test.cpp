#include "src/band/window.hpp"

#include "distrib/agree.hpp"
#include "kernels/base/problems.hpp"
#include "tests/support/band.hpp"
#include "tests/support/stopped.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::band;
using namespace terrace::test;

namespace {

Entry spd(Index n, Index m) {
  return [=](Index i, Index j) { return band_spd_entry(7, n, m, i, j); };
}

template <class B>
std::vector<double> on_host(const Stream<B>& lane, View<double, B> view) {
  std::vector<double> host(std::size_t(view.size));
  download(lane, host.data(), view);
  lane.synchronize();
  return host;
}

/// The factor by a window, on the host.
template <class B>
Index factor(Context<B>& c, BandWindow<B>& a, const Entry& entry, bool diagonal_on_host) {
  Progress progress(false, false);
  load_window(c, band_problem<B>(a.shape.n, a.shape.half_bandwidth, entry), a);
  BandWork<B> work(a.shape);
  if (diagonal_on_host) work.host_diagonal = band_host_diagonal(a.shape);
  return band_window_cholesky(c, a, work, progress);
}

struct Case {
  Index n, m, width;
};
/// Fewer tile columns than ranks, one more than a window, rings that begin again many times, and
/// half-bandwidths that are no multiple of the width.
const Case cases[] = {{1, 0, 16},    {16, 3, 16},   {17, 16, 16},  {130, 129, 32}, {200, 0, 16},
                      {200, 40, 16}, {333, 50, 48}, {400, 31, 32}, {500, 100, 64}, {390, 150, 160}};

}  // namespace

TEMPLATE_TEST_CASE("a window's factor is the textbook Cholesky factor", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  for (const Case& k : cases)
    for (const bool on_host : {false, true}) {
      INFO("n " << k.n << " m " << k.m << " width " << k.width << " diagonal on the host "
                << on_host);
      BandWindow<TestType> a = band_window<TestType>(*c, band_shape(k.n, k.m, k.width));
      const BandShape& s = a.shape;
      REQUIRE(a.ring.size() == band_window_slots(s, c->size()) * s.tile());
      for (int run = 0; run < 2; ++run) {  // its memory serves again
        REQUIRE(factor(*c, a, spd(k.n, k.m), on_host) == 0);
        std::vector<double> l;
        REQUIRE(dense_cholesky(k.n, spd(k.n, k.m), l) == 0);
        double worst = 0;
        for (Index j = 0; j < k.n; ++j)
          for (Index d = 0; d <= s.reach && j + d < k.n; ++d)
            if (a.columns.owner(j) == c->rank()) {
              const double want = d <= k.m ? l[std::size_t((j + d) * k.n + j)] : 0.0;
              const double* const tile = a.host_tile(j / s.width);
              const double error = std::abs(tile[j % s.width * s.column() + d] - want);
              worst = std::isfinite(error) ? std::max(worst, error) : INFINITY;
            }
        REQUIRE_ALL(worst < 1e-12);
        REQUIRE_ALL(
            band_factor_residual(*c, band_problem<TestType>(k.n, k.m, spd(k.n, k.m)), a, 5) < 30.0);
      }
    }
}

TEMPLATE_TEST_CASE("a window has the bits of tile columns in memory", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  Progress progress(false, false);
  for (const Case& k : cases) {
    INFO("n " << k.n << " m " << k.m << " width " << k.width);
    const BandShape s = band_shape(k.n, k.m, k.width);
    BandTiles<TestType> whole = band_tiles<TestType>(*c, s);
    fill_tiles(*c, whole, k.n, k.m, spd(k.n, k.m));
    BandWork<TestType> work(s);
    REQUIRE(band_cholesky(*c, whole, work, progress) == 0);
    BandWindow<TestType> a = band_window<TestType>(*c, s);
    REQUIRE(factor(*c, a, spd(k.n, k.m), false) == 0);
    Index differ = 0;
    for (Index t = c->rank(); t < s.tiles(); t += c->size()) {
      const std::vector<double> want = on_host(c->ahead, whole.tile(t));
      for (Index at = 0; at < s.tile(); ++at) differ += want[std::size_t(at)] != a.host_tile(t)[at];
    }
    REQUIRE_ALL(differ == 0);
    for (const Index nrhs : {1, 3}) {
      BandVectors<TestType> x = band_vectors<TestType>(*c, s, nrhs);
      std::vector<double> b(std::size_t(x.data.size()));
      for (std::size_t i = 0; i < b.size(); ++i) {
        const Index row = x.rows.global(Index(i) / nrhs, c->rank());
        b[i] = row < k.n ? random_uniform(11, row, Index(i) % nrhs) : 0.0;
      }
      const auto solve = [&](auto&& substitute) {
        upload(c->ahead, x.data.view(), b.data());
        c->ahead.synchronize();
        substitute();
        return on_host(c->ahead, x.data.view());
      };
      const std::vector<double> want = solve([&] { band_substitute(*c, whole, x, progress); });
      const std::vector<double> got = solve([&] { band_window_substitute(*c, a, x, progress); });
      REQUIRE_ALL(got == want);
      HostSubstitution<TestType> host(*c, s, nrhs);
      const std::vector<double> by_host =
          solve([&] { band_window_substitute_on_host(*c, a, x, host, progress); });
      const double residual = band_residual<TestType>(
          *c, band_problem<TestType>(k.n, k.m, spd(k.n, k.m)), x.rows, by_host, b, nrhs);
      REQUIRE_ALL(residual < 30.0);
    }
  }
}

TEMPLATE_TEST_CASE("a window names the first bad minor", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  const Index n = 300, m = 20;
  BandWindow<TestType> a = band_window<TestType>(*c, band_shape(n, m, 16));
  for (const bool on_host : {false, true})
    for (const Index bad : {0, 15, 16, 157, 299}) {
      const Entry entry = [=](Index i, Index j) {
        if (i == bad && j == bad) return -1.0;
        return i == bad || j == bad ? 0.0 : band_spd_entry(7, n, m, i, j);
      };
      const Index order = factor(*c, a, entry, on_host);
      REQUIRE_ALL(order == bad + 1);
    }
}

TEST_CASE("a window has room for its tile columns, those that one updates, and the next one") {
  const BandShape s = band_shape(100000, 1000, 100);  // stored: 1,008
  REQUIRE(band_window_slots(s, 1) == 13);
  REQUIRE(band_window_slots(s, 2) == 7);
  REQUIRE(band_window_slots(s, 20) == 2);
  const BandWindowMemory m = band_window_memory(s, 1, 2);
  REQUIRE(m.ring == 7 * 100 * 1009 * 8);
  REQUIRE(m.host == 500 * 100 * 1009 * 8);
}

TEMPLATE_TEST_CASE("a window may be stopped at each step while lanes work", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  const Index n = 300, m = 40;
  const BandShape s = band_shape(n, m, 16);
  for (const bool on_host : {false, true}) {
    const Index ticks = stopped_at_each_tick([&](Progress& progress, const auto& attempt) {
      BandWindow<TestType> a = band_window<TestType>(*c, s);
      load_window(*c, band_problem<TestType>(n, m, spd(n, m)), a);
      BandWork<TestType> work(s);
      if (on_host) work.host_diagonal = band_host_diagonal(s);
      BandVectors<TestType> x = band_vectors<TestType>(*c, s, 2);
      fill_zero(c->ahead, x.data.view());
      HostSubstitution<TestType> host(*c, s, 2);
      attempt([&] {
        if (band_window_cholesky(*c, a, work, progress) != 0) return;
        if (on_host)
          band_window_substitute_on_host(*c, a, x, host, progress);
        else
          band_window_substitute(*c, a, x, progress);
      });
    });
    REQUIRE(ticks >= 3 * s.tiles());
  }
}
