#include "src/band_stream.hpp"

#include <chrono>
#include <cstdlib>
#include <thread>

#include "kernels/problems.hpp"
#include "src/band_parts.hpp"
#include "tests/support/band.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::test;

namespace {

Entry spd(Index n, Index m) {
  return [=](Index i, Index j) { return band_spd_entry(7, n, m, i, j); };
}

template <class B>
BandShape shape_of(Index n, Index m, Index width) {
  const Index clipped = std::clamp<Index>(m, 0, std::max<Index>(n - 1, 0));
  return band_shape(n, m, std::is_same_v<B, Cpu> ? width : band_part_width(B{}, clipped));
}

/// Streamed from `ends` ends, where there is room.
template <class B>
BandPlan plan_of(Index n, Index m, Index width, Index ends) {
  BandRequest request;
  request.n = n;
  request.half_bandwidth = m;
  request.method = "streamed";
  request.parts = ends;
  request.block = std::is_same_v<B, Cpu> ? width : 0;
  return plan_band<B>(request);
}

/// x - y, or 1 where y is not finite.
double apart(double x, double y) { return std::isfinite(y) ? std::abs(x - y) : 1.0; }

struct Ratios {
  Index failed = 0;
  double factor = INFINITY, fused = INFINITY, stored = INFINITY;
  [[nodiscard]] bool good() const {
    return failed == 0 && factor < 30.0 && fused < 30.0 && stored < 30.0;
  }
};

/// Residuals of the factor, of a solve that goes forward with the factorization, and of one by the
/// factor that it leaves.
template <class B>
Ratios ratios(Context<B>& c, const BandPlan& plan, Index slab, Index nrhs, const Entry& entry) {
  const BandShape& s = plan.shape;
  Progress progress{false, false};
  const BandProblem<B> problem = band_problem<B>(s.n, s.half_bandwidth, entry);
  std::vector<double> truth(std::size_t(s.n * nrhs)), x(truth.size());
  for (std::size_t i = 0; i < truth.size(); ++i)
    truth[i] = random_uniform(11, Index(i) / nrhs, Index(i) % nrhs);
  const std::vector<double> b = band_product(s.n, s.half_bandwidth, entry, truth, nrhs);
  BandStream<B> a = band_stream<B>(plan, slab);
  BandStreamRows<B> rows = band_stream_rows(a, nrhs);
  Ratios result;
  load_stream(c, problem, a);
  set_rows(c, a, rows, b.data());
  result.failed = stream_factor(c, a, &rows, progress);
  if (result.failed != 0) return result;
  stream_backward(c, a, rows, progress);
  get_rows(c, a, rows, x.data());
  const Range all{0, s.n};
  result.fused = band_residual<B>(c, problem, all, x, b, nrhs);
  set_rows(c, a, rows, b.data());
  stream_forward(c, a, rows, progress);
  stream_backward(c, a, rows, progress);
  get_rows(c, a, rows, x.data());
  result.stored = band_residual<B>(c, problem, all, x, b, nrhs);
  result.factor = a.count() > 1 ? 0.0 : band_factor_residual(c, problem, a, 5);
  return result;
}
template <class B>
Ratios ratios(Context<B>& c, const BandShape& s, Index slab, Index nrhs, const Entry& entry) {
  return ratios(c, one_ended_stream(s), slab, nrhs, entry);
}

/// The problem on the host.
BandFeed feed_of(Index n, Entry entry) {
  return [=](Range columns, Index height, double* to, Index ld) {
    for (Index j = 0; j < columns.count; ++j)
      for (Index d = 0; d < height; ++d)
        to[j * ld + d] =
            columns.first + j + d < n ? entry(columns.first + j + d, columns.first + j) : 0.0;
  };
}

/// CPU streams made while this lives are threads.
class ThreadedLanes {
 public:
  ThreadedLanes() {
    if (const char* value = std::getenv(kName)) before_ = value;
    setenv(kName, "threads", 1);
  }
  ThreadedLanes(const ThreadedLanes&) = delete;
  ThreadedLanes& operator=(const ThreadedLanes&) = delete;
  ~ThreadedLanes() { before_ ? setenv(kName, before_->c_str(), 1) : unsetenv(kName); }

 private:
  static constexpr const char* kName = "TERRACE_CPU_LANES";
  std::optional<std::string> before_;
};

#define REQUIRE_GOOD(...)                                                                         \
  do {                                                                                            \
    const Ratios r = __VA_ARGS__;                                                                 \
    INFO("failed " << r.failed << ", factor " << r.factor << ", fused " << r.fused << ", stored " \
                   << r.stored);                                                                  \
    REQUIRE(r.good());                                                                            \
  } while (false)

}  // namespace

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
  request.method = "streamed";
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
          if (m < 0 || (thread_sanitizer && n > 129)) continue;
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
        if (n > (thread_sanitizer ? 300 : 2500)) continue;
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
        if (thread_sanitizer && n > 129) continue;
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
        if (n > (thread_sanitizer ? 400 : 3000)) continue;
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
        const Index n = thread_sanitizer ? 1500 : 5000, nrhs = 2;
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
