#include "kernels/base/error.hpp"
#include "tests/support/band_stream.hpp"
#include "tests/support/stopped.hpp"

using namespace terrace;
using namespace terrace::band;
using namespace terrace::test;

TEST_CASE("a slab's ring has room for what it reaches and for two slabs more") {
  for (const Index m : {1, 63, 64, 65, 1000, 2000, 8000, 32000})
    for (const Index n : {1, 64, 1000, 100000, 50000000}) {
      const BandShape s = band_shape(n, m, 64);
      const Index slab = band_stream_slab(s);
      REQUIRE(slab >= 1);
      REQUIRE(slab <= s.tiles());
      const BandStreamMemory memory = band_stream_memory<Cpu>(one_ended_stream(s), 1);
      REQUIRE(memory.ring >= (slab * 3 + band_reach_tiles(s)) * s.tile() * Index(sizeof(double)));
      REQUIRE(memory.host == s.tiles() * s.tile() * Index(sizeof(double)));
      // Long bands do not lie on the device whole.
      if (n > 100 * m && memory.host > Index(1) << 34) REQUIRE(memory.ring < memory.host / 4);
    }
}

TEST_CASE("a band is streamed unasked when only the host has room for it") {
  BandRequest request;
  request.n = 100000;
  request.half_bandwidth = 1000;  // 800 MB
  const auto method = [&] { return plan_band<Cpu>(request).method; };
  REQUIRE(method() == BandMethod::tile_columns);  // memory unknown
  request.device_bytes = Index(500) << 20;
  REQUIRE(method() == BandMethod::tile_columns);  // the host has none
  request.host_bytes = Index(200) << 20;          // not even for the slabs in use
  REQUIRE(method() == BandMethod::tile_columns);
  const auto scratch = [&] {
    const BandPlan plan = plan_band<Cpu>(request);
    REQUIRE(plan.method == BandMethod::streamed);
    REQUIRE(plan.reasons.size() == 1);
    return plan.reasons[0].find("scratch") != std::string::npos;
  };
  request.host_bytes = Index(700) << 20;
  REQUIRE(scratch());
  request.host_bytes = Index(900) << 20;
  REQUIRE(!scratch());
  request.device_bytes = Index(1000) << 20;
  REQUIRE(method() == BandMethod::tile_columns);  // it fits
  request.device_bytes = Index(10) << 20;
  REQUIRE(method() == BandMethod::tile_columns);  // not even its window
  request.device_bytes = Index(500) << 20;
  request.method = "two-ends";
  REQUIRE(method() == BandMethod::two_ends);
  request.method = "auto";
  request.ranks = 2;
  REQUIRE(method() == BandMethod::tile_columns);
  request.device_bytes = Index(100) << 20;
  const auto in_window = [&] {
    const BandPlan plan = plan_band<Cpu>(request);
    return plan.method == BandMethod::streamed && plan.tile_by_tile && plan.ranks == 2;
  };
  REQUIRE(in_window());
  const auto said = [&](const char* what) {
    return plan_band<Cpu>(request).reasons.back().find(what) != std::string::npos;
  };
  REQUIRE(!said("scratch"));
  request.host_bytes = Index(200) << 20;  // not for half of the matrix
  REQUIRE(in_window());
  REQUIRE(said("scratch"));
  request.block = 64;
  REQUIRE(method() == BandMethod::tile_columns);
  request.block = 0;
  request.device_bytes = Index(1) << 20;
  REQUIRE(method() == BandMethod::tile_columns);  // not even the window
  request.method = "streamed";
  REQUIRE(in_window());
  request.parts = 2;
  std::optional<Exit> code;
  try {
    (void)method();
  } catch (const Error& e) {
    code = e.code();
  }
  REQUIRE(code == Exit::usage);
}

TEMPLATE_TEST_CASE("streamed band systems are solved to LAPACK's measure", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  Index turn = 0;
  for (const Index n : {0, 1, 2, 5, 50, 129, 300})
    for (const Index m : {Index(0), Index(1), (n + 1) / 4, n - 1, n + 3})
      for (const Index nrhs : {1, 2, 15})
        for (const Index slab : {0, 1, 3}) {
          if (m < 0 || (fewer_cases && n > 129)) continue;
          const BandShape s =
              shape_of<TestType>(n, m, std::vector<Index>{1, 5, 16, 24}[std::size_t(++turn % 4)]);
          INFO("n " << n << " m " << m << " nrhs " << nrhs << " slab " << slab << " width "
                    << s.width);
          REQUIRE_GOOD(ratios(*c, s, slab, nrhs, spd(n, s.half_bandwidth)));
        }
}

TEMPLATE_TEST_CASE("streamed bands of many slabs turn their ring over", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  Index turn = 0;
  for (const Index m : {1, 10, 63, 64, 65, 130, 300})
    for (const Index slab : {1, 2, 3, 7}) {
      const BandShape one = shape_of<TestType>(1 << 20, m, 16);
      const Index slots = ceil_div(band_reach_tiles(one), slab) + 3;
      const Index length = slab * one.width;
      // Below one slab; one; a ring and around it; several rings.
      for (const Index n : {length - 1, length, length + 1, slots * length, slots * length + 1,
                            (2 * slots + 1) * length - one.width / 2}) {
        if (n > (fewer_cases ? 300 : 2500)) continue;
        const Index nrhs = std::vector<Index>{1, 3, 20}[std::size_t(++turn % 3)];
        INFO("n " << n << " m " << m << " slab " << slab << " nrhs " << nrhs);
        const BandShape s = shape_of<TestType>(n, m, 16);
        REQUIRE_GOOD(ratios(*c, s, slab, nrhs, spd(n, s.half_bandwidth)));
      }
    }
}

TEMPLATE_TEST_CASE("Laplace operators and ill conditioned bands are solved streamed", "",
                   TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  const Index side = 24;
  const Entry grid = [=](Index i, Index j) {
    return i == j ? 4.0 : i - j == side || (i - j == 1 && i % side != 0) ? -1.0 : 0.0;
  };
  // L D L^T of a bidiagonal L with d graded over 14 decades.
  const auto d = [](Index i) { return std::pow(10.0, -14.0 * double(i % 50) / 49.0); };
  const Entry graded = [=](Index i, Index j) {
    return i == j ? d(i) + (i > 0 ? 0.81 * d(i - 1) : 0.0) : i - j == 1 ? 0.9 * d(j) : 0.0;
  };
  REQUIRE_GOOD(ratios(*c, shape_of<TestType>(side * side, side, 16), 1, 2, grid));
  REQUIRE_GOOD(ratios(*c, shape_of<TestType>(400, 1, 16), 2, 1, graded));
}

TEMPLATE_TEST_CASE("a streamed factorization gives LAPACK's failed minor", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  Progress progress{false, false};
  Index turn = 0;
  for (const Index n : {1, 64, 130, 500})
    for (const Index m : {0, 3, 70})
      for (const Index slab : {1, 2})
        for (const Index bad : {Index(0), n / 2, n - 1}) {
          if (m >= n && m > 0) continue;
          const BandShape s = shape_of<TestType>(n, m, 16);
          const Entry definite = spd(n, m);
          const double value = std::vector<double>{0.0, -1.0, double(NAN)}[std::size_t(++turn % 3)];
          const Entry entry = [&](Index i, Index j) {
            return i == bad && j == bad ? value : definite(i, j);
          };
          INFO("n " << n << " m " << m << " slab " << slab << " bad " << bad << " " << value);
          std::vector<double> l;
          const Index expected = dense_cholesky(n, entry, l);
          REQUIRE(expected == bad + 1);
          BandStream<TestType> a = band_stream<TestType>(s, slab);
          BandStreamRows<TestType> y = band_stream_rows(a, 1);
          const std::vector<double> ones(std::size_t(n), 1.0);
          set_rows(*c, a, y, ones.data());
          load_stream(*c, band_problem<TestType>(n, m, entry), a);
          REQUIRE(stream_factor(*c, a, &y, progress) == expected);
          // The same memory serves a matrix that is definite.
          load_stream(*c, band_problem<TestType>(n, m, definite), a);
          REQUIRE(stream_factor<TestType>(*c, a, nullptr, progress) == 0);
        }
}

TEMPLATE_TEST_CASE("the streamed factor is a textbook's", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  Progress progress{false, false};
  for (const Index m : {1, 17, 64, 130})
    for (const Index slab : {1, 3}) {
      const Index n = 300;
      const BandShape s = shape_of<TestType>(n, m, 16);
      BandStream<TestType> a = band_stream<TestType>(s, slab);
      load_stream(*c, band_problem<TestType>(n, m, spd(n, m)), a);
      REQUIRE(stream_factor<TestType>(*c, a, nullptr, progress) == 0);
      std::vector<double> l, columns(std::size_t(n * (m + 1)));
      REQUIRE(dense_cholesky(n, spd(n, m), l) == 0);
      copy_columns(a, 0, n, m + 1, m + 1, columns.data());
      double error = 0;
      for (Index j = 0; j < n; ++j)
        for (Index d = 0; d <= m && j + d < n; ++d)
          error = std::max(
              error, apart(l[std::size_t((j + d) * n + j)], columns[std::size_t(j * (m + 1) + d)]));
      INFO("m " << m << " slab " << slab << " error " << error);
      REQUIRE(error < 1e-13 * double(m + 10));
    }
}

TEST_CASE("the streamed factor is that of tile columns") {
  Context<Cpu>& c = *context<Cpu>();
  Progress progress{false, false};
  const Index n = 700, m = 40;
  const BandShape s = band_shape(n, m, 16);
  BandTiles<Cpu> tiles = band_tiles<Cpu>(c, s);
  fill_tiles(c, tiles, n, m, spd(n, m));
  BandWork<Cpu> work(s);
  REQUIRE(band_cholesky(c, tiles, work, progress) == 0);
  BandStream<Cpu> a = band_stream<Cpu>(s, 2);
  load_stream(c, band_problem<Cpu>(n, m, spd(n, m)), a);
  REQUIRE(stream_factor<Cpu>(c, a, nullptr, progress) == 0);
  c.ahead.synchronize();
  double error = 0;
  for (Index k = 0; k < s.tiles(); ++k)
    for (Index i = 0; i < s.tile(); ++i)
      error = std::max(error, apart(tiles.tile(k).data[i], a.host_tile(k)[i]));
  REQUIRE(error < 1e-13);
}

TEST_CASE("a stored factor that is loaded again solves") {
  Context<Cpu>& c = *context<Cpu>();
  Progress progress{false, false};
  const Index n = 333, m = 21;
  const BandProblem<Cpu> problem = band_problem<Cpu>(n, m, spd(n, m));
  BandStream<Cpu> a = band_stream<Cpu>(band_shape(n, m, 16), 2);
  load_stream(c, problem, a);
  REQUIRE(stream_factor<Cpu>(c, a, nullptr, progress) == 0);
  std::vector<double> l(std::size_t(n * (m + 1)));
  copy_columns(a, 0, n, m + 1, m + 1, l.data());
  const Entry stored = [&](Index i, Index j) { return l[std::size_t(j * (m + 1) + i - j)]; };
  BandStream<Cpu> other = band_stream<Cpu>(band_shape(n, m, 24), 3);
  load_stream(c, band_problem<Cpu>(n, m, stored), other);
  BandStreamRows<Cpu> x = band_stream_rows(other, 1);
  std::vector<double> b(std::size_t(n), 1.0), solution(b.size());
  set_rows(c, other, x, b.data());
  stream_forward(c, other, x, progress);
  stream_backward(c, other, x, progress);
  get_rows(c, other, x, solution.data());
  REQUIRE(band_residual<Cpu>(c, problem, Range{0, n}, solution, b, 1) < 30.0);
}

TEMPLATE_TEST_CASE("a streamed band may be stopped at each slab, and by its feed", "",
                   TERRACE_BACKENDS) {
  const ThreadedLanes lanes;
  Context<TestType> c = make_context<TestType>(world());
  const Index n = 700, m = 40;
  const Index least = std::is_same_v<TestType, Cpu> ? 5 : 3;  // a GPU's tiles are wider
  for (const Index ends : {1, 2}) {
    const BandPlan plan = plan_of<TestType>(n, m, 16, ends);
    const std::vector<double> b(std::size_t(n), 1.0);
    std::vector<double> found(b.size());
    const Index ticks = stopped_at_each_tick([&](Progress& progress, const auto& attempt) {
      BandStream<TestType> a = band_stream<TestType>(plan, 3);
      BandStreamRows<TestType> x = band_stream_rows(a, 1);
      load_stream(c, band_problem<TestType>(n, m, spd(n, m)), a);
      set_rows(c, a, x, b.data());
      attempt([&] {
        if (stream_factor(c, a, &x, progress) != 0) return;
        stream_backward(c, a, x, progress);
        get_rows(c, a, x, found.data());
      });
    });
    REQUIRE(ticks > least);
  }
  const BandFeed whole = feed_of(n, spd(n, m));
  Index calls = 0;
  const auto factor = [&](Index bad) {
    BandStream<TestType> a = band_stream<TestType>(plan_of<TestType>(n, m, 16, 1), 3);
    Progress progress(false, false);
    calls = 0;
    const BandFeed feed = [&](Range columns, Index height, double* to, Index ld) {
      if (calls++ == bad) throw Stopped();
      whole(columns, height, to, ld);
    };
    return stream_factor<TestType>(c, a, nullptr, progress, feed);
  };
  REQUIRE(factor(-1) == 0);
  const Index all = calls;
  REQUIRE(all >= least);
  for (Index bad = 0; bad < all; ++bad) REQUIRE_THROWS_AS((void)factor(bad), Stopped);
}
