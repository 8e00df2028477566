// Pivots, singular and nearly singular matrices, numbers that are not finite, and the same bits.
#include <fmt/core.h>

#include "kernels/dense/cpu/panel.hpp"
#include "tests/support/dense_elimination.hpp"

using namespace terrace;
using namespace terrace::dense;
using test::both;
using test::Dense;
using test::eliminated;
using test::Found;
using test::on;
using test::Order;
using test::some;
using test::usual_block;
using test::Values;

// --- pivots

namespace {

/// Every pivot on the last rank as long as it has rows, then on the one before it; and pivots that
/// change rank with every column.
Order last_rank_first(const BlockCyclic& rows) {
  Order p = test::in_order(rows.extent);
  std::stable_sort(p.begin(), p.end(),
                   [&](Index a, Index b) { return rows.owner(a) > rows.owner(b); });
  return p;
}
Order rank_after_rank(const BlockCyclic& rows) {
  Order p = test::in_order(rows.extent);
  std::stable_sort(p.begin(), p.end(),
                   [&](Index a, Index b) { return rows.slot(a) < rows.slot(b); });
  return p;
}

/// Inverse and solution of a matrix that no order of operations rounds have one right answer.
template <class B>
void check_exact(Context<B>& context, Index n, Index block, const Order& order) {
  const Dense a = test::exact_product(n, order);
  const test::Oracle oracle = test::textbook_inverse(n, [&](Index i, Index j) { return a(i, j); });
  const Values expected(oracle.inverse.begin(), oracle.inverse.end());
  const Index right = 3;
  Values x(std::size_t(n * right)), b(std::size_t(n * right), 0.0);
  for (Index i = 0; i < n * right; ++i) x[std::size_t(i)] = double(i * 7 % 11 - 5);
  for (Index i = 0; i < n; ++i)
    for (Index k = 0; k < n; ++k)
      for (Index c = 0; c < right; ++c)
        b[std::size_t(i * right + c)] += a(i, k) * x[std::size_t(k * right + c)];
  for (const std::string& pivoting : both) {
    INFO("n " << n << ", block " << block << ", " << pivoting);
    const Found inverse = eliminated(context, a, block, pivoting);
    const Found solution = eliminated(context, a, block, pivoting, right, b);
    REQUIRE_ALL(inverse.outcome.good());
    REQUIRE_ALL(solution.outcome.good());
    CHECK_ALL(inverse.pivots == solution.pivots);
    CHECK_ALL(inverse.outcome.determinant_sign == oracle.sign);
    CHECK_ALL(inverse.outcome.log_abs_determinant ==
              Approx(double(oracle.log_abs_determinant)).margin(1e-12));
    if (pivoting == "partial") {
      CHECK_ALL(inverse.pivots == order);
      CHECK_ALL(inverse.x == expected);
      CHECK_ALL(solution.x == x);
    } else {  // other pivots than the exact ones may round
      CHECK_ALL(inverse.pivots[0] == order[0]);
      CHECK_ALL(inverse.residual.right < 30);
      CHECK_ALL(inverse.residual.left < 30);
      CHECK_ALL(test::solution_ratio(a, right, solution.x, b) < 30);
    }
  }
}

template <class B>
void check_exact_orders(Context<B>& context) {
  for (const Index n : some<Index>({1, 2, 3, 5, 15, 16, 17, 33, 64, 65})) {
    const BlockCyclic rows{n, std::min(n, usual_block), context.size()};
    check_exact(context, n, usual_block, last_rank_first(rows));
    if (n < 16) continue;
    Order reversed = test::in_order(n);
    std::reverse(reversed.begin(), reversed.end());
    check_exact(context, n, usual_block, reversed);
    check_exact(context, n, usual_block, rank_after_rank(rows));
  }
  for (const Index block : some<Index>({1, 5, 24, 40, 100}))
    check_exact(context, 81, block,
                last_rank_first({81, std::min<Index>(81, block), context.size()}));
}

template <class B>
void check_pivots(Context<B>& context) {
  for (const Index n : some<Index>({1, 2, 7, 8, 9, 16, 32, 40, 64, 67})) {
    INFO("ties, n " << n);
    const Dense a = test::many_ties(n);
    const Order lowest = test::lowest_row_pivots(a);
    REQUIRE_ALL(Index(lowest.size()) == n);
    const Found partial = eliminated(context, a, usual_block, "partial");
    REQUIRE_ALL(partial.outcome.good());
    CHECK_ALL(partial.pivots == lowest);
    CHECK_ALL(partial.residual.right == 0 && partial.residual.left == 0);
    const Found tournament = eliminated(context, a, usual_block, "tournament");
    REQUIRE_ALL(tournament.outcome.good());
    CHECK_ALL(tournament.pivots[0] == lowest[0]);
    CHECK_ALL(tournament.residual.right < 30 && tournament.residual.left < 30);
  }
  const auto as_lapack = [&](const std::string& name, const Dense& a, Index block) {
    INFO(name << ", n " << a.n << ", block " << block);
    const Found found = eliminated(context, a, block, "partial");
    REQUIRE_ALL(found.outcome.good());
    CHECK_ALL(found.pivots == test::by_lapack(a).pivots);
  };
  for (const Index n : some<Index>({1, 2, 5, 15, 16, 17, 65, 130})) {
    const Dense random(n, [](Index i, Index j) { return random_uniform(211, i, j); });
    as_lapack("random", random, usual_block);
    if (n >= 65) as_lapack("random", random, 40);
  }
  as_lapack("logrand", test::of_spectrum(test::Spectrum::random_logarithmic, 65, 1e6), usual_block);
  as_lapack("graded rows", test::scaled(65, -12, 0, false), usual_block);
  as_lapack("badly scaled rows", test::scaled(65, -140, 0, true), usual_block);
  as_lapack("random order", test::exact_product(65, test::in_random_order(65)), usual_block);
  if (std::is_same_v<B, Cpu>)
    for (const Index n : some<Index>({64, 65, 130, 300})) {
      INFO("tournament, n " << n);
      const Dense random(n, [](Index i, Index j) { return random_uniform(251, i, j); });
      const Found found = eliminated(context, random, usual_block, "tournament");
      REQUIRE_ALL(found.outcome.good());
      CHECK_ALL(found.pivots == test::tournament_pivots(random, usual_block, 4 * usual_block));
      if (n == 64 || n >= 130)  // all in one leaf, or in several
        CHECK_ALL((found.pivots == test::by_lapack(random).pivots) == (n == 64));
      CHECK_ALL(found.residual.right < 30 && found.residual.left < 30);
    }
  // Ties as LAPACK breaks them. After an exchange it takes the first place, not the lowest row of
  // A, so they are compared where the first column's row is never displaced.
  as_lapack("every column a tie", test::growth(65, 1.0, false), usual_block);
  as_lapack("minij", test::minij(65), usual_block);
}

}  // namespace

TEST_CASE("Pivots on the last rank, in reverse or in turn give the exact inverse's bits", "[cpu]") {
  on<Cpu>([](auto& context) { check_exact_orders(context); });
}
TEST_CASE("Pivots on the last rank, in reverse or in turn give the exact inverse's bits, CUDA",
          "[gpu]") {
  on<Cuda>([](auto& context) { check_exact_orders(context); });
}
TEST_CASE("Partial pivoting takes LAPACK's rows, and of a tie the lowest", "[cpu]") {
  on<Cpu>([](auto& context) { check_pivots(context); });
}
// Also run with TERRACE_THREADS=3: then several threads share a panel.
TEST_CASE("Of a tie among the rows of several threads the lowest is taken", "[cpu][threads]") {
  on<Cpu>([](auto& context) {
    const Dense a = test::many_ties(640);
    const Found found = eliminated(context, a, usual_block, "partial");
    REQUIRE_ALL(found.outcome.good());
    CHECK_ALL(found.pivots == test::lowest_row_pivots(a));
  });
}
TEST_CASE("A strip has zeros beyond its rows and columns, whatever its memory held", "[cpu]") {
  for (Index rows = 1; rows <= 2 * lanes() + 1; ++rows)
    for (const Index width : {1, 15, 16, 17}) {
      INFO(rows << " x " << width);
      const Index stride = sliver_stride(width), columns = round_up(width, inner_width);
      Values memory(std::size_t(slivers(rows) * stride), 7.0), a(std::size_t(rows * width));
      for (std::size_t i = 0; i < a.size(); ++i) a[i] = 1.0 + double(i % 5);
      const Strip strip{{memory.data(), stride}, rows, width, nullptr, nullptr};
      load_strip(strip, a.data(), width, 0, rows);
      bool good = true;
      for (Index i = 0; i < slivers(rows) * lanes(); ++i)
        for (Index k = 0; k < columns; ++k) {
          const bool inside = i < rows && k < width;
          good =
              good && strip.x.row(i)[k * lanes()] == (inside ? a[std::size_t(i * width + k)] : 0.0);
        }
      CHECK(good);
    }
}
TEST_CASE("Partial pivoting takes LAPACK's rows, and of a tie the lowest, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { check_pivots(context); });
}

// --- singular, nearly singular, not finite

namespace {

/// `in_any_order`: the elimination is exact whatever rows are taken. Otherwise it is with the rows
/// that partial pivoting takes; a tournament may take others, and what should
/// be zero is then a rounding error, which the condition number must tell.
template <class B>
void check_first_zero(Context<B>& context, const std::string& name, const Dense& a,
                      bool in_any_order) {
  const Index expected = Index(test::lowest_row_pivots(a).size());
  REQUIRE(expected < a.n);
  const Values b(std::size_t(a.n), 1.0);
  for (const std::string& pivoting : both) {
    INFO(name << ", n " << a.n << ", " << pivoting << ", column " << expected);
    const Found inverse = eliminated(context, a, usual_block, pivoting);
    const Found solution = eliminated(context, a, usual_block, pivoting, 1, b);
    const bool exact = in_any_order || pivoting == "partial";
    if (!exact && inverse.outcome.good()) {
      CHECK_ALL(inverse.reciprocal_condition < 1e-14);
      continue;
    }
    CHECK_ALL(inverse.outcome.bad_column == expected);
    CHECK_ALL(!inverse.outcome.overflow && !inverse.outcome.good());
    CHECK_ALL(solution.outcome.bad_column == expected);
    CHECK_ALL(!solution.outcome.overflow && !solution.outcome.good());
  }
}

template <class B>
void check_singular(Context<B>& context) {
  const Index n = 50, block = usual_block;
  const Order order = test::in_random_order(n);
  const Dense regular = test::exact_product(n, order);
  const Dense random(n, [](Index i, Index j) { return random_uniform(223, i, j); });
  for (const Index c : some<Index>({Index(0), Index(1), block - 1, block, block + 1, n / 2,
                                    3 * block - 1, 3 * block, n - 1})) {
    Dense a = random;
    for (Index i = 0; i < n; ++i) a(i, c) = 0;
    CHECK(Index(test::lowest_row_pivots(a).size()) == c);
    check_first_zero(context, "zero column", a, true);
    a = test::exact_product(n, order, c);
    CHECK(Index(test::lowest_row_pivots(a).size()) == c);
    check_first_zero(context, "dependent column", a, false);
    if (c == 0) continue;
    a = regular;
    for (Index i = 0; i < n; ++i) a(i, c) = a(i, c / 2);
    CHECK(Index(test::lowest_row_pivots(a).size()) == c);
    check_first_zero(context, "duplicate column", a, false);
    a = regular;
    for (Index j = 0; j < n; ++j) a(order[std::size_t(c)], j) = a(order[std::size_t(c / 2)], j);
    check_first_zero(context, "duplicate row", a, false);
  }
  Dense zero_row = test::many_ties(n);
  for (Index j = 0; j < n; ++j) zero_row(n / 3, j) = 0;
  check_first_zero(context, "zero row", zero_row, true);
  check_first_zero(context, "ones", Dense(n, [](Index, Index) { return 1.0; }), true);
  for (const Index order_of : some<Index>({1, 2, 3, 5, 15, 16, 17}))
    check_first_zero(context, "zeros", Dense(order_of), true);
}

template <class B>
void check_nearly_singular(Context<B>& context) {
  const Index n = 49;
  struct Case {
    std::string name;
    Dense a;
  };
  std::vector<Case> cases;
  for (const auto& [kind, name] : test::spectra())
    for (const double condition : {1e16, 1e18})
      cases.push_back(
          {fmt::format("{} {:g}", name, condition), test::of_spectrum(kind, n, condition)});
  // Rank 20 but for rounding; and two columns that differ in their last bits.
  cases.push_back({"rank 20", Dense(n, [](Index i, Index j) {
                     double sum = 0;
                     for (Index k = 0; k < 20; ++k)
                       sum += random_uniform(227, i, k) * random_uniform(229, k, j);
                     return sum;
                   })});
  Dense twins(n, [](Index i, Index j) { return random_uniform(233, i, j == 30 ? 7 : j); });
  for (Index i = 0; i < n; ++i) twins(i, 30) += random_uniform(239, i, 0) * 1e-15;
  cases.push_back({"nearly equal columns", twins});
  Dense equal(n, [](Index i, Index j) { return random_uniform(233, i == 31 ? 3 : i, j); });
  cases.push_back({"equal rows but for rounding", equal});
  for (const Case& c : some(cases))
    for (const std::string& pivoting : both) {
      const Found found = eliminated(context, c.a, usual_block, pivoting);
      INFO(c.name << ", " << pivoting << ", reciprocal condition " << found.reciprocal_condition);
      if (!found.outcome.good()) {  // rounding may as well leave an exact zero
        CHECK_ALL(found.outcome.bad_column > 0 || found.outcome.overflow);
        continue;
      }
      CHECK_ALL(found.reciprocal_condition > 0 && found.reciprocal_condition < 1e-14);
      CHECK_ALL(
          std::all_of(found.x.begin(), found.x.end(), [](double v) { return std::isfinite(v); }));
      CHECK_ALL(found.residual.right < 30 && found.residual.left < 30);
    }
}

template <class B>
void check_not_finite(Context<B>& context) {
  const Index n = 35;
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL})
    for (const auto& [i, j] : some<std::pair<Index, Index>>(
             {{0, 0}, {n - 1, 0}, {0, n - 1}, {n - 1, n - 1}, {15, 16}, {16, 15}, {33, 20}}))
      for (const std::string& pivoting : both) {
        INFO(bad << " at " << i << ", " << j << ", " << pivoting);
        Dense a(n, [](Index r, Index c) { return random_uniform(241, r, c) + (r == c ? 4 : 0); });
        Values b(std::size_t(n), 1.0);
        const Found regular = eliminated(context, a, usual_block, pivoting, 1, b);
        REQUIRE_ALL(regular.outcome.good());
        a(i, j) = bad;
        const Found inverse = eliminated(context, a, usual_block, pivoting);
        CHECK_ALL(inverse.outcome.overflow && !inverse.outcome.good());
        if (std::is_same_v<B, Cpu>) CHECK_ALL(inverse.outcome.bad_column == j);
        const Found solution = eliminated(context, a, usual_block, pivoting, 1, b);
        CHECK_ALL(solution.outcome.overflow && !solution.outcome.good());
        if (j > 0) continue;
        a(i, j) = 1;
        b[std::size_t(i)] = bad;
        const Found spoilt = eliminated(context, a, usual_block, pivoting, 1, b);
        CHECK_ALL(spoilt.outcome.overflow && !spoilt.outcome.good());
      }
}

}  // namespace

TEST_CASE("The first column that depends on those before it is named", "[cpu]") {
  on<Cpu>([](auto& context) { check_singular(context); });
}
TEST_CASE("The first column that depends on those before it is named, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { check_singular(context); });
}
TEST_CASE("A nearly singular matrix has a finite inverse and says what it is worth", "[cpu]") {
  on<Cpu>([](auto& context) { check_nearly_singular(context); });
}
TEST_CASE("A nearly singular matrix has a finite inverse and says what it is worth, CUDA",
          "[gpu]") {
  on<Cuda>([](auto& context) { check_nearly_singular(context); });
}
TEST_CASE("One number that is not finite is never lost, wherever it stands", "[cpu]") {
  on<Cpu>([](auto& context) { check_not_finite(context); });
}
TEST_CASE("One number that is not finite is never lost, wherever it stands, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { check_not_finite(context); });
}

// --- the same bits

namespace {

template <class B>
void check_repeated(Context<B>& context, Context<B>* alone) {
  for (const Index n : some<Index>({1, 16, 17, 49})) {
    const std::vector<Dense> kinds{test::of_spectrum(test::Spectrum::geometric, n, 1e8),
                                   test::many_ties(n), test::scaled(n, -140, 0, true)};
    const Values b(std::size_t(2 * n), 1.0);
    for (std::size_t k = 0; k < kinds.size(); ++k)
      for (const std::string& pivoting : both)
        for (const Index right : {0, 2}) {
          INFO("kind " << k << ", n " << n << ", " << pivoting << ", right " << right);
          const auto run = [&](Context<B>& on) {
            return eliminated(on, kinds[k], usual_block, pivoting, right, b);
          };
          const Found first = run(context);
          REQUIRE_ALL(first.outcome.good());
          CHECK_ALL(run(context) == first);
          if (alone) CHECK_ALL(run(*alone) == first);
        }
  }
}

}  // namespace
TEST_CASE("A repeated run, and on the CPU a run on one rank, gives the same bits", "[cpu]") {
  on<Cpu>([](auto& context) {
    Context<Cpu> alone = make_context<Cpu>(Control::self());
    check_repeated(context, &alone);
  });
}
TEST_CASE("A repeated run gives the same bits, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) {
    check_repeated(context, static_cast<std::remove_reference_t<decltype(context)>*>(nullptr));
  });
}
TEST_CASE("A system of order zero is solved", "[cpu]") {
  on<Cpu>([](auto& context) {
    for (const std::string& pivoting : both)
      for (const Index right : {0, 2}) {
        const Found found = eliminated(context, Dense(0), 0, pivoting, right);
        CHECK_ALL(found.outcome.good() && found.x.empty());
        CHECK_ALL(found.outcome.log_abs_determinant == 0 && found.outcome.determinant_sign == 1);
      }
  });
}
