// Smoothed aggregation: its parts against dense sums, the hierarchy, and M as an operator.
#include "src/cg/multigrid.hpp"

#include <set>

#include "src/cg/coarse_rows.hpp"
#include "src/cg/system.hpp"
#include "tests/support/cg.hpp"
#include "tests/support/host_rows.hpp"

using namespace terrace;
using namespace terrace::cg;
using namespace terrace::test;

namespace {

Entry laplace_3d(Index p, double weak = 1) {
  return [p, weak](Index i, Index j) {
    const Index x = std::abs(i % p - j % p), y = std::abs(i / p % p - j / p % p),
                z = std::abs(i / p / p - j / p / p);
    if (i == j) return 4 + 2 * weak;
    return x + y + z == 1 ? (z == 1 ? -weak : -1.0) : 0.0;
  };
}
/// Chains of five rows that know nothing of one another, between rows that stand alone.
double chains(Index i, Index j) {
  if (i == j) return i % 6 == 5 ? 3.0 : 2.1;
  return std::abs(i - j) == 1 && i / 6 == j / 6 && i % 6 != 5 && j % 6 != 5 ? -1.0 : 0.0;
}
/// Both signs off the diagonal.
double signs(Index i, Index j) {
  const Index d = std::abs(i - j);
  return d == 0 ? 4.2 : d == 1 ? 1.0 : d == 7 ? -1.0 : d == 3 ? ((i + j) % 2 ? 0.5 : -0.5) : 0.0;
}
double diagonal(Index i, Index j) { return i == j ? 1.0 + double(i % 9) : 0.0; }

struct Problem {
  const char* name;
  Index n;
  Entry a;
};
std::vector<Problem> problems() {
  return {{"nothing", 0, diagonal},     {"one", 1, diagonal},
          {"two", 2, laplace(1)},       {"square", 225, laplace(15)},
          {"cube", 343, laplace_3d(7)}, {"layers", 343, laplace_3d(7, 1e-3)},
          {"diagonal", 60, diagonal},   {"chains", 250, chains},
          {"signs", 200, signs}};
}

/// Entries that count as strong.
bool coupled(const Problem& p, Index i, Index j) {
  return i != j && std::fabs(p.a(i, j)) >= 0.08 * std::sqrt(p.a(i, i) * p.a(j, j));
}
/// The prolongation by its formula, n x count; of[i] < 0: row i is in no aggregate.
Vector prolongation(const Problem& p, const std::vector<Index>& of, Index count) {
  Vector t(std::size_t(p.n * count), 0.0);
  for (Index i = 0; i < p.n; ++i)
    if (of[std::size_t(i)] >= 0) t[std::size_t(i * count + of[std::size_t(i)])] = 1;
  Vector expected = t;
  for (Index i = 0; i < p.n; ++i) {
    if (of[std::size_t(i)] < 0) continue;
    Vector f(std::size_t(p.n), 0.0);
    for (Index j = 0; j < p.n; ++j)
      f[std::size_t(i == j || !coupled(p, i, j) ? i : j)] += p.a(i, j);
    double sum = 0;
    for (double v : f) sum += std::fabs(v);
    for (Index j = 0; j < p.n; ++j)
      for (Index k = 0; k < count; ++k)
        expected[std::size_t(i * count + k)] -=
            4.0 / 3 / sum * f[std::size_t(j)] * t[std::size_t(j * count + k)];
  }
  return expected;
}

/// M of a matrix, with what it needs.
template <class B>
struct Made {
  Made(const Context<B>& context, const Problem& p, Index coarsest)
      : c(context),
        a(Csr::make(context, p.n, p.a)),
        m(context, product(), a.operand(context), source_of(context, a), {}, coarsest) {}
  typename Multigrid<B>::Product product() {
    return [this](const Operand<B>& p, View<double, B> q, const double* skip) {
      a.apply(c, p, q, ignored.view(), sums, skip);
    };
  }
  /// M r, whole on every rank.
  Vector operator()(const Vector& r, const double* skip = nullptr, double before = 0) {
    const Vector mine = part(r, a.rows());
    const Buffer<double, B> from{a.rows().count}, to{a.rows().count};
    Vector z(mine.size(), before);
    upload(c.ahead, from.view(), mine.data());
    upload(c.ahead, to.view(), z.data());
    m.apply(c, product(), from, to.view(), skip);
    download(c.ahead, z.data(), to.view());
    c.ahead.synchronize();
    return whole(z, a.rows(), a.n());
  }
  const Context<B>& c;
  SumSpace<B> sums{c.ahead};
  Buffer<double, B> ignored{2};
  CsrOperator<B> a;
  Multigrid<B> m;
};

}  // namespace

TEST_CASE("every row with a strong neighbour is in one aggregate, of neighbours") {
  for (const Problem& p : problems()) {
    CAPTURE(p.name);
    const HostRows a = sparse(p.n, p.n, p.a);
    const std::vector<double> d = diagonal_of(a);
    const LargeVector<char> strong = strong_entries(a.view(), {d.data(), p.n}, 0.08);
    const Aggregates found = aggregate(a.view(), strong);
    std::vector<Index> size(std::size_t(found.count), 0);
    for (Index i = 0; i < p.n; ++i) {
      bool alone = true, reached = false;
      for (Index j = 0; j < p.n; ++j) {
        alone = alone && !coupled(p, i, j);
        reached =
            reached || (coupled(p, i, j) && found.of[std::size_t(i)] == found.of[std::size_t(j)]);
      }
      CHECK((found.of[std::size_t(i)] < 0) == alone);
      if (alone) continue;
      REQUIRE(found.of[std::size_t(i)] < found.count);
      ++size[std::size_t(found.of[std::size_t(i)])];
      // What joined last may stand alone among taken neighbours.
      CHECK((reached || size[std::size_t(found.of[std::size_t(i)])] == 1));
    }
    for (const Index s : size) CHECK(s > 0);
    const Vector expected = prolongation(p, {found.of.begin(), found.of.end()}, found.count);
    CHECK(largest(minus(dense(smoothed_prolongation(a, strong, d, found)), expected)) <= 1e-14);
  }
}

TEST_CASE("a prolongation reaches aggregates of other ranks") {
  Context<Cpu>* c = context<Cpu>();
  for (const Problem& p : problems()) {
    CAPTURE(p.name);
    const CsrOperator<Cpu> a = Csr::make(*c, p.n, p.a);
    const RankRows rows = rank_rows(*c, a);
    const Range own = a.rows();
    Aggregates aggregates;
    const RankRows found =
        prolongation_of(c->control, rows, diagonal_of(rows.rows), 0.08, aggregates);
    const Index begin = found.first[std::size_t(c->rank())], count = found.first.back();
    Vector mine(std::size_t(own.count), -1.0);
    for (Index i = 0; i < own.count; ++i)
      if (aggregates.of[std::size_t(i)] >= 0)
        mine[std::size_t(i)] = double(begin + aggregates.of[std::size_t(i)]);
    const Vector numbers = whole(mine, own, p.n);
    const Vector expected = prolongation(p, {numbers.begin(), numbers.end()}, count);
    Vector got = Vector(expected.begin() + own.first * count, expected.begin() + own.end() * count);
    const CsrSlice slice = found.slice(c->rank());
    for (Index i = 0; i < own.count; ++i)
      for (Index e = slice.start[std::size_t(i)]; e < slice.start[std::size_t(i) + 1]; ++e)
        got[std::size_t(i * count + slice.column[std::size_t(e)])] -= slice.value[std::size_t(e)];
    CHECK_ALL(largest(got) <= 1e-14);
  }
}

TEST_CASE("an inverse by sweeps, also of a part of a semidefinite matrix") {
  for (const Index n : {0, 1, 2, 13, 100}) {
    Vector a(std::size_t(n * n), 0.0);
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < n; ++j) a[std::size_t(i * n + j)] = lehmer(i, j);
    Vector inverse = a;
    REQUIRE(invert_definite(n, inverse));
    double worst = 0;
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < n; ++j) {
        double sum = i == j ? -1 : 0;
        for (Index k = 0; k < n; ++k)
          sum += a[std::size_t(i * n + k)] * inverse[std::size_t(k * n + j)];
        worst = std::max(worst, std::fabs(sum));
      }
    CHECK(worst <= 1e-10);
  }
  Vector ring{2, -1, -1, -1, 2, -1, -1, -1, 2};  // its rows sum to zero
  REQUIRE(invert_definite(3, ring));
  const Vector expected{2.0 / 3, 1.0 / 3, 0, 1.0 / 3, 2.0 / 3, 0, 0, 0, 0};
  CHECK(largest(minus(ring, expected)) <= 1e-15);
  Vector bad{1, 2, 2, 1};
  CHECK_FALSE(invert_definite(2, bad));
}

TEST_CASE("a coarse matrix is P' A P over all ranks") {
  Context<Cpu>* c = context<Cpu>();
  for (const Problem& p : problems()) {
    CAPTURE(p.name);
    const CsrOperator<Cpu> a = Csr::make(*c, p.n, p.a);
    const RankRows rows = rank_rows(*c, a);
    const Range own = a.rows();
    // The entries of A are all there.
    const CsrSlice slice = rows.slice(c->rank());
    Vector sums(std::size_t(own.count * p.n), 0.0);
    for (Index i = 0; i < own.count; ++i)
      for (Index e = slice.start[std::size_t(i)]; e < slice.start[std::size_t(i) + 1]; ++e)
        sums[std::size_t(i * p.n + slice.column[std::size_t(e)])] += slice.value[std::size_t(e)];
    bool same = true;
    for (Index i = 0; i < own.count; ++i)
      for (Index j = 0; j < p.n; ++j)
        same = same && sums[std::size_t(i * p.n + j)] == p.a(own.first + i, j);
    CHECK_ALL(same);
    // Any P, a third as many columns, over all ranks.
    std::vector<Index> first{0};
    for (const Index count : c->control.gather_all((own.count + 2) / 3))
      first.push_back(first.back() + count);
    const Index width = first.back(), begin = first[std::size_t(c->rank())];
    const Index columns = first[std::size_t(c->rank()) + 1] - begin;
    const auto value = [](Index row, Index j) {
      return (row + 2 * j) % 7 ? 0.0 : random_uniform(5, row, j);
    };
    CsrSlice p_slice;
    for (Index i = own.first; i < own.end(); ++i) {
      for (Index j = 0; j < width; ++j)
        if (value(i, j) != 0) p_slice.column.push_back(j), p_slice.value.push_back(value(i, j));
      p_slice.start.push_back(Index(p_slice.column.size()));
    }
    const RankRows prolongation = numbered(first, c->rank(), p_slice);
    const HostRows flipped = transposed(prolongation.rows);
    const RankRows restriction = restriction_of(c->control, prolongation, flipped, rows.first);
    const CsrSlice turned = restriction.slice(c->rank());
    bool all_there = restriction.rows.rows() == columns;
    for (Index j = 0; j < columns && all_there; ++j) {
      Vector row(std::size_t(p.n), 0.0);
      for (Index e = turned.start[std::size_t(j)]; e < turned.start[std::size_t(j) + 1]; ++e)
        row[std::size_t(turned.column[std::size_t(e)])] += turned.value[std::size_t(e)];
      for (Index i = 0; i < p.n; ++i)
        all_there = all_there && row[std::size_t(i)] == value(i, begin + j);
    }
    CHECK_ALL(all_there);
    bool definite = false;
    const RankRows all = with_needed_rows(c->control, rows, prolongation);
    const RankRows coarse =
        coarse_rows(c->control, rows, prolongation, flipped, all, diagonal_of(rows.rows), definite);
    // All rows are looked at where there are few; what other ranks add to them is not.
    const double expected = expected_nonzeros(c->control, rows, prolongation, flipped, all);
    const double stored = double(world().reduce(coarse.rows.nonzeros(), Reduce::sum));
    CHECK_ALL(expected <= stored);
    CHECK_ALL((world().size() > 1 || expected == stored));
    CHECK_ALL(definite);
    CHECK_ALL(coarse.rows.rows() == columns);
    const CsrSlice mine = coarse.slice(c->rank());
    double worst = 0;
    for (Index i = 0; i < columns; ++i) {
      Vector row(std::size_t(width), 0.0);
      for (Index e = mine.start[std::size_t(i)]; e < mine.start[std::size_t(i) + 1]; ++e)
        row[std::size_t(mine.column[std::size_t(e)])] += mine.value[std::size_t(e)];
      for (Index k = 0; k < p.n; ++k) {
        if (value(k, begin + i) == 0) continue;
        for (Index l = 0; l < p.n; ++l) {
          const double v = value(k, begin + i) * p.a(k, l);
          for (Index j = 0; v != 0 && j < width; ++j) row[std::size_t(j)] -= v * value(l, j);
        }
      }
      worst = std::max(worst, largest(row));
    }
    CHECK_ALL(worst <= 1e-12);
  }
}

TEMPLATE_TEST_CASE("multigrid is symmetric and positive definite", "", BACKENDS) {
  using B = TestType;
  Context<B>* c = context<B>();
  if (!c) return;
  for (const Problem& p : problems())
    for (const Index coarsest : {0, 4, 256}) {
      CAPTURE(p.name, coarsest);
      Made<B> m(*c, p, coarsest);
      const MultigridNotes& notes = m.m.notes();
      REQUIRE_ALL(!notes.indefinite);
      REQUIRE_ALL(notes.bad_row < 0);
      CHECK_ALL(notes.levels.front().rows == p.n);
      for (std::size_t l = 1; l < notes.levels.size(); ++l)
        CHECK_ALL(notes.levels[l].rows < notes.levels[l - 1].rows);
      if (p.n <= coarsest) CHECK_ALL(notes.levels.size() == 1);
      if (p.n > 200 && coarsest == 4) CHECK_ALL(notes.levels.size() >= 2);
      if (p.n == 0) continue;
      for (Word seed = 1; seed <= 4; ++seed) {
        const Vector x = random_vector(p.n, 2 * seed), y = random_vector(p.n, 2 * seed + 1);
        const Vector mx = m(x), my = m(y);
        CHECK_ALL(std::fabs(dot(mx, y) - dot(x, my)) <= 1e-12 * norm(x) * norm(my));
        CHECK_ALL(dot(mx, x) > 0);
        if (p.n <= coarsest) CHECK_ALL(largest(minus(times(p.a, mx), x)) <= 1e-11);
        CHECK_ALL(m(x) == mx);  // bit by bit
        // A M has its eigenvalues in (0, 2), or a step of it would not shrink the error.
        const Vector rest = minus(x, times(p.a, mx));
        CHECK_ALL(dot(rest, m(rest)) < dot(x, mx) * (1 + 1e-12));
      }
      const Buffer<double, B> skip(1);
      const double one = 1;
      upload(c->ahead, skip.view(), &one);
      CHECK_ALL(m(random_vector(p.n, 3), skip.data(), 7.5) == Vector(std::size_t(p.n), 7.5));
    }
}

TEMPLATE_TEST_CASE("levels are made where the matrix is, and by the host where rows are too long",
                   "", BACKENDS) {
  using B = TestType;
  Context<B>* c = context<B>();
  if (!c) return;
  const Index n = coarsening_row + 200;
  const Entry arrow = [n](Index i, Index j) {
    if (i == j) return i == 0 ? 1.5 * double(n) : 3.0;
    return i == 0 || j == 0 ? -1.0 : std::abs(i - j) == 1 ? -1.0 : 0.0;
  };
  for (const auto& [p, there] : {std::pair{Problem{"cube", 343, laplace_3d(7)}, true},
                                 {Problem{"arrow", n, arrow}, false}}) {
    CAPTURE(p.name);
    Made<B> m(*c, p, 20);
    const MultigridNotes first = m.m.notes();
    CHECK_ALL((first.there > 0) == there);
    // Small levels are whole on each rank, but those that the host makes from the first one on.
    CHECK_ALL((first.whole > 0) == (there && world().size() > 1));
    CHECK_ALL(first.whole < Index(first.levels.size()));
    CHECK_ALL(first.levels.size() > 1);
    CHECK_ALL(!first.parts.empty());
    double sum = 0;
    for (const auto& [part, seconds] : first.parts) sum += seconds;
    CHECK_ALL(sum <= 1.01 * first.seconds + 1e-4);
    const Vector x = random_vector(p.n, 5), before = m(x);
    CHECK_ALL(dot(before, x) > 0);
    // Made again for the same values, it has the same bits.
    m.m.update(*c, m.product(), m.a.operand(*c), source_of(*c, m.a));
    CHECK_ALL(m.m.notes().updates == 1);
    CHECK_ALL(m(x) == before);
  }
}

TEMPLATE_TEST_CASE("multigrid saves iterations, as many on a power of two times the matrix", "",
                   BACKENDS) {
  using B = TestType;
  Context<B>* c = context<B>();
  if (!c) return;
  Progress progress(false, false);
  const Index points = 9, n = points * points * points;
  for (const double weak : {1.0, 1e-3}) {
    Index first = 0;
    Vector solution;
    for (const int power : {0, 1, -1, 997, -1001}) {
      CAPTURE(weak, power);
      const Entry a = [&](Index i, Index j) {
        return std::ldexp(laplace_3d(points, weak)(i, j), power);
      };
      auto op = Csr::make(*c, n, a);
      CgRequest request;
      request.preconditioner = "amg";
      const Vector b = part(random_vector(n, 4), op.rows());
      Vector x(b.size(), 0.0);
      const CgSolution s = solve_system(*c, op, request, 1, b, x, progress);
      REQUIRE_ALL(s.results[0].reason == CgReason::rtol);
      if (power == 0) {
        first = s.results[0].iterations;
        solution = x;
        CHECK_ALL(first <= (world().size() == 1 ? 12 : 18));
      }
      CHECK_ALL(s.results[0].iterations == first);
      for (double& v : x) v = std::ldexp(v, power);
      CHECK_ALL(x == solution);
    }
  }
}

TEMPLATE_TEST_CASE("multigrid names a bad diagonal, and refuses an indefinite matrix", "",
                   BACKENDS) {
  using B = TestType;
  Context<B>* c = context<B>();
  if (!c) return;
  for (const Index coarsest : {10, 1000}) {
    const Entry bad = [](Index i, Index j) {
      return i == j && i == 131 ? -4.0 : laplace(15)(i, j);
    };
    Made<B> one(*c, {"bad", 225, bad}, coarsest);
    CHECK_ALL(one.m.notes().bad_row == 131);
    const Entry shifted = [](Index i, Index j) { return laplace(15)(i, j) - (i == j ? 0.5 : 0.0); };
    Made<B> two(*c, {"indefinite", 225, shifted}, coarsest);
    CHECK_ALL(two.m.notes().bad_row == -1);
    CHECK_ALL(two.m.notes().indefinite);
  }
}

TEMPLATE_TEST_CASE("multigrid solves with a singular matrix where b allows it", "", BACKENDS) {
  using B = TestType;
  Context<B>* c = context<B>();
  if (!c) return;
  Progress progress(false, false);
  const Index p = 20, n = p * p;
  const Entry a = [p](Index i, Index j) {  // no boundary: rows sum to zero
    if (i != j) return laplace(p)(i, j);
    const Index x = i % p, y = i / p;
    return double((x > 0) + (x + 1 < p) + (y > 0) + (y + 1 < p));
  };
  auto op = Csr::make(*c, n, a);
  Vector all = random_vector(n, 8);
  const double mean = std::accumulate(all.begin(), all.end(), 0.0) / double(n);
  for (double& v : all) v -= mean;
  CgRequest request;
  request.preconditioner = "amg";
  request.rtol = 1e-8;
  Vector x(std::size_t(op.rows().count), 0.0);
  const CgSolution s = solve_system(*c, op, request, 1, part(all, op.rows()), x, progress);
  CHECK_ALL(s.results[0].reason == CgReason::rtol);
  CHECK_ALL(s.results[0].iterations <= 25);
}
