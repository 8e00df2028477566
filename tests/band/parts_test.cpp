#include "src/band/parts.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"
#include "kernels/base/problems.hpp"
#include "src/band/system.hpp"
#include "tests/support/band.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::band;
using namespace terrace::test;

namespace {

struct Method {
  const char* name;
  Index parts;
  double end_weight;
};
const Method methods[] = {
    {"two-ends", 0, 0}, {"partition", 3, 1}, {"partition", 4, 3}, {"partition", 9, 1.5}};

/// Width that parts are asked for: small on the CPU, so that small matrices have many.
template <class B>
Index small_width(Index width) {
  return std::is_same_v<B, Cpu> ? width : 0;
}

std::vector<double> known_solution(Index n, Index nrhs) {
  std::vector<double> x(std::size_t(n * nrhs));
  for (Index i = 0; i < n * nrhs; ++i) x[std::size_t(i)] = random_uniform(11, i / nrhs, i % nrhs);
  return x;
}

template <class B>
BandRequest request_of(const Context<B>& c, Index n, Index m, const Method& method, Index width) {
  BandRequest request;
  request.n = n;
  request.half_bandwidth = m;
  request.ranks = c.size();
  request.method = method.name;
  request.parts = method.parts;
  request.block = small_width<B>(width);
  request.end_weight = method.end_weight;
  return request;
}
template <class B>
BandPlan plan_of(const Context<B>& c, Index n, Index m, const Method& method, Index width) {
  return plan_band<B>(request_of(c, n, m, method, width));
}
/// Once the parts have given up.
template <class B>
Index failed_minor(Context<B>& c, const BandRequest& request, const Entry& entry) {
  BandSystem system;
  system.matrix = band_reader(request.n, request.half_bandwidth, entry);
  system.rhs = row_reader(std::vector<double>(std::size_t(request.n), 1.0), 1);
  Progress progress{false, false};
  return solve_band(c, system, request, plan_system<B>(system, request), progress)->failure.minor;
}

struct Solved {
  bool factored = false;
  double ratio = INFINITY;
  std::vector<double> x;  ///< this rank's rows
  Range rows;
};

/// Factors in parts and solves for nrhs known solutions.
template <class B>
Solved solve(Context<B>& c, const BandPlan& plan, Index m, const Entry& entry, Index nrhs,
             const std::vector<double>& x_true) {
  const Index n = plan.shape.n;
  const BandProblem<B> problem = band_problem<B>(n, m, entry);
  BandParts<B> a = band_parts<B>(c, plan);
  load_parts(c, problem, a);
  Solved result;
  result.factored = factor_parts(c, a);
  if (!result.factored) return result;
  const std::vector<double> b = band_product(n, problem.half_bandwidth, entry, x_true, nrhs);
  const Range rows = result.rows = plan.rows_of(c.rank());
  const std::vector<double> own(b.begin() + rows.first * nrhs, b.begin() + rows.end() * nrhs);
  BandPartRows<B> x = band_part_rows(a, nrhs);
  set_rows(c, a, x, own.data());
  solve_parts(c, a, x);
  result.x.resize(own.size());
  get_rows(c, a, x, result.x.data());
  result.ratio = band_residual<B>(c, problem, rows, result.x, own, nrhs);
  return result;
}

template <class B>
double ratio(Context<B>& c, Index n, Index m, const Method& method, Index width, Index nrhs,
             const Entry& entry) {
  return solve(c, plan_of(c, n, m, method, width), m, entry, nrhs, known_solution(n, nrhs)).ratio;
}

}  // namespace

TEST_CASE("a plan covers every row once, and its inner parts keep separators apart") {
  for (const Index n : {0, 1, 5, 16, 17, 31, 32, 33, 47, 48, 49, 50, 64, 100, 333, 1000, 5000})
    for (const Index m : {0, 1, 15, 16, 17, 40, 999})
      for (const Index block : {0, 1, 5, 16, 24})
        for (const int ranks : {1, 2, 3, 5})
          for (const Method& method : methods) {
            BandRequest request{
                n, m, 1, ranks, method.name, method.parts, block, method.end_weight};
            const BandPlan plan = plan_band<Cpu>(request);
            REQUIRE(plan.parts() >= 1);
            REQUIRE(plan.begin.front() == 0);
            REQUIRE(plan.begin.back() == n);
            Index rows = 0, parts = 0;
            for (int rank = 0; rank < ranks; ++rank) {
              REQUIRE(plan.rows_of(rank).first == rows);
              rows += plan.rows_of(rank).count;
              for (Index p = plan.parts_of(rank).first; p < plan.parts_of(rank).end(); ++p) {
                REQUIRE(p == parts++);
                REQUIRE(plan.owner(p) == rank);
              }
            }
            REQUIRE(rows == n);
            REQUIRE(parts == plan.parts());
            for (Index p = 0; p < plan.parts(); ++p) {
              const Index own = plan.rows(p).count - (plan.last(p) ? 0 : plan.separator);
              REQUIRE(own >= (n > 0 ? 1 : 0));
              if (!plan.last(p)) REQUIRE(own % plan.shape.width == 0);
              if (plan.has_arrow(p)) REQUIRE(own >= plan.shape.half_bandwidth);
            }
            REQUIRE(plan.separator >= plan.shape.half_bandwidth);
          }
}

TEST_CASE("requests that no plan fits are usage errors") {
  const auto code = [](const BandRequest& request) -> std::optional<Exit> {
    try {
      (void)plan_band<Cpu>(request);
    } catch (const Error& e) {
      return e.code();
    }
    return {};
  };
  REQUIRE(code({100, 3, 1, 1, "three-ends"}) == Exit::usage);
  REQUIRE(code({100, 3, 1, 1, "two-ends", 4}) == Exit::usage);
  REQUIRE(code({100, 3, 1, 1, "auto", 4}) == Exit::usage);
  REQUIRE(code({100, 3, 1, 1, "partition", -1}) == Exit::usage);
  REQUIRE(!code({100, 3, 1, 1, "partition", 4}));
}

TEMPLATE_TEST_CASE("band systems in parts are solved to LAPACK's measure", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  Index turn = 0;
  for (const Index n : {0, 1, 2, 3, 5, 10, 50, 129, 300})
    for (const Index m : {Index(0), Index(1), (n + 1) / 4, n - 1, n + 3})
      for (const Method& method : methods) {
        ++turn;
        if (m < 0 || (fewer_cases && n > 10 && turn % 5 != 0)) continue;
        for (const Index number : {0, 1, 2}) {
          if (n > 5 && number != turn % 3) continue;
          const Index nrhs = std::vector<Index>{1, 2, 15}[std::size_t(number)];
          const Index width = std::vector<Index>{1, 3, 16, 24}[std::size_t(turn / 4 % 4)];
          INFO(method.name << " " << method.parts << " n " << n << " m " << m << " nrhs " << nrhs
                           << " width " << width);
          const Index clipped = std::clamp<Index>(m, 0, std::max<Index>(n - 1, 0));
          REQUIRE(ratio(*c, n, m, method, width, nrhs, spd(n, clipped)) < 30.0);
        }
      }
}

TEMPLATE_TEST_CASE("orders around the boundaries of parts are solved", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  // width 16: separators of 32 rows; width 64 on CUDA: of 64 rows.
  const Index m = 20;
  for (const Index base : {16 + 32, 32 + 64, 64 + 64, 5 * 32 + 6 * 16, 128 + 64, 3 * 64 + 4 * 64})
    for (const Index n : {base - 1, base, base + 1, base + 2, base + 15})
      for (const Method& method : methods) {
        INFO(method.name << " " << method.parts << " n " << n);
        REQUIRE(ratio(*c, n, m, method, 16, 2, spd(n, m)) < 30.0);
      }
}

TEMPLATE_TEST_CASE("wide and narrow bands of many parts are solved", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  struct Case {
    Index n, m, width, nrhs, parts;
  };
  for (const Case& k :
       {Case{1500, 150, 32, 1, 4}, Case{1000, 33, 24, 3, 11}, Case{900, 300, 64, 40, 2},
        Case{3000, 5, 16, 1, 40}, Case{2000, 64, 64, 1, 7}, Case{2500, 65, 40, 5, 6}}) {
    INFO("n " << k.n << " m " << k.m << " nrhs " << k.nrhs << " parts " << k.parts);
    REQUIRE(ratio(*c, k.n, k.m, {"partition", k.parts, 0}, k.width, k.nrhs, spd(k.n, k.m)) < 30.0);
    REQUIRE(ratio(*c, k.n, k.m, {"two-ends", 0, 0}, k.width, k.nrhs, spd(k.n, k.m)) < 30.0);
  }
  REQUIRE(ratio(*c, Index(4000), Index(20), {"partition", 0, 0}, 0, 1, spd(4000, 20)) < 30.0);
}

#if TERRACE_WITH_CUDA
// Tile rows in pairs or alone, in even and in odd number: kernels/band/cuda/parts_tasks.cuh.
TEST_CASE("half-bandwidths of many tile rows are solved, CUDA", "[gpu]") {
  Context<Cuda>* c = context<Cuda>();
  if (!c) return;
  const auto solved = [&](Index n, Index m, const Method& method) {
    INFO("n " << n << " m " << m << " " << method.name << " " << method.parts);
    REQUIRE(ratio(*c, n, m, method, 0, 1, spd(n, m)) < 30.0);
  };
  for (const Index m : {64, 65, 128, 129, 192, 193, 256, 257, 320, 321})
    for (const Method& method : {Method{"one-end", 0, 0}, {"two-ends", 0, 0}, {"partition", 5, 0}})
      if (c->size() <= 2) solved(4000, m, method);
  // Chains of their own, with and without what comes before and after: kernels/band/cuda/narrow.cuh.
  for (const Index m : {1, 40, 63, 64, 65, 100, 127, 128})
    for (const Method& method : {Method{"one-end", 0, 0}, {"two-ends", 0, 0}, {"partition", 3, 0}})
      for (const Index n : {64, 65, 127, 128, 129, 192, 320, 640, 641, 1000})
        if (c->size() == 1 && m < n) solved(n, m, method);
  for (const Index m : {1392, 1408, 1409, 1472, 1473, 2304, 2305})
    for (const Method& method : {Method{"one-end", 0, 0}, {"two-ends", 0, 0}, {"partition", 3, 0}})
      if (c->size() == 1) solved(2 * m + 1500, m, method);
}

// With 66 parts and three right-hand sides one backward substitution of about 200 was wrong in a few
// rows on an H200: jobs/results/band.md.
TEST_CASE("many factors and solves of one matrix give the same bits, CUDA", "[gpu]") {
  Context<Cuda>* c = context<Cuda>();
  if (!c || c->size() > 1) return;
  const Index n = 200003, m = 65;
  const BandPlan plan = plan_of(*c, n, m, {"partition", 66, 0}, 0);
  const BandProblem<Cuda> problem = band_problem<Cuda>(n, m, spd(n, m));
  BandParts<Cuda> a = band_parts<Cuda>(*c, plan);
  for (const Index nrhs : {3, 1}) {
    const std::vector<double> b = known_solution(n, nrhs);
    std::vector<double> first, now(b.size());
    BandPartRows<Cuda> x = band_part_rows(a, nrhs);
    for (int turn = 0; turn < 400; ++turn) {
      if (turn % 100 == 0) {
        load_parts(*c, problem, a);
        REQUIRE(factor_parts(*c, a));
      }
      set_rows(*c, a, x, b.data());
      solve_parts(*c, a, x);
      get_rows(*c, a, x, now.data());
      if (turn == 0) first = now;
      INFO("right-hand sides " << nrhs << ", solve " << turn);
      REQUIRE(std::equal(now.begin(), now.end(), first.begin()));
    }
  }
}
#endif

TEMPLATE_TEST_CASE("parts scaled near underflow and overflow are solved", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  for (const double scale : {1e-290, 1e290})
    for (const Method& method : methods)
      REQUIRE(ratio(*c, 290, 20, method, 16, 2, spd(290, 20, scale)) < 30.0);
}

TEMPLATE_TEST_CASE("a residual with one element that is no number is not good", "",
                   TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  const Index n = 130, m = 7, nrhs = 2;
  const BandPlan plan = plan_of(*c, n, m, methods[0], 16);
  const BandProblem<TestType> problem = band_problem<TestType>(n, m, spd(n, m));
  const std::vector<double> x = known_solution(n, nrhs);
  const std::vector<double> b = band_product(n, m, spd(n, m), x, nrhs);
  const Range rows = plan.rows_of(c->rank());
  const auto judged = [&](Index at, double value) {
    std::vector<double> changed = x;
    if (at >= 0) changed[std::size_t(at)] = value;
    const auto own = [&](const std::vector<double>& v) {
      return std::vector<double>(v.begin() + rows.first * nrhs, v.begin() + rows.end() * nrhs);
    };
    return band_residual<TestType>(*c, problem, rows, own(changed), own(b), nrhs);
  };
  CHECK_ALL(judged(-1, 0) < 30);
  for (const Index at : {Index(0), Index(1), n, n * nrhs - 1})
    for (const double value : {double(NAN), double(INFINITY)}) CHECK_ALL(!(judged(at, value) < 30));
}

TEMPLATE_TEST_CASE("Laplace and biharmonic operators are solved in parts", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  const Index n = 700, side = 24;
  const Entry line = [](Index i, Index j) { return i == j ? 2.0 : i - j == 1 ? -1.0 : 0.0; };
  const Entry grid = [=](Index i, Index j) {
    return i == j ? 4.0 : i - j == side || (i - j == 1 && i % side != 0) ? -1.0 : 0.0;
  };
  // The square of the line's matrix.
  const Entry plate = [=](Index i, Index j) {
    if (i == j) return i == 0 || i == n - 1 ? 5.0 : 6.0;
    return i - j == 1 ? -4.0 : i - j == 2 ? 1.0 : 0.0;
  };
  for (const Method& method : methods) {
    INFO(method.name << " " << method.parts);
    const Solved ones = solve(*c, plan_of(*c, n, 1, method, 16), 1, line, 1,
                              std::vector<double>(std::size_t(n), 1.0));
    double error = 0;
    for (const double value : ones.x) error = std::max(error, std::abs(value - 1.0));
    REQUIRE_ALL(error < 1e-9);
    REQUIRE(ones.ratio < 30.0);
    REQUIRE(ratio(*c, n, 2, method, 16, 2, plate) < 30.0);
    REQUIRE(ratio(*c, side * side, side, method, 16, 2, grid) < 30.0);
  }
}

TEMPLATE_TEST_CASE("ill conditioned bands keep a small residual in parts", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  // L D L^T of a bidiagonal L with d graded over 14 decades: condition about 1e14.
  const auto d = [](Index i) { return std::pow(10.0, -14.0 * double(i % 50) / 49.0); };
  const Entry graded = [=](Index i, Index j) {
    const double l = 0.9;
    return i == j ? d(i) + (i > 0 ? l * l * d(i - 1) : 0.0) : i - j == 1 ? l * d(j) : 0.0;
  };
  const Entry minij = [](Index, Index j) { return double(j + 1); };
  for (const Method& method : methods) {
    INFO(method.name << " " << method.parts);
    REQUIRE(ratio(*c, 400, 1, method, 16, 1, graded) < 30.0);
    REQUIRE(ratio(*c, 60, 59, method, 16, 15, minij) < 30.0);
  }
}

TEMPLATE_TEST_CASE("parts that are not positive definite lead to LAPACK's minor", "",
                   TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  const Index width = std::is_same_v<TestType, Cpu> ? 16 : 64;
  for (const Index n : {Index(1), Index(40), 30 * width})
    for (const Index m : {Index(0), Index(17)})
      for (const Method& method : methods) {
        const BandRequest request = request_of(*c, n, m, method, width);
        const BandPlan plan = plan_band<TestType>(request);
        std::vector<Index> columns{0, n / 2, n - 1};
        for (Index p = 1; p < plan.parts(); ++p)
          for (const Index at : {-plan.separator - 1, -plan.separator, Index(-1), Index(0)})
            columns.push_back(plan.begin[std::size_t(p)] + at);
        // Every column next to a boundary with few parts, some of them with many.
        const Index stride = (plan.parts() > 4 ? 5 : 1) * (fewer_cases ? 3 : 1);
        Index turn = 0;
        for (std::size_t at = 0; at < columns.size(); at += std::size_t(stride)) {
          const Index bad = columns[at];
          // Column zero but for its diagonal entry; then the same with couplings kept.
          const double value = std::vector<double>{0.0, -1.0, double(NAN)}[std::size_t(++turn % 3)];
          INFO(method.name << " " << method.parts << " n " << n << " m " << m << " bad " << bad
                           << " value " << value);
          const Entry spd_entry = spd(n, std::min(m, n - 1));
          const Entry alone = [&](Index i, Index j) {
            return i == bad && j == bad ? value : i == bad || j == bad ? 0.0 : spd_entry(i, j);
          };
          const Solved result = solve(*c, plan, m, alone, 1, known_solution(n, 1));
          REQUIRE_ALL(!result.factored);
          REQUIRE(failed_minor(*c, request, alone) == bad + 1);
          if (m == 0 || n == 1) continue;
          const Entry coupled = [&](Index i, Index j) {
            return i == bad && j == bad ? -1.0 : spd_entry(i, j);
          };
          REQUIRE_ALL(!solve(*c, plan, m, coupled, 1, known_solution(n, 1)).factored);
          std::vector<double> l;
          if (n <= 500)
            REQUIRE(failed_minor(*c, request, coupled) == dense_cholesky(n, coupled, l));
        }
      }
}

TEST_CASE("bits of a CPU solution in parts do not depend on the number of ranks") {
  Context<Cpu>& c = *context<Cpu>();
  Context<Cpu> alone = make_context<Cpu>(Control::self());
  for (const Method& method : methods)
    for (const Index nrhs : {1, 7}) {
      const Index n = 900, m = 37;
      const std::vector<double> x = known_solution(n, nrhs);
      const Solved together = solve(c, plan_of(c, n, m, method, 16), m, spd(n, m), nrhs, x);
      const Solved single = solve(alone, plan_of(alone, n, m, method, 16), m, spd(n, m), nrhs, x);
      REQUIRE_ALL((together.factored && single.factored));
      REQUIRE_ALL(std::equal(together.x.begin(), together.x.end(),
                             single.x.begin() + together.rows.first * nrhs));
    }
}

TEMPLATE_TEST_CASE("a stored factor is solved with as one part", "", TERRACE_BACKENDS) {
  Context<TestType>* c = context<TestType>();
  if (!c) return;
  for (const Index n : {1, 5, 64, 65, 300})
    for (const Index m : {0, 3, 63, 64, 100})
      for (const Index nrhs : {1, 9}) {
        if (m >= n) continue;
        INFO("n " << n << " m " << m << " nrhs " << nrhs);
        std::vector<double> l;
        REQUIRE(dense_cholesky(n, spd(n, m), l) == 0);
        const BandPlan plan = plan_of(*c, n, m, {"one-end", 0, 0}, 16);
        BandParts<TestType> a = band_parts<TestType>(*c, plan);
        load_factor(*c,
                    band_problem<TestType>(
                        n, m, [&](Index i, Index j) { return l[std::size_t(i * n + j)]; }),
                    a);
        const std::vector<double> b = band_product(n, m, spd(n, m), known_solution(n, nrhs), nrhs);
        const Range rows = plan.rows_of(c->rank());
        const std::vector<double> own(b.begin() + rows.first * nrhs, b.begin() + rows.end() * nrhs);
        BandPartRows<TestType> x = band_part_rows(a, nrhs);
        set_rows(*c, a, x, own.data());
        solve_parts(*c, a, x);
        std::vector<double> solution(own.size());
        get_rows(*c, a, x, solution.data());
        REQUIRE(band_residual<TestType>(*c, band_problem<TestType>(n, m, spd(n, m)), rows, solution,
                                        own, nrhs) < 30.0);
      }
}
