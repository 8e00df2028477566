// One level of smoothed aggregation where the matrix is: each step against its formula on dense matrices,
// and the backends against each other.
#include "kernels/cg/coarsening.hpp"

#include <map>
#include <set>

#include "kernels/base/random.hpp"
#include "tests/support/csr_rows.hpp"
#include "tests/support/numbers.hpp"

using namespace terrace;
using namespace terrace::cg;
using namespace terrace::test;

namespace {

bool ascend(const Rows& a) {
  for (Index i = 0; i < a.rows(); ++i)
    for (Index e = a.start[std::size_t(i)] + 1; e < a.start[std::size_t(i) + 1]; ++e)
      if (a.column[std::size_t(e)] <= a.column[std::size_t(e) - 1]) return false;
  return true;
}
/// The same places, values within rounding.
bool agree(const Rows& a, const Rows& b, double tolerance) {
  if (a.start != b.start || a.column != b.column || a.columns != b.columns) return false;
  double most = 0;
  for (const double v : a.value) most = std::max(most, std::fabs(v));
  for (std::size_t e = 0; e < a.value.size(); ++e)
    if (!(std::fabs(a.value[e] - b.value[e]) <= tolerance * most)) return false;
  return true;
}

constexpr double threshold = 0.08;

bool is_strong(const Rows& a, Index i, Index j) {
  const double v = a.at(i, j);
  return i != j && v != 0 && v * v >= threshold * threshold * (a.at(i, i) * a.at(j, j));
}

/// What the steps make of one matrix.
template <class B>
struct Level {
  explicit Level(const Rows& from) : matrix(there(lane, from)), diagonal(from.rows()) {
    judged = judge_rows<B>(lane, matrix.view(), diagonal, scratch);
    aggregates = aggregate_rows<B>(lane, matrix.view(), diagonal, threshold, scratch);
    p = smoothed_prolongation<B>(lane, matrix.view(), diagonal, threshold, aggregates.of,
                                 aggregates.count, scratch);
    t = transposed<B>(lane, p.view(), aggregates.count, scratch);
  }
  Stream<B> lane;
  Scratch<B> scratch;
  SparseRows<B> matrix;
  Buffer<double, B> diagonal;
  RowsJudged judged;
  RowAggregates<B> aggregates;
  SparseRows<B> p, t;
};

}  // namespace

TEMPLATE_TEST_CASE("diagonals, the longest row and Gershgorin's bound", "", BACKENDS) {
  using B = TestType;
  if (!context<B>()) return;
  for (const auto& [name, a] : matrices()) {
    CAPTURE(name);
    const Stream<B> lane;
    Scratch<B> scratch;
    Rows changed = a;
    for (const Index bad : {Index(-1), a.rows() / 2}) {
      if (bad >= 0 && a.rows() < 3) continue;
      if (bad >= 0)
        for (Index e = a.start[std::size_t(bad)]; e < a.start[std::size_t(bad) + 1]; ++e)
          if (a.column[std::size_t(e)] == bad) changed.value[std::size_t(e)] = -1;
      const SparseRows<B> m = there(lane, changed);
      const Buffer<double, B> diagonal(a.rows());
      const RowsJudged judged = judge_rows<B>(lane, m.view(), diagonal, scratch);
      CHECK(judged.bad == bad);
      Index longest = 0;
      double bound = 0;
      Vector expected(std::size_t(a.rows()));
      for (Index i = 0; i < a.rows(); ++i) {
        double sum = 0;
        for (Index e = a.start[std::size_t(i)]; e < a.start[std::size_t(i) + 1]; ++e)
          sum += std::fabs(changed.value[std::size_t(e)]);
        longest = std::max(longest, a.start[std::size_t(i) + 1] - a.start[std::size_t(i)]);
        expected[std::size_t(i)] = changed.at(i, i);
        if (changed.at(i, i) > 0) bound = std::max(bound, sum / changed.at(i, i));
      }
      CHECK(judged.longest == longest);
      CHECK(std::fabs(judged.bound - bound) <= 1e-14 * bound);
      CHECK(get(lane, diagonal) == expected);
    }
  }
}

TEMPLATE_TEST_CASE("aggregates hold every row with a strong neighbour, and are connected", "",
                   BACKENDS) {
  using B = TestType;
  if (!context<B>()) return;
  for (const auto& [name, a] : matrices()) {
    CAPTURE(name);
    const Level<B> level(a);
    const std::vector<std::int32_t> of = get(level.lane, level.aggregates.of);
    const Index count = level.aggregates.count;
    std::vector<std::vector<Index>> members(std::size_t(count), std::vector<Index>{});
    bool right = true;
    for (Index i = 0; i < a.rows(); ++i) {
      bool alone = true;
      for (Index e = a.start[std::size_t(i)]; e < a.start[std::size_t(i) + 1]; ++e)
        alone = alone && !is_strong(a, i, a.column[std::size_t(e)]);
      right = right && (of[std::size_t(i)] < 0) == alone && of[std::size_t(i)] < count;
      if (!alone) members[std::size_t(of[std::size_t(i)])].push_back(i);
    }
    REQUIRE(right);
    for (const std::vector<Index>& rows : members) {
      right = right && rows.size() > 1;
      std::set<Index> reached{rows.empty() ? 0 : rows.front()};
      for (std::size_t before = 0; before < reached.size();) {
        before = reached.size();
        for (const Index i : rows)
          for (const Index j : rows)
            if (reached.count(i) > 0 && is_strong(a, i, j)) reached.insert(j);
      }
      right = right && reached.size() == rows.size();
    }
    CHECK(right);
    CHECK(of == get(level.lane, Level<B>(a).aggregates.of));  // repeats
    const Level<Cpu> twin(a);
    CHECK(of == get(twin.lane, twin.aggregates.of));
  }
}

TEMPLATE_TEST_CASE("a prolongation is smoothed aggregation's, its transpose exact", "", BACKENDS) {
  using B = TestType;
  if (!context<B>()) return;
  for (const auto& [name, a] : matrices()) {
    CAPTURE(name);
    Level<B> level(a);
    const Level<Cpu> twin(a);
    const Rows p = here(level.lane, level.p), t = here(level.lane, level.t);
    CHECK(ascend(p));
    CHECK(ascend(t));
    CHECK(agree(p, here(twin.lane, twin.p), 1e-15));
    const std::vector<std::int32_t> of = get(level.lane, level.aggregates.of);
    double worst = 0;
    for (Index i = 0; i < a.rows(); ++i) {
      std::map<Index, double> row;
      double middle = a.at(i, i), sum = 0;
      for (Index e = a.start[std::size_t(i)]; e < a.start[std::size_t(i) + 1]; ++e) {
        const Index j = a.column[std::size_t(e)];
        if (is_strong(a, i, j))
          sum += std::fabs(a.value[std::size_t(e)]);
        else if (i != j)
          middle += a.value[std::size_t(e)];
      }
      sum += std::fabs(middle);
      if (of[std::size_t(i)] >= 0) {
        row[of[std::size_t(i)]] = 1 - 4.0 / 3 / sum * middle;
        for (Index e = a.start[std::size_t(i)]; e < a.start[std::size_t(i) + 1]; ++e)
          if (const Index j = a.column[std::size_t(e)]; is_strong(a, i, j))
            row[of[std::size_t(j)]] -= 4.0 / 3 / sum * a.value[std::size_t(e)];
      }
      if (Index(row.size()) != p.start[std::size_t(i) + 1] - p.start[std::size_t(i)]) worst = 1;
      for (const auto& [j, v] : row) worst = std::max(worst, std::fabs(v - p.at(i, j)));
    }
    CHECK(worst <= 1e-14);
    bool same = t.rows() == level.aggregates.count && t.column.size() == p.column.size();
    for (Index j = 0; j < t.rows(); ++j)
      for (Index e = t.start[std::size_t(j)]; e < t.start[std::size_t(j) + 1]; ++e)
        same = same && t.value[std::size_t(e)] == p.at(t.column[std::size_t(e)], j);
    CHECK(same);
    const Rows plain =
        here(level.lane, tentative_prolongation<B>(level.lane, level.aggregates.of,
                                                   level.aggregates.count, level.scratch));
    Index entries = 0;
    for (Index i = 0; i < a.rows(); ++i) {
      same = same && (of[std::size_t(i)] < 0 || plain.at(i, of[std::size_t(i)]) == 1);
      entries += of[std::size_t(i)] >= 0;
    }
    CHECK((same && Index(plain.column.size()) == entries));
  }
}

TEMPLATE_TEST_CASE("a transpose has empty rows and columns where there are some", "", BACKENDS) {
  using B = TestType;
  if (!context<B>()) return;
  for (const auto& [rows, columns, most] :
       {std::array<Index, 3>{0, 5, 1}, {4, 5, 0}, {300, 1, 1}, {65, 5000, 3}, {700, 129, 90}}) {
    CAPTURE(rows, columns);
    const Stream<B> lane;
    Scratch<B> scratch;
    const Rows a = scattered(rows, columns, most, 31);
    const Rows t = here(lane, transposed<B>(lane, there<B>(lane, a).view(), columns, scratch));
    REQUIRE(t.rows() == columns);
    CHECK(t.columns == rows);
    CHECK(ascend(t));
    CHECK(t.column.size() == a.column.size());
    bool same = true;
    for (Index j = 0; j < columns; ++j)
      for (Index e = t.start[std::size_t(j)]; e < t.start[std::size_t(j) + 1]; ++e)
        same = same && t.value[std::size_t(e)] == a.at(t.column[std::size_t(e)], j);
    CHECK(same);
  }
}

TEMPLATE_TEST_CASE("T A P with short and long rows is the dense product, and repeats", "",
                   BACKENDS) {
  using B = TestType;
  if (!context<B>()) return;
  struct Shape {
    Index t, a, p, columns, in_t, in_a, in_p;
  };
  for (const Shape& s : {Shape{1, 1, 1, 1, 1, 1, 1},
                         {90, 700, 700, 80, 9, 7, 3},
                         {300, 400, 900, 5000, 2, 2, 2},
                         {40, 500, 600, 1400, 12, 12, 12},
                         {60, 200, 300, 3000, 3, 8, 20},
                         {33, 120, 200, 1500, 40, 30, 60}}) {
    CAPTURE(s.t, s.in_t, s.in_p);
    const Stream<B> lane;
    Scratch<B> scratch;
    const Rows t = scattered(s.t, s.a, s.in_t, 41), a = scattered(s.a, s.p, s.in_a, 42),
               p = scattered(s.p, s.columns, s.in_p, 43);
    const SparseRows<B> left = there<B>(lane, t), middle = there<B>(lane, a),
                        right = there<B>(lane, p);
    const auto made =
        coarse_product<B>(lane, left.view(), middle.view(), right.view(), s.columns, scratch);
    REQUIRE(made.has_value());
    const Rows c = here(lane, *made);
    CHECK(ascend(c));
    REQUIRE(c.rows() == s.t);
    double worst = 0;
    Index entries = 0;
    for (Index i = 0; i < s.t; ++i) {
      std::map<Index, double> row;
      for (Index e = t.start[std::size_t(i)]; e < t.start[std::size_t(i) + 1]; ++e) {
        const auto k = std::size_t(t.column[std::size_t(e)]);
        for (Index f = a.start[k]; f < a.start[k + 1]; ++f) {
          const auto l = std::size_t(a.column[std::size_t(f)]);
          for (Index g = p.start[l]; g < p.start[l + 1]; ++g)
            row[p.column[std::size_t(g)]] +=
                t.value[std::size_t(e)] * a.value[std::size_t(f)] * p.value[std::size_t(g)];
        }
      }
      entries += Index(row.size());
      if (Index(row.size()) != c.start[std::size_t(i) + 1] - c.start[std::size_t(i)]) worst = 1;
      for (const auto& [j, v] : row) worst = std::max(worst, std::fabs(v - c.at(i, j)));
    }
    CHECK(worst <= 1e-12);
    if (s.t < 200)  // all rows are looked at
      CHECK(expected_nonzeros<B>(lane, left.view(), middle.view(), right.view(), s.columns,
                                 scratch) == double(entries));
    const auto again =
        coarse_product<B>(lane, left.view(), middle.view(), right.view(), s.columns, scratch);
    CHECK(here(lane, *again).value == c.value);
    const Stream<Cpu> host;
    Scratch<Cpu> none;
    CHECK(agree(c,
                here(host, *coarse_product<Cpu>(host, there<Cpu>(host, t).view(),
                                                there<Cpu>(host, a).view(),
                                                there<Cpu>(host, p).view(), s.columns, none)),
                1e-14));
  }
}

TEMPLATE_TEST_CASE("a product whose rows are too long is refused", "", BACKENDS) {
  using B = TestType;
  if (!context<B>()) return;
  const Stream<B> lane;
  Scratch<B> scratch;
  for (const Index width : {coarsening_result, coarsening_result + 1}) {
    Rows one, wide;
    one.columns = 1;
    one.put(0, 2.0);
    one.end_row();
    wide.columns = width;
    for (Index j = 0; j < width; ++j) wide.put(j, double(j));
    wide.end_row();
    const SparseRows<B> unit = there<B>(lane, one), row = there<B>(lane, wide);
    const auto made = coarse_product<B>(lane, unit.view(), unit.view(), row.view(), width, scratch);
    REQUIRE(made.has_value() == (width == coarsening_result));
    if (made) {
      const Rows c = here(lane, *made);
      CHECK(c.column == wide.column);
      CHECK(c.value[std::size_t(width) - 1] == 4.0 * double(width - 1));
    }
  }
}

TEMPLATE_TEST_CASE("a coarse diagonal of a null vector is replaced, a negative one is found", "",
                   BACKENDS) {
  using B = TestType;
  if (!context<B>()) return;
  const Stream<B> lane;
  Scratch<B> scratch;
  const Rows t = rows_of(3, [](Index i, Index j) { return i == j ? double(i + 1) : 0.0; });
  const Buffer<double, B> diagonal = put(lane, Vector{1.0, 2.0, 3.0});
  for (const double middle : {1.0, 1e-14, -1e-14, -1.0}) {
    CAPTURE(middle);
    const SparseRows<B> c = there<B>(lane, rows_of(3, [&](Index i, Index j) {
                                       return i != j ? 0.25 : i == 1 ? middle : 1.0;
                                     }));
    CHECK(settle_null_vectors<B>(lane, c, there<B>(lane, t).view(), diagonal, scratch) ==
          (middle > -0.5));
    const Rows left = here(lane, c);
    CHECK((left.at(0, 0) == 1 && left.at(2, 2) == 1 && left.at(1, 0) == 0.25));
    CHECK(left.at(1, 1) == (std::fabs(middle) < 0.5 ? 8.0 : middle));
  }
}

/// Whether chunks on the host hold each entry of the rows once, long rows in pieces.
bool hold_all(const std::vector<Index>& chunk, const std::vector<Index>& longs,
              const std::vector<Index>& start) {
  const Index rows = Index(start.size()) - 1, count = Index(chunk.size()) / 2 - 1;
  const auto at = [&](Index k) { return chunk[std::size_t(k)]; };
  std::vector<Index> pieces(std::size_t(rows), 0);
  bool right = at(2 * count) == rows && chunk.back() == start.back();
  Index row = 0;
  for (Index c = 0; c < count; ++c) {
    const Index begin = at(2 * c), next = at(2 * c + 2);
    const Index end = next < 0 ? ~next : next, entries = at(2 * c + 3) - at(2 * c + 1);
    right = right && entries >= 0 && entries <= csr_chunk_entries;
    if (begin >= 0) {
      right = right && begin == row && end > begin && end - begin <= csr_chunk_rows &&
              at(2 * c + 1) == start[std::size_t(begin)];
      row = end;
    } else {
      right = right && ~begin == row && entries > 0;
      ++pieces[std::size_t(row)];
      if (next != begin) ++row;
    }
  }
  right = right && row == rows;
  Index named = 0;
  for (std::size_t l = 0; l < longs.size(); l += 3) {
    right = right && pieces[std::size_t(longs[l])] == longs[l + 2] - longs[l + 1];
    named += longs[l + 2] - longs[l + 1];
  }
  for (const Index k : pieces) named -= k;
  return right && named == 0;
}

TEMPLATE_TEST_CASE("chunks of rows hold every entry once, and random starts are the host's", "",
                   BACKENDS) {
  using B = TestType;
  if (!context<B>()) return;
  const Stream<B> lane;
  Scratch<B> scratch;
  // Of up to 1,400 entries, and of 8 each, which are cut every 96 rows.
  for (const auto& [rows, alike] : {std::pair<Index, bool>{0, false},
                                    {1, false},
                                    {40, false},
                                    {127, false},
                                    {128, false},
                                    {129, false},
                                    {513, false},
                                    {5000, false},
                                    {95, true},
                                    {96, true},
                                    {97, true},
                                    {700, true}}) {
    CAPTURE(rows, alike);
    Rows a;
    a.columns = 2000;
    for (Index i = 0; i < rows; ++i) {
      const Index count = alike ? 8 : i % 1000 == 3 ? 1400 : i % 37 == 0 ? 0 : i % 90;
      for (Index j = 0; j < count; ++j) a.put(j, random_uniform(7, i, j));
      a.end_row();
    }
    const SparseRows<B> m = there<B>(lane, a);
    RowChunks<B> cut = chunks_of<B>(lane, m.view(), scratch);
    if (std::is_same_v<B, Cpu> || a.value.empty())
      CHECK(cut.chunk.size() == 0);
    else
      CHECK(hold_all(get(lane, cut.chunk), get(lane, cut.longs), a.start));
    // Rows are multiplied, with chunks where there are some.
    CsrRows<B> view = m.view();
    view.chunk = cut.chunk;
    view.longs = cut.longs;
    view.partial = cut.partial;
    const Buffer<double, B> x(5000), q(rows), sums(2);  // x: the columns, and the rows for p^T A p
    const SumSpace<B> space(lane);
    fill_uniform<B>(lane, 5, 100, 2, x.view());
    multiply(lane, view, x.data(), q.view(), sums_to(space, sums.view()));
    const Vector from = get(lane, x), to = get(lane, q);
    double worst = 0;
    for (Index i = 0; i < rows; ++i) {
      double sum = 0;
      for (Index e = a.start[std::size_t(i)]; e < a.start[std::size_t(i) + 1]; ++e)
        sum += a.value[std::size_t(e)] * from[std::size_t(a.column[std::size_t(e)])];
      worst = std::max(worst, std::fabs(sum - to[std::size_t(i)]));
    }
    CHECK(worst <= 1e-11);
    bool same = true;
    for (Index i = 0; i < x.size(); ++i)
      same = same && from[std::size_t(i)] == random_uniform(5, 100 + i / 2, 0);
    CHECK(same);
  }
}
