// The solve that callers use: any number of right-hand sides, preconditioner, guard, order.
#include "src/cg/system.hpp"
#include "src/cg/reorder.hpp"
#include "tests/support/cg.hpp"

using namespace terrace;
using namespace terrace::cg;
using namespace terrace::test;

namespace {

Vector rows_of(const Vector& all, Range rows, Index columns) {
  return {all.begin() + rows.first * columns, all.begin() + rows.end() * columns};
}
Vector column_of(const Vector& block, Index columns, Index v) {
  Vector one;
  for (std::size_t i = std::size_t(v); i < block.size(); i += std::size_t(columns))
    one.push_back(block[i]);
  return one;
}

}  // namespace

TEMPLATE_TEST_CASE("systems are solved with every preconditioner, guarded", "",
                   OPERATORS_ON_BACKENDS) {
  using B = typename TestType::Backend;
  using K = typename TestType::Operator;
  Context<B>* c = context<B>();
  if (!c) return;
  constexpr bool dense = std::is_same_v<K, Dense> || std::is_same_v<K, Triangle>;
  const Index points = 9, n = points * points, nrhs = 5;
  const Entry a = laplace(points);
  auto op = K::make(*c, n, a);
  const Vector b = random_vector(n * nrhs, 3);
  Progress progress(false, false);
  for (const char* name : {"none", "jacobi", "block-jacobi", "ic", "chebyshev", "amg"}) {
    if (dense && (std::string(name) == "ic" || std::string(name) == "amg")) continue;
    CAPTURE(name);
    CgRequest request;
    request.preconditioner = name;
    request.guard = true;
    request.at_once = 3;  // widths 2, 2, 1
    int prepared = 0;
    Index last = 0;
    CgHooks hooks;
    hooks.prepared = [&](const PreconditionerNotes& local, const ChebyshevNotes& polynomial,
                         const MultigridNotes& multigrid) {
      ++prepared;
      CHECK_ALL(multigrid.levels.empty() == (std::string(name) != "amg"));
      CHECK_ALL((polynomial.degree > 0) == (std::string(name) == "chebyshev"));
      CHECK_ALL((local.block > 0) == (std::string(name) == "block-jacobi"));
    };
    hooks.observe = [&](const std::string&, Index k, double) { last = k; };
    Vector x(std::size_t(op.rows().count * nrhs), NAN);  // no start is given: not looked at
    const CgSolution s =
        solve_system(*c, op, request, nrhs, rows_of(b, op.rows(), nrhs), x, progress, hooks);
    CHECK_ALL(prepared == int(request.general()));
    CHECK_ALL(Index(s.results.size()) == nrhs);
    CHECK_ALL(last == s.results.back().iterations);
    CHECK_ALL(world().reduce(s.own.count, Reduce::sum) == n);
    for (Index v = 0; v < nrhs; ++v) {
      CHECK_ALL(s.results[std::size_t(v)].reason == CgReason::rtol);
      const Vector solved = whole_of(op, column_of(x, nrhs, v));
      CHECK_ALL(relative_residual(a, column_of(b, nrhs, v), solved) <= 1.1e-10);
    }
  }
}

TEST_CASE("a preconditioner that may not be used is a result") {
  Context<Cpu>* c = context<Cpu>();
  const Index n = 12;
  auto op =
      Band::make(*c, n, [](Index i, Index j) { return i == j ? (i == 7 ? -1.0 : 2.0) : 0.0; });
  Progress progress(false, false);
  CgRequest request;
  request.preconditioner = "chebyshev";
  for (const bool given : {false, true}) {
    request.x_given = given;
    Vector x(std::size_t(op.rows().count * 2), 0.0);
    const CgSolution s = solve_system(*c, op, request, 2, x, x, progress);
    for (const CgResult& r : s.results) {
      CHECK_ALL(r.reason == CgReason::indefinite_preconditioner);
      CHECK_ALL(r.position == 7);
      CHECK_ALL(std::isnan(r.true_residual) == given);
    }
  }
}

TEMPLATE_TEST_CASE("a matrix in another order has its x and positions in the caller's", "",
                   TERRACE_BACKENDS) {
  using B = TestType;
  Context<B>* c = context<B>();
  if (!c) return;
  const Index points = 7, n = points * points, ranks = c->size(), nrhs = 2;
  for (const bool definite : {true, false}) {
    const auto shuffled = [](Index i) { return i * 10 % 49; };  // 10 and 49 have no common divisor
    const Entry a = [&](Index i, Index j) {
      if (i == j && i == 5 && !definite) return -1.0;
      return laplace(points)(shuffled(i), shuffled(j));
    };
    std::vector<Index> first(std::size_t(ranks) + 1, n);
    for (Index r = 0; r < ranks; ++r) first[std::size_t(r)] = n * r / ranks;
    const Range own{first[std::size_t(c->rank())],
                    first[std::size_t(c->rank()) + 1] - first[std::size_t(c->rank())]};
    CsrSlice rows;
    for (Index i = own.first; i < own.end(); ++i) {
      for (Index j = 0; j < n; ++j)
        if (a(i, j) != 0) rows.column.push_back(j), rows.value.push_back(a(i, j));
      rows.start.push_back(Index(rows.column.size()));
    }
    CgRequest request;
    request.preconditioner = "ic";
    request.order = reorder(c->control, first, rows, int(ranks));
    CsrOperator<B> op(*c, first, std::move(rows));
    const Vector b = random_vector(n * nrhs, 8);
    Vector x(std::size_t(own.count * nrhs), 0.0);
    Progress progress(false, false);
    const CgSolution s = solve_system(*c, op, request, nrhs, rows_of(b, own, nrhs), x, progress);
    CHECK_ALL((s.own.first == own.first && s.own.count == own.count));
    Vector all = zeros(n * nrhs);
    std::copy(x.begin(), x.end(), all.begin() + own.first * nrhs);
    c->control.reduce(all, Reduce::sum);
    for (Index v = 0; v < nrhs; ++v) {
      const CgResult& r = s.results[std::size_t(v)];
      CHECK_ALL(converged(r.reason) == definite);
      if (definite)
        CHECK_ALL(relative_residual(a, column_of(b, nrhs, v), column_of(all, nrhs, v)) <= 1.1e-10);
      else
        CHECK_ALL(r.position == 5);
    }
  }
}
