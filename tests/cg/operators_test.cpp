#include "src/cg/operators.hpp"

#include <algorithm>

#include "distrib/agree.hpp"
#include "tests/support/cg.hpp"

using namespace terrace;
using namespace terrace::cg;
using namespace terrace::test;

namespace {

#if TERRACE_WITH_CUDA
#define CASES                                                                   \
  (Case<Cpu, Dense>), (Case<Cpu, Band>), (Case<Cpu, Csr>), (Case<Cuda, Dense>), \
      (Case<Cuda, Band>), (Case<Cuda, Csr>)
#else
#define CASES (Case<Cpu, Dense>), (Case<Cpu, Band>), (Case<Cpu, Csr>)
#endif

double random_band(Index m, Index i, Index j) {
  if (i < j) std::swap(i, j);
  return i - j <= m ? random_uniform(7, i, j) : 0.0;
}

template <class B, class A>
Vector apply(const Context<B>& c, A& a, const Vector& p, double* sums, bool absolute) {
  const SumSpace<B> space(c.ahead);
  const Index rows = a.rows().count;
  Buffer<double, B> q(rows), result(2);
  const Vector mine = part(p, a.rows());
  const Operand<B> operand = a.operand(c);
  upload(c.ahead, operand.own(), mine.data());
  a.apply(c, operand, q.view(), result.view(), space, nullptr, absolute);
  Vector host(std::size_t(rows), 0.0);
  download(c.ahead, host.data(), q.view());
  download(c.ahead, sums, result.view());
  c.ahead.synchronize();
  return whole(host, a.rows(), Index(p.size()));
}

void check_product(const Vector& q, const Vector& expected, const Vector& bound) {
  bool close = true;
  for (std::size_t i = 0; i < q.size(); ++i)
    close = close && std::fabs(q[i] - expected[i]) <= 1e-14 * (1 + bound[i]) * 10;
  CHECK_ALL(close);
}

}  // namespace

TEMPLATE_TEST_CASE("a product on row slices is the product of the whole matrix", "", CASES) {
  using B = typename TestType::Backend;
  Context<B>* c = context<B>();
  if (!c) return;
  for (Index n : {1, 2, 3, 16, 63, 64, 65, 257}) {
    for (Index m : {Index(0), Index(1), Index(5), Index(33), n - 1}) {
      const Entry a = [m](Index i, Index j) { return random_band(m, i, j); };
      auto op = TestType::Operator::make(*c, n, a);
      const Vector p = random_vector(n, 3);
      const Vector bound = times(a, Vector(p.size(), 1.0), true);
      CAPTURE(n, m);
      for (bool absolute : {false, true}) {
        double sums[2];
        const Vector q = apply(*c, op, p, sums, absolute);
        check_product(q, times(a, p, absolute), bound);
        const double pq = c->control.reduce(sums[0], Reduce::sum);
        const double pp = c->control.reduce(sums[1], Reduce::sum);
        CHECK_ALL(std::fabs(pq - dot(p, q)) <= 1e-12 * double(n) * (1 + std::fabs(pq)));
        CHECK_ALL(std::fabs(pp - dot(p, p)) <= 1e-12 * (1 + pp));
      }
      Buffer<double, B> q(op.rows().count), sums(2);
      const double largest =
          row_sum_norm(*c, op, op.operand(*c), q.view(), sums.view(), SumSpace<B>(c->ahead));
      CHECK_ALL(std::fabs(largest - *std::max_element(bound.begin(), bound.end())) <=
                1e-12 * largest);
      Vector diagonal(std::size_t(n), 0.0);
      for (Index i = 0; i < n; ++i) diagonal[std::size_t(i)] = a(i, i);
      CHECK_ALL(host_diagonal(*c, op) == part(diagonal, op.rows()));
      CHECK_ALL(!op.asymmetry(*c));
    }
  }
}

TEMPLATE_TEST_CASE("a wide band over several tiles and strips", "", CASES) {
  using B = typename TestType::Backend;
  Context<B>* c = context<B>();
  if (!c) return;
  for (Index m : {1, 700}) {
    const Index n = 2600;
    const Entry a = [m](Index i, Index j) {
      return std::abs(i - j) == m || std::abs(i - j) == m / 2 ? random_band(m, i, j)
                                                              : double(i == j) * 3;
    };
    auto op = TestType::Operator::make(*c, n, a);
    const Vector p = random_vector(n, 5);
    double sums[2];
    const Vector q = apply(*c, op, p, sums, false);
    check_product(q, times(a, p), Vector(p.size(), 10.0));
  }
}

TEMPLATE_TEST_CASE("one unequal pair is found and named wherever it stands", "", CASES) {
  using B = typename TestType::Backend;
  Context<B>* c = context<B>();
  if (!c || std::is_same_v<typename TestType::Operator, Band>) return;
  for (Index n : {2, 7, 65, 130}) {
    for (const auto& [row, column] : std::vector<std::pair<Index, Index>>{
             {0, n - 1}, {n - 1, 0}, {n / 2, n / 2 - 1}, {n - 2, n - 1}}) {
      const Index r = row, k = column;
      const Entry a = [=](Index i, Index j) {
        return random_band(n, i, j) + (i == j ? 4.0 : 0.0) + (i == r && j == k ? 1e-9 : 0.0);
      };
      const auto found = TestType::Operator::make(*c, n, a).asymmetry(*c);
      CAPTURE(n, row, column);
      REQUIRE_ALL(found.has_value());
      CHECK_ALL(found->row == std::min(r, k));
      CHECK_ALL(found->column == std::max(r, k));
      CHECK_ALL(found->value == a(found->row, found->column));
      CHECK_ALL(found->transposed == a(found->column, found->row));
    }
    // An entry whose partner is not stored at all.
    const Entry lonely = [=](Index i, Index j) {
      return i == j ? 1.0 : double(i == n - 1 && j == 0);
    };
    const auto found = TestType::Operator::make(*c, n, lonely).asymmetry(*c);
    REQUIRE_ALL(found.has_value());
    CHECK_ALL(
        (found->row == 0 && found->column == n - 1 && found->value == 0 && found->transposed == 1));
    // The same where the row below has its like.
    const Entry missed = [=](Index i, Index j) {
      return i == j ? 2.0 : double((i == 0 || j == 0) && !(i == n - 2 && j == 0));
    };
    if (n > 2) {
      const auto one = TestType::Operator::make(*c, n, missed).asymmetry(*c);
      REQUIRE_ALL(one.has_value());
      CHECK_ALL((one->row == 0 && one->column == n - 2 && one->value == 1 && one->transposed == 0));
    }
    // And where the row that lacks it lacks all, and the row below has its like.
    const Entry bare = [=](Index i, Index j) {
      return i == j ? 2.0 : double((j == n - 1 && i < 2) || (i == n - 1 && j == 1));
    };
    if (n > 2) {
      const auto one = TestType::Operator::make(*c, n, bare).asymmetry(*c);
      REQUIRE_ALL(one.has_value());
      CHECK_ALL((one->row == 0 && one->column == n - 1 && one->value == 1 && one->transposed == 0));
    }
    // Nor is one as small as rounding, in the row of a rank that has no other to that rank.
    const Entry tiny = [=](Index i, Index j) {
      return i == j ? 1.0 : i == n - 1 && j == 0 ? 1e-13 : 0.0;
    };
    CHECK_ALL(!TestType::Operator::make(*c, n, tiny).asymmetry(*c));
    // Rounding of the size that a product Q D Q' leaves is no asymmetry.
    const Entry rounded = [=](Index i, Index j) {
      return i == j ? 1.0 : 1e-3 + (i > j ? 1e-15 : 0.0);
    };
    CHECK_ALL(!TestType::Operator::make(*c, n, rounded).asymmetry(*c));
  }
}

TEST_CASE("duplicates are summed and columns sorted") {
  CsrSlice s;
  s.start = {0, 4, 4, 7};
  s.column = {2, 0, 2, 1, 1, 1, 1};
  s.value = {1, 2, 3, 4, 5, 6, 7};
  s.normalise();
  CHECK_ALL((s.start == LargeVector<Index>{0, 3, 3, 4}));
  CHECK_ALL((s.column == LargeVector<Index>{0, 1, 2, 1}));
  CHECK_ALL((s.value == LargeVector<double>{2, 4, 4, 18}));
}

TEST_CASE("row slices hold about equal numbers of nonzeros") {
  const Control& control = world();
  for (Index n : {0, 1, 3, 50, 1000}) {
    std::vector<Index> pointers{0};  // row i has i % 7 entries, the last 200
    for (Index i = 0; i < n; ++i) pointers.push_back(pointers.back() + (i == n - 1 ? 200 : i % 7));
    const BlockCyclic deal = contiguous(n, control.size());
    const Index from = std::min(n, deal.block * control.rank());
    const Index to = std::min(n, from + deal.block);
    const auto first = balanced_rows(control, n, pointers.back(), from,
                                     {pointers.begin() + from, pointers.begin() + to + 1});
    CHECK_ALL(
        (first.front() == 0 && first.back() == n && std::is_sorted(first.begin(), first.end())));
    for (int r = 0; r < control.size(); ++r) {
      const Index held = pointers[std::size_t(first[std::size_t(r) + 1])] -
                         pointers[std::size_t(first[std::size_t(r)])];
      CHECK_ALL(held <= pointers.back() / control.size() + 201);
    }
  }
}

TEMPLATE_TEST_CASE("runs of rows hold few entries, or one row", "", BACKENDS) {
  using B = TestType;
  Context<B>* c = context<B>();
  if (!c) return;
  for (const Index n : {0, 1, 2, 5, 300, 1000})
    for (const Index given : {1, 7, 64, 100000, 0}) {
      std::vector<Index> start{0};  // some rows of none, of few, of very many
      for (Index i = 0; i < n; ++i)
        start.push_back(start.back() + (i % 90 == 41 ? 700 : Index(random_word(3, i, 0) % 9)));
      // 0: all are one too many.
      const Index most = given > 0 ? given : std::max<Index>(1, start.back() - 1);
      const Buffer<Index, B> there = uploaded<Index, B>(c->ahead, start);
      const Runs runs = runs_of<B>(c->ahead, there, most);
      CAPTURE(n, most);
      REQUIRE_ALL((runs.row.front() == 0 && runs.row.back() == n));
      REQUIRE_ALL(runs.entry.size() == runs.row.size());
      bool right = std::is_sorted(runs.row.begin(), runs.row.end());
      for (std::size_t k = 0; k < runs.count(); ++k)
        right = right && runs.entry[k] == start[std::size_t(runs.row[k])] &&
                (runs.entries(k) <= most || runs.rows(k) == 1);
      CHECK_ALL(right);
      CHECK_ALL(Index(runs.count()) <= 2 + n);
      if (most == 100000) CHECK_ALL(runs.count() == 1);
    }
}

TEMPLATE_TEST_CASE("own entries move up in several pieces", "", BACKENDS) {
  using B = TestType;
  Context<B>* c = context<B>();
  if (!c) return;
  // 2^21 entries are one piece. Each row reaches those around it and one of another rank.
  constexpr Index rows = 52000, near = 64;
  const Index ranks = c->size(), n = rows * ranks;
  std::vector<Index> first;
  for (Index r = 0; r <= ranks; ++r) first.push_back(r * rows);
  const auto columns = [&](Index i) {
    std::vector<Index> all{(i + rows) % n};
    const Index r0 = i / rows * rows;
    for (Index k = 0; k < near; ++k)
      all.push_back(r0 + std::min(std::max<Index>(0, i - r0 - near / 2), rows - near) + k);
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  };
  const auto value = [](Index i, Index j) { return 1.0 + double((3 * i + 5 * j) % 11); };
  CsrSlice slice;
  const Range own{first[std::size_t(c->rank())], rows};
  for (Index i = own.first; i < own.end(); ++i) {
    for (const Index j : columns(i)) {
      slice.column.push_back(j);
      slice.value.push_back(value(i, j));
    }
    slice.start.push_back(Index(slice.column.size()));
  }
  CsrOperator<B> a(*c, first, std::move(slice));
  const Operand<B> p = a.operand(*c);
  std::vector<double> mine(std::size_t(rows), 0.0), q(mine);
  for (Index i = 0; i < rows; ++i) mine[std::size_t(i)] = double((own.first + i) % 17);
  upload(c->ahead, p.own(), mine.data());
  const Buffer<double, B> q_there(rows), sums(2);
  a.apply(*c, p, q_there.view(), sums.view(), SumSpace<B>(c->ahead));
  download(c->ahead, q.data(), q_there.view());
  c->ahead.synchronize();
  bool right = true;
  for (Index i = 0; i < rows; ++i) {
    double sum = 0;  // whole numbers, so exact
    for (const Index j : columns(own.first + i)) sum += value(own.first + i, j) * double(j % 17);
    right = right && q[std::size_t(i)] == sum;
  }
  CHECK_ALL(right);
}
