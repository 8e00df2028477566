#include "src/cg/preconditioner.hpp"

#include <set>

#include "distrib/agree.hpp"
#include "tests/support/numbers.hpp"
#include "tests/support/preconditioners.hpp"

using namespace terrace;
using namespace terrace::cg;
using namespace terrace::test;

namespace {

/// A x on the rank's own rows and columns.
Vector times_local(Range rows, const Entry& a, const Vector& x) {
  Vector y(x.size(), 0.0);
  for (Index i = 0; i < rows.count; ++i)
    for (Index j = 0; j < rows.count; ++j)
      y[std::size_t(i)] += a(rows.first + i, rows.first + j) * x[std::size_t(j)];
  return y;
}

Entry laplace_3d(Index p) {
  return [p](Index i, Index j) {
    if (i == j) return 6.0;
    const Index distance =
        std::abs(i % p - j % p) + std::abs(i / p % p - j / p % p) + std::abs(i / p / p - j / p / p);
    return distance == 1 ? -1.0 : 0.0;
  };
}
/// Diagonally dominant by a little, all entries within the band.
Entry full_band(Index m) {
  return [m](Index i, Index j) {
    if (i == j) return 2.0 * double(m) + 0.5 + double(i % 5);
    return std::abs(i - j) <= m ? -1.0 + 0.5 * random_uniform(3, std::min(i, j), std::max(i, j))
                                : 0.0;
  };
}
/// Kershaw's matrix on the diagonal, again and again: positive definite, and its incomplete factor
/// has a negative pivot.
double kershaw(Index i, Index j) {
  if (i / 4 != j / 4) return 0;
  const Index distance = std::abs(i - j);
  return distance == 0 ? 3.0 : distance == 1 ? -2.0 : distance == 3 ? 2.0 : 0.0;
}

}  // namespace

TEMPLATE_TEST_CASE("block-Jacobi solves with each diagonal block", "", BACKENDS) {
  using B = TestType;
  Context<B>* c = context<B>();
  if (!c) return;
  const Index ranks = world().size();
  for (const Index block : {1, 2, 7, 31, 32, 33, 64})
    for (const Index each : {0, 1, 6, 31, 32, 33, 63, 64, 65, 130}) {
      const Index n = each * ranks;
      const Range rows = own_rows(n);
      CAPTURE(block, each);
      const Entry a = full_band(n);  // full: what lies outside the blocks must not count
      const Entry inside = [&](Index i, Index j) {
        return (i - rows.first) / block == (j - rows.first) / block ? a(i, j) : 0.0;
      };
      const Preconditioner<B> m = make_block_jacobi(*c, local_rows(rows, a), rows, block);
      REQUIRE_ALL(m.bad_row() == -1);
      const Vector r = part(random_vector(n, 9), rows), z = apply(*c, m, r);
      CHECK_ALL(largest(minus(times_local(rows, inside, z), r)) <= 1e-13);
      // Three vectors at once: r, 2 r, -r.
      Vector wide;
      for (double v : r) wide.insert(wide.end(), {v, 2 * v, -v});
      wide = apply(*c, m, wide);
      bool same = true;
      for (std::size_t i = 0; i < z.size(); ++i)
        same =
            same && wide[3 * i] == z[i] && wide[3 * i + 1] == 2 * z[i] && wide[3 * i + 2] == -z[i];
      CHECK_ALL(same);
    }
}

TEMPLATE_TEST_CASE("a block that is not positive definite is named by its row", "", BACKENDS) {
  using B = TestType;
  Context<B>* c = context<B>();
  if (!c) return;
  const Index n = 150;
  const Range rows = own_rows(n);
  for (const Index bad : {0, 40, 77, 149}) {
    const Entry a = [bad](Index i, Index j) { return i == j ? (i == bad ? -1.0 : 1.0) : 0.0; };
    CHECK_ALL(make_block_jacobi(*c, local_rows(rows, a), rows, 32).bad_row() == bad);
    CHECK_ALL(make_incomplete_cholesky(*c, local_rows(rows, a), rows).bad_row() == bad);
    const Entry hole = [bad](Index i, Index j) { return i == j && i != bad ? 1.0 : 0.0; };
    CHECK_ALL(make_block_jacobi(*c, local_rows(rows, hole), rows, 32).bad_row() == bad);
    CHECK_ALL(make_incomplete_cholesky(*c, local_rows(rows, hole), rows).bad_row() == bad);
  }
  // Positive diagonal, indefinite block: rows 1 and 2 of the first rank.
  const Entry pair = [](Index i, Index j) {
    return i == j ? 1.0 : (i + j == 3 && std::abs(i - j) == 1 ? 2.0 : 0.0);
  };
  CHECK_ALL(make_block_jacobi(*c, local_rows(rows, pair), rows, 32).bad_row() == 2);
  CHECK_ALL(make_block_jacobi(*c, local_rows(rows, pair), rows, 2).bad_row() == -1);
  CHECK_THROWS_AS(make_block_jacobi(*c, local_rows(rows, pair), rows, 65), Error);
  CHECK_THROWS_AS(make_block_jacobi(*c, local_rows(rows, pair), rows, 0), Error);
}

TEMPLATE_TEST_CASE("incomplete Cholesky of a full band is a direct solver", "", BACKENDS) {
  using B = TestType;
  Context<B>* c = context<B>();
  if (!c) return;
  for (const Index m : {0, 1, 2, 5, 40})
    for (const Index each : {0, 1, 2, 31, 32, 33, 97, 300}) {
      const Index n = each * world().size();
      const Range rows = own_rows(n);
      CAPTURE(m, each);
      const Entry a = full_band(m);
      const Preconditioner<B> p = make_incomplete_cholesky(*c, local_rows(rows, a), rows, 2);
      REQUIRE_ALL(p.bad_row() == -1);
      CHECK_ALL(p.notes().shift == 0);
      for (const Word seed : {1, 2, 1}) {  // again: nothing is left behind by an application
        const Vector r = part(random_vector(n, seed), rows), z = apply(*c, p, r);
        CHECK_ALL(largest(minus(times_local(rows, a, z), r)) <= 1e-13 * double(m + 1));
        CHECK_ALL(apply(*c, p, r) == z);
        Vector wide;
        for (double v : r) wide.insert(wide.end(), {v, -4 * v});
        wide = apply(*c, p, wide);
        bool same = true;
        for (std::size_t i = 0; i < z.size(); ++i)
          same = same && wide[2 * i] == z[i] && wide[2 * i + 1] == -4 * z[i];
        CHECK_ALL(same);
      }
    }
}

TEST_CASE("L L' is A where A is not zero, in natural order and by level, in any slices") {
  struct Problem {
    Index n;
    Entry a;
  };
  for (const Problem& problem :
       {Problem{49, laplace(7)}, Problem{125, laplace_3d(5)}, Problem{30, full_band(3)},
        Problem{8, [](Index i, Index j) { return double(i == j); }}, Problem{0, laplace(1)}}) {
    const Index n = problem.n;
    const LocalRows rows = local_rows({0, n}, problem.a);
    for (const bool by_level : {false, true})
      for (const Index height : {1, 4, 32}) {
        CAPTURE(n, by_level, height);
        const IncompleteFactor f = incomplete_cholesky(
            rows, [&](Index, Index) { return by_level; }, height);
        REQUIRE(f.bad_row == -1);
        CHECK(f.shift == 0);
        CHECK(f.attempts == 1);
        CHECK(Index(f.order.size()) == (by_level ? n : 0));
        const auto dense = [&](const HostTriangle& t) {
          std::vector<Vector> m(std::size_t(n), Vector(std::size_t(n), 0.0));
          for (Index i = 0; i < n; ++i) {
            const Index s = i / height;
            for (Index e = t.start[std::size_t(s)] + i % height; e < t.start[std::size_t(s) + 1];
                 e += height)
              if (t.column[std::size_t(e)] >= 0)
                m[std::size_t(i)][std::size_t(t.column[std::size_t(e)])] = t.value[std::size_t(e)];
          }
          return m;
        };
        auto l = dense(f.lower);
        const auto u = dense(f.upper);
        std::vector<Index> level(std::size_t(n), 0);
        for (std::size_t k = 0; k + 1 < f.level.size(); ++k)
          for (Index i = f.level[k]; i < f.level[k + 1]; ++i) level[std::size_t(i)] = Index(k);
        bool transposed = true, earlier = true, right = true;
        for (std::size_t i = 0; i < std::size_t(n); ++i)
          for (std::size_t j = 0; j < std::size_t(n); ++j) {
            transposed = transposed && l[i][j] == u[j][i];
            earlier = earlier && (l[i][j] == 0 || (by_level ? level[j] < level[i] : j < i));
          }
        for (std::size_t i = 0; i < std::size_t(n); ++i) l[i][i] = 1 / f.inverse_diagonal[i];
        std::set<Index> seen;
        for (Index i = 0; i < n; ++i) {
          const auto at = [&](Index k) { return by_level ? Index(f.order[std::size_t(k)]) : k; };
          seen.insert(at(i));
          for (Index j = 0; j < n; ++j) {
            const double entry = problem.a(at(i), at(j));
            if (entry == 0) continue;
            right =
                right && std::fabs(dot(l[std::size_t(i)], l[std::size_t(j)]) - entry) <= 1e-14 * 30;
          }
        }
        CHECK(transposed);
        CHECK(earlier);
        CHECK(right);
        CHECK(Index(seen.size()) == n);
        // Solves by level and in order agree with L and L' as dense matrices.
        if (height != 1) continue;
        const Stream<Cpu> lane;
        Buffer<double, Cpu> y(n), x(n), z(n), r(n);
        Vector expected = random_vector(n, 4);
        std::copy(expected.begin(), expected.end(), r.data());
        const auto view = []<class T>(const std::vector<T>& v) {
          return View<const T, Cpu>{v.data(), Index(v.size())};
        };
        const FactorView<Cpu> factor{
            {view(f.lower.start), view(f.lower.column), view(f.lower.value)},
            {view(f.upper.start), view(f.upper.column), view(f.upper.value)},
            view(f.inverse_diagonal),
            view(f.order),
            view(f.level),
            y,
            x,
            {}};
        solve_factor(lane, factor, 1, r, z.view());
        lane.synchronize();
        Vector mine(std::size_t(n), 0.0), inner(std::size_t(n), 0.0), back(std::size_t(n), 0.0);
        for (Index i = 0; i < n; ++i)
          mine[std::size_t(i)] = z.data()[by_level ? f.order[std::size_t(i)] : i];
        for (std::size_t j = 0; j < std::size_t(n); ++j)
          for (std::size_t i = 0; i < std::size_t(n); ++i) inner[j] += l[i][j] * mine[i];
        for (std::size_t i = 0; i < std::size_t(n); ++i) back[i] = dot(l[i], inner);
        bool solved = true;
        for (Index i = 0; i < n; ++i)
          solved =
              solved &&
              std::fabs(back[std::size_t(i)] -
                        expected[std::size_t(by_level ? f.order[std::size_t(i)] : i)]) <= 1e-12;
        CHECK(solved);
      }
  }
}

TEMPLATE_TEST_CASE("a factor that breaks down is made of a shifted matrix", "", BACKENDS) {
  using B = TestType;
  Context<B>* c = context<B>();
  if (!c) return;
  const Index n = 8 * world().size();
  const Range rows = own_rows(n);
  const Preconditioner<B> m = make_incomplete_cholesky(*c, local_rows(rows, kershaw), rows);
  REQUIRE_ALL(m.bad_row() == -1);
  const PreconditionerNotes& notes = m.notes();
  CHECK_ALL(notes.attempts > 1);
  CHECK_ALL(notes.shift == std::ldexp(1e-3, int(notes.attempts) - 2));
  // The shift before was too small: the pivots of 4 x 4 by hand, s = 3 (1 + shift) on the diagonal.
  const auto last_pivot = [](double shift) {
    const double s = 3 * (1 + shift), b = s - 4 / s, d = s - 4 / b;
    return s - 4 / s - 4 / d;  // row 3 has entries at columns 0 and 2 alone
  };
  CHECK(last_pivot(notes.shift) > 0);
  CHECK(last_pivot(notes.shift / 2) <= 0);
  // M^-1 = L L' is the shifted matrix on the pattern: checked by the columns of M.
  std::vector<Vector> columns;
  for (Index j = 0; j < 4; ++j) {
    Vector unit(std::size_t(rows.count), 0.0);
    if (rows.count >= 4) unit[std::size_t(j)] = 1;
    columns.push_back(apply(*c, m, unit));
  }
  // L L' of the four rows, entry (1, 3) being outside the pattern and filled by l_10 l_30.
  bool inverse = true;
  const double s = 3 * (1 + notes.shift), fill = -4 / s;
  for (Index i = 0; i < 4; ++i)
    for (Index j = 0; j < 4; ++j) {
      double entry = 0;
      for (Index k = 0; k < 4; ++k) {
        const double v = i == k ? s : (i + k == 4 && i != k) ? fill : kershaw(i, k);
        entry += v * columns[std::size_t(j)][std::size_t(k)];
      }
      inverse = inverse && std::fabs(entry - double(i == j)) <= 1e-9;
    }
  CHECK_ALL(inverse);
}

TEMPLATE_TEST_CASE("preconditioners are symmetric and positive definite, and repeat their bits", "",
                   BACKENDS) {
  using B = TestType;
  Context<B>* c = context<B>();
  if (!c) return;
  const Index p = 13, n = p * p;
  const Range rows = own_rows(n);
  const Entry a = [&](Index i, Index j) {
    const auto scale = [](Index k) { return std::pow(10.0, double(k % 3)); };
    return scale(i) * laplace(p)(i, j) * scale(j);
  };
  const LocalRows local = local_rows(rows, a);
  Vector diagonal(std::size_t(rows.count), 0.0);
  for (Index i = 0; i < rows.count; ++i)
    diagonal[std::size_t(i)] = a(rows.first + i, rows.first + i);
  const HostProduct<B> product{*c, n, a};
  const auto blocks = make_block_jacobi(*c, local, rows, 16);
  const auto factor = make_incomplete_cholesky(*c, local, rows);
  const Chebyshev<B> polynomial(*c, product, product.operand(), rows, put(c->ahead, diagonal), 5);
  REQUIRE_ALL(polynomial.usable());
  const std::vector<std::function<Vector(const Vector&)>> all{
      [&](const Vector& r) { return apply(*c, blocks, r); },
      [&](const Vector& r) { return apply(*c, factor, r); },
      [&](const Vector& r) { return apply(*c, polynomial, product, r); }};
  const Vector x = part(random_vector(n, 5), rows), y = part(random_vector(n, 6), rows);
  for (const auto& m : all) {
    const Vector mx = m(x), my = m(y);
    const double xmy = sum(dot(x, my)), ymx = sum(dot(y, mx)), xmx = sum(dot(x, mx)),
                 ymy = sum(dot(y, my));
    CHECK_ALL(xmx > 0);
    CHECK_ALL(ymy > 0);
    CHECK_ALL(std::fabs(xmy - ymx) <= 1e-13 * std::sqrt(xmx * ymy));
    for (int again = 0; again < 3; ++again) CHECK_ALL(m(x) == mx);
  }
  // Where *skip is set nothing is touched.
  const Buffer<double, B> flag(1), r(rows.count), z(rows.count);
  const double one = 1;
  const Vector marks(std::size_t(rows.count), -7.0);
  upload(c->ahead, flag.view(), &one);
  upload(c->ahead, r.view(), x.data());
  upload(c->ahead, z.view(), marks.data());
  blocks.apply(*c, r, z.view(), flag.data());
  factor.apply(*c, r, z.view(), flag.data());
  chebyshev_start(c->ahead, 1, 1, r, r, z.view(), z.view(), flag.data());
  chebyshev_step(c->ahead, 1, 1, 1, r, r, r, z.view(), z.view(), z.view(), {}, flag.data());
  Vector after(marks.size(), 0.0);
  download(c->ahead, after.data(), z.view());
  c->ahead.synchronize();
  CHECK_ALL(after == marks);
}
