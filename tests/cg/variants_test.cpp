// Variants, blocks of right-hand sides, norms and preconditioners of conjugate gradients.
#include <limits>

#include "src/cg/chebyshev.hpp"
#include "src/cg/conjugate_gradients.hpp"
#include "src/cg/eigen_estimate.hpp"
#include "src/cg/local_rows.hpp"
#include "src/cg/preconditioner.hpp"
#include "tests/support/cg.hpp"
#include "tests/support/numbers.hpp"

using namespace terrace;
using namespace terrace::cg;
using namespace terrace::test;

namespace {

constexpr CgMethod variants[] = {CgMethod::single_reduction, CgMethod::pipelined};

/// Rows of `columns` row-major vectors.
Vector rows_of(const Vector& all, Range rows, Index columns) {
  return {all.begin() + rows.first * columns, all.begin() + rows.end() * columns};
}
Vector column_of(const Vector& block, Index columns, Index v) {
  Vector one;
  for (std::size_t i = std::size_t(v); i < block.size(); i += std::size_t(columns))
    one.push_back(block[i]);
  return one;
}

template <class B, class A>
CgResult solve(const Context<B>& c, A& op, CgWork<B>& work, const CgOptions& options,
               const Vector& b, Vector& x) {
  Vector mine = part(x, op.rows());
  CgResult result = conjugate_gradients(c, op, work, options, part(b, op.rows()), mine);
  x = whole_of(op, mine);
  return result;
}
Entry graded(Index n) {  // eigenvalues over three decades, and scaled rows
  return [n](Index i, Index j) {
    const double s = 1 + 9 * double((i * 7 + j * 7) % 5);
    return i == j ? 1 + 1000.0 * double(i) / double(n) : 1e-3 * s / (1 + std::fabs(double(i - j)));
  };
}

}  // namespace

TEMPLATE_TEST_CASE("variants go the way of the classic method", "", OPERATORS_ON_BACKENDS) {
  using B = typename TestType::Backend;
  using K = typename TestType::Operator;
  Context<B>* c = context<B>();
  if (!c) return;
  const Index points = 9, n = points * points;
  const Entry a = laplace(points);
  const Vector b = random_vector(n, 4);
  auto op = K::make(*c, n, a);
  CgWork<B> classic(*c, op, false);
  for (const CgMethod method : variants) {
    CgWork<B> work(*c, op, false, 1, method);
    for (Index k : {1, 2, 3, 8, 12}) {
      CgOptions options;
      options.max_iterations = k;
      Vector expected = zeros(n), x = zeros(n);
      const CgResult e = solve(*c, op, classic, options, b, expected);
      const CgResult r = solve(*c, op, work, options, b, x);
      CAPTURE(int(method), k, to_string(r.reason));
      CHECK_ALL(r.reason == CgReason::max_iterations);
      CHECK_ALL(r.iterations == k);
      CHECK_ALL(norm(minus(x, expected)) <= 1e-11 * norm(x));
      bool alike = r.history.size() == e.history.size();
      for (std::size_t i = 0; alike && i < r.history.size(); ++i)
        alike = std::fabs(r.history[i] - e.history[i]) <= 1e-9 * e.history.front();
      CHECK_ALL(alike);
    }
    CgOptions options;
    options.rtol = 1e-12;
    Vector x = zeros(n), again = zeros(n);
    const CgResult r = solve(*c, op, work, options, b, x);
    CHECK_ALL(r.reason == CgReason::rtol);
    CHECK_ALL(relative_residual(a, b, x) <= 1.1e-12);
    (void)solve(*c, op, work, options, b, again);
    CHECK_ALL(x == again);  // the same bits
  }
}

TEMPLATE_TEST_CASE("variants stop for reasons with the same names", "", OPERATORS_ON_BACKENDS) {
  using B = typename TestType::Backend;
  using K = typename TestType::Operator;
  Context<B>* c = context<B>();
  if (!c) return;
  const Index n = 30;
  const Entry indefinite = [n](Index i, Index j) {
    return i == j ? 1.0 : (i + j == n - 1 ? 2.0 : 0.0);
  };
  const Entry spd = graded(n);
  for (const CgMethod method : variants) {
    CAPTURE(int(method));
    auto bad = K::make(*c, n, indefinite);
    CgWork<B> bad_work(*c, bad, false, 1, method);
    Vector x = zeros(n);
    CHECK_ALL(solve(*c, bad, bad_work, {}, random_vector(n, 1), x).reason ==
              CgReason::indefinite_matrix);
    auto good = K::make(*c, n, spd);
    CgWork<B> work(*c, good, false, 1, method);
    x = zeros(n);
    CHECK_ALL(solve(*c, good, work, {}, zeros(n), x).iterations == 0);
    CgOptions loose;
    loose.rtol = 0;
    loose.atol = 1e-3;
    CHECK_ALL(solve(*c, good, work, loose, random_vector(n, 1), x).reason == CgReason::atol);
    CgOptions tight;
    tight.rtol = 1e-30;
    x = zeros(n);
    const CgReason reason = solve(*c, good, work, tight, random_vector(n, 1), x).reason;
    CHECK_ALL(!converged(reason));
  }
}

TEMPLATE_TEST_CASE("several right-hand sides are solved as each alone", "", OPERATORS_ON_BACKENDS) {
  using B = typename TestType::Backend;
  using K = typename TestType::Operator;
  Context<B>* c = context<B>();
  if (!c) return;
  for (Index n : {1, 37, 130, 300}) {
    if (fewer_cases && n > 130) continue;
    const Entry a = graded(n);
    auto op = K::make(*c, n, a);
    for (bool jacobi : {false, true}) {
      CgWork<B> one(*c, op, jacobi);
      for (Index k : {2, 4, 8, 16}) {
        CgWork<B> work(*c, op, jacobi, k);
        Vector b(std::size_t(n * k), 0.0), x(std::size_t(n * k), 0.0);
        for (Index i = 0; i < n; ++i) {
          for (Index v = 0; v < k; ++v) {
            // Column 1 is zero, column 0 an eigenvector's neighbour (few steps), others random;
            // columns of very different size.
            const double value = v == 1   ? 0.0
                                 : v == 0 ? double(i == 0)
                                          : random_uniform(Word(v), i, 0) * std::pow(10.0, v - 5);
            b[std::size_t(i * k + v)] = value;
          }
        }
        CgOptions options;
        options.jacobi = jacobi;
        Vector mine = rows_of(x, op.rows(), k);
        const std::vector<CgResult> results =
            conjugate_gradients_columns(*c, op, work, options, rows_of(b, op.rows(), k), mine);
        REQUIRE(results.size() == std::size_t(k));
        for (Index v = 0; v < k; ++v) {
          const Vector b_one = column_of(b, k, v);
          const Vector x_one = whole_of(op, column_of(mine, k, v));
          Vector alone = zeros(n);
          const CgResult single = solve(*c, op, one, options, b_one, alone);
          const CgResult& r = results[std::size_t(v)];
          CAPTURE(n, k, v, jacobi, to_string(r.reason));
          CHECK_ALL(r.reason == CgReason::rtol);
          CHECK_ALL(std::abs(r.iterations - single.iterations) <= 1);
          CHECK_ALL(Index(r.history.size()) == r.iterations);
          if (v == 1) {
            CHECK_ALL(x_one == zeros(n));
          } else {
            CHECK_ALL(relative_residual(a, b_one, x_one) <= 1.1e-10);
          }
        }
      }
    }
  }
}

TEMPLATE_TEST_CASE("an indefinite matrix stops every right-hand side that meets it", "",
                   OPERATORS_ON_BACKENDS) {
  using B = typename TestType::Backend;
  using K = typename TestType::Operator;
  Context<B>* c = context<B>();
  if (!c) return;
  const Index n = 20, k = 2;
  const Entry a = [](Index i, Index j) {  // a block of eigenvalues -1 and 3 at the end
    if (i == j) return 1.0;
    return i + j == 2 * n - 3 ? 2.0 : 0.0;
  };
  auto op = K::make(*c, n, a);
  CgWork<B> work(*c, op, false, k);
  Vector b(std::size_t(n * k), 0.0);
  for (Index i = 0; i < n - 2; ++i) b[std::size_t(i * k)] = 1;  // meets the ones alone
  b[std::size_t((n - 2) * k + 1)] = 1, b[std::size_t((n - 1) * k + 1)] = -1;  // eigenvalue -1
  Vector mine = rows_of(Vector(std::size_t(n * k), 0.0), op.rows(), k);
  const auto results =
      conjugate_gradients_columns(*c, op, work, {}, rows_of(b, op.rows(), k), mine);
  CHECK_ALL(results[0].reason == CgReason::rtol);
  CHECK_ALL(results[1].reason == CgReason::indefinite_matrix);
}

TEMPLATE_TEST_CASE("mixed precision reaches the residual of FP64", "", OPERATORS_WITH_HEADS) {
  using B = typename TestType::Backend;
  using K = typename TestType::Operator;
  Context<B>* c = context<B>();
  if (!c) return;
  for (Index n : {5, 64, 300, 530}) {
    const Entry a = graded(n);
    const Vector b = random_vector(n, 3);
    auto op = K::make(*c, n, a, true);
    CgWork<B> work(*c, op, false);
    CgOptions options;
    options.rtol = 1e-12;
    Vector x = zeros(n), plain = zeros(n);
    const CgResult fp64 = solve(*c, op, work, options, b, plain);
    options.mixed = true;
    const CgResult r = solve(*c, op, work, options, b, x);
    CAPTURE(n, r.iterations, fp64.iterations, r.restarts);
    CHECK_ALL(fp64.reason == CgReason::rtol);
    CHECK_ALL(r.reason == CgReason::rtol);
    CHECK_ALL(relative_residual(a, b, x) <= 1.1e-12);
    CHECK_ALL(r.iterations <= fp64.iterations * 13 / 10 + 5);
    CHECK_ALL(r.restarts >= (n > 5 ? 2 : 1));
  }
  // Hopeless for heads: A is near to singular, and its heads are indefinite.
  const Index n = 40;
  const Entry hard = [](Index i, Index j) {
    return (i == j ? 1e-9 : 0.0) + 1.0 / double(i + j + 1);
  };
  auto op = K::make(*c, n, hard, true);
  CgWork<B> work(*c, op, false);
  CgOptions options;
  options.rtol = 1e-6;
  options.mixed = true;
  Vector x = zeros(n);
  const CgResult r = solve(*c, op, work, options, random_vector(n, 5), x);
  CHECK_ALL((converged(r.reason) == (relative_residual(hard, random_vector(n, 5), x) <= 1.01e-6)));
}

TEMPLATE_TEST_CASE("norms are those asked for", "", OPERATORS_ON_BACKENDS) {
  using B = typename TestType::Backend;
  using K = typename TestType::Operator;
  Context<B>* c = context<B>();
  if (!c) return;
  const Index n = 60;
  const Entry a = graded(n);
  const Vector b = random_vector(n, 2);
  auto op = K::make(*c, n, a);
  CgWork<B> work(*c, op, true);
  for (const CgNorm kind : {CgNorm::unpreconditioned, CgNorm::preconditioned, CgNorm::natural}) {
    CgOptions options;
    options.jacobi = true;
    options.norm = kind;
    options.rtol = 1e-8;
    Vector x = zeros(n);
    const CgResult result = solve(*c, op, work, options, b, x);
    const Vector r = minus(b, times(a, x));
    Vector z = r, zb = b;
    for (Index i = 0; i < n; ++i) {
      z[std::size_t(i)] /= a(i, i);
      zb[std::size_t(i)] /= a(i, i);
    }
    const double ratio = kind == CgNorm::unpreconditioned ? norm(r) / norm(b)
                         : kind == CgNorm::preconditioned ? norm(z) / norm(zb)
                                                          : std::sqrt(dot(r, z) / dot(b, zb));
    CAPTURE(int(kind));
    CHECK_ALL(result.reason == CgReason::rtol);
    CHECK_ALL(ratio <= 1.01e-8);
    CHECK_ALL(std::fabs(result.history.back() - ratio) <= 1e-3 * ratio);
    CHECK_ALL(result.history[result.history.size() - 2] > 1e-8);  // not a step too many
  }
}

TEMPLATE_TEST_CASE("preconditioners shorten the way in every variant", "", OPERATORS_ON_BACKENDS) {
  using B = typename TestType::Backend;
  using K = typename TestType::Operator;
  Context<B>* c = context<B>();
  if (!c) return;
  const Index points = 16, n = points * points;
  const Entry a = laplace(points);
  const Vector b = random_vector(n, 6);
  auto op = K::make(*c, n, a);
  CgWork<B> plain(*c, op, false);
  Vector x = zeros(n);
  const Index alone = solve(*c, op, plain, {}, b, x).iterations;
  constexpr bool dense = std::is_same_v<K, Dense> || std::is_same_v<K, Triangle>;

  const Preconditioner<B> blocks = make_block_jacobi<B>(*c, local_rows(*c, op, 16), op.rows(), 16);
  Preconditioner<B> cholesky;
  if (!dense) cholesky = make_incomplete_cholesky<B>(*c, local_rows(*c, op, 0), op.rows());
  const SumSpace<B> space(c->ahead);
  const Buffer<double, B> ignored(2);
  const auto product = [&](const Operand<B>& p, View<double, B> q, const double* skip) {
    op.apply(*c, p, q, ignored.view(), space, skip);
  };
  const Chebyshev<B> polynomial(*c, product, op.operand(*c), op.rows(),
                                put(c->ahead, host_diagonal(*c, op)), 4);
  const CgPreconditioner<B> all[] = {
      [&](const Context<B>& context, View<const double, B> r, View<double, B> z,
          const double* skip) { blocks.apply(context, r, z, skip); },
      [&](const Context<B>& context, View<const double, B> r, View<double, B> z,
          const double* skip) { cholesky.apply(context, r, z, skip); },
      [&](const Context<B>& context, View<const double, B> r, View<double, B> z,
          const double* skip) { polynomial.apply(context, product, r, z, skip); }};
  for (int which = 0; which < 3; ++which) {
    if (which == 1 && dense) continue;
    Index classic = 0;
    for (const CgMethod method :
         {CgMethod::classic, CgMethod::single_reduction, CgMethod::pipelined}) {
      CgWork<B> work(*c, op, false, 1, method);
      work.precondition(*c, all[which]);
      x = zeros(n);
      const CgResult r = solve(*c, op, work, {}, b, x);
      if (method == CgMethod::classic) classic = r.iterations;
      CAPTURE(which, int(method), r.iterations, alone, to_string(r.reason));
      CHECK_ALL(r.reason == CgReason::rtol);
      CHECK_ALL(relative_residual(a, b, x) <= 1.1e-10);
      CHECK_ALL(r.iterations < alone);
      CHECK_ALL(std::abs(r.iterations - classic) <= 2);
    }
  }
}

TEMPLATE_TEST_CASE("a preconditioner that turns out indefinite on the way is found", "",
                   OPERATORS_ON_BACKENDS) {
  using B = typename TestType::Backend;
  using K = typename TestType::Operator;
  Context<B>* c = context<B>();
  if (!c) return;
  // M^-1 turns every odd row around; the first residual has none of them.
  const Index n = 12;
  const Entry a = [](Index i, Index j) { return i == j ? 2.0 : i / 2 == j / 2 ? 1.0 : 0.0; };
  auto op = K::make(*c, n, a);
  std::vector<double> signs, b;
  for (Index i = 0; i < n; ++i) {
    signs.push_back(i % 2 == 0 ? 1.0 : -1.0);
    b.push_back(i % 2 == 0 ? 1.0 : 0.0);
  }
  const Vector own = part(signs, op.rows());
  Buffer<double, B> sign(Index(own.size())), other(Index(own.size()));
  upload(c->ahead, sign.view(), own.data());
  CgWork<B> work(*c, op, false);
  work.precondition(*c, [&](const Context<B>& context, View<const double, B> r, View<double, B> z,
                            const double* skip) {
    chebyshev_start(context.ahead, 1.0, 1, sign, r, other.view(), z, skip);
  });
  Vector x = zeros(n);
  const CgResult r = solve(*c, op, work, {}, b, x);
  CHECK_ALL(r.reason == CgReason::indefinite_preconditioner);
  CHECK_ALL(r.iterations == 1);
}

TEMPLATE_TEST_CASE("extreme eigenvalues come with the solution", "", OPERATORS_ON_BACKENDS) {
  using B = typename TestType::Backend;
  using K = typename TestType::Operator;
  Context<B>* c = context<B>();
  if (!c) return;
  const Index points = 10, n = points * points;
  auto op = K::make(*c, n, laplace(points));
  CgWork<B> work(*c, op, false);
  CgOptions options;
  options.rtol = 1e-13;
  Vector x = zeros(n);
  const CgResult r = solve(*c, op, work, options, random_vector(n, 6), x);
  const EigenEstimate e = estimate_eigenvalues(r.alpha, r.beta);
  const double s = std::sin(std::acos(-1.0) / (2 * double(points + 1)));
  const double least = 8 * s * s, most = 8 - least;
  CHECK_ALL(std::fabs(e.smallest - least) <= 1e-3 * least);
  CHECK_ALL(std::fabs(e.largest - most) <= 1e-3 * most);
}
