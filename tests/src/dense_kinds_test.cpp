// Accuracy of inverses, solutions and condition numbers on LAPACK's kinds of matrices.
// `src_dense_kinds_test "[show]"` prints the figures beside LAPACK's.
#include <fmt/core.h>

#include "tests/support/dense_elimination.hpp"

using namespace terrace;
using test::both;
using test::Dense;
using test::eliminated;
using test::Found;
using test::on;
using test::usual_block;
using test::Values;

namespace {

struct Case {
  std::string name;
  Dense a;
  bool growth = false;  ///< pivots grow as in any Gaussian elimination: LAPACK is the measure
};

Index large() { return test::thread_sanitizer ? 33 : 65; }

std::vector<Case> conditioned(Index n) {
  std::vector<Case> cases;
  for (const auto& [kind, name] : test::spectra())
    for (const double condition : {10.0, 1e8, 1e15})
      cases.push_back(
          {fmt::format("{} {:g}", name, condition), test::of_spectrum(kind, n, condition)});
  return cases;
}
std::vector<Case> named() {
  const Index n = large();
  std::vector<Case> cases;
  cases.push_back({"hilbert", test::hilbert(11)});
  cases.push_back({"lehmer", test::lehmer(n)});
  cases.push_back({"minij", test::minij(n)});
  cases.push_back({"frank", test::frank(16)});
  cases.push_back({"triw", test::triw(n)});
  for (const Index order : {Index(40), n}) {
    cases.push_back({"growth 2", test::growth(order, 1.0, false), true});
    cases.push_back({"growth 1.5", test::growth(order, 0.5, true), true});
  }
  return cases;
}
std::vector<Case> badly_scaled() {
  const Index n = large();
  std::vector<Case> cases;
  cases.push_back({"graded rows", test::scaled(n, -12, 0, false)});
  cases.push_back({"graded columns", test::scaled(n, 0, -12, false)});
  cases.push_back({"graded", test::scaled(n, -8, -8, false)});
  cases.push_back({"graded upwards", test::scaled(n, 8, 8, false)});
  cases.push_back({"badly scaled rows", test::scaled(n, -140, 0, true)});
  cases.push_back({"badly scaled columns", test::scaled(n, 0, -140, true)});
  cases.push_back({"badly scaled", test::scaled(n, -70, -70, true)});
  return cases;
}

struct Figures {
  test::Ratios ours, lapack;
  double exact_condition = 0;  // reciprocal, of the inverse in long double
  test::Lapack reference;
};
Figures figures(const Case& c, const Found& found) {
  Figures f;
  f.reference = test::by_lapack(c.a);
  f.ours = test::ratios(c.a, test::as_dense(c.a.n, found.x));
  f.lapack = test::ratios(c.a, f.reference.inverse);
  const test::Oracle exact =
      test::textbook_inverse(c.a.n, [&](Index i, Index j) { return c.a(i, j); });
  long double most = 0;
  for (Index j = 0; j < c.a.n; ++j) {
    long double sum = 0;
    for (Index i = 0; i < c.a.n; ++i) sum += std::fabs(exact.inverse[std::size_t(i * c.a.n + j)]);
    most = std::max(most, sum);
  }
  f.exact_condition = double(1 / most / (long double)(test::norm_one(c.a)));
  return f;
}

/// One judgement of rank 0, which the others wait for.
struct Verdict {
  std::string what;
  bool good = true;
};
std::vector<Verdict> judged(const Case& c, const Found& found) {
  const Figures f = figures(c, found);
  const auto limit = [](double lapack) { return std::max(30.0, 10 * lapack); };
  const double normwise = c.growth ? limit(std::max(f.lapack.right, f.lapack.left)) : 30;
  const double each = limit(std::max(f.lapack.right_each, f.lapack.left_each));
  const auto agrees = [](double reported, double exact) {
    return reported == Approx(exact).epsilon(0.3).margin(1.1);
  };
  const double condition = found.reciprocal_condition;
  const auto near = [&](double other) { return condition < 3 * other && condition > other / 3; };
  return {
      {fmt::format("A X - I {}, X A - I {}, LAPACK {}, {}", f.ours.right, f.ours.left,
                   f.lapack.right, f.lapack.left),
       f.ours.right < normwise && f.ours.left < normwise},
      {fmt::format("by element {}, {}, LAPACK {}, {}", f.ours.right_each, f.ours.left_each,
                   f.lapack.right_each, f.lapack.left_each),
       f.ours.right_each < each && f.ours.left_each < each},
      {fmt::format("reported {}, {}, not {}, {}", found.residual.right, found.residual.left,
                   f.ours.right, f.ours.left),
       agrees(found.residual.right, f.ours.right) && agrees(found.residual.left, f.ours.left)},
      {fmt::format("reciprocal condition {}, dgecon {}", condition,
                   f.reference.reciprocal_condition),
       near(f.reference.reciprocal_condition)},
      // An inverse without a correct digit has no condition to be right about.
      {fmt::format("reciprocal condition {}, exact {}", condition, f.exact_condition),
       near(f.exact_condition) || (c.growth && f.ours.right > 1e12)},
  };
}

template <class B>
void check_accuracy(Context<B>& context, const std::vector<Case>& cases,
                    Index block = usual_block) {
  for (const Case& c : cases)
    for (const std::string& pivoting : both) {
      const Found found = eliminated(context, c.a, block, pivoting);
      INFO(c.name << ", n " << c.a.n << ", " << pivoting);
      REQUIRE_ALL(found.outcome.good());
      std::vector<Verdict> verdicts(5);
      if (context.rank() == 0) verdicts = judged(c, found);
      for (const Verdict& verdict : verdicts) {
        INFO(verdict.what);
        CHECK_ALL(verdict.good);
      }
    }
}

/// The orders at which blocks begin and end, one spectrum.
std::vector<Case> orders() {
  std::vector<Case> cases;
  for (const Index n : {1, 2, 3, 5, 15, 16, 17, 31, 32, 33, 47, 48, 49})
    cases.push_back(
        {"geometric", test::of_spectrum(test::Spectrum::geometric, n, n > 1 ? 1e6 : 1)});
  return cases;
}

template <class B>
void show(const std::vector<Case>& cases) {
  on<B>([&](Context<B>& context) {
    for (const Case& c : cases)
      for (const std::string& pivoting : both) {
        const Found found = eliminated(context, c.a, usual_block, pivoting);
        if (context.rank() != 0) continue;
        if (!found.outcome.good()) {
          fmt::print("{:<24} {:>3} {:<10} column {} overflow {}\n", c.name, c.a.n, pivoting,
                     found.outcome.bad_column, found.outcome.overflow);
          continue;
        }
        const Figures f = figures(c, found);
        fmt::print(
            "{:<24} {:>3} {:<10} {:9.2e} {:9.2e}  {:9.2e} {:9.2e}  {:9.2e} {:9.2e}  {:9.2e} "
            "{:9.2e}  {:9.2e} {:9.2e} {:9.2e}\n",
            c.name, c.a.n, pivoting, f.ours.right, f.ours.left, f.lapack.right, f.lapack.left,
            f.ours.right_each, f.ours.left_each, f.lapack.right_each, f.lapack.left_each,
            found.reciprocal_condition, f.reference.reciprocal_condition, f.exact_condition);
      }
  });
}

}  // namespace

TEST_CASE("Every order around a block's ends is inverted as accurately as LAPACK does", "[cpu]") {
  on<Cpu>([](auto& context) { check_accuracy(context, orders()); });
}
TEST_CASE("Every order around a block's ends is inverted as accurately as LAPACK does, CUDA",
          "[gpu]") {
  on<Cuda>([](auto& context) { check_accuracy(context, orders()); });
}
TEST_CASE("Matrices of every spectrum and condition pass both ratios", "[cpu]") {
  on<Cpu>([](auto& context) {
    check_accuracy(context, conditioned(large()));
    check_accuracy(context, conditioned(2 * large()), 0);
  });
}
TEST_CASE("Matrices of every spectrum and condition pass both ratios, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) {
    check_accuracy(context, conditioned(large()));
    check_accuracy(context, conditioned(2 * large()), 0);
  });
}
TEST_CASE("Named matrices pass both ratios, and growing pivots lose no more than LAPACK", "[cpu]") {
  on<Cpu>([](auto& context) { check_accuracy(context, named()); });
}
TEST_CASE("Named matrices pass both ratios, and growing pivots lose no more than LAPACK, CUDA",
          "[gpu]") {
  on<Cuda>([](auto& context) { check_accuracy(context, named()); });
}
TEST_CASE("Graded and badly scaled matrices pass the ratios of every element", "[cpu]") {
  on<Cpu>([](auto& context) { check_accuracy(context, badly_scaled()); });
}
TEST_CASE("Graded and badly scaled matrices pass the ratios of every element, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { check_accuracy(context, badly_scaled()); });
}
TEST_CASE("figures", "[.][show]") {
  if (test::world().rank() == 0)
    fmt::print("{:<24} {:>3} {:<10} {:<20} {:<20} {:<20} {:<20} {}\n", "kind", "n", "pivoting",
               "AX-I, XA-I", "LAPACK's", "by element", "LAPACK's",
               "reciprocal condition: ours, dgecon, exact");
  for (const auto& cases : {conditioned(large()), named(), badly_scaled()}) show<Cpu>(cases);
}

namespace {

template <class B>
void check_solutions(Context<B>& context) {
  const Index n = large();
  std::vector<Case> cases = badly_scaled();
  for (const auto& [kind, name] : test::spectra())
    cases.push_back({name, test::of_spectrum(kind, n, 1e10)});
  cases.push_back({"minij", test::minij(n)});
  cases.push_back({"ties", test::many_ties(n)});
  for (const Case& c : cases)
    for (const std::string& pivoting : both)
      for (const Index right : {1, 17}) {
        INFO(c.name << ", " << pivoting << ", right-hand sides " << right);
        Values b(std::size_t(n * right));
        for (Index i = 0; i < n * right; ++i)  // of the size of A's rows
          b[std::size_t(i)] = random_uniform(251, i, 0) * std::fabs(c.a(i / right, 0));
        const Found found = eliminated(context, c.a, usual_block, pivoting, right, b);
        REQUIRE_ALL(found.outcome.good());
        CHECK_ALL(context.rank() != 0 || test::solution_ratio(c.a, right, found.x, b) < 30);
      }
}

}  // namespace

TEST_CASE("Solutions of every kind pass LAPACK's ratio", "[cpu]") {
  on<Cpu>([](auto& context) { check_solutions(context); });
}
TEST_CASE("Solutions of every kind pass LAPACK's ratio, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { check_solutions(context); });
}
