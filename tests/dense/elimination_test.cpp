#include "src/dense/elimination.hpp"

#include <map>

#include "kernels/base/error.hpp"
#include "kernels/base/parallel.hpp"
#include "tests/support/dense.hpp"
#include "tests/support/stopped.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::dense;
using terrace::test::Entry;

namespace {

struct Outcome {
  EliminationOutcome found;
  std::vector<double> x;  // n x columns, on all ranks
};

/// Runs the elimination on generated rows and brings the result together.
template <class B>
Outcome eliminated(Context<B>& context, Index n, const Entry& a, Index block,
                   const std::string& pivoting, Index right = 0, const Entry& b = {},
                   bool emulated = false, bool lu = false) {
  const bool inverse = right == 0;
  RowElimination<B> method(context, plan_elimination<B>(context.size(), n, right, inverse, block,
                                                        pivoting, emulated, lu));
  std::vector<double> row(static_cast<std::size_t>(method.ld()), 0.0);
  for (Index s = 0; s < method.slots(); ++s) {
    const Index i = method.plan().rows.global(s, context.rank());
    for (Index j = 0; j < n; ++j) row[std::size_t(j)] = a(i, j);
    for (Index j = 0; j < right; ++j) row[std::size_t(n + j)] = b(i, j);
    upload(context.ahead, method.data().slice(s * method.ld(), method.ld()),
           static_cast<const double*>(row.data()));
    context.ahead.synchronize();
  }
  Progress silent(false, false);
  Outcome out;
  out.found = method.run(silent);
  const Index columns = inverse ? n : right, from = inverse ? 0 : n;
  out.x.assign(std::size_t(n * columns), 0.0);
  if (!out.found.good()) return out;
  for (Index s = 0; s < method.slots(); ++s) {
    download(context.ahead, row.data(), method.data().slice(s * method.ld(), method.ld()));
    context.ahead.synchronize();
    for (Index j = 0; j < columns; ++j)
      out.x[std::size_t(method.destination()[std::size_t(s)] * columns + j)] =
          row[std::size_t(from + j)];
  }
  context.control.reduce(out.x, Reduce::sum);
  return out;
}

/// Once for all blocks and ways to choose pivots.
const test::Oracle& oracle_of(Index n, const test::Problem& problem) {
  static std::map<std::pair<std::string, Index>, test::Oracle> known;
  const auto key = std::pair(problem.name, n);
  const auto found = known.find(key);
  return found != known.end()
             ? found->second
             : known.emplace(key, test::textbook_inverse(n, problem.entry)).first->second;
}

template <class B>
void check_inverse(Context<B>& context, Index n, const test::Problem& problem, Index block,
                   const std::string& pivoting) {
  INFO(problem.name << ", n " << n << ", block " << block << ", " << pivoting);
  const Outcome out = eliminated(context, n, problem.entry, block, pivoting);
  const test::Oracle& oracle = oracle_of(n, problem);
  REQUIRE_ALL(oracle.zero_column < 0);
  REQUIRE_ALL(out.found.good());
  // All ranks have the same x: one judges A X, another one X A.
  CHECK_ALL(context.rank() != 0 ||
            test::residual_ratio(n, n, problem.entry, out.x, test::identity()) < 30);
  CHECK_ALL(context.rank() != 1 % context.size() ||
            test::residual_ratio(n, n, problem.entry, out.x, test::identity(), true) < 30);
  CHECK_ALL(out.found.determinant_sign == oracle.sign);
  // d log |det A| = trace(A^-1 dA): rounding errors count by the condition number.
  double a_norm = 0, x_norm = 0;
  for (Index i = 0; i < n; ++i) {
    double a_row = 0, x_row = 0;
    for (Index j = 0; j < n; ++j) {
      a_row += std::fabs(problem.entry(i, j));
      x_row += std::fabs(out.x[std::size_t(i * n + j)]);
    }
    a_norm = std::max(a_norm, a_row), x_norm = std::max(x_norm, x_row);
  }
  CHECK_ALL(std::fabs(out.found.log_abs_determinant - double(oracle.log_abs_determinant)) <
            double(n) * (1e-12 + 2e-15 * a_norm * x_norm));
}

template <class B>
void check_all_kinds(const std::string& pivoting) {
  Context<B>* context = test::context<B>();
  if (!context) return;
  const std::vector<Index> sizes = test::fewer_cases
                                       ? std::vector<Index>{1, 3, 16, 17, 65}
                                       : std::vector<Index>{1, 2, 3, 15, 16, 17, 63, 64, 65, 130};
  for (const Index n : sizes)
    for (const test::Problem& problem : test::problems(n))
      if (n <= problem.largest && !(n == 1 && problem.name == "zero leading block"))
        check_inverse(*context, n, problem, 16, pivoting);
  const test::Problem random = test::problems(1)[0];
  for (const Index block : {1, 5, 40, 64, 200})
    check_inverse(*context, 130, random, block, pivoting);
}

template <class B>
void check_singular(const std::string& pivoting) {
  Context<B>* context = test::context<B>();
  if (!context) return;
  for (const Index n : {1, 3, 64, 100})
    for (const Index column : {Index(0), n / 2, n - 1}) {
      INFO("n " << n << ", column " << column);
      const Entry zero = [=](Index i, Index j) {
        return j == column ? 0.0 : random_uniform(5, i, j);
      };
      const Outcome out = eliminated(*context, n, zero, 16, pivoting);
      CHECK_ALL(!out.found.overflow);
      CHECK_ALL(out.found.bad_column == column);
    }
  // Two equal columns of small integers: the second becomes exactly zero.
  const Entry twins = [](Index i, Index j) {
    const Index c = j == 40 ? 7 : j;
    return i == c ? 1.0 : i > c && (i + c) % 3 == 0 ? 1.0 : 0.0;
  };
  CHECK_ALL(eliminated(*context, 50, twins, 16, pivoting).found.bad_column == 40);
  const Entry zeros = [](Index, Index) { return 0.0; };
  CHECK_ALL(eliminated(*context, 50, zeros, 16, pivoting).found.bad_column == 0);
  for (const double bad : {std::nan(""), double(INFINITY)}) {
    const Entry with_bad = [=](Index i, Index j) {
      return i == 33 && j == 20 ? bad : random_uniform(3, i, j);
    };
    CHECK_ALL(!eliminated(*context, 50, with_bad, 16, pivoting).found.good());
  }
  const Entry tiny = [](Index i, Index j) { return i == j ? (i == 9 ? 1e-310 : 1.0) : 0.0; };
  CHECK_ALL(eliminated(*context, 20, tiny, 16, pivoting).found.overflow);
}

template <class B>
void check_solve(const std::string& pivoting, bool lu = false) {
  Context<B>* context = test::context<B>();
  if (!context) return;
  for (const Index n : {1, 5, 64, 65, 130})
    for (const Index right : {1, 3, 40}) {
      if (test::fewer_cases && (n == 64 || right == 3)) continue;
      const Entry a = test::problems(n)[0].entry;
      const Entry b = [](Index i, Index j) { return random_uniform(99, i, j); };
      INFO("n " << n << ", right-hand sides " << right);
      const Outcome out = eliminated(*context, n, a, 16, pivoting, right, b, false, lu);
      REQUIRE_ALL(out.found.good());
      CHECK_ALL(test::residual_ratio(n, right, a, out.x, b) < 30);
    }
}

/// LU on every kind of matrix, with the determinant of the textbook, and widths that no vector
/// divides.
template <class B>
void check_lu(const std::string& pivoting) {
  check_solve<B>(pivoting, true);
  Context<B>* context = test::context<B>();
  if (!context) return;
  const Entry b = [](Index i, Index j) { return random_uniform(99, i, j); };
  const auto check = [&](Index n, const test::Problem& problem, Index block) {
    INFO(problem.name << ", n " << n << ", block " << block << ", " << pivoting);
    const Outcome out = eliminated(*context, n, problem.entry, block, pivoting, 2, b, false, true);
    const test::Oracle& oracle = oracle_of(n, problem);
    REQUIRE_ALL(out.found.good());
    CHECK_ALL(test::residual_ratio(n, 2, problem.entry, out.x, b) < 30);
    CHECK_ALL(out.found.determinant_sign == oracle.sign);
    if (problem.name == test::problems(1)[0].name)
      CHECK_ALL(std::fabs(out.found.log_abs_determinant - double(oracle.log_abs_determinant)) <
                1e-9 * double(n));
  };
  for (const Index n : {1, 2, 17, 33, 65, 130})
    for (const test::Problem& problem : test::problems(n))
      if (n <= problem.largest && !(n == 1 && problem.name == "zero leading block"))
        check(n, problem, 16);
  for (const Index block : {1, 5, 32, 40, 64, 100, 200}) check(200, test::problems(1)[0], block);
  for (const Index column : {0, 31, 70, 99}) {
    const Entry zero = [=](Index i, Index j) {
      return j == column ? 0.0 : random_uniform(5, i, j);
    };
    const Outcome out = eliminated(*context, 100, zero, 32, pivoting, 1, b, false, true);
    CHECK_ALL(out.found.bad_column == column);
  }
}

}  // namespace

TEMPLATE_TEST_CASE("The inverse passes LAPACK's ratio on every kind of matrix", "",
                   TERRACE_BACKENDS) {
  check_all_kinds<TestType>("partial");
}
TEMPLATE_TEST_CASE("The tournament passes LAPACK's ratio on every kind of matrix", "",
                   TERRACE_BACKENDS) {
  check_all_kinds<TestType>("tournament");
}
TEMPLATE_TEST_CASE("A singular matrix is named by its first zero pivot", "", TERRACE_BACKENDS) {
  check_singular<TestType>("partial");
  check_singular<TestType>("tournament");
}
TEMPLATE_TEST_CASE("Many right-hand sides are solved by the same elimination", "",
                   TERRACE_BACKENDS) {
  check_solve<TestType>("partial");
  check_solve<TestType>("tournament");
}

// Panels of 1 to 16 multiprocessors, with 1 and 2 rows a thread.
TEMPLATE_TEST_CASE("LU passes LAPACK's ratio on every kind of matrix", "", TERRACE_BACKENDS) {
  for (const std::string pivoting : {"partial", "tournament"}) check_lu<TestType>(pivoting);
}

// P A = L U entry by entry, and other right-hand sides by what was kept.
template <class B>
void check_factors(const std::string& pivoting) {
  Context<B>* context = test::context<B>();
  if (!context) return;
  for (const Index n : {1, 33, 65, 200})
    for (const Index block : {7, 32, 64}) {
      if (test::fewer_cases && n == 200) continue;
      INFO("n " << n << ", block " << block << ", " << pivoting);
      const Entry a = test::problems(n)[0].entry;
      EliminationPlan plan =
          plan_elimination<B>(context->size(), n, 2, false, block, pivoting, false, true);
      plan.keep = true;
      RowElimination<B> method(*context, plan);
      std::vector<double> row(static_cast<std::size_t>(method.ld()), 0.0);
      const auto put = [&](Index s, Index from) {
        upload(context->ahead, method.data().slice(s * method.ld() + from, method.ld() - from),
               static_cast<const double*>(row.data()) + from);
        context->ahead.synchronize();
      };
      const auto get = [&](Index s) {
        download(context->ahead, row.data(), method.data().slice(s * method.ld(), method.ld()));
        context->ahead.synchronize();
      };
      for (Index s = 0; s < method.slots(); ++s) {
        const Index i = plan.rows.global(s, context->rank());
        for (Index j = 0; j < n; ++j) row[std::size_t(j)] = a(i, j);
        row[std::size_t(n)] = row[std::size_t(n + 1)] = 0;
        put(s, 0);
      }
      Progress silent(false, false);
      REQUIRE_ALL(method.run(silent).good());
      const std::vector<Index>& pivots = method.pivot_rows();
      std::vector<double> lu(std::size_t(n * n), 0.0), x(std::size_t(2 * n), 0.0);
      for (Index s = 0; s < method.slots(); ++s) {
        get(s);
        const Index j = method.destination()[std::size_t(s)];
        std::copy_n(row.begin(), n, lu.begin() + j * n);
        for (Index c = 0; c < 2; ++c)
          row[std::size_t(n + c)] = random_uniform(5, pivots[std::size_t(j)], c);
        put(s, n);
      }
      context->control.reduce(lu, Reduce::sum);
      double off = 0;
      for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < n; ++j) {
          double sum = i <= j ? lu[std::size_t(i * n + j)] : 0;
          for (Index k = 0; k < std::min(i, j + 1); ++k)
            sum += lu[std::size_t(i * n + k)] * lu[std::size_t(k * n + j)];
          off = std::max(off, std::fabs(sum - a(pivots[std::size_t(i)], j)));
        }
      CHECK_ALL(off < 1e-12 * double(n));
      REQUIRE_ALL(method.solve_factored(method.plan().right).good());
      for (Index s = 0; s < method.slots(); ++s) {
        get(s);
        const Index j = method.destination()[std::size_t(s)];
        std::copy_n(row.begin() + n, 2, x.begin() + 2 * j);
      }
      context->control.reduce(x, Reduce::sum);
      CHECK_ALL(test::residual_ratio(
                    n, 2, a, x, [](Index i, Index c) { return random_uniform(5, i, c); }) < 30);
    }
}
TEMPLATE_TEST_CASE("L and U are those of the permuted matrix, and solve again", "",
                   TERRACE_BACKENDS) {
  for (const std::string pivoting : {"partial", "tournament"}) check_factors<TestType>(pivoting);
}

TEMPLATE_TEST_CASE("Panels of many rows on one device pass the check", "", TERRACE_BACKENDS) {
  Context<TestType>* context = test::context<TestType>();
  if (!context) return;
  for (const Index n : {255, 257, 513, 1000, 2049, 3000, 4097, 6000, 8193})
    for (const Index block : {33, 128, 300}) {
      if (n > 3000 && block != 300) continue;
      if (n > (test::fewer_cases ? 257 : 513) && std::is_same_v<TestType, Cpu>) continue;
      INFO("n " << n << ", block " << block);
      const Entry a = [](Index i, Index j) { return random_uniform(5, i, j); };
      const Entry b = [](Index i, Index j) { return random_uniform(6, i, j); };
      const Outcome out = eliminated(*context, n, a, block, "auto", 1, b);
      REQUIRE_ALL(out.found.good());
      CHECK_ALL(test::residual_ratio(n, 1, a, out.x, b) < 30);
    }
}

#if TERRACE_WITH_CUDA
TEST_CASE("Emulated products pass LAPACK's ratio, with the same bits every time", "[gpu]") {
  Context<Cuda>* context = test::context<Cuda>();
  if (!context || !emulated::available(Cuda{})) return;
  for (const Index n : {1, 100, 700})
    for (const Index block : {64, 300}) {
      INFO("n " << n << ", block " << block);
      const Entry a = test::problems(n)[0].entry;
      const Outcome out = eliminated(*context, n, a, block, "auto", 0, {}, true);
      REQUIRE_ALL(out.found.good());
      CHECK_ALL(test::residual_ratio(n, n, a, out.x, test::identity()) < 30);
      CHECK_ALL(test::residual_ratio(n, n, a, out.x, test::identity(), true) < 30);
      CHECK_ALL(out.x == eliminated(*context, n, a, block, "auto", 0, {}, true).x);
    }
  const Entry singular = [](Index i, Index j) { return j == 70 ? 0.0 : random_uniform(7, i, j); };
  CHECK_ALL(eliminated(*context, 200, singular, 64, "auto", 0, {}, true).found.bad_column == 70);
}
#endif

TEST_CASE("Emulated products are refused on the CPU") {
  CHECK_THROWS_AS(plan_elimination<Cpu>(1, 10, 0, true, 0, "auto", true), Error);
}

TEST_CASE("An empty matrix has an empty inverse and determinant one") {
  const Outcome out = eliminated(
      *test::context<Cpu>(), 0, [](Index, Index) { return 0.0; }, 0, "auto");
  CHECK_ALL(out.found.good());
  CHECK_ALL(out.found.log_abs_determinant == 0 && out.found.determinant_sign == 1);
}

TEST_CASE("The bits of the inverse do not depend on the number of ranks") {
  Context<Cpu> alone = make_context<Cpu>(Control::self());
  for (const std::string pivoting : {"partial", "tournament"})
    for (const Index n : {5, 64, 150, 333})
      for (const Index block : {16, 24}) {
        if (test::fewer_cases && n > 150) continue;
        INFO("n " << n << ", block " << block << ", " << pivoting);
        const Entry a = test::problems(n)[0].entry;
        const Outcome together = eliminated(*test::context<Cpu>(), n, a, block, pivoting);
        const Outcome single = eliminated(alone, n, a, block, pivoting);
        CHECK_ALL(together.x == single.x);
        CHECK_ALL(together.found.log_abs_determinant == single.found.log_abs_determinant);
      }
}

// Pivots of equal size too: the row that stood first is taken, wherever it lies by then.
TEST_CASE("The bits of a solution by LU do not depend on the number of ranks") {
  Context<Cpu> alone = make_context<Cpu>(Control::self());
  const Entry signs = [](Index i, Index j) { return random_uniform(8, i, j) < 0 ? -1.0 : 1.0; };
  const Entry b = [](Index i, Index j) { return random_uniform(99, i, j); };
  for (const std::string pivoting : {"partial", "tournament"})
    for (const Index n : {5, 64, 150, 333})
      for (const Entry& a : {signs, test::problems(n)[0].entry})
        for (const Index block : {16, 24}) {
          if (test::fewer_cases && n > 150) continue;
          INFO("n " << n << ", block " << block << ", " << pivoting);
          const auto solved = [&](Context<Cpu>& context) {
            return eliminated(context, n, a, block, pivoting, 3, b, false, true);
          };
          const Outcome together = solved(*test::context<Cpu>()), single = solved(alone);
          CHECK_ALL(together.x == single.x);
          CHECK_ALL(together.found.log_abs_determinant == single.found.log_abs_determinant);
        }
}

// Inside a piece of parallel_for the elimination has one thread.
TEST_CASE("The bits of the inverse do not depend on the number of threads") {
  Context<Cpu> alone = make_context<Cpu>(Control::self());
  const int before = thread_count();
  for (const std::string pivoting : {"partial", "tournament"})
    for (const Index n : {129, 500})
      for (const Index block : {37, 72}) {
        if (test::fewer_cases && n > 129) continue;
        INFO("n " << n << ", block " << block << ", " << pivoting);
        const Entry a = test::problems(n)[0].entry;
        set_thread_count(3);
        const Outcome many = eliminated(alone, n, a, block, pivoting);
        Outcome one;
        parallel_for(2, [&](Index piece) {
          if (piece == 0) one = eliminated(alone, n, a, block, pivoting);
        });
        set_thread_count(before);
        REQUIRE_ALL(one.found.good());
        CHECK_ALL(many.x == one.x);
        CHECK_ALL(test::residual_ratio(n, n, a, many.x, test::identity()) < 30);
      }
}

TEMPLATE_TEST_CASE("an elimination may be stopped at each panel while lanes work", "",
                   TERRACE_BACKENDS) {
  Context<TestType>* c = test::context<TestType>();
  if (!c) return;
  const test::Problem random = test::problems(1)[0];
  for (const bool lu : {false, true}) {
    const Index n = 130;
    const Index ticks = test::stopped_at_each_tick([&](Progress& progress, const auto& attempt) {
      RowElimination<TestType> method(
          *c, plan_elimination<TestType>(c->size(), n, 0, true, 16, "partial", false, lu));
      std::vector<double> row(static_cast<std::size_t>(method.ld()), 0.0);
      for (Index s = 0; s < method.slots(); ++s) {
        const Index i = method.plan().rows.global(s, c->rank());
        for (Index j = 0; j < n; ++j) row[std::size_t(j)] = random.entry(i, j);
        upload(c->ahead, method.data().slice(s * method.ld(), method.ld()),
               static_cast<const double*>(row.data()));
        c->ahead.synchronize();
      }
      attempt([&] { (void)method.run(progress); });
    });
    REQUIRE(ticks >= 8);
  }
}
