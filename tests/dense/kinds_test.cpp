// Accuracy of inverses, solutions and condition numbers on LAPACK's kinds of matrices.
// `src_dense_kinds_test "[show]"` prints the figures beside LAPACK's.
#include <fmt/core.h>

#include "tests/support/dense_elimination.hpp"

using namespace terrace;
using namespace terrace::dense;
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

Index large() { return test::fewer_cases ? 33 : 65; }

std::vector<Case> conditioned(Index n, const std::vector<double>& conditions = {10, 1e8, 1e15}) {
  std::vector<Case> cases;
  for (const auto& [kind, name] : test::spectra())
    for (const double condition : conditions)
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

/// What to compare with; on rank 0, which judges for all.
struct Reference {
  test::Lapack lapack;
  test::Ratios ratios;         // of LAPACK's inverse
  double exact_condition = 0;  // reciprocal, of the inverse in long double
};
Reference reference_of(const Dense& a) {
  Reference r;
  r.lapack = test::by_lapack(a);
  r.ratios = test::ratios(a, r.lapack.inverse);
  const test::Oracle exact = test::textbook_inverse(a.n, [&](Index i, Index j) { return a(i, j); });
  long double most = 0;
  for (Index j = 0; j < a.n; ++j) {
    long double sum = 0;
    for (Index i = 0; i < a.n; ++i) sum += std::fabs(exact.inverse[std::size_t(i * a.n + j)]);
    most = std::max(most, sum);
  }
  r.exact_condition = double(1 / most / (long double)(test::norm_one(a)));
  return r;
}

/// One judgement of rank 0, which the others wait for.
struct Verdict {
  std::string what;
  bool good = true;
};
std::vector<Verdict> judged(const Case& c, const Reference& r, const Found& found) {
  const test::Ratios ours = test::ratios(c.a, test::as_dense(c.a.n, found.x));
  const auto limit = [](double lapack) { return std::max(30.0, 10 * lapack); };
  const double normwise = c.growth ? limit(std::max(r.ratios.right, r.ratios.left)) : 30;
  const double each = limit(std::max(r.ratios.right_each, r.ratios.left_each));
  const auto agrees = [](double reported, double exact) {
    return reported == Approx(exact).epsilon(0.3).margin(1.1);
  };
  const double condition = found.reciprocal_condition;
  const auto near = [&](double other) { return condition < 3 * other && condition > other / 3; };
  // Where growth leaves no correct digit there is no condition to be right about.
  const bool garbage = c.growth && ours.right > 1e12;
  const bool both_regular = !garbage && !(c.growth && r.ratios.right > 1e12);
  return {
      {fmt::format("A X - I {}, X A - I {}, LAPACK {}, {}", ours.right, ours.left, r.ratios.right,
                   r.ratios.left),
       ours.right < normwise && ours.left < normwise},
      {fmt::format("by element {}, {}, LAPACK {}, {}", ours.right_each, ours.left_each,
                   r.ratios.right_each, r.ratios.left_each),
       ours.right_each < each && ours.left_each < each},
      {fmt::format("reported {}, {}, not {}, {}", found.residual.right, found.residual.left,
                   ours.right, ours.left),
       agrees(found.residual.right, ours.right) && agrees(found.residual.left, ours.left)},
      {fmt::format("reciprocal condition {}, dgecon {}", condition, r.lapack.reciprocal_condition),
       !both_regular || near(r.lapack.reciprocal_condition)},
      {fmt::format("reciprocal condition {}, exact {}", condition, r.exact_condition),
       garbage || near(r.exact_condition)},
  };
}

template <class B>
void check_accuracy(Context<B>& context, const std::vector<Case>& cases,
                    Index block = usual_block) {
  for (const Case& c : test::some(cases)) {
    const Reference reference = context.rank() == 0 ? reference_of(c.a) : Reference{};
    for (const std::string& pivoting : both) {
      const Found found = eliminated(context, c.a, block, pivoting);
      INFO(c.name << ", n " << c.a.n << ", " << pivoting);
      REQUIRE_ALL(found.outcome.good());
      std::vector<Verdict> verdicts(5);
      if (context.rank() == 0) verdicts = judged(c, reference, found);
      for (const Verdict& verdict : verdicts) {
        INFO(verdict.what);
        CHECK_ALL(verdict.good);
      }
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
void show(Context<B>& context, const std::vector<Case>& cases) {
  for (const Case& c : cases)
    for (const std::string& pivoting : both) {
      const Found found = eliminated(context, c.a, usual_block, pivoting);
      if (context.rank() != 0) continue;
      const Reference r = reference_of(c.a);
      const test::Ratios ours = test::ratios(c.a, test::as_dense(c.a.n, found.x));
      fmt::print("{:<22} {:>3} {:<10}", c.name, c.a.n, pivoting);
      for (const double figure :
           {ours.right, ours.left, r.ratios.right, r.ratios.left, ours.right_each, ours.left_each,
            r.ratios.right_each, r.ratios.left_each, found.reciprocal_condition,
            r.lapack.reciprocal_condition, r.exact_condition})
        fmt::print(" {:8.1e}", figure);
      fmt::print("\n");
    }
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
    check_accuracy(context, conditioned(2 * large(), {1e9}), 0);
  });
}
TEST_CASE("Matrices of every spectrum and condition pass both ratios, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) {
    check_accuracy(context, conditioned(large()));
    check_accuracy(context, conditioned(2 * large(), {1e9}), 0);
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
    fmt::print("{:<22} {:>3} {:<10} {:<17} {:<17} {:<17} {:<17} {}\n", "kind", "n", "pivoting",
               " AX-I, XA-I", " LAPACK's", " by element", " LAPACK's",
               " reciprocal condition: ours, dgecon, exact");
  const auto all = [](auto& context) {
    for (const auto& cases : {conditioned(large()), named(), badly_scaled()}) show(context, cases);
  };
  on<Cpu>(all);
  on<Cuda>(all);
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
  for (const Case& c : test::some(cases))
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
