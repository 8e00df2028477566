// Bands streamed from both ends, read while factored, with copies that are late, and stored.
#include <chrono>
#include <thread>

#include "kernels/base/error.hpp"
#include "tests/support/band_stream.hpp"

using namespace terrace;
using namespace terrace::band;
using namespace terrace::test;

TEST_CASE("streamed from both ends: sizes, and who asks for them") {
  for (const Index m : {0, 1, 15, 16, 17, 63, 64, 65, 1000, 1500})
    for (const Index n : {1, 2, 64, 65, 130, 1000, 5000, 100000}) {
      const BandPlan plan = plan_of<Cpu>(n, m, 64, 2);
      const Index s = plan.separator;
      INFO("n " << n << " m " << m << " parts " << plan.parts());
      REQUIRE(plan.method == BandMethod::streamed);
      REQUIRE(plan.parts() == (n > s + 64 ? 2 : 1));
      const BandStreamMemory memory = band_stream_memory<Cpu>(plan, 3, 1);
      const BandStream<Cpu> a = n > 5000 ? BandStream<Cpu>() : band_stream<Cpu>(plan, 1);
      if (n > 5000 || plan.parts() == 1) continue;
      // Every column is in one slab of an end, or in the separator.
      std::vector<int> times(std::size_t(n), 0);
      const auto count = [&](Range columns) {
        for (Index j = columns.first; j < columns.end(); ++j) ++times[std::size_t(j)];
      };
      for (Index e = 0; e < 2; ++e)
        for (Index i = 0; i < a.slabs(); ++i) count(a.columns(i, e));
      count(a.separator_columns());
      REQUIRE(std::count(times.begin(), times.end(), 1) == n);
      // What is taken is what was announced.
      Index rings = a.staged.size(), host = a.separator_host.size();
      for (const BandStreamEnd<Cpu>& end : a.ends) {
        rings += end.ring.size() + end.inverses.size();
        for (const auto& piece : end.host) host += piece.size();
      }
      const BandStreamRows<Cpu> x = band_stream_rows(a, 3);
      REQUIRE(memory.ring + memory.inverses + memory.staged == rings * 8);
      REQUIRE(memory.separator == 8 * (a.separator.size() + a.window.size() + a.blocks.size() +
                                       a.reduced_band.size() + a.reduced_inverses.size()));
      REQUIRE(memory.vectors == 8 * (x.rows.size() + x.separator.size()));
      REQUIRE(memory.host == host * 8);
    }
  BandRequest request;
  request.n = 1000;
  request.half_bandwidth = 10;
  request.method = "streamed";
  REQUIRE(plan_band<Cpu>(request).parts() == 1);
  const auto refused = [&](Index parts) {
    request.parts = parts;
    try {
      (void)plan_band<Cpu>(request);
    } catch (const Error& e) {
      return e.code() == Exit::usage;
    }
    return false;
  };
  REQUIRE(!refused(1));
  REQUIRE(!refused(2));
  REQUIRE(refused(3));
  request.lapack_factor = true;
  REQUIRE(refused(2));
  REQUIRE(!refused(0));
  REQUIRE(plan_band<Cpu>(request).parts() == 1);
}

TEMPLATE_TEST_CASE("bands are streamed from both ends", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  Index turn = 0;
  for (const Index m : {0, 1, 15, 16, 17, 63, 64, 65, 130})
    for (const Index n : {2, 65, 129, 300, 777})
      for (const Index slab : {0, 1, 2, 5}) {
        if (fewer_cases && n > 129) continue;
        const Index width = std::vector<Index>{1, 5, 16, 24}[std::size_t(++turn % 4)],
                    nrhs = std::vector<Index>{1, 2, 9}[std::size_t(turn / 4 % 3)];
        const BandPlan plan = plan_of<TestType>(n, m, width, 2);
        INFO("n " << n << " m " << m << " nrhs " << nrhs << " slab " << slab << " width "
                  << plan.shape.width << " parts " << plan.parts());
        REQUIRE_GOOD(ratios(*c, plan, slab, nrhs, spd(n, plan.shape.half_bandwidth)));
      }
}

TEMPLATE_TEST_CASE("both rings turn over many times", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  Index turn = 0;
  for (const Index m : {1, 16, 63, 64, 65, 130, 300})
    for (const Index slab : {1, 2, 3, 7}) {
      const BandPlan one = plan_of<TestType>(1 << 14, m, 16, 2);
      REQUIRE(one.parts() == 2);
      const Index w = one.shape.width, slots = band_stream<TestType>(one, slab).slots,
                  ring = slots * slab * w;
      // Ends of equal length, of lengths a tile column apart, and a whole slab apart.
      for (const Index more : {Index(1), w, 2 * slab * w - 1, 2 * slab * w, 2 * slab * w + 1,
                               2 * ring - w / 2, 2 * ring + 1, 6 * ring - 1, 6 * ring + w + 1}) {
        const Index n = one.separator + w + more;
        if (n > (fewer_cases ? 400 : 3000)) continue;
        const Index nrhs = std::vector<Index>{1, 3, 20}[std::size_t(++turn % 3)];
        const BandPlan plan = plan_of<TestType>(n, m, 16, 2);
        INFO("n " << n << " m " << m << " slab " << slab << " nrhs " << nrhs);
        REQUIRE(plan.parts() == 2);
        REQUIRE_GOOD(ratios(*c, plan, slab, nrhs, spd(n, m)));
      }
    }
}

TEMPLATE_TEST_CASE("Laplace operators and ill conditioned bands are solved from both ends", "",
                   TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  const Index side = 24;
  const Entry grid = [=](Index i, Index j) {
    return i == j ? 4.0 : i - j == side || (i - j == 1 && i % side != 0) ? -1.0 : 0.0;
  };
  const auto d = [](Index i) { return std::pow(10.0, -14.0 * double(i % 50) / 49.0); };
  const Entry graded = [=](Index i, Index j) {
    return i == j ? d(i) + (i > 0 ? 0.81 * d(i - 1) : 0.0) : i - j == 1 ? 0.9 * d(j) : 0.0;
  };
  REQUIRE_GOOD(ratios(*c, plan_of<TestType>(side * side, side, 16, 2), 1, 2, grid));
  REQUIRE_GOOD(ratios(*c, plan_of<TestType>(400, 1, 16, 2), 2, 1, graded));
}

TEMPLATE_TEST_CASE("from both ends a matrix that is not definite is known as such", "",
                   TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  Progress progress{false, false};
  Index turn = 0;
  for (const Index n : {300, 500})
    for (const Index m : {0, 3, 70})
      for (const Index slab : {1, 2}) {
        const BandPlan plan = plan_of<TestType>(n, m, 16, 2);
        REQUIRE(plan.parts() == 2);
        const Index end = plan.begin[1], first = end - plan.separator;
        BandStream<TestType> a = band_stream<TestType>(plan, slab);
        BandStreamRows<TestType> y = band_stream_rows(a, 1);
        const std::vector<double> ones(std::size_t(n), 1.0);
        // Of the ends: first, last, middle columns; of the separator too.
        for (const Index bad : {Index(0), first / 2, first - 1, first, (first + end) / 2, end - 1,
                                end, (end + n) / 2, n - 1}) {
          const Entry definite = spd(n, m);
          const double value = std::vector<double>{0.0, -1.0, double(NAN)}[std::size_t(++turn % 3)];
          const Entry entry = [&](Index i, Index j) {
            return i == bad && j == bad ? value : definite(i, j);
          };
          INFO("n " << n << " m " << m << " slab " << slab << " bad " << bad << " " << value);
          set_rows(*c, a, y, ones.data());
          load_stream(*c, band_problem<TestType>(n, m, entry), a);
          REQUIRE(stream_factor(*c, a, &y, progress) == -1);
          // The same memory serves a matrix that is definite.
          load_stream(*c, band_problem<TestType>(n, m, definite), a);
          set_rows(*c, a, y, ones.data());
          REQUIRE(stream_factor(*c, a, &y, progress) == 0);
          stream_backward(*c, a, y, progress);
          std::vector<double> x(ones.size());
          get_rows(*c, a, y, x.data());
          REQUIRE(band_residual<TestType>(*c, band_problem<TestType>(n, m, definite), Range{0, n},
                                          x, ones, 1) < 30.0);
        }
      }
}

TEMPLATE_TEST_CASE("a matrix that is fed slab by slab gives the same bits", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  Progress progress{false, false};
  for (const Index ends : {1, 2})
    for (const Index m : {0, 17, 64, 130})
      for (const Index slab : {1, 3}) {
        const Index n = 601;
        const BandPlan plan = plan_of<TestType>(n, m, 16, ends);
        const std::vector<double> b(std::size_t(n), 1.0);
        INFO("ends " << ends << " m " << m << " slab " << slab);
        std::vector<double> solutions[2];
        for (const bool fed : {false, true}) {
          BandStream<TestType> a = band_stream<TestType>(plan, slab);
          BandStreamRows<TestType> x = band_stream_rows(a, 1);
          set_rows(*c, a, x, b.data());
          if (!fed) load_stream(*c, band_problem<TestType>(n, m, spd(n, m)), a);
          REQUIRE(stream_factor(*c, a, &x, progress, fed ? feed_of(n, spd(n, m)) : BandFeed{}) ==
                  0);
          stream_backward(*c, a, x, progress);
          solutions[fed].resize(b.size());
          get_rows(*c, a, x, solutions[fed].data());
        }
        REQUIRE(solutions[0] == solutions[1]);
        REQUIRE(band_residual<TestType>(*c, band_problem<TestType>(n, m, spd(n, m)), Range{0, n},
                                        solutions[1], b, 1) < 30.0);
      }
}

TEMPLATE_TEST_CASE("a feed that fails ends the factorization", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  Progress progress{false, false};
  const Index n = 900, m = 20;
  for (const Index ends : {1, 2}) {
    BandStream<TestType> a = band_stream<TestType>(plan_of<TestType>(n, m, 16, ends), 1);
    Index left = 9;
    const BandFeed good = feed_of(n, spd(n, m));
    const BandFeed bad = [&](Range columns, Index height, double* to, Index ld) {
      if (--left == 0) throw Error(Exit::input, "the file ends here");
      good(columns, height, to, ld);
    };
    REQUIRE_THROWS_AS(stream_factor<TestType>(*c, a, nullptr, progress, bad), Error);
    REQUIRE(stream_factor<TestType>(*c, a, nullptr, progress, good) == 0);
  }
}

TEST_CASE("lanes that fall behind are waited for") {
  const ThreadedLanes threads;
  Context<Cpu> c = make_context<Cpu>(world());
  Progress progress{false, false};
  const Index n = 1500, m = 20;
  const auto sleep = [] { std::this_thread::sleep_for(std::chrono::milliseconds(150)); };
  for (const Index ends : {1, 2})
    for (const int late : {0, 1, 2, 3}) {
      const BandPlan plan = plan_of<Cpu>(n, m, 16, ends);
      BandStream<Cpu> a = band_stream<Cpu>(plan, 1);
      REQUIRE(a.slabs() > 3 * a.slots);
      BandStreamRows<Cpu> x = band_stream_rows(a, 1);
      const std::vector<double> b(std::size_t(n), 1.0);
      std::vector<double> solution(b.size());
      load_stream(c, band_problem<Cpu>(n, m, spd(n, m)), a);
      set_rows(c, a, x, b.data());
      const auto delay = [&] {
        if (late > 0) (late == 1 ? a.up : late == 2 ? a.down : c.ahead).run(sleep);
      };
      delay();
      REQUIRE(stream_factor(c, a, &x, progress) == 0);
      delay();
      stream_backward(c, a, x, progress);
      get_rows(c, a, x, solution.data());
      INFO("ends " << ends << " late " << late);
      REQUIRE(band_residual<Cpu>(c, band_problem<Cpu>(n, m, spd(n, m)), Range{0, n}, solution, b,
                                 1) < 30.0);
      if (ends == 1)
        REQUIRE(band_factor_residual(c, band_problem<Cpu>(n, m, spd(n, m)), a, 5) < 30.0);
    }
}

TEST_CASE("a copy home that is late near the end is waited for") {
  const ThreadedLanes threads;
  Context<Cpu> c = make_context<Cpu>(world());
  Progress progress{false, false};
  const Index m = 20;
  const std::vector<Index> sizes = {32 * 21, 32 * 21 + 1, 32 * 21 + 17, 32 * 21 + 31};
  for (const Index n : sizes)
    for (const Index slab : {1, 2}) {
      const BandPlan plan = plan_of<Cpu>(n, m, 16, 2);
      BandStream<Cpu> a = band_stream<Cpu>(plan, slab);
      BandStreamRows<Cpu> x = band_stream_rows(a, 1);
      const std::vector<double> b(std::size_t(n), 1.0);
      std::vector<double> solution(b.size());
      const BandFeed feed = feed_of(n, spd(n, m));
      // At each step in turn the copies home stop for a while.
      for (Index late = a.slabs() - a.slots - 2; late < a.slabs(); ++late) {
        Index calls = 0;
        const BandFeed stops = [&](Range columns, Index height, double* to, Index ld) {
          if (calls++ == 2 * late + a.back)
            a.down.run([] { std::this_thread::sleep_for(std::chrono::milliseconds(40)); });
          feed(columns, height, to, ld);
        };
        set_rows(c, a, x, b.data());
        REQUIRE(stream_factor(c, a, &x, progress, stops) == 0);
        stream_backward(c, a, x, progress);
        get_rows(c, a, x, solution.data());
        INFO("n " << n << " slab " << slab << " late " << late);
        REQUIRE(band_residual<Cpu>(c, band_problem<Cpu>(n, m, spd(n, m)), Range{0, n}, solution, b,
                                   1) < 30.0);
      }
    }
}

TEMPLATE_TEST_CASE("a factor that the host has no room for goes to a store", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  Progress progress{false, false};
  for (const Index ends : {1, 2})
    for (const Index m : {0, 17, 64, 130})
      for (const Index slab : {1, 2}) {
        const Index n = fewer_cases ? 1500 : 5000, nrhs = 2;
        const BandPlan plan = plan_of<TestType>(n, m, 16, ends);
        const Index kept = band_stream_kept(plan, slab), word = sizeof(double);
        BandStream<TestType> a = band_stream<TestType>(plan, slab, kept);
        INFO("ends " << ends << " m " << m << " slab " << slab << " slabs " << a.slabs() << " kept "
                     << kept);
        const Index all = band_stream_memory<TestType>(plan, 0, slab).host;
        if (a.slabs() > 2 * kept)
          REQUIRE(band_stream_memory<TestType>(plan, 0, slab, kept).host < all * 3 / 4);
        std::vector<double> stored(std::size_t(all / word), NAN);
        Index put = 0;
        a.store = {[&](Index at, const double* from, Index count) {
                     put += count;
                     std::copy_n(from, count, stored.begin() + at);
                   },
                   [&](Index at, double* to, Index count) {
                     std::copy_n(stored.begin() + at, count, to);
                   }};
        const BandProblem<TestType> problem = band_problem<TestType>(n, m, spd(n, m));
        const std::vector<double> b(std::size_t(n * nrhs), 1.0);
        std::vector<double> x(b.size());
        BandStreamRows<TestType> rows = band_stream_rows(a, nrhs);
        const auto residual = [&] {
          get_rows(*c, a, rows, x.data());
          return band_residual<TestType>(*c, problem, Range{0, n}, x, b, nrhs);
        };
        const auto solve = [&] {
          set_rows(*c, a, rows, b.data());
          stream_forward(*c, a, rows, progress);
          stream_backward(*c, a, rows, progress);
          return residual();
        };
        set_rows(*c, a, rows, b.data());
        REQUIRE(stream_factor(*c, a, &rows, progress, feed_of(n, spd(n, m))) == 0);
        REQUIRE(put <= Index(stored.size()));
        stream_backward(*c, a, rows, progress);
        REQUIRE(residual() < 30.0);
        REQUIRE(solve() < 30.0);
        if (ends > 1) continue;
        REQUIRE(band_factor_residual(*c, problem, a, 5) < 30.0);
        // Its columns are those of a factor in memory, and may be scaled and read back.
        const Index height = plan.shape.half_bandwidth + 1;
        BandStream<TestType> whole = band_stream<TestType>(plan, slab);
        REQUIRE(stream_factor<TestType>(*c, whole, nullptr, progress, feed_of(n, spd(n, m))) == 0);
        std::vector<double> l(std::size_t(n * height)), other(l.size());
        copy_columns(whole, 0, n, height, height, l.data());
        scale_stream(a, 2.0);
        scale_stream(whole, 2.0);
        copy_columns(a, 0, 777, height, height, other.data());
        copy_columns(a, 777, n - 777, height, height, other.data() + 777 * height);
        REQUIRE(std::equal(l.begin(), l.end(), other.begin(),
                           [](double one, double two) { return 2.0 * one == two; }));
        copy_columns(whole, 0, n, height, height, l.data());
        REQUIRE(l == other);
        const Entry factor = [&](Index i, Index j) {
          return l[std::size_t(j * height + i - j)] / 2.0;
        };
        load_stream(*c, band_problem<TestType>(n, m, factor), a);
        REQUIRE(solve() < 30.0);
      }
}

TEST_CASE("with a store, lanes that fall behind are waited for") {
  const ThreadedLanes threads;
  Context<Cpu> c = make_context<Cpu>(world());
  Progress progress{false, false};
  const Index n = 1500, m = 20;
  for (const Index ends : {1, 2}) {
    const BandPlan plan = plan_of<Cpu>(n, m, 16, ends);
    BandStream<Cpu> a = band_stream<Cpu>(plan, 1, band_stream_kept(plan, 1));
    REQUIRE(a.slabs() > 2 * a.kept);
    std::vector<double> stored(std::size_t(band_stream_memory<Cpu>(plan, 0, 1).host) /
                               sizeof(double));
    a.store = {
        [&](Index at, const double* from, Index count) {
          std::copy_n(from, count, stored.begin() + at);
        },
        [&](Index at, double* to, Index count) { std::copy_n(stored.begin() + at, count, to); }};
    BandStreamRows<Cpu> x = band_stream_rows(a, 1);
    const std::vector<double> b(std::size_t(n), 1.0);
    std::vector<double> solution(b.size());
    for (const bool up : {true, false}) {
      const auto delay = [&] {
        (up ? a.up : a.down).run([] {
          std::this_thread::sleep_for(std::chrono::milliseconds(150));
        });
      };
      set_rows(c, a, x, b.data());
      delay();
      REQUIRE(stream_factor(c, a, &x, progress, feed_of(n, spd(n, m))) == 0);
      delay();
      stream_backward(c, a, x, progress);
      get_rows(c, a, x, solution.data());
      INFO("ends " << ends << " up " << up);
      REQUIRE(band_residual<Cpu>(c, band_problem<Cpu>(n, m, spd(n, m)), Range{0, n}, solution, b,
                                 1) < 30.0);
    }
  }
}

TEST_CASE("a store that fails ends factorization and substitution") {
  const ThreadedLanes threads;
  Context<Cpu> c = make_context<Cpu>(world());
  Progress progress{false, false};
  const Index n = 1500, m = 20;
  const BandPlan plan = plan_of<Cpu>(n, m, 16, 2);
  for (const Index good : {0, 7, 40}) {
    BandStream<Cpu> a = band_stream<Cpu>(plan, 1, band_stream_kept(plan, 1));
    Index left = good;
    const auto fail = [&] {
      if (left-- == 0) throw Error(Exit::resources, "no space");
    };
    a.store = {[&](Index, const double*, Index) { fail(); },
               [&](Index, double* to, Index count) {
                 fail();
                 std::fill_n(to, count, 1.0);
               }};
    BandStreamRows<Cpu> x = band_stream_rows(a, 1);
    const std::vector<double> b(std::size_t(n), 1.0);
    set_rows(c, a, x, b.data());
    REQUIRE_THROWS_AS(stream_factor(c, a, &x, progress, feed_of(n, spd(n, m))), Error);
    left = good;
    REQUIRE_THROWS_AS(stream_forward(c, a, x, progress), Error);
  }
}

TEMPLATE_TEST_CASE("the planner streams narrow bands from both ends on a GPU", "",
                   TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  constexpr bool device = std::is_same_v<TestType, Cuda>;
  BandRequest request;
  request.n = 400000;
  request.method = "streamed";
  for (const Index m : {1, 64, 1000, 1500, 1501, 2000, 6000}) {
    request.half_bandwidth = m;
    const BandPlan plan = plan_band<TestType>(request);
    INFO("m " << m);
    REQUIRE(plan.parts() == (device && m <= 1500 ? 2 : 1));
    REQUIRE(plan.reasons.size() == (device ? 2 : 1));
  }
}

TEMPLATE_TEST_CASE("a band of a thousand half-bandwidths is streamed from both ends on a GPU", "",
                   TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c || !std::is_same_v<TestType, Cuda>) return;
  const Index n = 40000, m = 1000;
  for (const Index slab : {0, 3, 20})  // reached by one slab, and by several
    for (const Index nrhs : {1, 9}) {
      const BandPlan plan = plan_of<TestType>(n, m, 64, 2);
      INFO("slab " << slab << " nrhs " << nrhs);
      REQUIRE_GOOD(ratios(*c, plan, slab, nrhs, spd(n, m)));
    }
}
