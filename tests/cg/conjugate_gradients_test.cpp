#include "src/cg/conjugate_gradients.hpp"

#include <limits>

#include "src/cg/column.hpp"
#include "tests/support/cg.hpp"
#include "tests/support/stopped.hpp"

using namespace terrace;
using namespace terrace::cg;
using namespace terrace::test;

namespace {

struct Solved {
  CgResult result;
  Vector x;
};
template <class Kind, class B>
Solved solve(const Context<B>& c, Index n, const Entry& a, const Vector& b, CgOptions options = {},
             const Vector& x0 = {}) {
  auto op = Kind::make(c, n, a);
  CgWork<B> work(c, op, options.jacobi);
  Vector x = x0.empty() ? Vector(std::size_t(op.rows().count), 0.0) : part(x0, op.rows());
  Solved s{conjugate_gradients(c, op, work, options, part(b, op.rows()), x), {}};
  s.x = whole_of(op, x);
  return s;
}

/// The textbook, in the order of its formulas. Iterates after 1, 2, ... steps.
std::vector<Vector> textbook(const Entry& a, const Vector& b, Index steps) {
  Vector x(b.size(), 0.0), r = b, p = r;
  std::vector<Vector> iterates;
  for (Index k = 0; k < steps; ++k) {
    const Vector q = times(a, p);
    const double rr = dot(r, r), alpha = rr / dot(p, q);
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] += alpha * p[i];
      r[i] -= alpha * q[i];
    }
    const double beta = dot(r, r) / rr;
    for (std::size_t i = 0; i < x.size(); ++i) p[i] = r[i] + beta * p[i];
    iterates.push_back(x);
  }
  return iterates;
}

Entry diagonally_dominant(Index n) {
  return [n](Index i, Index j) {
    return i == j ? 2.0 + double(i) / double(n)
                  : random_uniform(11, std::max(i, j), std::min(i, j)) / double(n);
  };
}

}  // namespace

TEMPLATE_TEST_CASE("known solutions are found at every size", "", OPERATORS_ON_BACKENDS) {
  using B = typename TestType::Backend;
  using K = typename TestType::Operator;
  Context<B>* c = context<B>();
  if (!c) return;
  for (Index n : {1, 2, 3, 63, 64, 65, 130}) {
    for (bool jacobi : {false, true}) {
      const Entry a = diagonally_dominant(n);
      const Vector x_true = random_vector(n, 2), b = times(a, x_true);
      CgOptions options;
      options.jacobi = jacobi;
      options.rtol = 1e-12;
      const Solved s = solve<K>(*c, n, a, b, options);
      CAPTURE(n, jacobi, to_string(s.result.reason));
      CHECK_ALL(s.result.reason == CgReason::rtol);
      CHECK_ALL(relative_residual(a, b, s.x) <= 1.1e-12);
      CHECK_ALL(norm(minus(s.x, x_true)) <= 1e-11 * norm(x_true));
      CHECK_ALL(std::fabs(s.result.true_residual - relative_residual(a, b, s.x)) <= 1e-14);
      CHECK_ALL(Index(s.result.history.size()) == s.result.iterations);
      CHECK_ALL(s.result.iterations <= n);
      // Once more from the solution: nothing is left to do.
      options.rtol = 1e-11;
      const Solved again = solve<K>(*c, n, a, b, options, s.x);
      CHECK_ALL(again.result.iterations == 0);
      CHECK_ALL(again.x == s.x);
    }
  }
}

TEMPLATE_TEST_CASE("iterates are the textbook's", "", OPERATORS_ON_BACKENDS) {
  using B = typename TestType::Backend;
  using K = typename TestType::Operator;
  Context<B>* c = context<B>();
  if (!c) return;
  const Index points = 7, n = points * points;
  const Entry a = laplace(points);
  const Vector b = random_vector(n, 4);
  const auto expected = textbook(a, b, 8);
  const Vector x_true = textbook(a, b, 40).back();
  double error_before = std::numeric_limits<double>::infinity();
  for (Index k = 1; k <= 8; ++k) {
    CgOptions options;
    options.max_iterations = k;
    const Solved s = solve<K>(*c, n, a, b, options);
    CHECK_ALL(s.result.reason == CgReason::max_iterations);
    CHECK_ALL(s.result.iterations == k);
    CHECK_ALL(norm(minus(s.x, expected[std::size_t(k - 1)])) <= 1e-12 * norm(s.x));
    const Vector e = minus(s.x, x_true);
    const double error = dot(e, times(a, e));  // the energy norm falls in every step
    CHECK_ALL(error < error_before);
    error_before = error;
  }
}

TEMPLATE_TEST_CASE("as many steps as different eigenvalues", "", OPERATORS_ON_BACKENDS) {
  using B = typename TestType::Backend;
  using K = typename TestType::Operator;
  Context<B>* c = context<B>();
  if (!c) return;
  const Index n = 40;
  const Vector b = random_vector(n, 9);
  const Entry rank_one = [](Index i, Index j) { return double(i == j) * 3 + 0.5; };
  CHECK_ALL(solve<K>(*c, n, rank_one, b).result.iterations <= 2);
  const Entry three = [](Index i, Index j) { return i == j ? double(i % 3 + 1) : 0.0; };
  CHECK_ALL(solve<K>(*c, n, three, b).result.iterations == 3);
  CgOptions jacobi;
  jacobi.jacobi = true;
  CHECK_ALL(solve<K>(*c, n, three, b, jacobi).result.iterations == 1);
  const Solved l = solve<K>(*c, n, lehmer, b);
  CHECK_ALL(l.result.reason == CgReason::rtol);
  CHECK_ALL(relative_residual(lehmer, b, l.x) <= 1e-10);
}

TEMPLATE_TEST_CASE("every way to stop has its name", "", OPERATORS_ON_BACKENDS) {
  using B = typename TestType::Backend;
  using K = typename TestType::Operator;
  Context<B>* c = context<B>();
  if (!c) return;
  const Index n = 30;
  const Vector b = random_vector(n, 1), ones(std::size_t(n), 1.0), zeros(std::size_t(n), 0.0);
  const Entry spd = diagonally_dominant(n);
  const auto reason = [&](const Entry& a, const Vector& rhs, const CgOptions& options = {}) {
    return solve<K>(*c, n, a, rhs, options).result.reason;
  };
  CgOptions jacobi, loose, tight, none;
  jacobi.jacobi = true;

  const Solved zero = solve<K>(*c, n, spd, zeros, {}, b);
  CHECK_ALL(
      (zero.result.reason == CgReason::rtol && zero.result.iterations == 0 && zero.x == zeros));
  loose.rtol = 0;
  loose.atol = 1e-3;
  CHECK_ALL(reason(spd, b, loose) == CgReason::atol);
  none.max_iterations = 0;
  CHECK_ALL(reason(spd, b, none) == CgReason::max_iterations);
  tight.rtol = 1e-30;
  CHECK_ALL(reason(spd, b, tight) == CgReason::stagnation);

  // Positive diagonal, but the ends couple too strongly: eigenvalues 1 - 2 and 1 + 2.
  const Entry indefinite = [n](Index i, Index j) {
    return i == j ? 1.0 : (i + j == n - 1 ? 2.0 : 0.0);
  };
  CHECK_ALL(reason(indefinite, b) == CgReason::indefinite_matrix);
  CHECK_ALL(reason(indefinite, b, jacobi) == CgReason::indefinite_matrix);
  const Entry negative = [n](Index i, Index j) { return i == j ? (i == n - 2 ? -1.0 : 1.0) : 0.0; };
  const CgResult refused = solve<K>(*c, n, negative, ones).result;
  CHECK_ALL((refused.reason == CgReason::indefinite_matrix && refused.position == n - 2));
  const CgResult refused_d = solve<K>(*c, n, negative, ones, jacobi).result;
  CHECK_ALL(
      (refused_d.reason == CgReason::indefinite_preconditioner && refused_d.position == n - 2));

  // Singular: the path graph's Laplace matrix; constants are its kernel.
  const Entry path = [n](Index i, Index j) {
    if (i == j) return i == 0 || i == n - 1 ? 1.0 : 2.0;
    return std::abs(i - j) == 1 ? -1.0 : 0.0;
  };
  CHECK_ALL(reason(path, times(path, b)) == CgReason::rtol);  // consistent
  CHECK_ALL(reason(path, ones) == CgReason::indefinite_matrix);
  const CgReason inconsistent = reason(path, b);
  CHECK_ALL(!converged(inconsistent));
}

TEMPLATE_TEST_CASE("tiny, huge and badly scaled systems", "", OPERATORS_ON_BACKENDS) {
  using B = typename TestType::Backend;
  using K = typename TestType::Operator;
  Context<B>* c = context<B>();
  if (!c) return;
  const Index n = 25;
  const Entry a = diagonally_dominant(n);
  for (double scale : {1e-290, 1e-160, 1e160, 1e290}) {
    Vector b = random_vector(n, 6);
    const Vector unit = solve<K>(*c, n, a, b).x;
    for (double& v : b) v *= scale;
    const Solved s = solve<K>(*c, n, a, b);
    CAPTURE(scale);
    CHECK_ALL(s.result.reason == CgReason::rtol);
    Vector back = s.x;
    for (double& v : back) v /= scale;
    CHECK_ALL(norm(minus(back, unit)) <= 1e-9 * norm(unit));
  }
  // Rows and columns scaled over twenty decades: Jacobi undoes it.
  const Entry graded = [&](Index i, Index j) {
    return a(i, j) * std::pow(10.0, double(i % 11) - 5) * std::pow(10.0, double(j % 11) - 5);
  };
  CgOptions jacobi;
  jacobi.jacobi = true;
  const Vector b = times(graded, Vector(std::size_t(n), 1.0));
  const Solved s = solve<K>(*c, n, graded, b, jacobi);
  CHECK_ALL(s.result.reason == CgReason::rtol);
  CHECK_ALL(s.result.iterations < 4 * n);
  // Overflow inside the product is named.
  const Entry huge = [&](Index i, Index j) { return 1e308 * a(i, j) * (i == j ? 0.5 : 1.0); };
  const CgReason overflow = solve<K>(*c, n, huge, random_vector(n, 3)).result.reason;
  CHECK_ALL((overflow == CgReason::nan_or_inf || overflow == CgReason::rtol));
}

TEMPLATE_TEST_CASE("the same bits again", "", OPERATORS_ON_BACKENDS) {
  using B = typename TestType::Backend;
  using K = typename TestType::Operator;
  Context<B>* c = context<B>();
  if (!c) return;
  const Index n = 400;
  const Entry a = laplace(20);
  const Vector b = random_vector(n, 8);
  const Solved first = solve<K>(*c, n, a, b), second = solve<K>(*c, n, a, b);
  CHECK_ALL(first.x == second.x);
  CHECK_ALL(first.result.history == second.result.history);
  CHECK_ALL(first.result.reason == CgReason::rtol);
}

TEST_CASE("a checkpoint keeps all that the iteration reads of a column") {
  const auto scalars = [](double s) { return CgScalars{s, s + 1, s + 2, s + 3, s + 4, s + 5}; };
  const auto all = [](const CgScalars& s) {
    return std::vector<double>{s.pq, s.pp, s.rr, s.rz, s.zz, s.alpha};
  };
  CgColumn kept;
  kept.result.iterations = 17;
  kept.result.restarts = 3;
  kept.before = 0.25;
  kept.done = kept.ended = true;
  kept.failure = CgReason::indefinite_matrix;
  kept.last = scalars(10);
  kept.last_but_one = scalars(20);
  kept.smallest = 0.5;
  kept.best = 11;
  io::Output output(world(), "column.h5", true);
  Archive save(world(), output);
  archive_column(save, "column", kept);
  CgColumn found;
  Archive load(world(), "column.h5", save.values(), 17);
  archive_column(load, "column", found);
  CHECK_ALL(found.result.iterations == 17);
  CHECK_ALL(found.result.restarts == 3);
  CHECK_ALL(found.before == 0.25);
  CHECK_ALL((found.done && found.ended));
  CHECK_ALL(found.failure == CgReason::indefinite_matrix);
  CHECK_ALL(all(found.last) == all(kept.last));
  CHECK_ALL(all(found.last_but_one) == all(kept.last_but_one));
  CHECK_ALL(found.smallest == 0.5);
  CHECK_ALL(found.best == 11);

  bool refused = false;  // what an older version did not write
  try {
    load.value("newer", found.best);
  } catch (const Error& e) {
    refused = e.agreed() && e.code() == Exit::input &&
              std::string(e.what()).find("column.h5 has no 'newer'") != std::string::npos;
  }
  CHECK_ALL(refused);
}

TEMPLATE_TEST_CASE("an iteration may be stopped at each step while lanes work", "",
                   OPERATORS_ON_BACKENDS) {
  using B = typename TestType::Backend;
  using K = typename TestType::Operator;
  Context<B>* c = context<B>();
  if (!c) return;
  const Index n = 65;
  const Vector b = random_vector(n, 2);
  const Index ticks = stopped_at_each_tick([&](Progress& progress, const auto& attempt) {
    auto op = K::make(*c, n, diagonally_dominant(n));
    CgOptions options;
    options.rtol = 1e-12;
    options.observe = [&](Index k, double) { progress.tick(double(k)); };
    CgWork<B> work(*c, op, options.jacobi);
    Vector x(std::size_t(op.rows().count), 0.0);
    const Vector own = part(b, op.rows());
    attempt([&] { (void)conjugate_gradients(*c, op, work, options, own, x); });
  });
  REQUIRE(ticks > 5);
}
