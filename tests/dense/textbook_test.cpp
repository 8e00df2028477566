#include "src/dense/textbook.hpp"

#include "kernels/base/error.hpp"
#include "src/dense/check.hpp"
#include "tests/support/dense.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::dense;
using terrace::test::Entry;
using textbook::Launch;

namespace {

const std::vector<Launch> shapes{{8, 16}, {16, 16}, {32, 16}, {8, 32}, {16, 32}, {32, 32}};
/// The CPU backend launches nothing, so it has one shape.
template <class B>
std::vector<Launch> shapes_of() {
  return std::is_same_v<B, Cpu> ? std::vector<Launch>{{}} : shapes;
}

template <class B>
void fill(Context<B>& context, TextbookInverse<B>& method, const Entry& a) {
  const Index n = method.plan().n;
  std::vector<double> values(static_cast<std::size_t>(n * n));
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < n; ++j) values[std::size_t(i * n + j)] = a(i, j);
  if (n > 0) upload(context.ahead, method.data(), static_cast<const double*>(values.data()));
  context.ahead.synchronize();
}

template <class B>
EliminationOutcome inverted(Context<B>& context, Index n, const Entry& a,
                            std::vector<double>* x = {}, Launch launch = {}) {
  TextbookInverse<B> method(context, plan_textbook(n, launch));
  fill(context, method, a);
  Progress silent(false, false);
  const EliminationOutcome found = method.run(silent);
  if (x && n > 0) {
    x->resize(std::size_t(n * n));
    download(context.ahead, x->data(), method.data());
    context.ahead.synchronize();
  }
  return found;
}

/// Both residuals in long double; determinant against the oracle's.
template <class B>
void check_problem(Context<B>& context, Index n, const test::Problem& problem, Launch launch) {
  INFO(problem.name << ", n " << n << ", grid " << launch.grid << ", threads " << launch.threads);
  std::vector<double> x;
  const EliminationOutcome found = inverted(context, n, problem.entry, &x, launch);
  REQUIRE(found.good());
  CHECK(test::residual_ratio(n, n, problem.entry, x, test::identity()) < 30);
  CHECK(test::residual_ratio(n, n, problem.entry, x, test::identity(), true) < 30);
  if (n > 130) return;
  const test::Oracle oracle = test::textbook_inverse(n, problem.entry);
  CHECK(found.determinant_sign == oracle.sign);
  double a_norm = 0, x_norm = 0;
  for (Index i = 0; i < n; ++i) {
    double a_row = 0, x_row = 0;
    for (Index j = 0; j < n; ++j) {
      a_row += std::fabs(problem.entry(i, j));
      x_row += std::fabs(x[std::size_t(i * n + j)]);
    }
    a_norm = std::max(a_norm, a_row), x_norm = std::max(x_norm, x_row);
  }
  CHECK(std::fabs(found.log_abs_determinant - double(oracle.log_abs_determinant)) <
        double(n) * (1e-12 + 2e-15 * a_norm * x_norm));
}

}  // namespace

TEMPLATE_TEST_CASE("The textbook's inverse passes LAPACK's ratio on every kind of matrix", "",
                   TERRACE_BACKENDS) {
  Context<TestType>* context = test::context<TestType>();
  if (!context) return;
  for (const Index n : {1, 2, 15, 16, 17, 31, 32, 33, 100})
    for (const test::Problem& problem : test::problems(n))
      if (n <= problem.largest && !(n == 1 && problem.name == "zero leading block"))
        check_problem(*context, n, problem, {});
}

TEMPLATE_TEST_CASE("Every launch shape inverts every order", "", TERRACE_BACKENDS) {
  Context<TestType>* context = test::context<TestType>();
  if (!context) return;
  for (const Launch launch : shapes_of<TestType>())
    for (const Index n : {1, 2, 15, 16, 17, 31, 32, 33, 100, 257})
      for (const std::size_t kind : {0U, 8U, 9U}) {  // random, permuted diagonal, zero block
        if (n == 1 && kind == 9U) continue;
        check_problem(*context, n, test::problems(n)[kind], launch);
      }
}

TEMPLATE_TEST_CASE("A permuted diagonal needs an exchange in every column and inverts exactly", "",
                   TERRACE_BACKENDS) {
  Context<TestType>* context = test::context<TestType>();
  if (!context) return;
  for (const Launch launch : shapes_of<TestType>())
    for (const Index n : {2, 15, 16, 17, 33, 100}) {
      INFO("n " << n << ", grid " << launch.grid << ", threads " << launch.threads);
      // Row i holds 2^(i % 5) in column i + 1 (mod n): one cycle, n - 1 exchanges.
      const Entry a = [n](Index i, Index j) {
        return (i + 1) % n == j ? std::ldexp(1.0, int(i % 5)) : 0.0;
      };
      std::vector<double> x;
      const EliminationOutcome found = inverted(*context, n, a, &x, launch);
      REQUIRE(found.good());
      Index wrong = 0;
      for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < n; ++j)
          wrong +=
              x[std::size_t(i * n + j)] != ((j + 1) % n == i ? std::ldexp(1.0, -int(j % 5)) : 0.0);
      CHECK(wrong == 0);
      CHECK(found.determinant_sign == (n % 2 == 0 ? -1 : 1));
    }
}

TEMPLATE_TEST_CASE("The textbook's method names the first zero pivot", "", TERRACE_BACKENDS) {
  Context<TestType>* context = test::context<TestType>();
  if (!context) return;
  for (const Launch launch : shapes_of<TestType>())
    for (const Index n : {1, 3, 16, 64, 100})
      for (const Index column : {Index(0), n / 2, n - 1}) {
        INFO("n " << n << ", column " << column);
        const Entry zero = [=](Index i, Index j) {
          return j == column ? 0.0 : random_uniform(5, i, j);
        };
        const EliminationOutcome found = inverted(*context, n, zero, nullptr, launch);
        CHECK(!found.overflow);
        CHECK(found.bad_column == column);
      }
  // Two equal columns of zeros and ones: the second becomes exactly zero.
  const Entry twins = [](Index i, Index j) {
    const Index c = j == 40 ? 7 : j;
    return i == c ? 1.0 : i > c && (i + c) % 3 == 0 ? 1.0 : 0.0;
  };
  CHECK(inverted(*context, 50, twins).bad_column == 40);
  CHECK(inverted(*context, 50, [](Index, Index) { return 0.0; }).bad_column == 0);
}

TEMPLATE_TEST_CASE("What is not finite is said to be so", "", TERRACE_BACKENDS) {
  Context<TestType>* context = test::context<TestType>();
  if (!context) return;
  for (const double bad : {std::nan(""), double(INFINITY)}) {
    const Entry with_bad = [=](Index i, Index j) {
      return i == 33 && j == 20 ? bad : random_uniform(3, i, j);
    };
    const EliminationOutcome found = inverted(*context, 50, with_bad);
    CHECK(found.overflow);
    CHECK(found.bad_column == 20);
  }
  const Entry tiny = [](Index i, Index j) { return i == j ? (i == 9 ? 1e-310 : 1.0) : 0.0; };
  CHECK(inverted(*context, 20, tiny).overflow);
  CHECK(inverted(*context, 20, tiny).bad_column == -1);
}

TEMPLATE_TEST_CASE("One solver inverts one matrix after another, and the check sees its result", "",
                   TERRACE_BACKENDS) {
  Context<TestType>* context = test::context<TestType>();
  if (!context) return;
  for (const Index n : {1, 33, 130}) {
    TextbookInverse<TestType> method(*context, plan_textbook(n, {}));
    Progress silent(false, false);
    for (const Word seed : {Word(7), Word(8)}) {
      const auto reader = [n](Word s) -> RowReader {
        return [n, s](std::span<const Range> ranges, const io::Sink<double>& sink) {
          Index position = 0;
          std::vector<double> row(static_cast<std::size_t>(n));
          for (const Range& range : ranges)
            for (Index i = range.first; i < range.end(); ++i) {
              for (Index j = 0; j < n; ++j) row[std::size_t(j)] = random_uniform(s, i, j);
              sink(position++, 1, row.data());
            }
        };
      };
      method.reset();
      fill(*context, method, [&](Index i, Index j) { return random_uniform(seed, i, j); });
      REQUIRE(method.run(silent).good());
      const InverseResidual right = check_inverse(*context, method, reader(seed), 1.0);
      CHECK(right.right < 30);
      CHECK(right.left < 30);
      CHECK(check_inverse(*context, method, reader(seed + 1), 1.0).right > 30);
    }
  }
}

TEMPLATE_TEST_CASE("The textbook's inverse of an empty matrix is empty", "", TERRACE_BACKENDS) {
  Context<TestType>* context = test::context<TestType>();
  if (!context) return;
  const EliminationOutcome found = inverted(*context, 0, [](Index, Index) { return 0.0; });
  CHECK(found.good());
  CHECK(found.log_abs_determinant == 0);
  CHECK(found.determinant_sign == 1);
}

TEST_CASE("The textbook's plan counts both halves, and the CPU has no launches") {
  CHECK(plan_textbook(1000, {}).bytes >= 16 * 1000 * 1000);
  CHECK(plan_textbook(1000, {}).bytes < 16 * 1001 * 1001);
  CHECK(launch_of<Cpu>(0, 0).grid == 16);
  CHECK_THROWS_AS(launch_of<Cpu>(8, 0), Error);
  CHECK_THROWS_AS(launch_of<Cpu>(0, 16), Error);
}
