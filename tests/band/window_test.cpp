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

/// A window, with a store in memory that marks what was not written.
template <class B>
struct Window {
  std::vector<double> file;
  BandWindow<B> a;
  Window(Context<B>& c, const BandShape& s, bool stored) : a(band_window<B>(c, s, stored)) {
    if (!stored) return;
    file.assign(std::size_t(a.own * s.tile()), NAN);
    a.store = {
        [this](Index at, const double* from, Index count) {
          std::copy_n(from, count, file.begin() + at);
        },
        [this](Index at, double* to, Index count) { std::copy_n(file.begin() + at, count, to); }};
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  ~Window() = default;

  /// Tile column k, wherever it is.
  [[nodiscard]] const double* tile(Index k) const {
    return file.empty() ? a.host_tile(k) : file.data() + a.number(k) * a.shape.tile();
  }
};

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
    for (const auto& [on_host, stored] :
         {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
      INFO("n " << k.n << " m " << k.m << " width " << k.width << " diagonal on the host "
                << on_host << " in a store " << stored);
      Window<TestType> window(*c, band_shape(k.n, k.m, k.width), stored);
      BandWindow<TestType>& a = window.a;
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
              const double* const tile = window.tile(j / s.width);
              const double error = std::abs(tile[j % s.width * s.column() + d] - want);
              worst = std::isfinite(error) ? std::max(worst, error) : INFINITY;
            }
        REQUIRE_ALL(worst < 1e-12);
        double reciprocal = 0;
        REQUIRE_ALL(band_factor_residual(*c, band_problem<TestType>(k.n, k.m, spd(k.n, k.m)), a, 5,
                                         &reciprocal) < 30.0);
        REQUIRE_ALL((reciprocal > 0 && reciprocal <= 1));
      }
    }
}

namespace {

template <class B>
void compare_with_tile_columns(Context<B>& c, const Case& k, bool stored) {
  Progress progress(false, false);
  const BandShape s = band_shape(k.n, k.m, k.width);
  BandTiles<B> whole = band_tiles<B>(c, s);
  fill_tiles(c, whole, k.n, k.m, spd(k.n, k.m));
  BandWork<B> work(s);
  REQUIRE(band_cholesky(c, whole, work, progress) == 0);
  Window<B> window(c, s, stored);
  BandWindow<B>& a = window.a;
  REQUIRE(factor(c, a, spd(k.n, k.m), false) == 0);
  Index differ = 0;
  for (Index t = c.rank(); t < s.tiles(); t += c.size()) {
    const std::vector<double> want = on_host(c.ahead, whole.tile(t));
    for (Index at = 0; at < s.tile(); ++at) differ += want[std::size_t(at)] != window.tile(t)[at];
    for (Index j = 0; j < (stored ? s.width : 0); ++j)
      differ +=
          a.diagonal[std::size_t(a.number(t) * s.width + j)] != want[std::size_t(j * s.column())];
  }
  REQUIRE_ALL(differ == 0);
  for (const Index nrhs : {1, 3}) {
    BandVectors<B> x = band_vectors<B>(c, s, nrhs);
    std::vector<double> b(std::size_t(x.data.size()));
    for (std::size_t i = 0; i < b.size(); ++i) {
      const Index row = x.rows.global(Index(i) / nrhs, c.rank());
      b[i] = row < k.n ? random_uniform(11, row, Index(i) % nrhs) : 0.0;
    }
    const auto solve = [&](auto&& substitute) {
      upload(c.ahead, x.data.view(), b.data());
      c.ahead.synchronize();
      substitute();
      return on_host(c.ahead, x.data.view());
    };
    const std::vector<double> want = solve([&] { band_substitute(c, whole, x, progress); });
    for (int turn = 0; turn < 2; ++turn) {
      const std::vector<double> got = solve([&] { band_window_substitute(c, a, x, progress); });
      REQUIRE_ALL(got == want);
    }
    HostSubstitution<B> host(c, s, nrhs);
    const std::vector<double> by_host =
        solve([&] { band_window_substitute_on_host(c, a, x, host, progress); });
    const double residual =
        band_residual<B>(c, band_problem<B>(k.n, k.m, spd(k.n, k.m)), x.rows, by_host, b, nrhs);
    REQUIRE_ALL(residual < 30.0);
  }
}

}  // namespace

TEMPLATE_TEST_CASE("a window has the bits of tile columns in memory", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  for (const Case& k : cases)
    for (const bool stored : {false, true}) {
      INFO("n " << k.n << " m " << k.m << " width " << k.width << " in a store " << stored);
      compare_with_tile_columns(*c, k, stored);
    }
}

TEMPLATE_TEST_CASE("a window names the first bad minor", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  const Index n = 300, m = 20;
  for (const auto& [on_host, stored] : {std::pair(false, false), {true, false}, {false, true}})
    for (const Index bad : {0, 15, 16, 157, 299}) {
      const Entry entry = [=](Index i, Index j) {
        if (i == bad && j == bad) return -1.0;
        return i == bad || j == bad ? 0.0 : band_spd_entry(7, n, m, i, j);
      };
      Window<TestType> window(*c, band_shape(n, m, 16), stored);
      const Index order = factor(*c, window.a, entry, on_host);
      REQUIRE_ALL(order == bad + 1);
      // The same memory again, after what was left half done.
      const Index again = factor(*c, window.a, spd(n, m), on_host);
      REQUIRE_ALL(again == 0);
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
  const BandWindowMemory in_store = band_window_memory(s, 1, 2, true);
  REQUIRE(in_store.store == m.host);
  REQUIRE(in_store.host == (14 * 100 * 1009 + 500 * 100) * 8);
  REQUIRE(in_store.device() == m.device());
}

TEMPLATE_TEST_CASE("a window takes the memory that its plan says", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  for (const Case& k : cases)
    for (const bool stored : {false, true}) {
      const BandShape s = band_shape(k.n, k.m, k.width);
      const Window<TestType> window(*c, s, stored);
      Index host = Index(window.a.diagonal.size());
      for (const PinnedBuffer<double>& piece : window.a.host) host += piece.size();
      const BandWindowMemory m = band_window_memory(s, 1, c->size(), stored);
      REQUIRE(window.a.ring.size() * 8 == m.ring);
      REQUIRE_ALL(host * 8 <= m.host);
      REQUIRE(world().reduce(host, Reduce::max) * 8 == m.host);  // the first rank has most
    }
}

TEMPLATE_TEST_CASE("a store that fails in a step is an error of its rank", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c || c->size() > 1) return;  // the session ends the others
  const Index n = 400, m = 30;
  Window<TestType> window(*c, band_shape(n, m, 16), true);
  BandWindow<TestType>& a = window.a;
  load_window(*c, band_problem<TestType>(n, m, spd(n, m)), a);
  const auto put = a.store.put;
  Index left = 5;
  a.store.put = [&](Index at, const double* from, Index count) {
    if (left-- == 0) throw Error(Exit::resources, "the store is full; in a test; none");
    put(at, from, count);
  };
  BandWork<TestType> work(a.shape);
  Progress progress(false, false);
  REQUIRE_THROWS_AS((void)band_window_cholesky(*c, a, work, progress), Error);
  // Where all ranks come to know it.
  left = 0;
  REQUIRE_THROWS_AS(load_window(*c, band_problem<TestType>(n, m, spd(n, m)), a), Error);
}

TEMPLATE_TEST_CASE("a window may be stopped at each step while lanes work", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  const Index n = 300, m = 40;
  const BandShape s = band_shape(n, m, 16);
  for (const auto& [on_host, stored] :
       {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
    const Index ticks = stopped_at_each_tick(
        [&, on_host = on_host, stored = stored](Progress& progress, const auto& attempt) {
          Window<TestType> window(*c, s, stored);
          BandWindow<TestType>& a = window.a;
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
