// 2^i A and 2^j b are iterated as A and b are: the same steps, and x 2^(j - i), bit by bit.
#include <cmath>
#include <limits>

#include "src/cg/chebyshev.hpp"
#include "src/cg/conjugate_gradients.hpp"
#include "src/cg/local_rows.hpp"
#include "src/cg/preconditioner.hpp"
#include "tests/support/cg.hpp"
#include "tests/support/numbers.hpp"

using namespace terrace;
using namespace terrace::cg;
using namespace terrace::test;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Positive definite, rows and columns scaled by 2^-2, ..., 2^2.
double base(Index i, Index j) {
  const double v =
      i == j ? 2 + double(i) / 40 : random_uniform(11, std::max(i, j), std::min(i, j)) / 45;
  return std::ldexp(v, int(i % 5 + j % 5) - 4);
}
Entry times_power(double (*a)(Index, Index), int power) {
  return [a, power](Index i, Index j) { return std::ldexp(a(i, j), power); };
}
Vector times_power(Vector v, int power) {
  for (double& x : v) x = std::ldexp(x, power);
  return v;
}
Vector ones(Index n) { return Vector(std::size_t(n), 1.0); }

enum class With { nothing, jacobi, blocks, chebyshev };
struct Way {
  CgMethod method = CgMethod::classic;
  With with = With::nothing;
  CgNorm norm = CgNorm::unpreconditioned;
  bool mixed = false;
};
struct Solved {
  CgResult result;
  Vector x;
  int power = 0;  // by which the operator divided A
};
template <class B, class A>
Solved solve(const Context<B>& c, A op, const Way& way, const Vector& b, CgOptions options = {},
             const Vector& x0 = {}) {
  normalise(c, op);
  const SumSpace<B> space(c.ahead);
  const Buffer<double, B> ignored(2);
  const auto product = [&](const Operand<B>& p, View<double, B> q, const double* skip) {
    op.apply(c, p, q, ignored.view(), space, skip);
  };
  Preconditioner<B> blocks;
  Chebyshev<B> polynomial;
  CgWork<B> work(c, op, way.with == With::jacobi, 1, way.method);
  if (way.with == With::blocks) {
    LocalRows rows = local_rows(c, op, 8);
    for (double& v : rows.value) v = std::ldexp(v, -op.scale.middle);
    blocks = make_block_jacobi<B>(c, rows, op.rows(), 8);
    work.precondition(
        c,
        [&](const Context<B>& context, View<const double, B> r, View<double, B> z,
            const double* skip) { blocks.apply(context, r, z, skip); },
        op.scale.middle);
  }
  if (way.with == With::chebyshev) {
    polynomial =
        Chebyshev<B>(c, product, op.operand(c), op.rows(), put(c.ahead, host_diagonal(c, op)), 3);
    work.precondition(c,
                      [&](const Context<B>& context, View<const double, B> r, View<double, B> z,
                          const double* skip) { polynomial.apply(context, product, r, z, skip); });
  }
  options.jacobi = way.with == With::jacobi;
  options.norm = way.norm;
  options.mixed = way.mixed;
  Vector x = x0.empty() ? Vector(std::size_t(op.rows().count), 0.0) : part(x0, op.rows());
  Solved s{conjugate_gradients(c, op, work, options, part(b, op.rows()), x), {}, op.scale.power};
  s.x = whole_of(op, x);
  return s;
}
bool alike(const Solved& a, const Solved& b, int power) {
  return a.result.reason == b.result.reason && a.result.iterations == b.result.iterations &&
         a.result.history == b.result.history && a.x == times_power(b.x, power) &&
         a.result.scaled_residual == b.result.scaled_residual;
}

}  // namespace

TEMPLATE_TEST_CASE("powers of two change exponents alone", "", OPERATORS_ON_BACKENDS) {
  using B = typename TestType::Backend;
  using K = typename TestType::Operator;
  Context<B>* c = context<B>();
  if (!c) return;
  constexpr bool heads = !std::is_same_v<K, Dense>;
  const Index n = 41;
  const Vector b = random_vector(n, 3), x0 = random_vector(n, 4);
  std::vector<Way> ways{{CgMethod::classic, With::nothing},
                        {CgMethod::single_reduction, With::nothing},
                        {CgMethod::pipelined, With::nothing}};
  for (const With with : {With::jacobi, With::blocks, With::chebyshev}) {
    for (const CgNorm norm : {CgNorm::unpreconditioned, CgNorm::preconditioned, CgNorm::natural})
      ways.push_back({CgMethod::classic, with, norm});
    ways.push_back({CgMethod::single_reduction, with, CgNorm::natural});
    ways.push_back({CgMethod::pipelined, with, CgNorm::preconditioned});
  }
  if (heads) ways.push_back({CgMethod::classic, With::nothing, CgNorm::unpreconditioned, true});
  for (const Way& way : ways) {
    const auto make = [&](int power) {
      const Entry a = times_power(base, power);
      if constexpr (heads)
        return K::make(*c, n, a, way.mixed);
      else
        return K::make(*c, n, a);
    };
    CgOptions options;
    options.max_iterations = 200;
    const Solved plain = solve(*c, make(0), way, b, options);
    const Solved started = solve(*c, make(0), way, b, options, x0);
    CHECK_ALL(plain.power == 0);  // an ordinary matrix stays as it is
    CHECK_ALL(plain.result.reason == CgReason::rtol);
    CHECK_ALL(norm(minus(b, times(base, plain.x))) <= 1e-7 * norm(b));
    for (const int i : {-990, -501, -133, -1, 64, 335, 990}) {
      if (fewer_cases && i != -990 && i != 64) continue;  // the memory is the same
      for (const int j : {i, 0}) {
        CAPTURE(int(way.method), int(way.with), int(way.norm), way.mixed, i, j);
        const Solved s = solve(*c, make(i), way, times_power(b, j), options);
        CHECK_ALL((s.power != 0) == (std::abs(i) > 130));
        CHECK_ALL(alike(s, plain, j - i));
      }
      CAPTURE(int(way.method), int(way.with), int(way.norm), way.mixed, i);
      CHECK_ALL(alike(solve(*c, make(i), way, times_power(b, i), options, x0), started, 0));
    }
  }
}

TEMPLATE_TEST_CASE("an absolute tolerance has the units of its norm", "", OPERATORS_ON_BACKENDS) {
  using B = typename TestType::Backend;
  using K = typename TestType::Operator;
  Context<B>* c = context<B>();
  if (!c) return;
  const Index n = 30;
  const Vector b = random_vector(n, 5);
  CgOptions options;
  options.rtol = 0;
  for (const With with : {With::jacobi, With::blocks}) {
    for (const CgNorm kind : {CgNorm::unpreconditioned, CgNorm::preconditioned, CgNorm::natural}) {
      const Way way{CgMethod::classic, with, kind};
      options.atol = 1e-6;
      const Solved plain = solve(*c, K::make(*c, n, base), way, b, options);
      CHECK_ALL(plain.result.reason == CgReason::atol);
      if (with == With::jacobi) {  // by the definition of each norm
        const Vector r = minus(b, times(base, plain.x));
        Vector z = r;
        for (Index i = 0; i < n; ++i) z[std::size_t(i)] /= base(i, i);
        const double size = kind == CgNorm::unpreconditioned ? norm(r)
                            : kind == CgNorm::preconditioned ? norm(z)
                                                             : std::sqrt(dot(r, z));
        CHECK_ALL(size <= 1.0001e-6);
        CHECK_ALL(size >= 1e-9);  // not many steps too many
      }
      for (const int i : {-800, -300, 2, 500, 900}) {
        const int j = i / 2, units = kind == CgNorm::unpreconditioned ? j
                                     : kind == CgNorm::preconditioned ? j - i
                                                                      : j - i / 2;
        options.atol = std::ldexp(1e-6, units);
        CAPTURE(int(with), int(kind), i);
        CHECK_ALL(
            alike(solve(*c, K::make(*c, n, times_power(base, i)), way, times_power(b, j), options),
                  plain, j - i));
      }
    }
  }
  // As far down as nobody can come: the residual that rounding leaves, and no other reason.
  for (const int i : {-700, 0, 700}) {
    for (const double atol : {1e-306, 1e-200}) {
      options.atol = atol;
      const Solved s = solve(*c, K::make(*c, n, times_power(base, i)), {}, b, options);
      CAPTURE(i, atol);
      CHECK_ALL(s.result.reason == CgReason::stagnation);
      CHECK_ALL(s.result.true_residual <= 1e-14);
    }
  }
}

TEMPLATE_TEST_CASE("right-hand sides of very different size, each by itself", "",
                   OPERATORS_ON_BACKENDS) {
  using B = typename TestType::Backend;
  using K = typename TestType::Operator;
  Context<B>* c = context<B>();
  if (!c) return;
  const Index n = 23, k = 4;
  const int powers[] = {0, -700, 601, -1060};
  const Vector b = random_vector(n, 7);
  for (const int i : {0, -700, 400}) {
    auto op = K::make(*c, n, times_power(base, i));
    CgWork<B> work(*c, op, true, k);
    CgOptions options;
    options.jacobi = true;
    options.norm = CgNorm::preconditioned;
    const Range rows = op.rows();
    Vector all(std::size_t(rows.count * k), 0.0), x = all;
    for (Index r = 0; r < rows.count; ++r)
      for (Index v = 0; v < 3; ++v)
        all[std::size_t(r * k + v)] = std::ldexp(b[std::size_t(rows.first + r)], powers[v]);
    const auto results = conjugate_gradients_columns(*c, op, work, options, all, x);
    for (Index v = 0; v < 3; ++v) {
      Vector one;
      for (Index r = 0; r < rows.count; ++r)
        one.push_back(std::ldexp(x[std::size_t(r * k + v)], i - powers[v]));
      const Vector y = whole_of(op, one);
      CAPTURE(i, v);
      if (powers[v] - i > 1000) {  // x would be 2^1301
        CHECK_ALL(results[std::size_t(v)].reason == CgReason::nan_or_inf);
        CHECK_ALL(results[std::size_t(v)].beyond_range);
      } else if (powers[v] - i < -1070) {  // 2^-1100
        CHECK_ALL(results[std::size_t(v)].reason == CgReason::stagnation);
        CHECK_ALL(results[std::size_t(v)].beyond_range);
        CHECK_ALL(norm(y) == 0);
        CHECK_ALL(results[std::size_t(v)].true_residual == 1);
        CHECK_ALL(std::isfinite(results[std::size_t(v)].scaled_residual));
      } else {
        CHECK_ALL(results[std::size_t(v)].reason == CgReason::rtol);
        CHECK_ALL(norm(minus(b, times(base, y))) <= 1e-8 * norm(b));
      }
    }
    CHECK_ALL(results[3].reason == CgReason::rtol);  // b = 0
  }
}

TEMPLATE_TEST_CASE("no scale makes another verdict", "", OPERATORS_ON_BACKENDS) {
  using B = typename TestType::Backend;
  using K = typename TestType::Operator;
  Context<B>* c = context<B>();
  if (!c) return;
  const Index n = 20;
  const auto reason = [&](double (*a)(Index, Index), int power, const Way& way, Index order) {
    return solve(*c, K::make(*c, order, times_power(a, power)), way, ones(order)).result.reason;
  };
  for (const int i : {-1040, -900, -300, 0, 300, 900, 1020}) {
    CAPTURE(i);
    // The ends couple too strongly; all negative; nothing.
    const auto indefinite = [](Index r, Index s) {
      return r == s ? 1.0 + double(r) / 64 : r + s == 19 ? 3.0 : 0.0;
    };
    const auto negative = [](Index r, Index s) { return r == s ? -1.5 : 0.0; };
    const auto nothing = [](Index, Index) { return 0.0; };
    const auto one = [](Index, Index) { return 1.5; };
    for (const With with : {With::nothing, With::jacobi}) {
      const Way way{CgMethod::classic, with, CgNorm::natural};
      CHECK_ALL(!converged(reason(indefinite, i, way, n)));
      CHECK_ALL(reason(indefinite, i, way, n) == reason(indefinite, 0, way, n));
      CHECK_ALL(reason(negative, i, way, n) == (with == With::jacobi
                                                    ? CgReason::indefinite_preconditioner
                                                    : CgReason::indefinite_matrix));
      CHECK_ALL(!converged(reason(nothing, i, way, n)));
    }
    CHECK_ALL(reason(indefinite, i, {}, n) == CgReason::indefinite_matrix);
    const Solved tiny = solve(*c, K::make(*c, 1, times_power(one, i)), {}, {std::ldexp(3.0, i)});
    CHECK_ALL((converged(tiny.result.reason) && tiny.x == Vector{2.0}));
  }
  // Entries next to the largest double: rows add up to more than it.
  const auto largest = [](Index r, Index s) {
    return r == s ? std::numeric_limits<double>::max() : 4e306;
  };
  for (const With with : {With::nothing, With::jacobi, With::chebyshev}) {
    const Vector b = times_power(ones(n), 1000);
    const Solved s = solve(*c, K::make(*c, n, largest), {CgMethod::classic, with}, b);
    Vector left;
    for (Index r = 0; r < n; ++r) {
      double sum = 0;
      for (Index t = 0; t < n; ++t) sum += 0x1p-1000 * largest(r, t) * s.x[std::size_t(t)];
      left.push_back(sum);
    }
    CHECK_ALL(s.result.reason == CgReason::rtol);
    CHECK_ALL(norm(minus(ones(n), left)) <= 1e-9 * norm(left));
  }
  // Denormal numbers alone, even ones: tiles hold half of a_ii, and CSR some entries as two halves.
  {
    const Entry stored = [](Index r, Index t) { return 2 * std::ldexp(base(r, t), -1051); };
    const Solved s = solve(*c, K::make(*c, n, stored), {}, times_power(ones(n), -1050));
    Vector left;
    for (Index r = 0; r < n; ++r) {
      double sum = 0;
      for (Index t = 0; t < n; ++t) sum += std::ldexp(stored(r, t), 1050) * s.x[std::size_t(t)];
      left.push_back(sum);
    }
    CHECK_ALL(s.result.reason == CgReason::rtol);
    CHECK_ALL(norm(minus(ones(n), left)) <= 1e-9 * norm(left));
  }
  // Rows and columns over 600 powers of two: Jacobi undoes it, at any scale.
  const auto graded = [](Index r, Index s) {
    return r == s ? std::ldexp(2.0, 30 * int(r) - 300) : std::ldexp(0.05, 15 * int(r + s) - 300);
  };
  const Way jacobi{CgMethod::classic, With::jacobi, CgNorm::natural};
  const Solved plain = solve(*c, K::make(*c, n, graded), jacobi, ones(n));
  CHECK_ALL(plain.result.reason == CgReason::rtol);
  for (const int i : {-401, 401})
    CHECK_ALL(alike(solve(*c, K::make(*c, n, times_power(graded, i)), jacobi, ones(n)), plain, -i));
}

TEST_CASE("where x is zero the residual is that of b") {
  Context<Cpu>* c = context<Cpu>();
  CgOptions options;
  options.atol = 1e9;
  const Index n = 12;
  const Solved s = solve(*c, Csr::make(*c, n, base), {}, ones(n), options);
  CHECK_ALL((s.result.reason == CgReason::atol && s.x == Vector(std::size_t(n), 0.0)));
  CHECK_ALL(
      std::fabs(s.result.scaled_residual * double(n) * std::numeric_limits<double>::epsilon() -
                1) <= 1e-12);
  CHECK_ALL(s.result.scaled_residual < infinity);
}
