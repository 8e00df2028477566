// Mixed precision on several ranks; on one the same cases, which are then one end.
#include "src/band/mixed_ends.hpp"

#include <cstring>

#include "kernels/base/problems.hpp"
#include "src/band/system.hpp"
#include "tests/support/band.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::band;
using namespace terrace::test;

namespace {

Entry grid(Index side) {
  return [=](Index i, Index j) {
    return i == j ? 4.0 : i - j == side || (i - j == 1 && i % side != 0) ? -1.0 : 0.0;
  };
}
std::vector<double> numbers(Index n, Index nrhs) {
  std::vector<double> x(std::size_t(n * nrhs));
  for (Index i = 0; i < n * nrhs; ++i) x[std::size_t(i)] = random_uniform(11, i / nrhs, i % nrhs);
  return x;
}

template <class B>
struct Run {
  BandSystem system;
  BandRequest request;
  Progress progress{false, false};
  std::unique_ptr<BandResult<B>> done;
  std::string note;

  Run(Context<B>& c, Index n, Index m, const Entry& entry, const std::vector<double>& b,
      Index nrhs) {
    system.matrix = band_reader(n, m, entry);
    system.rhs = row_reader(b, nrhs);
    request.n = n;
    request.half_bandwidth = m;
    request.nrhs = nrhs;
    request.ranks = c.size();
    request.mixed = true;
    BandHooks hooks;
    hooks.instead = [&](const BandPlan&, const BandNotes&, const BandPlan& now) {
      note = now.note;
    };
    done = solve_band(c, system, request, plan_system<B>(system, request), progress, hooks);
    if (done->failure.minor == 0) done->finish();
  }
  [[nodiscard]] bool mixed() const { return done->plan.method == BandMethod::mixed; }
  /// Largest difference of this rank's rows.
  [[nodiscard]] double apart(const std::vector<double>& x) const {
    double most = 0;
    std::size_t at = 0;
    for (const Range& range : done->ranges)
      for (Index i = range.first * request.nrhs; i < range.end() * request.nrhs; ++i, ++at) {
        const double d = std::abs(done->rows.at(at) - x[std::size_t(i)]);
        most = std::isfinite(d) ? std::max(most, d) : INFINITY;
      }
    return most;
  }
};

template <class B>
bool available() {
  return context<B>() && band_low_available(B{});
}

}  // namespace

TEMPLATE_TEST_CASE("bands are solved in mixed precision from two ends", "", TERRACE_BACKENDS) {
  if (!available<TestType>()) return;
  Context<TestType>& c = *context<TestType>();
  const Index counts[] = {1, 2, 3, 8, 9, 17};
  Index turn = 0;
  // Both ends of one tile column, separators at each boundary of them, and no room for two ends.
  for (const Index n : {1, 2, 63, 64, 65, 127, 128, 129, 130, 191, 192, 193, 194, 257, 300, 1000})
    for (const Index m :
         {Index(0), Index(1), Index(63), Index(64), Index(65), (n + 1) / 4, n + 3}) {
      if (fewer_cases && n > 300) continue;
      const Index nrhs = counts[turn++ % 6], clipped = std::min(m, n - 1);
      CAPTURE(n, m, nrhs);
      const std::vector<double> x = numbers(n, nrhs),
                                b = band_product(n, clipped, spd(n, m), x, nrhs);
      const Run<TestType> run(c, n, m, spd(n, m), b, nrhs);
      REQUIRE_ALL((run.mixed() && run.note.empty()));
      CHECK_ALL(run.apart(x) < 1e-10);
      const double residual = run.done->residual();
      CHECK_ALL(residual < 16.0);
      CHECK_ALL(run.done->notes.found.iterations <= 12);
      CHECK_ALL(run.done->notes.found.backward_error < 2e-15);
    }
}

TEMPLATE_TEST_CASE("determinant and condition from two ends", "", TERRACE_BACKENDS) {
  if (!available<TestType>()) return;
  Context<TestType>& c = *context<TestType>();
  const double unit = band_low_roundoff(TestType{});
  for (const auto& [n, m] : {std::pair<Index, Index>{300, 20}, {257, 64}, {65, 3}, {400, 1}}) {
    CAPTURE(n, m);
    const Entry entry = spd(n, m);
    const Run<TestType> run(c, n, m, entry, numbers(n, 2), 2);
    REQUIRE_ALL(run.mixed());
    std::vector<double> l;
    REQUIRE(dense_cholesky(n, entry, l) == 0);
    double log = 0, error = 0;
    for (Index j = 0; j < n; ++j) log += 2 * std::log(l[std::size_t(j * n + j)]);
    const double found = run.done->log_determinant(&error);
    CHECK_ALL(std::abs(found - log) <= 4 * error + 8 * unit * std::sqrt(double(n)));
    CHECK_ALL(error <= unit * std::sqrt(2 * double(n) * double(2 * m + 1)));
    // The same, solved by FP64.
    std::vector<double> worst(std::size_t(n), 0.0);
    double most = 0, norm = 0;
    for (Index e = 0; e < n; ++e) {
      std::vector<double> y(std::size_t(n), 0.0);
      y[std::size_t(e)] = 1;
      for (Index i = 0; i < n; ++i) {
        for (Index k = std::max<Index>(0, i - m); k < i; ++k)
          y[std::size_t(i)] -= l[std::size_t(i * n + k)] * y[std::size_t(k)];
        y[std::size_t(i)] /= l[std::size_t(i * n + i)];
      }
      for (Index i = n - 1; i >= 0; --i) {
        for (Index k = i + 1; k < std::min(n, i + m + 1); ++k)
          y[std::size_t(i)] -= l[std::size_t(k * n + i)] * y[std::size_t(k)];
        y[std::size_t(i)] /= l[std::size_t(i * n + i)];
      }
      double sum = 0, row = 0;
      for (const double value : y) sum += std::abs(value);
      for (Index j = std::max<Index>(0, e - m); j <= std::min(n - 1, e + m); ++j)
        row += std::abs(e >= j ? entry(e, j) : entry(j, e));
      most = std::max(most, sum);
      norm = std::max(norm, row);
    }
    const double condition = run.done->notes.condition;
    CHECK_ALL(condition < 1.1 * most * norm);
    CHECK_ALL(condition > 0.3 * most * norm);
  }
}

TEMPLATE_TEST_CASE("harder bands from two ends", "", TERRACE_BACKENDS) {
  if (!available<TestType>()) return;
  Context<TestType>& c = *context<TestType>();
  const Index side = 40, n = side * side;
  const std::vector<double> x(std::size_t(n), 1.0);
  const Run<TestType> run(c, n, side, grid(side), band_product(n, side, grid(side), x, 1), 1);
  REQUIRE_ALL(run.mixed());
  CHECK_ALL(run.apart(x) < 1e-11);
  // Scaled by up to 1e100, rows and columns alike.
  const auto d = [](Index k) { return std::ldexp(1.0, int(k * 97 % 665) - 332); };
  const Index small = 300, m = 40;
  const Entry even = spd(small, m);
  const Entry scaled = [=](Index i, Index j) { return even(i, j) * d(i) * d(j); };
  std::vector<double> y(std::size_t(small), 1.0), b = band_product(small, m, even, y, 1);
  for (Index i = 0; i < small; ++i) {
    b[std::size_t(i)] *= d(i);
    y[std::size_t(i)] = 1 / d(i);
  }
  const Run<TestType> bad(c, small, m, scaled, b, 1);
  const double residual = bad.done->residual();
  CHECK_ALL(residual < 1.0);
  CHECK_ALL(bad.mixed());
  for (const double size : {0x1p-900, 0x1p900}) {
    const Entry sized = [=](Index i, Index j) { return size * even(i, j); };
    const std::vector<double> rows = numbers(small, 2);
    std::vector<double> right = band_product(small, m, even, rows, 2);
    for (double& value : right) value *= size;
    const Run<TestType> far(c, small, m, sized, right, 2);
    CHECK_ALL(far.apart(rows) < 1e-10);
    CHECK_ALL(far.mixed());
  }
}

TEMPLATE_TEST_CASE("what two ends cannot solve in mixed precision goes to FP64", "",
                   TERRACE_BACKENDS) {
  if (!available<TestType>()) return;
  Context<TestType>& c = *context<TestType>();
  const Index n = 400, m = 20;
  for (const Index bad : {Index(0), Index(190), Index(200), n - 1}) {  // in each end and between
    const Entry entry = [&](Index i, Index j) {
      return i == bad && j == bad ? -1.0 : spd(n, m)(i, j);
    };
    const Run<TestType> run(c, n, m, entry, numbers(n, 1), 1);
    std::vector<double> l;
    CHECK_ALL(run.done->failure.minor == dense_cholesky(n, entry, l));
    CHECK_ALL((!run.mixed() && !run.note.empty()));
  }
  // Not definite behind a positive diagonal, and only in the separator's system: rows 191 and 192.
  const Entry coupled = [](Index i, Index j) {
    return i == j ? 1.0 : i == 192 && j == 191 ? 1.5 : 0.0;
  };
  const Run<TestType> run(c, n, m, coupled, numbers(n, 1), 1);
  CHECK_ALL(run.done->failure.minor == 193);
  std::vector<double> nan = numbers(n, 3);
  nan[3 * 395 + 1] = NAN;  // on the last end alone
  const Run<TestType> not_finite(c, n, m, spd(n, m), nan, 3);
  CHECK_ALL(!not_finite.mixed());
}

TEMPLATE_TEST_CASE("the bits of a solution from two ends repeat", "", TERRACE_BACKENDS) {
  if (!available<TestType>()) return;
  Context<TestType>& c = *context<TestType>();
  for (const Index nrhs : {1, 5, 12}) {
    const std::vector<double> b = numbers(900, nrhs);
    const Run<TestType> one(c, 900, 30, grid(30), b, nrhs), two(c, 900, 30, grid(30), b, nrhs);
    REQUIRE_ALL(one.mixed());
    REQUIRE_ALL(one.done->rows.size() == two.done->rows.size());
    REQUIRE_ALL(std::equal(one.done->rows.begin(), one.done->rows.end(), two.done->rows.begin()));
  }
}

TEMPLATE_TEST_CASE("two ends take the memory that their plan says", "", TERRACE_BACKENDS) {
  if (!available<TestType>()) return;
  Context<TestType>& c = *context<TestType>();
  if (c.size() == 1) return;
  for (const Index n : {Index(50), Index(129), Index(1000)})
    for (const Index nrhs : {1, 3, 17}) {
      CAPTURE(n, nrhs);
      BandRequest request;
      request.n = n;
      request.half_bandwidth = 30;
      request.nrhs = nrhs;
      request.ranks = c.size();
      request.mixed = true;
      const BandPlan plan = plan_band<TestType>(request);
      const MixedEnds<TestType> e = mixed_ends<TestType>(c, plan, nrhs);
      const BandPartRows<TestType> x = band_part_rows(e.parts, nrhs);
      Index taken = 0;
      const auto add = [&](const auto&... buffers) { taken += (Index(0) + ... + buffers.size()); };
      add(e.parts.memory, e.parts.records, e.parts.slab, e.parts.window, e.parts.scratch, e.own,
          e.tail, e.turned, e.t, e.left, e.solved, e.reduced, e.scratch, x.rows, x.records,
          x.reduced, x.scratch);
      const MixedEndsMemory m = mixed_ends_memory<TestType>(plan, nrhs);
      const Index most = world().reduce(taken, Reduce::max) * 8,
                  said = m.parts.total() + m.separator;
      CHECK_ALL(most <= said);
      CHECK_ALL(said <= most + most / 4 + 4096);
    }
}
