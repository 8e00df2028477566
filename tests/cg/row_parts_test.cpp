// Orders and parts of rows, on one rank.
#include "src/cg/row_parts.hpp"
#include "kernels/cg/graph_parts.hpp"
#include "tests/support/pattern.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::cg;
using namespace terrace::test;

namespace {

std::vector<Index> reverse_cuthill_mckee(const std::vector<Index>& start,
                                         const std::vector<Index>& column) {
  const auto order = cg::reverse_cuthill_mckee(graph_of(start, column));
  return {order.begin(), order.end()};
}
/// Columns that parts need of one another.
Index halo_of(const Pattern& a, const RowParts& parts) {
  std::set<std::pair<Index, Index>> needed;  // part, column
  std::vector<Index> part(parts.order.size());
  for (Index r = 0; r + 1 < Index(parts.first.size()); ++r)
    for (Index i = parts.first[std::size_t(r)]; i < parts.first[std::size_t(r) + 1]; ++i)
      part[std::size_t(parts.order[std::size_t(i)])] = r;
  for (std::size_t i = 0; i < part.size(); ++i)
    for (Index k = a.start[i]; k < a.start[i + 1]; ++k)
      if (part[std::size_t(a.column[std::size_t(k)])] != part[i])
        needed.insert({part[i], a.column[std::size_t(k)]});
  return Index(needed.size());
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

TEST_CASE("parts are whole, even, and each in its own order") {
  for (const Index n : {0, 1, 2, 3, 7, 8, 9, 64, 300})
    for (const int parts : {1, 2, 3, 5, 8}) {
      CAPTURE(n, parts);
      std::set<std::pair<Index, Index>> edges;  // several components, rows without entries
      for (Index i = 0; i < n; ++i)
        for (Index k = 0; k < 2 && i % 11 != 10; ++k) {
          const Index j = Index(random_word(6, i, k) % Word(n));
          if (j % 11 != 10) edges.insert(std::minmax(i, j));
        }
      const Pattern a = pattern(n, edges);
      const RowParts found = part_rows(graph_of(a.start, a.column), parts);
      CHECK(is_permutation({found.order.begin(), found.order.end()}, n));
      REQUIRE(Index(found.first.size()) == parts + 1);
      CHECK(found.first.front() == 0);
      CHECK(found.first.back() == n);
      const auto length = [&](Index i) {
        return a.start[std::size_t(i) + 1] - a.start[std::size_t(i)];
      };
      Index most = 0;
      for (Index i = 0; i < n; ++i) most = std::max(most, length(i));
      for (int r = 0; r < parts; ++r) {
        const Index from = found.first[std::size_t(r)], to = found.first[std::size_t(r) + 1];
        REQUIRE(from <= to);
        Index entries = 0;
        for (Index i = from; i < to; ++i) entries += length(found.order[std::size_t(i)]);
        CHECK(std::abs(entries - Index(a.column.size()) / parts) <= 4 * most + 1);
      }
      if (parts == 1) {
        const NearGraph near = near_graph(graph_of(a.start, a.column));
        const auto order = cg::reverse_cuthill_mckee(near.graph);
        for (std::size_t i = 0; i < order.size(); ++i)
          CHECK(found.order[i] == near.names[std::size_t(order[i])]);
      }
      const RowParts again = part_rows(graph_of(a.start, a.column), parts);
      CHECK((again.order == found.order && again.first == found.first));
    }
}

TEST_CASE("a graph in an order that is near is the same graph") {
  for (const Index n : {0, 1, 2, 9, 200}) {
    RowGraph graph;  // not symmetric, with the diagonal, duplicates and rows without entries
    for (Index i = 0; i < n; ++i) {
      for (Index k = 0; k < Index(random_word(3, i, 9) % 5); ++k)
        graph.column.push_back(std::int32_t(random_word(3, i, k) % Word(n)));
      graph.start.push_back(Index(graph.column.size()));
    }
    const NearGraph near = near_graph(RowGraph(graph));
    REQUIRE(near.graph.rows() == n);
    REQUIRE(is_permutation({near.names.begin(), near.names.end()}, n));
    for (Index i = 0; i < n; ++i) {
      const Index row = near.names[std::size_t(i)], from = graph.start[std::size_t(row)];
      REQUIRE(near.graph.length(i) == graph.length(row));
      for (Index k = 0; k < graph.length(row); ++k) {
        const auto at = std::size_t(near.graph.start[std::size_t(i)] + k);
        CHECK(near.names[std::size_t(near.graph.column[at])] ==
              graph.column[std::size_t(from + k)]);
      }
    }
  }
  const Index p = 12;
  const Pattern a = mesh(p, p, p, shuffled(p * p * p, 3));
  const NearGraph near = near_graph(graph_of(a.start, a.column));
  Index widest = 0;
  for (Index i = 0; i < near.graph.rows(); ++i)
    for (Index k = 0; k < near.graph.length(i); ++k)
      widest = std::max(
          widest,
          std::abs(i -
                   Index(near.graph.column[std::size_t(near.graph.start[std::size_t(i)] + k)])));
  CHECK(widest <= 3 * p * p);
}

TEST_CASE("parts of a mesh are lumps, not slices") {
  const Index p = 16;
  const Pattern a = mesh(p, p, p, shuffled(p * p * p, 7));
  const RowGraph graph = graph_of(a.start, a.column);
  for (const int parts : {2, 3, 4, 8, 16}) {
    RowParts slices{cg::reverse_cuthill_mckee(graph), {}};
    for (int r = 0; r <= parts; ++r) slices.first.push_back(p * p * p * r / parts);
    const RowParts lumps = part_rows(RowGraph(graph), parts);
    const Index halo = halo_of(a, lumps), ordered = 2 * p * p * (parts - 1);
    CAPTURE(parts, halo, ordered, halo_of(a, slices));
    CHECK(double(halo) <= (parts > 2 ? 0.75 : 0.85) * double(ordered));
    CHECK(double(halo) <= (parts > 4 ? 0.75 : 1.05) * double(halo_of(a, slices)));
    Index widest = 0;  // in each part, of a half-bandwidth
    const auto place = [&](Index old) {
      return std::find(lumps.order.begin(), lumps.order.end(), old) - lumps.order.begin();
    };
    if (parts == 8)
      for (Index i = lumps.first[3]; i < lumps.first[4]; ++i) {
        const auto old = std::size_t(lumps.order[std::size_t(i)]);
        for (Index k = a.start[old]; k < a.start[old + 1]; ++k) {
          const Index j = place(a.column[std::size_t(k)]);
          if (j >= lumps.first[3] && j < lumps.first[4]) widest = std::max(widest, std::abs(i - j));
        }
      }
    CHECK(widest <= 120);  // of 512 rows
  }
}

TEST_CASE("a pattern that is not symmetric has some order") {
  for (const Index n : {2, 3, 40, 200})
    for (const int parts : {1, 2, 3}) {
      RowGraph graph;
      for (Index i = 0; i < n; ++i) {
        for (Index k = 0; k < 2; ++k)
          graph.column.push_back(std::int32_t(random_word(12, i, k) % Word(n)));
        graph.start.push_back(Index(graph.column.size()));
      }
      const RowParts found = part_rows(std::move(graph), parts);
      CHECK(is_permutation({found.order.begin(), found.order.end()}, n));
    }
}

TEST_CASE("METIS's parts, where it is linked") {
  const Index p = 12, n = p * p * p;
  const Pattern a = mesh(p, p, p, shuffled(n, 21));
  RowGraph graph = graph_of(a.start, a.column);
  for (const int parts : {2, 3, 8}) {
    const std::vector<std::int32_t> of = metis_parts(graph.start, graph.column, parts);
    if (metis_version().empty()) {
      CHECK(of.empty());
      continue;
    }
    REQUIRE(Index(of.size()) == n);
    std::vector<Index> entries(std::size_t(parts), 0);
    for (Index i = 0; i < n; ++i) {
      REQUIRE((of[std::size_t(i)] >= 0 && of[std::size_t(i)] < parts));
      entries[std::size_t(of[std::size_t(i)])] += graph.length(i);
    }
    for (const Index count : entries)
      CHECK(double(count) <= 1.05 * double(graph.column.size()) / parts);
    CHECK(of == metis_parts(graph.start, graph.column, parts));
  }
  CHECK(metis_parts(graph.start, graph.column, 18).empty());  // few rows for each
  // Of a pattern that is not symmetric there are none; a diagonal and duplicates do not matter.
  const std::vector<std::int32_t> of = metis_parts(graph.start, graph.column, 2);
  std::vector<std::int32_t> twice(graph.column.begin(), graph.column.end());
  std::vector<Index> start = graph.start;
  twice.push_back(twice.back());
  ++start.back();
  CHECK(metis_parts(start, twice, 2).size() == of.size());
  twice.back() = twice.front() == n - 1 ? std::int32_t(n - 2) : twice.front();
  const bool stored = std::find(graph.column.begin() + graph.start[std::size_t(n) - 1],
                                graph.column.end(), twice.back()) != graph.column.end();
  REQUIRE_FALSE(stored);
  CHECK(metis_parts(start, twice, 2).empty());
}
