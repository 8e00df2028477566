// Rows over ranks where the matrix is: each step against dense matrices, and products of three.
#include "src/cg/rows_there.hpp"

#include <map>
#include <random>
#include <set>

#include "src/cg/coarse_rows.hpp"
#include "src/cg/transfer.hpp"
#include "tests/support/csr_rows.hpp"
#include "tests/support/numbers.hpp"

using namespace terrace;
using namespace terrace::cg;
using namespace terrace::test;

namespace {

bool same(const Rows& a, const Rows& b) {
  return a.columns == b.columns && a.start == b.start && a.column == b.column && a.value == b.value;
}
/// Rows that f(row, put) fills.
template <class F>
Rows made(Index rows, Index columns, const F& f) {
  Rows r;
  r.columns = columns;
  for (Index i = 0; i < rows; ++i) {
    f(i, [&](Index j, double v) { r.put(j, v); });
    r.end_row();
  }
  return r;
}
template <class F>
void each(const Rows& a, Index i, const F& f) {
  for (Index e = a.start[std::size_t(i)]; e < a.start[std::size_t(i) + 1]; ++e)
    f(Index(a.column[std::size_t(e)]), a.value[std::size_t(e)]);
}

/// About equal parts of n, the second of which is empty where there are three.
std::vector<Index> parts(Index n) {
  std::vector<Index> first{0};
  const int ranks = world().size();
  for (int r = 1; r <= ranks; ++r)
    first.push_back(r == ranks ? n : ranks > 2 && r == 2 ? first.back() : n * r / ranks);
  return first;
}
/// This rank's rows of a matrix, columns local and ascending.
template <class B>
RowsThere<B> mine_of(const Stream<B>& lane, Index begin, Index end, const std::vector<Index>& first,
                     const Entry& a) {
  const Index own_first = first[std::size_t(world().rank())],
              own_end = first[std::size_t(world().rank()) + 1], columns = first.back();
  RowsThere<B> rows{first, {}, {}};
  for (Index j = 0; j < columns; ++j) {
    bool used = j < own_first || j >= own_end;
    bool found = false;
    for (Index i = begin; i < end && used && !found; ++i) found = a(i, j) != 0;
    if (used && found) rows.needed.push_back(j);
  }
  rows.rows = there(lane, made(end - begin, own_end - own_first + Index(rows.needed.size()),
                               [&](Index i, const auto& put_entry) {
                                 for (Index j = own_first; j < own_end; ++j)
                                   if (const double v = a(begin + i, j); v != 0)
                                     put_entry(j - own_first, v);
                                 for (std::size_t k = 0; k < rows.needed.size(); ++k)
                                   if (const double v = a(begin + i, rows.needed[k]); v != 0)
                                     put_entry(own_end - own_first + Index(k), v);
                               }));
  return rows;
}
/// The largest difference of these rows, from `begin` on, and a matrix.
template <class B>
double distance(const Stream<B>& lane, const RowsThere<B>& rows, Index begin, const Entry& a) {
  const Rows r = here(lane, rows.rows);
  const ColumnNumbers number = columns_of(world(), rows.first, rows.needed);
  double most = 0;
  for (Index i = 0; i < r.rows(); ++i) {
    Vector row(std::size_t(rows.first.back()), 0.0);
    Index last = -1;
    each(r, i, [&](Index j, double v) {
      if (j <= last) most = 1e300;  // columns ascend
      last = j;
      row[std::size_t(number(j))] += v;
    });
    for (Index j = 0; j < rows.first.back(); ++j)
      most = std::max(most, std::fabs(row[std::size_t(j)] - a(begin + i, j)));
  }
  return most;
}

/// Whole numbers, so that sums are exact: symmetric, with entries far away and rows that stand alone.
double matrix(Index i, Index j) {
  if (i % 13 == 5 || j % 13 == 5) return i == j ? 7.0 : 0.0;
  const Index d = std::abs(i - j);
  return d == 0 ? 9.0 : d == 1 ? -2.0 : d == 4 ? 1.0 : (i + j) % 29 == 0 ? -3.0 : 0.0;
}
double prolongation(Index i, Index j) {
  return i % 11 == 7             ? 0.0
         : j == i / 3            ? 2.0
         : j == (i + 2) / 3      ? -1.0
         : (2 * i + j) % 31 == 4 ? 1.0
                                 : 0.0;
}

}  // namespace

TEMPLATE_TEST_CASE("distinct numbers have their places", "", BACKENDS) {
  using B = TestType;
  if (!context<B>()) return;
  const Stream<B> lane;
  Scratch<B> scratch;
  std::mt19937 random(6);
  const Index first = 100'000;
  const NumberRange own{first, 70};
  for (const Index spread : {1, 63, 64, 65, 700, 100'000})
    for (const Index count : {0, 1, 40, 9000}) {
      CAPTURE(spread, count);
      std::vector<std::vector<Index>> lists(2);
      std::set<Index> others;
      for (Index k = 0; k < count; ++k) {
        const Index n = first + (k % 2 == 0 ? 1 : -1) * Index(random() % unsigned(spread));
        lists[std::size_t(k % 3 == 0)].push_back(n);
        if (!own.has(n)) others.insert(n);
      }
      // -1 is no number, and stays.
      if (count == 40) lists[0].push_back(-1), lists[1].insert(lists[1].begin(), -1);
      const Buffer<Index, B> a = put(lane, lists[0]), b = put(lane, lists[1]);
      const DistinctNumbers<B> numbers = distinct_numbers<B>(lane, {a, b}, own, scratch);
      const std::vector<Index> ascending = get(lane, numbers.ascending);
      REQUIRE(ascending == std::vector<Index>(others.begin(), others.end()));
      const Buffer<std::int32_t, B> to(a.size());
      locate<B>(lane, numbers, own, a, to.view());
      const std::vector<std::int32_t> local = get(lane, to);
      bool right = true;
      for (std::size_t k = 0; k < local.size(); ++k) {
        const Index place = local[k], n = lists[0][k];
        right = right && n == (place < 0    ? -1
                               : place < 70 ? first + place
                                            : ascending[std::size_t(place - 70)]);
      }
      CHECK(right);
      std::vector<Index> shifted(local.begin(), local.end());
      for (Index& place : shifted) place = place < 0 ? -1 : place + 5'000'000'000;
      const Buffer<Index, B> numbered(a.size());
      shift_numbers<B>(lane, to, 5'000'000'000, numbered.view());
      CHECK(get(lane, numbered) == shifted);
      if (count == 40) continue;
      // And back.
      const Buffer<Index, B> back(a.size());
      global_columns<B>(lane, to, own, numbers.ascending, back.view());
      CHECK(get(lane, back) == lists[0]);
    }
}

TEMPLATE_TEST_CASE("parts of rows are added in their order", "", BACKENDS) {
  using B = TestType;
  if (!context<B>()) return;
  const Stream<B> lane;
  Scratch<B> scratch;
  std::mt19937 random(5);
  for (const Index columns : {1, 2, 60, 64, 5000})
    for (const Index most_rows : {0, 1, 3, 900}) {
      CAPTURE(columns, most_rows);
      std::map<Index, std::map<Index, double>> sums;
      Rows parts;
      std::vector<Index> of;
      for (int rank = 0; rank < 3; ++rank)
        for (Index i = 0; i < most_rows; ++i) {
          if (random() % 3 == 0) continue;
          of.push_back(1000 + i);
          for (unsigned k = random() % 6; k > 0; --k) {
            const Index column = Index(random() % unsigned(columns));
            parts.put(column, 0.1 * double(random() % 1000));
            sums[i].try_emplace(column, 0.0).first->second += parts.value.back();
          }
          parts.end_row();
        }
      const SparseRows<B> there_too = there(lane, parts);
      const Buffer<Index, B> which = put(lane, of);
      const ListedRows<B> sum =
          sum_parts<B>(lane, there_too.view(), which, {1000, 900}, columns, scratch);
      const Rows found = here(lane, sum.rows);
      const std::vector<Index> row = get(lane, sum.row);
      REQUIRE(row.size() == sums.size());
      REQUIRE(found.rows() == Index(row.size()));
      auto expected = sums.begin();
      bool right = true;
      for (std::size_t k = 0; k < row.size(); ++k, ++expected) {
        right = right && row[k] == expected->first;
        std::vector<std::pair<Index, double>> entries;
        each(found, Index(k), [&](Index j, double v) { entries.emplace_back(j, v); });
        right = right && std::equal(entries.begin(), entries.end(), expected->second.begin(),
                                    expected->second.end(), [](const auto& x, const auto& y) {
                                      return x.first == y.first && x.second == y.second;
                                    });
      }
      CHECK(right);
      // Starts from sizes, and back.
      const Buffer<Index, B> sizes(there_too.rows() + 1);
      row_sizes<B>(lane, there_too.start, sizes.view().slice(0, there_too.rows()));
      sizes_to_starts<B>(lane, sizes.view(), 7, scratch);
      std::vector<Index> shifted = parts.start;
      for (Index& s : shifted) s += 7;
      CHECK(get(lane, sizes) == shifted);
    }
}

TEMPLATE_TEST_CASE("rows are added, taken and numbered anew", "", BACKENDS) {
  using B = TestType;
  if (!context<B>()) return;
  const Stream<B> lane;
  Scratch<B> scratch;
  for (const Index rows : {1, 6, 300, 5000})
    for (const Index most : {0, 3, 30, 120}) {
      CAPTURE(rows, most);
      const Rows a = scattered(rows, 150, most, 9);
      const SparseRows<B> a_there = there(lane, a);
      for (const Index every : {1, 2, 50, 9999}) {
        std::vector<Index> listed;
        for (Index i = every / 2; i < rows; i += every) listed.push_back(i);
        const Rows b = scattered(Index(listed.size()), 150, most + 1, 10);
        const SparseRows<B> b_there = there(lane, b);
        const Buffer<Index, B> row = put(lane, listed);
        CsrRows<B> view = b_there.view();
        view.row = row;
        const Rows sum = made(rows, 150, [&](Index i, const auto& put_entry) {
          const auto k = std::lower_bound(listed.begin(), listed.end(), i);
          std::map<Index, double> all;
          each(a, i, [&](Index j, double v) { all[j] = v; });
          if (k != listed.end() && *k == i)
            each(b, k - listed.begin(), [&](Index j, double v) {
              const auto [at, fresh] = all.emplace(j, v);
              if (!fresh) at->second += v;
            });
          for (const auto& [j, v] : all) put_entry(j, v);
        });
        CHECK(same(here(lane, add_rows<B>(lane, a_there.view(), view, 150, scratch)), sum));
        std::vector<Index> back(listed.rbegin(), listed.rend());
        if (!back.empty()) back.push_back(back.front());
        CHECK(same(here(lane, take_rows<B>(lane, a_there.view(), put(lane, back), scratch)),
                   made(Index(back.size()), 0, [&](Index k, const auto& put_entry) {
                     each(a, back[std::size_t(k)], put_entry);
                   })));
      }
      const Index own = 60;
      std::vector<std::int32_t> used(150 - own, 0), places;
      for (const std::int32_t c : a.column)
        if (c >= own) used[std::size_t(c - own)] = 1;
      const Buffer<std::int32_t, B> marks(150 - own);
      fill_zero(lane, marks.view());
      mark_columns<B>(lane, a_there.column, own, marks.view());
      CHECK(get(lane, marks) == used);
      for (std::int32_t k = 0; k < 150 - own; ++k) places.push_back(std::int32_t(own) + 2 * k + 1);
      std::vector<std::int32_t> numbered = a.column;
      for (std::int32_t& c : numbered)
        if (c >= own) c = std::int32_t(own + 2 * (c - own) + 1);
      const Buffer<std::int32_t, B> to = put(lane, places);
      renumber_columns<B>(lane, a_there.column.view(), own, to.view());
      CHECK(get(lane, a_there.column) == numbered);
    }
}

TEMPLATE_TEST_CASE("an operator's rows are there with all their columns", "", BACKENDS) {
  using B = TestType;
  Context<B>* c = context<B>();
  if (!c) return;
  for (const Index n : {0, 1, 3, 40, 200}) {
    CAPTURE(n);
    const CsrOperator<B> a = Csr::make(*c, n, matrix);
    const RowsThere<B> rows = a.rows_there(*c);
    CHECK_ALL(rows.first[std::size_t(world().rank())] == a.rows().first);
    CHECK_ALL(rows.first.back() == n);
    CHECK_ALL(rows.rows.rows() == a.rows().count);
    CHECK_ALL(world().reduce(a.entries(), Reduce::sum) == a.nonzeros());
    CHECK_ALL(distance(c->ahead, rows, a.rows().first, matrix) == 0);
    // And back: the same products.
    Scratch<B> scratch;
    RowsThere<B> taken = a.rows_there(*c);
    CsrOperator<B> again(*c, taken, false, scratch);
    CHECK_ALL(again.nonzeros() == a.nonzeros());
    CHECK_ALL(again.halo() == a.halo());
    const Vector x = random_vector(n, 3), mine = part(x, a.rows());
    const Operand<B> p = again.operand(*c);
    if (!mine.empty()) upload(c->ahead, p.own(), mine.data());
    const SumSpace<B> space(c->ahead);
    const Buffer<double, B> q(a.rows().count), sums(2);
    again.apply(*c, p, q.view(), sums.view(), space);
    const Vector found = whole(get(c->ahead, q), a.rows(), n);
    CHECK_ALL(norm(minus(found, times(matrix, x))) <= 1e-13 * (1 + norm(x)));
  }
}

TEMPLATE_TEST_CASE("P' A P of rows that are there, over all ranks", "", BACKENDS) {
  using B = TestType;
  Context<B>* c = context<B>();
  if (!c) return;
  const Stream<B>& lane = c->ahead;
  const auto me = std::size_t(world().rank());
  for (const Index n : {1, 7, 60, 170}) {
    CAPTURE(n);
    const Index width = (n + 2) / 3 + 1;
    const std::vector<Index> first = parts(n), coarse = parts(width);
    const Index begin = first[me], end = first[me + 1];
    const Entry bounded = [&](Index i, Index j) { return j < width ? prolongation(i, j) : 0.0; };
    Scratch<B> scratch;
    RowsThere<B> a = mine_of<B>(lane, begin, end, first, matrix);
    RowsThere<B> p = mine_of<B>(lane, begin, end, coarse, bounded);
    const Index own = coarse[me + 1] - coarse[me];
    // A column that nothing uses goes.
    const std::vector<Index> exact = p.needed;
    for (Index j = width - 1; j >= 0; --j)
      if ((j < coarse[me] || j >= coarse[me + 1]) &&
          !std::binary_search(exact.begin(), exact.end(), j)) {
        p.needed.insert(std::lower_bound(p.needed.begin(), p.needed.end(), j), j);
        std::vector<std::int32_t> columns = get(lane, p.rows.column);
        const std::int32_t place = std::int32_t(
            own + (std::lower_bound(p.needed.begin(), p.needed.end(), j) - p.needed.begin()));
        for (std::int32_t& column : columns) column += column >= place;
        p.rows.column = put(lane, columns);
        break;
      }
    drop_unused(lane, p, own);
    CHECK_ALL(p.needed == exact);
    CHECK_ALL(distance(lane, p, begin, bounded) == 0);
    // Numbers and rows of those that A's columns need.
    const AskedRows<B> asked(*c, a);
    Vector numbers(std::size_t(end - begin), 0.0);
    std::vector<Index> small(numbers.size(), 0);
    for (Index i = begin; i < end; ++i)
      numbers[std::size_t(i - begin)] = 0.5 * double(i), small[std::size_t(i - begin)] = 3 * i;
    const Buffer<double, B> numbers_there = put(lane, numbers);
    const Buffer<Index, B> small_there = put(lane, small);
    if (world().size() > 1) {
      const Vector all_numbers = get(lane, asked.joined(*c, numbers_there));
      const std::vector<Index> all_small = get(lane, asked.joined(*c, small_there));
      bool right = all_numbers.size() == numbers.size() + a.needed.size() &&
                   all_small.size() == all_numbers.size();
      for (std::size_t k = 0; right && k < all_small.size(); ++k) {
        const Index i = k < numbers.size() ? begin + Index(k) : a.needed[k - numbers.size()];
        right = all_numbers[k] == 0.5 * double(i) && all_small[k] == 3 * i;
      }
      CHECK_ALL(right);
    }
    const RowsThere<B> fetched =
        world().size() > 1 ? asked.with_needed_rows(*c, p, scratch) : RowsThere<B>{};
    const RowsThere<B>& all = world().size() > 1 ? fetched : p;
    CHECK_ALL(all.rows.rows() == end - begin + Index(a.needed.size()));
    SparseRows<B> t = transposed<B>(lane, p.rows.view(), own + Index(p.needed.size()), scratch);
    auto product = coarse_product<B>(lane, t.view(), a.rows.view(), all.rows.view(),
                                     all.rows.columns, scratch);
    REQUIRE_ALL(product.has_value());
    const RowsThere<B> next = gathered(
        *c, coarse, p.needed, RowsThere<B>{coarse, all.needed, std::move(*product)}, scratch);
    CHECK_ALL(next.rows.rows() == own);
    const Entry triple = [&](Index i, Index j) {
      double sum = 0;
      for (Index k = 0; k < n; ++k)
        for (Index l = 0; bounded(k, i) != 0 && l < n; ++l)
          sum += bounded(k, i) * matrix(k, l) * bounded(l, j);
      return sum;
    };
    CHECK_ALL(distance(lane, next, coarse[me], triple) == 0);
    const RowsThere<B> turned =
        gathered(*c, coarse, p.needed, RowsThere<B>{first, {}, std::move(t)}, scratch);
    CHECK_ALL(distance(lane, turned, coarse[me], [&](Index i, Index j) { return bounded(j, i); }) ==
              0);
    // As a product, too.
    Transfer<B> restriction(
        *c, RowsThere<B>{turned.first, turned.needed, there(lane, here(lane, turned.rows))}, false,
        scratch);
    const Vector x = random_vector(n, 5);
    const Operand<B> r = restriction.operand(*c);
    const Vector own_x = part(x, {begin, end - begin});
    if (!own_x.empty()) upload(lane, r.own(), own_x.data());
    const SumSpace<B> space(lane);
    const Buffer<double, B> q(own), sums(2);
    restriction.apply(*c, r, q.view(), sums.view(), space);
    const Vector found = whole(get(lane, q), {coarse[me], own}, width);
    Vector expected(std::size_t(width), 0.0);
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < width; ++j)
        expected[std::size_t(j)] += bounded(i, j) * x[std::size_t(i)];
    CHECK_ALL(norm(minus(found, expected)) <= 1e-13 * (1 + norm(x)));
  }
}

TEMPLATE_TEST_CASE("all rows stand on each rank, and vectors between them and a rank's own", "",
                   BACKENDS) {
  using B = TestType;
  Context<B>* c = context<B>();
  if (!c) return;
  const Stream<B>& lane = c->ahead;
  const auto me = std::size_t(world().rank());
  for (const Index n : {0, 1, 2, 7, 60, 400}) {
    CAPTURE(n);
    const std::vector<Index> first = parts(n);
    const Index begin = first[me], end = first[me + 1];
    Scratch<B> scratch;
    const RowsThere<B> all = whole_rows(*c, mine_of<B>(lane, begin, end, first, matrix), scratch);
    CHECK_ALL((all.first == std::vector<Index>{0, n}));
    CHECK_ALL(all.needed.empty());
    CHECK_ALL(all.rows.columns == n);
    CHECK_ALL(all.rows.rows() == n);
    const Rows rows = here(lane, all.rows);
    std::vector<Index> one(first.size(), 0);  // rows of this rank
    std::fill(one.begin() + world().rank() + 1, one.end(), n);
    CHECK_ALL(distance(lane, RowsThere<B>{one, {}, there(lane, rows)}, 0, matrix) == 0);
    bool ascending = true;
    for (Index i = 0; i < n; ++i)
      for (Index e = rows.start[std::size_t(i)] + 1; e < rows.start[std::size_t(i) + 1]; ++e)
        ascending = ascending && rows.column[std::size_t(e - 1)] < rows.column[std::size_t(e)];
    CHECK_ALL(ascending);
    // P of own rows times a whole vector.
    const Index width = (n + 2) / 3 + 1;
    const Entry bounded = [&](Index i, Index j) { return j < width ? prolongation(i, j) : 0.0; };
    const auto p = Transfer<B>::of_whole(*c, mine_of<B>(lane, begin, end, parts(width), bounded),
                                         false, scratch);
    CHECK_ALL(!p.crosses());
    CHECK_ALL(p.columns() == width);
    CHECK_ALL(p.rows() == end - begin);
    Operand<B> x = p.operand(*c);
    const Vector numbers = random_vector(width, 8);
    upload(lane, x.own(), numbers.data());
    const SumSpace<B> space(lane);
    const Buffer<double, B> q(end - begin), sums(2);
    p.apply(*c, x, q.view(), sums.view(), space);
    const Vector found = whole(get(lane, q), {begin, end - begin}, n);
    Vector expected(std::size_t(n), 0.0);
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < width; ++j)
        expected[std::size_t(i)] += bounded(i, j) * numbers[std::size_t(j)];
    CHECK_ALL(norm(minus(found, expected)) <= 1e-13 * (1 + norm(numbers)));
  }
}
