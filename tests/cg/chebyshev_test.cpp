// What preconditioners save, and Chebyshev's polynomials.
#include "src/cg/chebyshev.hpp"

#include "tests/support/numbers.hpp"
#include "tests/support/preconditioners.hpp"

using namespace terrace;
using namespace terrace::cg;
using namespace terrace::test;

namespace {

/// Iterations of the textbook's conjugate gradients to 1e-10; `precondition` is collective.
Index iterations(Index n, const Entry& a,
                 const std::function<Vector(const Vector&)>& precondition) {
  const Range rows = own_rows(n);
  const auto product = [&](const Vector& mine) {
    const Vector p = whole(mine, rows, n);
    Vector q(mine.size(), 0.0);
    for (Index i = 0; i < rows.count; ++i)
      for (Index j = 0; j < n; ++j) q[std::size_t(i)] += a(rows.first + i, j) * p[std::size_t(j)];
    return q;
  };
  Vector r = part(random_vector(n, 1), rows), z = precondition(r), p = z;
  double rz = sum(dot(r, z));
  const double stop = 1e-20 * sum(dot(r, r));
  for (Index k = 1; k <= 2 * n; ++k) {
    const Vector q = product(p);
    const double alpha = rz / sum(dot(p, q));
    for (std::size_t i = 0; i < r.size(); ++i) r[i] -= alpha * q[i];
    if (sum(dot(r, r)) <= stop) return k;
    z = precondition(r);
    const double next = sum(dot(r, z));
    for (std::size_t i = 0; i < p.size(); ++i) p[i] = z[i] + next / rz * p[i];
    rz = next;
  }
  return 2 * n + 1;
}

}  // namespace

TEMPLATE_TEST_CASE("every preconditioner saves iterations on Laplace's matrix", "", BACKENDS) {
  using B = TestType;
  Context<B>* c = context<B>();
  if (!c) return;
  const Index p = 18, n = p * p;
  const Range rows = own_rows(n);
  const Entry a = laplace(p);
  const LocalRows local = local_rows(rows, a);
  const HostProduct<B> product{*c, n, a};
  const auto blocks = make_block_jacobi(*c, local, rows, 32);
  const auto factor = make_incomplete_cholesky(*c, local, rows);
  const Index plain = iterations(n, a, [](const Vector& r) { return r; });
  const Index with_blocks = iterations(n, a, [&](const Vector& r) { return apply(*c, blocks, r); });
  const Index with_factor = iterations(n, a, [&](const Vector& r) { return apply(*c, factor, r); });
  CAPTURE(plain, with_blocks, with_factor);
  CHECK_ALL(with_blocks < plain);
  CHECK_ALL(with_factor < with_blocks);
  CHECK_ALL(2 * with_factor <= plain + 2 * world().size());
  Index before = plain;
  for (const Index degree : {1, 3, 8}) {
    const Chebyshev<B> m(*c, product, product.operand(), rows,
                         put(c->ahead, Vector(std::size_t(rows.count), 4.0)), degree);
    product.calls = 0;
    const Index steps = iterations(n, a, [&](const Vector& r) { return apply(*c, m, product, r); });
    CAPTURE(degree, before, steps);
    CHECK_ALL(steps < before);
    CHECK_ALL(product.calls == degree * steps);
    before = steps;
  }
  CHECK_ALL(before * 3 <= plain);
}

TEMPLATE_TEST_CASE("a high degree pays where the condition is low", "", BACKENDS) {
  using B = TestType;
  Context<B>* c = context<B>();
  if (!c) return;
  const Index n = 120;
  const Range rows = own_rows(n);
  const Entry a = [](Index i, Index j) {  // eigenvalues 1, ..., 2 on a wave of period 3
    return i == j ? 1.5 : std::abs(i - j) == 1 ? 0.25 : 0.0;
  };
  const Index plain = iterations(n, a, [](const Vector& r) { return r; });
  for (const Index degree : {4, 8, 16}) {
    const HostProduct<B> product{*c, n, a};
    const Chebyshev<B> m(*c, product, product.operand(), rows,
                         put(c->ahead, Vector(std::size_t(rows.count), 1.5)), degree);
    const Index steps = iterations(n, a, [&](const Vector& r) { return apply(*c, m, product, r); });
    CAPTURE(degree, plain, steps);
    CHECK_ALL(steps * degree <= 2 * plain);
    CHECK_ALL(steps <= 5);
  }
}

TEMPLATE_TEST_CASE("Chebyshev's interval reaches past the spectrum of Laplace's matrix", "",
                   BACKENDS) {
  using B = TestType;
  Context<B>* c = context<B>();
  if (!c) return;
  for (const Index p : {1, 2, 3, 8, 16}) {
    const Index n = p * p;
    const Range rows = own_rows(n);
    const HostProduct<B> product{*c, n, laplace(p)};
    const Chebyshev<B> m(*c, product, product.operand(), rows,
                         put(c->ahead, Vector(std::size_t(rows.count), 4.0)), 4);
    // Eigenvalues of D^-1 A are 1 - (cos(i h) + cos(j h)) / 2, h = pi / (p + 1).
    const double edge = std::cos(3.14159265358979323846 / double(p + 1));
    CAPTURE(p, edge, m.notes().smallest, m.notes().largest);
    REQUIRE_ALL(m.usable());
    CHECK_ALL(m.notes().high >= 1 + edge);
    CHECK_ALL(m.notes().largest <= (1 + edge) * (1 + 1e-12));
    CHECK_ALL(m.notes().largest >= 0.9 * (1 + edge));
    CHECK_ALL(m.notes().smallest >= (1 - edge) * (1 - 1e-10));
    // Of [low, high] the least that the degree can do, or what was seen of the spectrum.
    const double least = m.notes().high / chebyshev_ratio(4), seen = 0.9 * m.notes().smallest;
    CHECK_ALL(std::fabs(m.notes().low - std::max(least, seen)) <= 1e-12);
    CHECK_ALL((m.notes().low == seen) == (p <= 8));
    // On an eigenvector x it is the polynomial of its eigenvalue s, by the formula with cosines.
    const double s = 1 - edge;
    Vector x(std::size_t(rows.count), 0.0);
    for (Index i = 0; i < rows.count; ++i) {
      const double h = 3.14159265358979323846 / double(p + 1);
      const Index row = rows.first + i;
      x[std::size_t(i)] = std::sin(double(row % p + 1) * h) * std::sin(double(row / p + 1) * h);
    }
    const double low = m.notes().low, high = m.notes().high;
    const auto t = [](double v) {
      return std::fabs(v) <= 1 ? std::cos(5 * std::acos(v)) : std::cosh(5 * std::acosh(v));
    };
    const double residual = t((high + low - 2 * s) / (high - low)) / t((high + low) / (high - low));
    Vector z = apply(*c, m, product, x);
    const Chebyshev<B> two(*c, product, product.operand(2), rows,
                           put(c->ahead, Vector(std::size_t(rows.count), 4.0)), 4);
    CHECK_ALL(std::fabs(two.notes().largest - m.notes().largest) <= 1e-10);
    Vector wide;
    for (double v : x) wide.insert(wide.end(), {v, -2 * v});
    wide = apply(*c, two, product, wide);
    bool same = true;
    for (std::size_t i = 0; i < z.size(); ++i)
      same = same && std::fabs(wide[2 * i] - z[i]) <= 1e-9 * (1 + std::fabs(z[i])) &&
             wide[2 * i + 1] == -2 * wide[2 * i];
    CHECK_ALL(same);
    for (std::size_t i = 0; i < z.size(); ++i) z[i] -= (1 - residual) / s / 4 * x[i];
    CHECK_ALL(largest(z) <= 1e-12 * (1 - residual) / s);
  }
  // Refused by name: a diagonal entry that is not positive, and an indefinite matrix.
  const Index n = 20;
  const Range rows = own_rows(n);
  Vector diagonal(std::size_t(rows.count), 1.0);
  for (Index i = 0; i < rows.count; ++i)
    if (rows.first + i >= 7) diagonal[std::size_t(i)] = 0;
  const HostProduct<B> negative{*c, n, [](Index i, Index j) { return -double(i == j); }};
  CHECK_ALL(Chebyshev<B>(*c, negative, negative.operand(), rows, put(c->ahead, diagonal), 3)
                .notes()
                .bad_row == 7);
  const Chebyshev<B> refused(*c, negative, negative.operand(), rows,
                             put(c->ahead, Vector(std::size_t(rows.count), 1.0)), 3);
  CHECK_ALL(refused.notes().indefinite);
  CHECK_ALL(!refused.usable());
}
