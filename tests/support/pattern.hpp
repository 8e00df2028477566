// Patterns of sparse symmetric matrices, for tests of their orders.
#pragma once
#include <algorithm>
#include <set>
#include <vector>

#include "kernels/base/random.hpp"
#include "src/cg/row_parts.hpp"

namespace terrace::test {

struct Pattern {
  std::vector<Index> start{0}, column;
};
inline Pattern pattern(Index n, const std::set<std::pair<Index, Index>>& edges) {
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
inline cg::RowGraph graph_of(const std::vector<Index>& start, const std::vector<Index>& column) {
  return {start, {column.begin(), column.end()}};
}
/// A mesh of wide x high x deep points, whose rows are shuffled.
inline Pattern mesh(Index wide, Index high, Index deep, const std::vector<Index>& at) {
  std::set<std::pair<Index, Index>> edges;
  const auto point = [&](Index x, Index y, Index z) {
    return at[std::size_t(x + wide * (y + high * z))];
  };
  for (Index z = 0; z < deep; ++z)
    for (Index y = 0; y < high; ++y)
      for (Index x = 0; x < wide; ++x) {
        edges.insert({point(x, y, z), point(x, y, z)});
        if (x + 1 < wide) edges.insert(std::minmax(point(x, y, z), point(x + 1, y, z)));
        if (y + 1 < high) edges.insert(std::minmax(point(x, y, z), point(x, y + 1, z)));
        if (z + 1 < deep) edges.insert(std::minmax(point(x, y, z), point(x, y, z + 1)));
      }
  return pattern(wide * high * deep, edges);
}
inline std::vector<Index> shuffled(Index n, Word seed) {
  std::vector<Index> at(static_cast<std::size_t>(n));
  for (Index i = 0; i < n; ++i) at[std::size_t(i)] = i;
  for (Index i = n - 1; i > 0; --i)
    std::swap(at[std::size_t(i)], at[std::size_t(random_word(seed, i, 0) % Word(i + 1))]);
  return at;
}

}  // namespace terrace::test
