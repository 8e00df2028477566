// The solve that callers use: any way, what goes on after one that gives up, the guard.
#include "src/band/system.hpp"

#include <filesystem>
#include <limits>
#include <map>

#include "kernels/band/parts.hpp"
#include "kernels/base/problems.hpp"
#include "src/frame/guard.hpp"
#include "tests/support/band.hpp"
#include "tests/support/numbers.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::band;
using namespace terrace::test;

namespace {

struct Way {
  const char* name;
  const char* method;
  bool alone;  // on one rank
};
const Way ways[] = {{"auto", "auto", false},           {"tile columns", "tile-columns", false},
                    {"one end", "one-end", false},     {"two ends", "two-ends", false},
                    {"partition", "partition", false}, {"window", "streamed", false},
                    {"streamed", "streamed", true},    {"mixed", "auto", false},
                    {"files", "streamed", false}};

template <class B>
bool runs(const Way& way, int ranks) {
  const std::string name = way.name;
  if (way.alone && ranks > 1) return false;
  if (name == "mixed") return band_low_available(B{});
  return name == "auto" || name == "tile columns" || name == "window" || name == "files" ||
         band_parts_available(B{});
}

/// A window, with a scratch file of each rank.
bool in_files(const Way& way) { return way.name == std::string("files"); }

BandRequest request_for(const Way& way, int ranks, Index n, Index m, Index nrhs) {
  BandRequest request;
  request.n = n;
  request.half_bandwidth = m;
  request.nrhs = nrhs;
  request.ranks = ranks;
  request.method = way.method;
  request.mixed = way.name == std::string("mixed");
  request.tile_by_tile = way.name == std::string("window") || in_files(way);
  return request;
}

std::vector<double> random_rows(Index n, Index nrhs) {
  std::vector<double> x(std::size_t(n * nrhs));
  for (Index i = 0; i < n * nrhs; ++i) x[std::size_t(i)] = random_uniform(3, i / nrhs, i % nrhs);
  return x;
}

/// Largest difference of this rank's rows; they are those of one range after the other.
template <class B>
double apart(const BandResult<B>& result, Index nrhs, const std::vector<double>& x) {
  double most = 0;
  std::size_t at = 0;
  for (const Range& range : result.ranges)
    for (Index i = range.first * nrhs; i < range.end() * nrhs; ++i, ++at)
      most = std::max(most, std::abs(result.rows.at(at) - x[std::size_t(i)]));
  return most;
}
template <class B>
Index rows_of_all(const BandResult<B>& result) {
  Index rows = 0;
  for (const Range& range : result.ranges) rows += range.count;
  return world().reduce(rows, Reduce::sum);
}

BandSystem system_of(Index n, Index m, const Entry& entry, const std::vector<double>& x,
                     Index nrhs) {
  BandSystem system;
  system.matrix = band_reader(n, m, entry);
  system.rhs = row_reader(band_product(n, std::min(m, n - 1), entry, x, nrhs), nrhs);
  return system;
}

}  // namespace

namespace {

/// Other right-hand sides by the same factor.
template <class B>
void check_more(Context<B>& c, BandResult<B>& result, Index n, Index m, Index nrhs) {
  const std::vector<double> x = random_numbers(n * nrhs, 8),
                            b = band_product(n, std::min(m, n - 1), spd(n, m), x, nrhs);
  std::vector<double> own;
  for (const Range& range : result.ranges)
    own.insert(own.end(), b.begin() + range.first * nrhs, b.begin() + range.end() * nrhs);
  if (!result.solve_more(own, nrhs)) return;
  double most = 0;
  std::size_t at = 0;
  for (const Range& range : result.ranges)
    for (Index i = range.first * nrhs; i < range.end() * nrhs; ++i, ++at)
      most = std::max(most, std::abs(own[at] - x[std::size_t(i)]));
  CHECK_ALL(most < 1e-9);
}

}  // namespace

TEMPLATE_TEST_CASE("band systems are solved by every way", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  for (const Way& way : ways)
    for (const Index n : {Index(1), Index(130), Index(700)})
      for (const Index m : {Index(0), Index(23), n + 2}) {
        if (!runs<TestType>(way, c->size()) || (n > 200 && m > n)) continue;
        CAPTURE(way.name, n, m);
        const Index nrhs = 3;
        const std::vector<double> x = random_rows(n, nrhs);
        BandSystem system = system_of(n, m, spd(n, m), x, nrhs);
        if (in_files(way)) system.scratch = std::filesystem::temp_directory_path();
        const BandRequest request = request_for(way, c->size(), n, m, nrhs);
        Progress progress(false, false);
        std::map<std::string, int> phases;
        BandHooks hooks;
        hooks.phase = [&](const std::string& name, const std::function<void()>& work) {
          ++phases[name];
          work();
        };
        hooks.instead = [&](const auto&, const auto&, const auto&) { ++phases["instead"]; };
        const auto result = solve_band(*c, system, request, plan_system<TestType>(system, request),
                                       progress, hooks);
        REQUIRE_ALL(result->failure.minor == 0);
        result->finish();
        CHECK_ALL(rows_of_all(*result) == n);
        CHECK_ALL(apart(*result, nrhs, x) < 1e-9);
        CHECK_ALL(result->residual() < 30);
        CHECK_ALL(phases["read"] == 1 && phases["solve"] == 1 && phases["instead"] == 0);
        CHECK_ALL((result->plan.method == BandMethod::mixed) == request.mixed);
        CHECK_ALL(phases["condition"] == int(request.mixed));
        CHECK_ALL((result->plan.kept > 0) == in_files(way));
        check_more(*c, *result, n, m, nrhs);
      }
}

TEMPLATE_TEST_CASE("what gives up goes on another way", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  const Index n = 300, m = 11;
  for (const Way& way : ways)
    for (const Index bad : {Index(0), n / 3, n - 1}) {
      if (!runs<TestType>(way, c->size())) continue;
      CAPTURE(way.name, bad);
      const Entry entry = [&](Index i, Index j) {
        return i == bad && j == bad ? -1.0 : spd(n, m)(i, j);
      };
      const BandSystem system = system_of(n, m, entry, random_rows(n, 1), 1);
      const BandRequest request = request_for(way, c->size(), n, m, 1);
      const BandPlan plan = plan_system<TestType>(system, request);
      const bool in_parts = plan.method == BandMethod::one_end ||
                            plan.method == BandMethod::two_ends ||
                            plan.method == BandMethod::partition;
      Progress progress(false, false);
      BandHooks hooks;
      int changes = 0;
      hooks.instead = [&](const BandPlan& failed, const BandNotes&, const BandPlan& now) {
        CHECK_ALL(failed.method != now.method);
        CHECK_ALL(!now.note.empty());
        ++changes;
      };
      const auto result = solve_band(*c, system, request, plan, progress, hooks);
      std::vector<double> l;
      CHECK_ALL(result->failure.minor == dense_cholesky(n, entry, l));
      CHECK_ALL(!result->failure.passing);
      // On CUDA what mixed precision leaves may go to parts, which give up too.
      CHECK_ALL(changes >= int(in_parts || request.mixed));
      CHECK_ALL(changes == 0 || result->plan.method != plan.method);
    }
}

TEMPLATE_TEST_CASE("mixed precision leaves an ill-conditioned matrix to FP64", "",
                   TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  const Way& way = ways[7];
  if (!c || !runs<TestType>(way, c->size())) return;
  // The fourth power of the line's matrix: half-bandwidth 4, condition about 1e17 / 400.
  const Index n = 2000, m = 4;
  const double numbers[] = {70, -56, 28, -8, 1};
  const Entry entry = [&](Index i, Index j) { return numbers[i - j] + (i == j ? 1e-9 : 0.0); };
  const BandSystem system = system_of(n, m, entry, random_rows(n, 1), 1);
  const BandRequest request = request_for(way, c->size(), n, m, 1);
  Progress progress(false, false);
  BandNotes seen;
  BandHooks hooks;
  hooks.instead = [&](const BandPlan&, const BandNotes& notes, const BandPlan&) { seen = notes; };
  const auto result =
      solve_band(*c, system, request, plan_system<TestType>(system, request), progress, hooks);
  REQUIRE(result->failure.minor == 0);
  CHECK(result->plan.method != BandMethod::mixed);
  CHECK(seen.shift > 0);
  result->finish();
  // Parts of so ill-conditioned a matrix leave more, and the command's check refuses it.
  if (result->plan.method == BandMethod::tile_columns) CHECK(result->residual() < 30);
}

TEMPLATE_TEST_CASE("a band's factor is LAPACK's", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  const Index n = 150, m = 19;
  BandSystem system;
  system.matrix = band_reader(n, m, spd(n, m));
  for (const Way& way : ways) {
    if (!runs<TestType>(way, c->size()) || request_for(way, 1, n, m, 0).mixed) continue;
    const std::string method = way.method;
    if (method != "auto" && method != "tile-columns" && method != "streamed") continue;
    CAPTURE(way.name);
    system.scratch = in_files(way) ? std::filesystem::temp_directory_path() : "";
    BandRequest request = request_for(way, c->size(), n, m, 0);
    request.lapack_factor = true;
    Progress progress(false, false);
    const auto result =
        solve_band(*c, system, request, plan_system<TestType>(system, request), progress);
    REQUIRE_ALL(result->failure.minor == 0);
    result->finish();
    CHECK_ALL(result->residual() < 30);
    std::vector<double> l;
    REQUIRE(dense_cholesky(n, spd(n, m), l) == 0);
    double most = 0;
    Index position = 0;
    std::vector<double> column(std::size_t(m + 1));
    for (const Range& range : result->ranges)
      for (Index j = range.first; j < range.end(); ++j, ++position) {
        result->copy_factor(position, 1, m + 1, column.data());
        for (Index d = 0; d <= m && j + d < n; ++d)
          most = std::max(most, std::abs(column[std::size_t(d)] - l[std::size_t((j + d) * n + j)]));
      }
    CHECK_ALL(most < 1e-10);
  }
}

TEST_CASE("with the guard what fails its check is done once more") {
  Context<Cpu>* c = context<Cpu>();
  const Index n = 400, m = 9;
  const std::vector<double> x = random_rows(n, 1);
  BandSystem system = system_of(n, m, spd(n, m), x, 1);
  system.guard = true;
  for (const Way& way : ways) {
    const std::string name = way.name;
    if (!runs<Cpu>(way, c->size()) || name == "mixed" || name == "auto" || name == "tile columns" ||
        name == "files")  // the flip is in memory
      continue;
    CAPTURE(name);
    const BandRequest request = request_for(way, c->size(), n, m, 1);
    Progress progress(false, false);
    // In the exponent of the first number, once the factor is there.
    next_test_flip() = {0, way.method == std::string("streamed") ? 1 : 2, 7, 6};
    const auto result =
        solve_band(*c, system, request, plan_system<Cpu>(system, request), progress);
    next_test_flip() = {};
    REQUIRE_ALL(result->failure.minor == 0);
    result->finish();
    CHECK_ALL(!(result->residual() < 30));
    CHECK_ALL(!result->verify());
    REQUIRE_ALL(result->again());
    CHECK_ALL(result->residual() < 30);
    CHECK_ALL(apart(*result, 1, x) < 1e-10);
  }
}

namespace {

template <class B>
void test_turning(Context<B>& c) {
  for (const auto& [n, m] :
       {std::pair<Index, Index>{1, 0}, {1, 3}, {70, 0}, {131, 5}, {90, 89}, {40, 60}}) {
    const Entry a = spd(n, m);
    BandReader from{n, m, {}};
    from.diagonals = [&](Range columns, const io::Sink<double>& sink) {
      for (Index at = 0; at < columns.count; at += 17) {  // in portions
        const Index count = std::min<Index>(17, columns.count - at);
        std::vector<double> rows(std::size_t((m + 1) * count), 0.0);
        for (Index d = 0; d <= m; ++d)
          for (Index k = 0; k < count; ++k)
            if (const Index j = columns.first + at + k; j + d < n)
              rows[std::size_t(d * count + k)] = a(j + d, j);
        sink(at, count, rows.data());
      }
    };
    const Index height = band_shape(n, m, 1).half_bandwidth + 1, ld = height + 3;
    // Two neighbours, and one apart: columns of three ranges, one after the other.
    const std::vector<Range> ranges{{0, n / 4}, {n / 4, n / 4}, {n - n / 3, n / 3}};
    const Index count = 2 * (n / 4) + n / 3;
    const Buffer<double, B> to(std::max<Index>(1, count * ld));
    fill_zero(c.ahead, to.view());
    turn_columns<B>(c, from, ranges, height, to.view(), ld);
    std::vector<double> seen(std::size_t(to.size()));
    download(c.ahead, seen.data(), to.view());
    c.ahead.synchronize();
    Index wrong = 0, column = 0;
    for (const Range& range : ranges)
      for (Index j = range.first; j < range.end(); ++j, ++column)
        for (Index d = 0; d < ld; ++d)
          wrong +=
              seen[std::size_t(column * ld + d)] != (d < height && j + d < n ? a(j + d, j) : 0.0);
    INFO("n = " << n << ", m = " << m);
    CHECK_ALL(wrong == 0);
  }
}

}  // namespace

TEMPLATE_TEST_CASE("diagonals become columns on the backend", "", TERRACE_BACKENDS) {
  on<TestType>([](Context<TestType>& c) { test_turning(c); });
}
