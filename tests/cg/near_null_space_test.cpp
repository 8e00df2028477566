// A near null-space that is given: bases of aggregates, nodes, and multigrid that keeps it.
#include "src/cg/near_null_space.hpp"

#include "src/cg/multigrid.hpp"
#include "src/cg/system.hpp"
#include "tests/support/cg.hpp"

using namespace terrace;
using namespace terrace::cg;
using namespace terrace::test;

namespace {

std::size_t at(Index i) { return std::size_t(i); }

/// Springs along the edges and diagonals of a square grid of p x p nodes, held below the first line; two
/// unknowns a node.
Entry springs(Index p) {
  return [p](Index i, Index j) {
    const Index u = i / 2, v = j / 2;
    const auto part = [&](Index dx, Index dy) {
      const double way[2] = {double(dx), double(dy)};
      return way[i % 2] * way[j % 2] / double(dx * dx + dy * dy);
    };
    if (u != v) {
      const Index dx = v / p - u / p, dy = v % p - u % p;
      return std::abs(dx) <= 1 && std::abs(dy) <= 1 ? -part(dx, dy) : 0.0;
    }
    double sum = 0;
    for (Index dx = -1; dx <= 1; ++dx)
      for (Index dy = -1; dy <= 1; ++dy) {
        const Index x = u / p + dx, y = u % p + dy;
        if ((dx != 0 || dy != 0) && x < p && y >= 0 && y < p) sum += part(dx, dy);
      }
    return sum;
  };
}
/// Rigid body modes of the same, n x 3, whole.
Vector rigid(Index p) {
  Vector v;
  for (Index u = 0; u < p * p; ++u) {
    const double x = double(u / p), y = double(u % p);
    for (const double e : {1.0, 0.0, -y, 0.0, 1.0, x}) v.push_back(e);
  }
  return v;
}
NearNullSpace own_part(const Vector& v, Index k, Range own) {
  return {k, {v.begin() + own.first * k, v.begin() + own.end() * k}, "here"};
}
HostRows sparse(Index n, const Entry& a) {
  HostRows s;
  s.columns = n;
  for (Index i = 0; i < n; ++i) {
    for (Index j = 0; j < n; ++j)
      if (const double v = a(i, j); v != 0) {
        s.column.push_back(std::int32_t(j));
        s.value.push_back(v);
      }
    s.start.push_back(Index(s.column.size()));
  }
  return s;
}
Vector dense(const HostRows& s) {
  Vector d(at(s.rows() * s.columns), 0.0);
  for (Index i = 0; i < s.rows(); ++i)
    for (Index e = s.start[at(i)]; e < s.start[at(i) + 1]; ++e)
      d[at(i * s.columns + s.column[at(e)])] += s.value[at(e)];
  return d;
}
/// A' B: rows x a, rows x b.
Vector inner(Index rows, const Vector& left, Index a, const Vector& right, Index b) {
  Vector result(at(a * b), 0.0);
  for (Index i = 0; i < rows; ++i)
    for (Index c = 0; c < a; ++c)
      for (Index d = 0; d < b; ++d)
        result[at(c * b + d)] += left[at(i * a + c)] * right[at(i * b + d)];
  return result;
}
double largest(const Vector& v) {
  double most = 0;
  for (double x : v) most = std::isnan(x) ? 1e300 : std::max(most, std::fabs(x));
  return most;
}

}  // namespace

TEST_CASE("strong nodes are those of strong blocks") {
  const Index p = 6, count = p * p;
  const Entry a = springs(p);
  const HostRows rows = sparse(2 * count, a);
  const std::vector<double> d = diagonal_of(rows);
  Nodes nodes;
  nodes.count = count;
  for (Index i = 0; i < 2 * count; ++i) nodes.of.push_back(std::int32_t(i / 2));
  const auto block = [&](Index u, Index v) {
    double sum = 0;
    for (Index i = 2 * u; i < 2 * u + 2; ++i)
      for (Index j = 2 * v; j < 2 * v + 2; ++j) sum += a(i, j) * a(i, j) / (a(i, i) * a(j, j));
    return sum;
  };
  for (const double threshold : {0.0, 0.25, 0.3, 2.0}) {
    const Vector found = dense(strong_nodes(rows, d, nodes, threshold));
    for (Index u = 0; u < count; ++u)
      for (Index v = 0; v < count; ++v) {
        const bool strong =
            u != v && block(u, v) > 0 &&
            block(u, v) >= threshold * threshold * std::sqrt(block(u, u) * block(v, v));
        CHECK(found[at(u * (count + 1) + v)] == double(strong));
      }
  }
}

TEST_CASE("an aggregate's basis is orthonormal, and spans the vectors there") {
  const Index p = 6, rows = 2 * p * p, k = 4;
  Vector v(at(rows * k));  // three rigid body modes, and twice the first
  const Vector modes = rigid(p);
  for (Index i = 0; i < rows; ++i)
    for (Index c = 0; c < k; ++c)
      v[at(i * k + c)] = c < 3 ? modes[at(i * 3 + c)] : 2 * modes[at(i * 3)];
  Nodes nodes;
  nodes.count = rows / 2;
  for (Index i = 0; i < rows; ++i) nodes.of.push_back(std::int32_t(i / 2));
  // Lines of nodes; the last line in none; one node alone, which has but two unknowns.
  Aggregates aggregates;
  for (Index u = 0; u < nodes.count; ++u)
    aggregates.of.push_back(u / p == p - 1 ? -1 : u == 0 ? 0 : std::int32_t(1 + u / p));
  aggregates.count = p;
  const TentativeBasis basis = tentative_basis(nodes, aggregates, v, k);
  const Index columns = basis.prolongation.columns;
  REQUIRE(columns == 2 + 3 * (p - 1));
  REQUIRE(basis.nodes.count == p);
  REQUIRE(Index(basis.values.size()) == columns * k);
  const Vector t = dense(basis.prolongation);
  Vector gram = inner(rows, t, columns, t, columns);
  for (Index c = 0; c < columns; ++c) gram[at(c * columns + c)] -= 1;
  CHECK(largest(gram) <= 1e-14);
  for (Index i = 0; i < rows; ++i)
    for (Index c = 0; c < k; ++c) {
      double sum = 0;
      for (Index j = 0; j < columns; ++j)
        sum += t[at(i * columns + j)] * basis.values[at(j * k + c)];
      const bool left_out = i / 2 / p == p - 1;
      CHECK(std::fabs(sum - (left_out ? 0 : v[at(i * k + c)])) <= 1e-13);
    }
  // Smoothed: T - w D^-1 A T, but for rows that are in no aggregate.
  const Entry a = springs(p);
  const HostRows matrix = sparse(rows, a);
  const Vector smooth = dense(smoothed_basis(matrix, diagonal_of(matrix), basis.prolongation, 0.6));
  double worst = 0;
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < columns; ++j) {
      double expected = t[at(i * columns + j)];
      for (Index l = 0; l < rows; ++l) expected -= 0.6 / a(i, i) * a(i, l) * t[at(l * columns + j)];
      if (i / 2 / p == p - 1) expected = 0;
      worst = std::max(worst, std::fabs(smooth[at(i * columns + j)] - expected));
    }
  CHECK(worst <= 1e-14);
}

TEST_CASE("nodes are found, in any order; vectors that cannot be used are refused") {
  Context<Cpu>* c = context<Cpu>();
  const Index p = 8, n = 2 * p * p;
  const auto a = Csr::make(*c, n, springs(p));
  const RankRows rows = rank_rows(*c, a);
  const Vector v = rigid(p);
  const NodeVectors found = node_vectors(c->control, own_part(v, 3, a.rows()), rows, {});
  CHECK_ALL(found.unknowns == 2);
  for (Index i = 1; i < a.rows().count; ++i) {
    const bool same = found.nodes.of[at(i)] == found.nodes.of[at(i - 1)];
    CHECK(same == ((a.rows().first + i) % 2 == 1));
  }
  // One unknown a node where blocks are not filled.
  const auto plane = Csr::make(*c, n, laplace(16));
  CHECK_ALL(
      node_vectors(c->control, own_part(v, 3, plane.rows()), rank_rows(*c, plane), {}).unknowns ==
      1);
  if (c->size() == 1) {  // rows in another order: unknowns of a node lie apart
    std::vector<Index> order(at(n));
    for (Index i = 0; i < n; ++i) order[at(i)] = i * 2 % n + i * 2 / n;
    const auto turned =
        Csr::make(*c, n, [&](Index i, Index j) { return springs(p)(order[at(i)], order[at(j)]); });
    const NodeVectors apart = node_vectors(c->control, own_part(v, 3, turned.rows()),
                                           rank_rows(*c, turned), {order, {0, n}, {0, n}});
    CHECK(apart.unknowns == 2);
    for (Index i = 0; i < n / 2; ++i) CHECK(apart.nodes.of[at(i)] == apart.nodes.of[at(i + n / 2)]);
  }
  for (const Index bad : {1, 2}) {
    Vector wrong = v;
    for (Index i = 0; i < n; ++i)
      wrong[at(i * 3 + bad)] = bad == 1 ? 0.0 : 3 * v[at(i * 3)] - 1e3 * v[at(i * 3 + 1)];
    CHECK_THROWS_AS(node_vectors(c->control, own_part(wrong, 3, a.rows()), rows, {}), Error);
  }
  const Vector many(at(n * 33), 1.0);
  CHECK_THROWS_AS(node_vectors(c->control, own_part(many, 33, a.rows()), rows, {}), Error);
}

TEST_CASE("vectors and nodes of all ranks, on each") {
  const Control& control = world();
  const Index me = control.rank();
  // Rank r has r + 1 nodes of two rows each.
  NodeVectors own{2, 2, {{}, me + 1}, {}};
  for (Index i = 0; i < 2 * (me + 1); ++i) {
    own.nodes.of.push_back(std::int32_t(i / 2));
    own.values.insert(own.values.end(), {double(100 * me + i), -double(i)});
  }
  const NodeVectors all = whole_vectors(control, own);
  CHECK_ALL(all.columns == 2);
  CHECK_ALL(all.unknowns == 2);
  CHECK_ALL(all.nodes.count == control.size() * (control.size() + 1) / 2);
  std::vector<std::int32_t> of;
  Vector values;
  for (Index r = 0; r < control.size(); ++r)
    for (Index i = 0; i < 2 * (r + 1); ++i) {
      of.push_back(std::int32_t(r * (r + 1) / 2 + i / 2));
      values.insert(values.end(), {double(100 * r + i), -double(i)});
    }
  CHECK_ALL(all.nodes.of == of);
  CHECK_ALL(all.values == values);
}

TEMPLATE_TEST_CASE("multigrid that keeps rigid body modes", "", BACKENDS) {
  using B = TestType;
  Context<B>* c = context<B>();
  if (!c) return;
  Progress progress(false, false);
  const Index p = 24, n = 2 * p * p;
  const Vector modes = rigid(p);
  Index before = 0, with = 0;
  Vector first;
  for (const int what : {0, 1, 2, 3, 4}) {  // constants; rigid body modes, again, huge and tiny
    CAPTURE(what);
    auto op = Csr::make(*c, n, springs(p));
    NearNullSpace given = own_part(modes, 3, op.rows());
    if (what > 2)
      for (double& v : given.values) v = std::ldexp(v, what == 3 ? 1018 : -1050);
    CgRequest request;
    request.preconditioner = "amg";
    if (what > 0) request.near_null_space = &given;
    const Vector b = part(random_vector(n, 4), op.rows());
    Vector x(b.size(), 0.0);
    CgHooks hooks;
    hooks.prepared = [&](const PreconditionerNotes&, const ChebyshevNotes&,
                         const MultigridNotes& m) {
      CHECK_ALL(m.vectors == (what > 0 ? 3 : 0));
      CHECK_ALL(m.unknowns == (what > 0 ? 2 : 0));
      if (what > 0) CHECK_ALL(m.levels.size() >= 2);
      const bool whole = world().size() > 1 && (what == 0 || std::is_same_v<B, Cuda>);
      CHECK_ALL((m.whole > 0) == whole);
    };
    const CgSolution s = solve_system(*c, op, request, 1, b, x, progress, hooks);
    REQUIRE_ALL(s.results[0].reason == CgReason::rtol);
    if (what == 0) before = s.results[0].iterations;
    if (what == 1) with = s.results[0].iterations, first = x;
    if (what > 1) CHECK_ALL(x == first);  // bit by bit
  }
  CAPTURE(before, with);
  CHECK_ALL(with <= 22);
  CHECK_ALL(2 * with < before);
  // M is symmetric and positive definite.
  auto op = Csr::make(*c, n, springs(p));
  const SumSpace<B> sums(c->ahead);
  const Buffer<double, B> ignored(2);
  const auto product = [&](const Operand<B>& u, View<double, B> q, const double* skip) {
    op.apply(*c, u, q, ignored.view(), sums, skip);
  };
  const RankRows rows = rank_rows(*c, op);
  NodeVectors vectors = node_vectors(c->control, own_part(modes, 3, op.rows()), rows, {});
  const MatrixSource<B> source{[&] { return rank_rows(*c, op); }};
  const Multigrid<B> m(*c, product, op.operand(*c), source, std::move(vectors), 20);
  const auto apply = [&](const Vector& r) {
    const Vector mine = part(r, op.rows());
    const Buffer<double, B> from(op.rows().count), to(op.rows().count);
    Vector z(mine.size());
    upload(c->ahead, from.view(), mine.data());
    m.apply(*c, product, from, to.view());
    download(c->ahead, z.data(), to.view());
    c->ahead.synchronize();
    return whole(z, op.rows(), n);
  };
  for (Word seed = 1; seed <= 3; ++seed) {
    const Vector x = random_vector(n, 2 * seed), y = random_vector(n, 2 * seed + 1);
    const Vector mx = apply(x), my = apply(y);
    CHECK_ALL(std::fabs(dot(mx, y) - dot(x, my)) <= 1e-12 * norm(x) * norm(my));
    CHECK_ALL(dot(mx, x) > 0);
  }
}
