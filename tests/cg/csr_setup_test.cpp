#include "kernels/cg/csr_setup.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "kernels/base/random.hpp"
#include "tests/support/numbers.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::cg;
using namespace terrace::test;

namespace {

/// A slice as a map per row, the textbook's way; columns counted from the slice's first row.
using Rows = std::vector<std::map<Index, double>>;

/// Rows of very different lengths, columns from -rows / 2 to 3 rows / 2.
Rows drawn(Index rows, Index length, Word seed) {
  Rows a;
  a.resize(std::size_t(rows));
  for (Index i = 0; i < rows; ++i) {
    const Index count = length == 0 ? 0 : Index(random_word(seed, i, 1) % Word(2 * length + 1));
    for (Index k = 0; k < count; ++k)
      a[std::size_t(i)][Index(random_word(seed, i, k + 2) % Word(2 * rows)) - rows / 2] =
          random_uniform(seed, i, k);
  }
  return a;
}

template <class B>
struct There {
  std::vector<Index> starts{0};
  Buffer<Index, B> start;
  Buffer<std::int32_t, B> column;
  Buffer<double, B> value;
  There(const Stream<B>& lane, const Rows& a) {
    std::vector<std::int32_t> columns;
    std::vector<double> values;
    for (const auto& row : a) {
      for (const auto& [j, v] : row) {
        columns.push_back(std::int32_t(j));
        values.push_back(v);
      }
      starts.push_back(Index(columns.size()));
    }
    start = put(lane, starts);
    column = put(lane, columns);
    value = put(lane, values);
  }
  [[nodiscard]] CsrRows<B> view() const {
    return {start, column, value, View<const Index, B>{}, {}, {}, {}};
  }
};

template <class B>
CsrFaults judged(const Stream<B>& lane, const CsrRows<B>& a) {
  const Buffer<CsrFaults, B> faults(1);
  fill_zero(lane, faults.view());
  judge(lane, a, faults.view());
  return get(lane, faults)[0];
}

double stored(const Rows& a, Index i, Index j) {
  const auto at = a[std::size_t(i)].find(j);
  return at == a[std::size_t(i)].end() ? 0.0 : at->second;
}

/// Where rows begin without the entries in other ranks' columns.
std::vector<Index> inner_starts(const Rows& a) {
  const Index all = Index(a.size());
  std::vector<Index> start{0};
  for (const auto& row : a)
    start.push_back(start.back() + std::count_if(row.begin(), row.end(), [&](const auto& e) {
                      return e.first >= 0 && e.first < all;
                    }));
  return start;
}

template <class B>
void check_outer(const Stream<B>& lane, const Rows& a, const There<B>& there) {
  const Index all = Index(a.size());
  std::vector<Index> row, start{0};
  std::vector<std::int32_t> column;
  std::vector<double> value;
  for (Index i = 0; i < all; ++i) {
    for (const auto& [j, v] : a[std::size_t(i)]) {
      if (j >= 0 && j < all) continue;
      column.push_back(std::int32_t(j));
      value.push_back(v);
    }
    if (Index(column.size()) == start.back()) continue;
    row.push_back(i);
    start.push_back(Index(column.size()));
  }
  const Buffer<Index, B> inner(all + 1);
  const OuterRows<B> taken = copy_outer(lane, there.view(), inner.view());
  CHECK(get(lane, inner) == inner_starts(a));
  CHECK(get(lane, taken.row) == row);
  CHECK(get(lane, taken.start) == start);
  CHECK(get(lane, taken.column) == column);
  CHECK(get(lane, taken.value) == value);
}

template <class B>
void check_pick(const Stream<B>& lane, const Rows& a, const There<B>& there, Index from,
                Index rows) {
  std::vector<std::int32_t> column;
  std::vector<double> value;
  for (Index i = from; i < from + rows; ++i)
    for (const auto& [j, v] : a[std::size_t(i)]) {
      if (j < 0 || j >= Index(a.size())) continue;
      column.push_back(std::int32_t(j));
      value.push_back(v);
    }
  const Buffer<Index, B> starts = put(lane, inner_starts(a));
  const Buffer<std::int32_t, B> columns(Index(column.size()));
  const Buffer<double, B> values(Index(value.size()));
  pick_inner(lane, there.view(), from, rows, View<const Index, B>(starts), columns.view(),
             values.view());
  CHECK(get(lane, columns) == column);
  CHECK(get(lane, values) == value);
}

}  // namespace

TEMPLATE_TEST_CASE("a slice's diagonal, its outer entries and the others", "", TERRACE_BACKENDS) {
  on<TestType>([](Context<TestType>& c) {
    const Stream<TestType>& lane = c.ahead;
    for (const Index rows : {0, 1, 2, 31, 33, 300})
      for (const Index length : {0, 1, 3, 9, 70}) {
        INFO(rows << " rows, " << length << " entries each");
        const Rows a = drawn(rows, length, Word(rows + 7 * length));
        const There<TestType> there(lane, a);
        const CsrFaults faults = judged(lane, there.view());
        CHECK((faults.unsorted == 0 && faults.not_finite == 0));
        const Buffer<double, TestType> diagonal(rows);
        find_diagonal(lane, there.view(), diagonal.view());
        std::vector<double> expected;
        for (Index i = 0; i < rows; ++i) expected.push_back(stored(a, i, i));
        CHECK(get(lane, diagonal) == expected);
        check_outer(lane, a, there);
        check_pick(lane, a, there, 0, rows);
        check_pick(lane, a, there, rows / 3, rows / 2);
      }
  });
}

TEMPLATE_TEST_CASE("the first pair that is not symmetric is found", "", TERRACE_BACKENDS) {
  on<TestType>([](Context<TestType>& c) {
    const Stream<TestType>& lane = c.ahead;
    for (const Index rows : {1, 2, 40, 500})
      for (const Index length : {2, 5, 60}) {
        INFO(rows << " rows, " << length << " entries each");
        Rows a = drawn(rows, length, Word(3 + rows + length));
        for (Index i = 0; i < rows; ++i) {
          a[std::size_t(i)][i] = 3;
          const std::map<Index, double> row = a[std::size_t(i)];
          for (const auto& [j, v] : row)
            if (j >= 0 && j < rows) a[std::size_t(j)][i] = v;
        }
        const Index first = 1000, n = 5000, none = std::numeric_limits<Index>::max();
        const auto worst = [&] {
          const There<TestType> there(lane, a);
          const Buffer<double, TestType> diagonal(rows);
          const Buffer<Index, TestType> found = put(lane, std::vector<Index>{none});
          find_diagonal(lane, there.view(), diagonal.view());
          find_asymmetry(lane, there.view(), first, n, View<const double, TestType>(diagonal),
                         found.view());
          return get(lane, found)[0];
        };
        CHECK(worst() == none);
        if (rows < 3) continue;
        a[0][rows - 1] = a[std::size_t(rows - 1)][0] = 1;
        a[std::size_t(rows - 1)][0] += 1e-14;  // rounding, against a diagonal of 3
        CHECK(worst() == none);
        a[std::size_t(rows - 1)][0] = 1.001;
        a[std::size_t(rows - 1)][1] = 7;  // a later pair is worse
        CHECK(worst() == first * n + first + rows - 1);
        a[0].erase(rows - 1);  // not stored at all
        CHECK(worst() == first * n + first + rows - 1);
      }
  });
}

TEMPLATE_TEST_CASE("faults of columns and values are counted", "", TERRACE_BACKENDS) {
  on<TestType>([](Context<TestType>& c) {
    const Stream<TestType>& lane = c.ahead;
    const Index origin = Index(1) << 33, columns = Index(1) << 34, reach = Index(1) << 31;
    const std::vector<Index> named{
        origin, origin - reach, origin + reach - 1, 0, origin + reach, origin - reach - 1, columns,
        -1};
    const Buffer<Index, TestType> from = put(lane, named);
    const Buffer<std::int32_t, TestType> to(Index(named.size()));
    const Buffer<CsrFaults, TestType> faults(1);
    fill_zero(lane, faults.view());
    number_columns(lane, View<const Index, TestType>(from), to.view(), columns, origin,
                   faults.view());
    const CsrFaults found = get(lane, faults)[0];
    CHECK(found.outside == 2);
    CHECK(found.far == 3);
    const auto numbers = get(lane, to);
    CHECK((numbers[0] == 0 && numbers[1] == std::numeric_limits<std::int32_t>::min() &&
           numbers[2] == std::numeric_limits<std::int32_t>::max()));

    const Buffer<Index, TestType> start = put(lane, std::vector<Index>{0, 3, 3, 6, 8});
    const Buffer<std::int32_t, TestType> column =
        put(lane, std::vector<std::int32_t>{0, 1, 1, 2, 0, 3, 5, 4});
    const Buffer<double, TestType> value =
        put(lane, std::vector<double>{1, NAN, 2, -INFINITY, 3, 4, 5, 6});
    const CsrFaults rows = judged(
        lane, CsrRows<TestType>{start, column, value, View<const Index, TestType>{}, {}, {}, {}});
    CHECK(rows.unsorted == 3);
    CHECK(rows.not_finite == 2);
  });
}

TEMPLATE_TEST_CASE("scattered columns are told from stencils", "", TERRACE_BACKENDS) {
  on<TestType>([](Context<TestType>& c) {
    const Stream<TestType>& lane = c.ahead;
    const Index n = 3000;
    Rows stencil(std::size_t{3000}), random(std::size_t{3000});
    for (Index i = 0; i < n; ++i)
      for (Index k = 0; k < 5; ++k) {
        stencil[std::size_t(i)][(i + k * 500) % n] = 1;
        random[std::size_t(i)][Index(random_word(3, i, k) % Word(n))] = 1;
      }
    const auto scattered = [&](const Rows& a) {
      const There<TestType> there(lane, a);
      const Buffer<Index, TestType> near(2);
      sample_nearness(lane, there.view(), near.view());
      const auto counts = get(lane, near);
      return is_scattered(counts[0], counts[1]);
    };
    CHECK_FALSE(scattered(stencil));
    CHECK(scattered(random));
    CHECK_FALSE(scattered({}));
  });
}

TEMPLATE_TEST_CASE("rows as short as a prolongation's, of any shape", "", TERRACE_BACKENDS) {
  using B = TestType;
  Context<B>* c = context<B>();
  if (!c) return;
  for (const Index n : {1, 127, 128, 129, 4000}) {
    for (const Index length : {0, 2, 5}) {
      Rows a = drawn(n, length, Word(n));
      constexpr Index wide = 3000;
      std::vector<double> p(std::size_t(wide), 0.0);
      for (Index j = 0; j < wide; ++j) p[std::size_t(j)] = random_uniform(9, j, 0);
      for (auto& row : a) {  // columns of 0 to wide - 1
        std::map<Index, double> moved;
        for (const auto& [j, v] : row) moved[(j + 2 * n) % wide] = v;
        row = std::move(moved);
      }
      if (n == 4000)  // more than the rest of a block's rows, and more than is staged at once
        for (Index j = 0; j < wide; ++j) a[777][j] = random_uniform(5, j, 1);
      const There<B> there(c->ahead, a);
      const Buffer<double, B> p_there = put(c->ahead, p);
      const std::vector<double> marks(std::size_t(n), -7.0);
      const Buffer<double, B> q = put(c->ahead, marks), flag = put(c->ahead, std::vector{1.0});
      const bool done =
          multiply_short_rows(c->ahead, there.view(), p_there.data(), q.view(), flag.data());
      CAPTURE(n, length);
      const bool is_short = there.starts.back() <= 6 * n;
      CHECK(done == (is_short && !std::is_same_v<B, Cpu>));
      CHECK(get(c->ahead, q) == marks);  // skipped
      if (!done) continue;
      (void)multiply_short_rows(c->ahead, there.view(), p_there.data(), q.view());
      const std::vector<double> got = get(c->ahead, q);
      bool close = true;
      for (Index i = 0; i < n; ++i) {
        double sum = 0, bound = 0;
        for (const auto& [j, v] : a[std::size_t(i)]) {
          sum += v * p[std::size_t(j)];
          bound += std::fabs(v * p[std::size_t(j)]);
        }
        close = close && std::fabs(got[std::size_t(i)] - sum) <= 1e-13 * bound;
      }
      CHECK(close);
    }
  }
}
