#include "src/dense/check.hpp"

#include "src/dense/cramer.hpp"
#include "src/dense/elimination.hpp"
#include "tests/support/dense.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::dense;
using terrace::test::Entry;

namespace {

/// Delivers rows of a formula in pieces, as a file does.
RowReader rows_of(Index columns, const Entry& entry) {
  return [columns, entry](std::span<const Range> ranges, const io::Sink<double>& sink) {
    Index position = 0;
    std::vector<double> rows;
    for (const Range& range : ranges)
      for (Index first = range.first; first < range.end(); first += 37) {
        const Index count = std::min<Index>(37, range.end() - first);
        rows.resize(std::size_t(count * columns));
        for (Index i = 0; i < count; ++i)
          for (Index j = 0; j < columns; ++j)
            rows[std::size_t(i * columns + j)] = entry(first + i, j);
        sink(position, count, rows.data());
        position += count;
      }
  };
}

template <class B>
void load(Context<B>& context, const RowElimination<B>& solver, Index from, Index columns,
          const Entry& entry) {
  rows_of(columns, entry)(solver.plan().rows.ranges(context.rank()),
                          [&](Index position, Index count, const double* rows) {
                            copy_rows<double>(context.ahead,
                                              solver.data().data + position * solver.ld() + from,
                                              solver.ld(), rows, columns, columns, count);
                            context.ahead.synchronize();
                          });
}

template <class B>
void check_inverse_residual(Index n, bool exact = false) {
  Context<B>* context = test::context<B>();
  if (!context) return;
  INFO("n " << n);
  const Entry a = test::problems(n)[0].entry;
  RowElimination<B> solver(
      *context, plan_elimination<B>(context->size(), n, 0, true, n > 1000 ? 0 : 16, "auto"));
  load(*context, solver, 0, n, a);
  Progress silent(false, false);
  REQUIRE_ALL(solver.run(silent).good());
  const InverseResidual right = check_inverse(*context, solver, rows_of(n, a), 1.0, exact);
  CHECK_ALL((right.kind == "exact, 1-norm") == (exact || n <= 1024));
  CHECK_ALL(right.right < 30);
  CHECK_ALL(right.left < 30);
  if (n <= 200) {  // the figure itself, against the textbook formula
    std::vector<double> x(std::size_t(n * n), 0.0), row(static_cast<std::size_t>(n));
    for (Index s = 0; s < solver.slots(); ++s) {
      download(context->ahead, row.data(), solver.data().slice(s * solver.ld(), n));
      context->ahead.synchronize();
      std::copy(row.begin(), row.end(), x.begin() + solver.destination()[std::size_t(s)] * n);
    }
    context->control.reduce(x, Reduce::sum);
    CHECK_ALL(right.right ==
              Approx(test::residual_ratio(n, n, a, x, test::identity())).epsilon(0.3).margin(1.1));
    CHECK_ALL(
        right.left ==
        Approx(test::residual_ratio(n, n, a, x, test::identity(), true)).epsilon(0.3).margin(1.1));
  }
  // A changed matrix is found out.
  const Entry other = [&](Index i, Index j) {
    return a(i, j) + (i == n / 2 && j == n / 3 ? 1e-3 : 0.0);
  };
  const InverseResidual wrong = check_inverse(*context, solver, rows_of(n, other), 1.0, exact);
  CHECK_ALL(wrong.right > 30);
  CHECK_ALL(wrong.left > 30);
  // So is an element that is no number, wherever it stands.
  for (const Index row : {Index(0), n / 2, n - 1}) {
    const double bad = NAN;
    double kept = 0;
    const auto put = [&](const double& from, double* to) {
      for (Index s = 0; s < solver.slots(); ++s) {
        if (solver.destination()[std::size_t(s)] != row) continue;
        const auto place = solver.data().slice(s * solver.ld() + n / 3, 1);
        if (to) download(context->ahead, to, place);
        upload(context->ahead, place, &from);
        context->ahead.synchronize();
      }
    };
    put(bad, &kept);
    const InverseResidual none = check_inverse(*context, solver, rows_of(n, a), 1.0, exact);
    CHECK_ALL(none.right > 30);
    CHECK_ALL(none.left > 30);
    put(kept, nullptr);
  }
}

}  // namespace

TEMPLATE_TEST_CASE("The residual of an inverse is that of the textbook formula", "",
                   TERRACE_BACKENDS) {
  for (const Index n : {1, 2, 65, 130}) check_inverse_residual<TestType>(n);
}
TEMPLATE_TEST_CASE("Slices and batches give the residual of a larger inverse", "",
                   TERRACE_BACKENDS) {
  for (const bool exact : {true, false}) check_inverse_residual<TestType>(1100, exact);
}

TEMPLATE_TEST_CASE("The residual of a solution finds one wrong element among many columns", "",
                   TERRACE_BACKENDS) {
  Context<TestType>* context = test::context<TestType>();
  if (!context) return;
  const Index n = 90, right = 70;
  const Entry a = test::problems(n)[0].entry;
  const Entry x = [](Index i, Index j) { return double(1 + (i * 7 + j) % 5); };
  const Entry b = [&](Index i, Index j) {
    long double sum = 0;
    for (Index k = 0; k < n; ++k) sum += (long double)(a(i, k)) * x(k, j);
    return double(sum);
  };
  const BlockCyclic layout{n, 8, context->size()};
  const std::vector<Range> ranges = layout.ranges(context->rank());
  const auto fill = [&](double error) {
    return [&, error](Index first, Index count, double* out) {
      for (const Range& range : ranges)
        for (Index i = range.first; i < range.end(); ++i)
          for (Index j = 0; j < count; ++j)
            out[i * count + j] = x(i, first + j) + (i == 77 && first + j == 66 ? error : 0.0);
    };
  };
  CHECK_ALL(check_solution<TestType>(*context, n, right, ranges, fill(0), rows_of(n, a),
                                     rows_of(right, b), 1.0) < 1);
  for (const double error : {1e-9, double(NAN), double(INFINITY)})
    CHECK_ALL(check_solution<TestType>(*context, n, right, ranges, fill(error), rows_of(n, a),
                                       rows_of(right, b), 1.0) > 30);
}

TEST_CASE("Cramer's rule agrees with the textbook inverse") {
  const Stream<Cpu> lane;
  for (const Index n : {1, 2, 5, 12})
    for (const double size : {1.0, 1e200, 1e-200}) {
      const Entry a = [&](Index i, Index j) { return size * random_uniform(41, i, j); };
      const test::Oracle oracle = test::textbook_inverse(n, a);
      Matrix<Cpu> m(lane, n, n), b(lane, n, 2);
      for (Index i = 0; i < n; ++i) {
        for (Index j = 0; j < n; ++j) m(i, j) = a(i, j);
        b(i, 0) = size * random_uniform(43, i, 0);
        b(i, 1) = i == 0 ? size : 0;
      }
      const CramerResult found = solve_by_cramer(m, b);
      REQUIRE(found.first_zero_pivot == -1);
      CHECK(found.determinant_sign == oracle.sign);
      CHECK(found.log_abs_determinant == Approx(double(oracle.log_abs_determinant)).margin(1e-9));
      for (Index r = 0; r < 2; ++r)
        for (Index i = 0; i < n; ++i) {
          long double exact = 0;
          for (Index k = 0; k < n; ++k)
            exact += oracle.inverse[std::size_t(i * n + k)] * (long double)(b(k, r));
          CHECK(found.x(i, r) == Approx(double(exact)).epsilon(1e-8).margin(1e-10));
        }
    }
  Matrix<Cpu> singular(lane, 3, 3, {1, 2, 3, 2, 4, 7, 3, 6, 1});
  CHECK(solve_by_cramer(singular, Matrix<Cpu>(lane, 3, 1, {1, 1, 1})).first_zero_pivot == 1);
}
