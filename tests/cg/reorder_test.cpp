#include "src/cg/reorder.hpp"

#include <algorithm>
#include <set>

#include "kernels/base/random.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::cg;

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
