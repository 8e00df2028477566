#include "src/cg/reorder.hpp"

#include <algorithm>
#include <set>

#include "kernels/base/random.hpp"
#include "tests/support/cg.hpp"

using namespace terrace;
using namespace terrace::cg;
using namespace terrace::test;

namespace {

struct Pattern {
  std::vector<Index> start{0}, column;
};
Pattern pattern(Index n, const std::set<std::pair<Index, Index>>& edges) {
  std::vector<std::vector<Index>> rows(static_cast<std::size_t>(n));
  for (const auto& [i, j] : edges) {
    rows[std::size_t(i)].push_back(j);
    if (i != j) rows[std::size_t(j)].push_back(i);
  }
  Pattern a;
  for (const auto& row : rows) {
    a.column.insert(a.column.end(), row.begin(), row.end());
    a.start.push_back(Index(a.column.size()));
  }
  return a;
}
/// max |new(i) - new(j)| over the entries.
Index half_bandwidth_of(const std::vector<Index>& start, const std::vector<Index>& column,
                        const std::vector<Index>& order) {
  std::vector<Index> place(order.size());
  for (std::size_t k = 0; k < order.size(); ++k) place[std::size_t(order[k])] = Index(k);
  Index widest = 0;
  for (std::size_t i = 0; i + 1 < start.size(); ++i)
    for (Index k = start[i]; k < start[i + 1]; ++k)
      widest = std::max(widest, std::abs(place[i] - place[std::size_t(column[std::size_t(k)])]));
  return widest;
}
/// Rows `own` of the pattern; entry (i, j) is value(i, j).
CsrSlice slice_of(const Pattern& a, Range own, const Entry& value) {
  CsrSlice s;
  for (Index i = own.first; i < own.end(); ++i) {
    for (Index k = a.start[std::size_t(i)]; k < a.start[std::size_t(i) + 1]; ++k) {
      s.column.push_back(a.column[std::size_t(k)]);
      s.value.push_back(value(i, s.column.back()));
    }
    s.start.push_back(Index(s.column.size()));
  }
  return s;
}
std::vector<Index> shuffled(Index n, Word seed) {
  std::vector<Index> at(static_cast<std::size_t>(n));
  for (Index i = 0; i < n; ++i) at[std::size_t(i)] = i;
  for (Index i = n - 1; i > 0; --i)
    std::swap(at[std::size_t(i)], at[std::size_t(random_word(seed, i, 0) % Word(i + 1))]);
  return at;
}
bool is_permutation(std::vector<Index> order, Index n) {
  std::sort(order.begin(), order.end());
  for (Index i = 0; i < Index(order.size()); ++i)
    if (order[std::size_t(i)] != i) return false;
  return Index(order.size()) == n;
}

}  // namespace

TEST_CASE("a shuffled path comes back with half-bandwidth 1") {
  for (const Index n : {1, 2, 3, 64, 1000}) {
    const std::vector<Index> at = shuffled(n, 3);
    std::set<std::pair<Index, Index>> edges;
    for (Index i = 0; i < n; ++i) edges.insert({at[std::size_t(i)], at[std::size_t(i)]});
    for (Index i = 0; i + 1 < n; ++i) edges.insert({at[std::size_t(i)], at[std::size_t(i) + 1]});
    const Pattern a = pattern(n, edges);
    const auto order = reverse_cuthill_mckee(a.start, a.column);
    CHECK(is_permutation(order, n));
    CHECK(half_bandwidth_of(a.start, a.column, order) == std::min<Index>(1, n - 1));
  }
}

TEST_CASE("the order is the reversed one: a star's leaves come before its centre") {
  // Cuthill-McKee begins with a leaf and puts the centre second; reversed, it is the last but one.
  std::set<std::pair<Index, Index>> edges;
  for (Index leaf = 1; leaf < 20; ++leaf) edges.insert({0, leaf});
  const Pattern a = pattern(20, edges);
  const auto order = reverse_cuthill_mckee(a.start, a.column);
  REQUIRE(order.size() == 20);
  CHECK(order[18] == 0);
}

TEST_CASE("a shuffled grid comes back about as narrow as its shorter side") {
  const Index wide = 12, long_side = 50, n = wide * long_side;
  const std::vector<Index> at = shuffled(n, 5);
  std::set<std::pair<Index, Index>> edges;
  for (Index i = 0; i < n; ++i) {
    if (i % wide + 1 < wide) edges.insert({at[std::size_t(i)], at[std::size_t(i + 1)]});
    if (i + wide < n) edges.insert({at[std::size_t(i)], at[std::size_t(i + wide)]});
  }
  const Pattern a = pattern(n, edges);
  std::vector<Index> same(static_cast<std::size_t>(n));
  for (Index i = 0; i < n; ++i) same[std::size_t(i)] = i;
  const auto order = reverse_cuthill_mckee(a.start, a.column);
  CHECK(is_permutation(order, n));
  CHECK(half_bandwidth_of(a.start, a.column, same) > n / 2);
  CHECK(half_bandwidth_of(a.start, a.column, order) <= wide + 2);
  CHECK(order == reverse_cuthill_mckee(a.start, a.column));
}

TEST_CASE("components, lonely nodes and empty patterns are ordered too") {
  CHECK(reverse_cuthill_mckee({0}, {}).empty());
  CHECK(is_permutation(reverse_cuthill_mckee({0, 0, 0, 0}, {}), 3));
  const Index n = 300;
  std::set<std::pair<Index, Index>> edges;
  for (Index i = 0; i < 250; ++i)
    for (Index k = 0; k < 3; ++k) {
      const Index j = Index(random_word(9, i, k) % 83) * 3 + i % 3;  // three components or more
      if (j < 250) edges.insert({std::min(i, j), std::max(i, j)});
    }
  const Pattern a = pattern(n, edges);
  const auto order = reverse_cuthill_mckee(a.start, a.column);
  REQUIRE(is_permutation(order, n));
  // Components stay together: the three residues mod 3 below 250 change at most twice.
  Index changes = 0, last = -1;
  for (const Index i : order) {
    const bool lonely = a.start[std::size_t(i)] == a.start[std::size_t(i) + 1];
    if (lonely) continue;
    changes += last >= 0 && i % 3 != last;
    last = i % 3;
  }
  CHECK(changes <= 2);
}

TEST_CASE("rows are dealt to the ranks in the order of the whole matrix, b with them") {
  const Control& control = world();
  const Index ranks = control.size(), me = control.rank();
  const Entry value = [](Index i, Index j) { return double(1000 * i + j); };
  for (const Index n : {0, 1, 2, 5, 64, 500}) {
    CAPTURE(n);
    std::set<std::pair<Index, Index>> edges;
    for (Index i = 0; i < n; ++i)
      for (Index k = 0; k < 2; ++k)
        edges.insert({i, k == 0 && i % 7 != 3 ? i : Index(random_word(4, i, k) % Word(n))});
    for (auto& [i, j] : std::set(edges)) edges.erase({i, j}), edges.insert(std::minmax(i, j));
    const Pattern a = pattern(n, edges);
    // The caller's rows: few on rank 0, none on the last one of many.
    std::vector<Index> first(std::size_t(ranks) + 1, n);
    for (Index r = 0; r < ranks; ++r)
      first[std::size_t(r)] = r == 0 ? 0 : n / 3 + n * (r - 1) / ranks;
    for (Index r = 1; r <= ranks; ++r) first[std::size_t(r)] = std::min(n, first[std::size_t(r)]);
    first.back() = n;
    const std::vector<Index> callers = first;
    const Range own{first[std::size_t(me)], first[std::size_t(me) + 1] - first[std::size_t(me)]};
    CsrSlice slice = slice_of(a, own, value);
    const RowOrder order = reorder(control, first, slice);
    CHECK_ALL(order.old == reverse_cuthill_mckee(a.start, a.column));
    CHECK_ALL((order.callers == callers && order.first == first));
    CHECK_ALL(
        (first.front() == 0 && first.back() == n && std::is_sorted(first.begin(), first.end())));
    // About equally many nonzeros: a row more or less.
    Index most = 0;
    for (Index i = 0; i < n; ++i)
      most = std::max(most, a.start[std::size_t(i) + 1] - a.start[std::size_t(i)]);
    const Index nonzeros = Index(a.column.size());
    CHECK_ALL(std::abs(Index(slice.column.size()) - nonzeros / ranks) <= 2 * most + 1);
    // Entry by entry.
    bool same = slice.rows() == first[std::size_t(me) + 1] - first[std::size_t(me)];
    for (Index i = 0; same && i < slice.rows(); ++i) {
      const Index old = order.old[std::size_t(first[std::size_t(me)] + i)];
      Index k = slice.start[std::size_t(i)];
      same = slice.start[std::size_t(i) + 1] - k ==
             a.start[std::size_t(old) + 1] - a.start[std::size_t(old)];
      for (Index e = a.start[std::size_t(old)]; same && e < a.start[std::size_t(old) + 1]; ++e, ++k)
        same = order.old[std::size_t(slice.column[std::size_t(k)])] == a.column[std::size_t(e)] &&
               slice.value[std::size_t(k)] == value(old, a.column[std::size_t(e)]);
    }
    CHECK_ALL(same);
    for (const Index columns : {0, 1, 3}) {
      Vector b(std::size_t(own.count * columns));
      for (Index k = 0; k < own.count * columns; ++k)
        b[std::size_t(k)] = double(own.first * columns + k);
      const Vector there = permuted(control, order, columns, b, false);
      bool right = Index(there.size()) == slice.rows() * columns;
      for (Index i = 0; right && i < slice.rows(); ++i)
        for (Index v = 0; v < columns; ++v)
          right =
              right && there[std::size_t(i * columns + v)] ==
                           double(order.old[std::size_t(first[std::size_t(me)] + i)] * columns + v);
      CHECK_ALL(right);
      CHECK_ALL(permuted(control, order, columns, there, true) == b);
    }
  }
}

TEST_CASE("a shuffled mesh needs no more of other ranks than an ordered one") {
  const Control& control = world();
  const Index p = 12, n = p * p * p;
  const std::vector<Index> at = shuffled(n, 11);
  std::set<std::pair<Index, Index>> edges;
  for (Index i = 0; i < n; ++i)
    for (const Index step : {Index(0), Index(1), p, p * p})
      if (step == 0 || i / step % p + 1 < p)
        edges.insert(std::minmax(at[std::size_t(i)], at[std::size_t(i + step)]));
  const Pattern a = pattern(n, edges);
  std::vector<Index> first(std::size_t(control.size()) + 1, n);
  for (Index r = 0; r < control.size(); ++r) first[std::size_t(r)] = n * r / control.size();
  const auto halo = [&](const CsrSlice& rows) {
    const Index begin = first[std::size_t(control.rank())],
                end = first[std::size_t(control.rank()) + 1];
    std::set<Index> needed;
    for (const Index j : rows.column)
      if (j < begin || j >= end) needed.insert(j);
    return control.reduce(Index(needed.size()), Reduce::sum);
  };
  const Index begin = first[std::size_t(control.rank())];
  CsrSlice rows = slice_of(a, {begin, first[std::size_t(control.rank()) + 1] - begin},
                           [](Index, Index) { return 1.0; });
  const Index before = halo(rows);
  (void)reorder(control, first, rows);
  const Index after = halo(rows), ordered = 2 * p * p * (control.size() - 1);
  CAPTURE(before, after, ordered);
  CHECK_ALL(after <= ordered);
  CHECK_ALL((control.size() == 1 || before > 3 * ordered));
}
