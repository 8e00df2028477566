// --guard of the dense elimination: rounding is never called a memory error, and a bit that flips
// is reported or changes nothing beyond rounding. TERRACE_GUARD_CASES: how many (nightly: 100,000).
#include <fmt/core.h>

#include "tests/support/dense_drawn.hpp"
#include "tests/support/dense_elimination.hpp"
#include "tests/support/guard.hpp"

using namespace terrace;
using namespace terrace::dense;
using test::Dense;
using test::Draw;

namespace {

struct Case {
  Index n = 0, right = 0, block = 1, interval = 0;
  std::string pivoting;
  bool lu = false;
};
Case drawn_case(Draw& draw, Index least) {
  Case c;
  c.n = draw.one_in(12) ? draw.between(65, 130) : draw.between(least, 64);
  c.right = draw.one_in(2) ? draw.between(1, 3) : 0;
  const Index blocks[] = {1, 2, 3, 5, 8, 12, 16, 16, 24, 32, 48, 64};
  c.block = blocks[draw.below(12)];
  c.interval = draw.one_in(2) ? draw.between(1, 4) : 0;
  c.pivoting = draw.one_in(3) ? "tournament" : "partial";
  c.lu = c.right > 0 && draw.one_in(2);
  return c;
}

/// n x right numbers.
std::vector<double> right_of(const Case& c) {
  std::vector<double> b;
  for (Index i = 0; i < c.n; ++i)
    for (Index r = 0; r < c.right; ++r) b.push_back(random_uniform(77, i, r));
  return b;
}

struct Ended {
  EliminationOutcome outcome;
  std::vector<double> x;  // n x columns, on all ranks
  bool alarm = false;
  int loads = 0;
};

template <class B>
Ended ended(Context<B>& context, const Dense& a, const Case& c, bool guard) {
  const Index n = a.n, more = guard ? 1 : 0;
  EliminationPlan plan = plan_elimination<B>(context.size(), n, c.right + more, c.right == 0,
                                             c.block, c.pivoting, false, c.lu);
  plan.guard = guard;
  plan.guard_interval = c.interval;
  RowElimination<B> method(context, plan);
  Ended found;
  std::vector<double> row(std::size_t(method.ld()), 0.0);
  const auto load = [&] {
    ++found.loads;
    for (Index s = 0; s < method.slots(); ++s) {
      const Index i = plan.rows.global(s, context.rank());
      std::copy_n(a.values.begin() + i * n, n, row.begin());
      for (Index r = 0; r < c.right; ++r) row[std::size_t(n + r)] = random_uniform(77, i, r);
      upload(context.ahead, method.data().slice(s * method.ld(), method.ld()),
             static_cast<const double*>(row.data()));
      context.ahead.synchronize();
    }
  };
  load();
  Progress silent(false, false);
  found.alarm = test::alarmed([&] { found.outcome = method.run_guarded(silent, load); });
  if (found.alarm) return found;
  if (!found.outcome.good()) return found;
  const Index columns = c.right == 0 ? n : c.right, from = c.right == 0 ? 0 : n;
  found.x.assign(std::size_t(n * columns), 0.0);
  for (Index s = 0; s < method.slots(); ++s) {
    download(context.ahead, row.data(), method.data().slice(s * method.ld(), method.ld()));
    context.ahead.synchronize();
    std::copy_n(row.begin() + from, columns,
                found.x.begin() + method.destination()[std::size_t(s)] * columns);
  }
  context.control.reduce(found.x, Reduce::sum);
  return found;
}

template <class B>
void check_alarms(Context<B>& context) {
  Index again = 0;
  const Index count = test::guard_cases(1500);
  for (Index at = 0; at < count; ++at) {
    Draw draw{Word(9000 + at)};
    const Case c = drawn_case(draw, 1);
    std::string name;
    const Dense a = test::drawn(at % test::drawn_kinds, c.n, draw, name);
    INFO("case " << at << ": " << name << ", n " << c.n << ", right " << c.right << ", block "
                 << c.block << ", interval " << c.interval << ", " << c.pivoting
                 << (c.lu ? ", LU" : ""));
    const Ended guarded = ended(context, a, c, true);
    REQUIRE_ALL(!guarded.alarm);
    again += guarded.outcome.good() && guarded.loads > 1;
    if (at % 8 != 0) continue;
    const Ended plain = ended(context, a, c, false);
    CHECK_ALL(plain.outcome.bad_column == guarded.outcome.bad_column);
    CHECK_ALL(plain.outcome.overflow == guarded.outcome.overflow);
    double off = 0;
    for (std::size_t i = 0; i < plain.x.size(); ++i)
      off = std::max(off, std::fabs(plain.x[i] - guarded.x[i]) / std::fabs(plain.x[i]));
    INFO("loaded " << guarded.loads << " times, off by " << off);
    CHECK_ALL(plain.x == guarded.x);
  }
  if (context.rank() == 0)
    fmt::print("{} matrices on {} ranks: no false alarm, {} eliminated again\n", count,
               context.size(), again);
}

double norm_infinity(Index n, const std::vector<double>& a) {
  double most = 0;
  for (Index i = 0; i < n; ++i) {
    double sum = 0;
    for (Index j = 0; j < n; ++j) sum += std::fabs(a[std::size_t(i * n + j)]);
    most = std::max(most, sum);
  }
  return most;
}

/// Flips of any bit of any number at any step, in matrices whose rounding errors are known.
template <class B>
void check_flips(Context<B>& context) {
  Index caught = 0, done = 0, left = 0;
  double worst = 0;
  const Index count = test::guard_cases(600);
  const Index kinds[] = {0, 9, 13, 14, 15, 18, 11, 4, 7};
  for (Index at = 0; at < count; ++at) {
    Draw draw{Word(700000 + at)};
    Case c = drawn_case(draw, 20);
    std::string name;
    const Dense a = test::drawn(kinds[at % 9], c.n, draw, name);
    c.block = std::min<Index>(c.block, 24);
    Case whole = c;
    whole.right = 0;
    whole.lu = false;
    const Ended inverse = ended(context, a, whole, false);
    if (!inverse.outcome.good()) continue;
    const double condition = norm_infinity(c.n, a.values) * norm_infinity(c.n, inverse.x);
    if (!(condition < 1e9)) continue;
    const Ended plain = c.right == 0 ? inverse : ended(context, a, c, false);
    const Index steps = ceil_div(c.n, c.block);
    TestFlip& flip = next_test_flip();
    flip.rank = draw.below(context.size());
    flip.step = draw.between(1, steps);
    flip.byte = draw.below(Index(1) << 30);
    flip.bit = int(draw.below(8));
    if (draw.one_in(2)) flip.byte |= 7;  // sign and exponent
    INFO("case " << at << ": " << name << ", n " << c.n << ", right " << c.right << ", block "
                 << c.block << ", interval " << c.interval << ", " << c.pivoting
                 << (c.lu ? ", LU" : "") << ", flip " << flip.rank << ":" << flip.step << ":"
                 << flip.byte << ":" << flip.bit);
    const Ended flipped = ended(context, a, c, true);
    next_test_flip() = {};
    ++done;
    if (flipped.alarm) {
      ++caught;
      continue;
    }
    REQUIRE_ALL(flipped.outcome.good());
    double most = 0, off = 0;
    for (std::size_t i = 0; i < plain.x.size(); ++i) {
      most = std::max(most, std::fabs(plain.x[i]));
      off = std::max(off, std::fabs(plain.x[i] - flipped.x[i]));
    }
    const double times = off / most / (double(c.n) * 2.2e-16 * condition);
    if (times < 200) {
      worst = std::max(worst, times);
      continue;
    }
    // What rounding hides is left to the check of the answer, which run_guarded() is not asked for.
    const double ratio = c.right == 0 ? test::ratios(a, test::as_dense(c.n, flipped.x)).right
                                      : test::solution_ratio(a, c.right, flipped.x, right_of(c));
    left += !(ratio <= 30);
    if (at % 9 < 7) CHECK_ALL(times < 1e6);  // kinds that do not grow: near the bound at most
  }
  if (context.rank() == 0)
    fmt::print(
        "{} of {} flips on {} ranks reported, {} left to the check of the answer; the others "
        "changed it by {:.2g} n eps cond(A) at most\n",
        caught, done, context.size(), left, worst);
  CHECK_ALL(caught > done / 5);
  CHECK_ALL(left <= done / 50 + 5);  // few flips scatter
}

}  // namespace

TEST_CASE("Rounding is not called a memory error", "[cpu]") {
  test::on<Cpu>([](auto& context) { check_alarms(context); });
}
TEST_CASE("Rounding is not called a memory error, CUDA", "[gpu]") {
  test::on<Cuda>([](auto& context) { check_alarms(context); });
}
TEST_CASE("A flipped bit is reported or changes nothing beyond rounding", "[cpu]") {
  test::on<Cpu>([](auto& context) { check_flips(context); });
}
TEST_CASE("A flipped bit is reported or changes nothing beyond rounding, CUDA", "[gpu]") {
  test::on<Cuda>([](auto& context) { check_flips(context); });
}
