#include "src/cg/reorder.hpp"

#include <algorithm>
#include <cstdlib>

namespace terrace::cg {
namespace {

class Adjacency {
 public:
  Adjacency(const std::vector<Index>& start, std::span<const Index> column)
      : start_(start), column_(column), level_(start.size() - 1, 0) {}

  [[nodiscard]] Index degree(Index i) const {
    return start_[std::size_t(i) + 1] - start_[std::size_t(i)];
  }
  /// Appends the nodes of root's component, nearest first, a node's new neighbours by degree; the
  /// number of levels. Nodes whose mark is `round` are taken.
  Index search(Index root, Index round, std::vector<Index>& order) {
    const std::size_t first = order.size();
    order.push_back(root);
    level_[std::size_t(root)] = round;
    Index levels = 0;
    for (std::size_t from = first, end = order.size(); from < end; end = order.size(), ++levels) {
      last_ = from;
      for (; from < end; ++from) {
        const std::size_t i = std::size_t(order[from]), begin = order.size();
        for (Index k = start_[i]; k < start_[i + 1]; ++k) {
          const Index j = column_[std::size_t(k)];
          if (level_[std::size_t(j)] == round) continue;
          level_[std::size_t(j)] = round;
          order.push_back(j);
        }
        std::sort(order.begin() + std::ptrdiff_t(begin), order.end(), [&](Index a, Index b) {
          return degree(a) != degree(b) ? degree(a) < degree(b) : a < b;
        });
      }
    }
    return levels;
  }
  /// Where the last level of the last search begins in its order.
  [[nodiscard]] std::size_t last_level() const { return last_; }

 private:
  const std::vector<Index>& start_;
  std::span<const Index> column_;
  std::vector<Index> level_;  // the last round that reached a node
  std::size_t last_ = 0;
};

}  // namespace

std::vector<Index> reverse_cuthill_mckee(const std::vector<Index>& start,
                                         std::span<const Index> column) {
  const Index n = Index(start.size()) - 1;
  std::vector<Index> order, trial;
  std::vector<bool> done(std::size_t(n), false);
  order.reserve(std::size_t(n));
  Adjacency graph(start, column);
  Index round = 0;
  for (Index i = 0; i < n; ++i) {
    if (done[std::size_t(i)]) continue;
    // From a node of least degree in the last level on, while that makes the search deeper.
    Index root = i, levels = 0;
    for (;;) {
      trial.clear();
      const Index found = graph.search(root, ++round, trial);
      if (found <= levels) break;
      levels = found;
      const auto last = trial.begin() + std::ptrdiff_t(graph.last_level());
      root = *std::min_element(last, trial.end(), [&](Index a, Index b) {
        return graph.degree(a) != graph.degree(b) ? graph.degree(a) < graph.degree(b) : a < b;
      });
    }
    for (const Index k : trial) done[std::size_t(k)] = true;
    order.insert(order.end(), trial.begin(), trial.end());
  }
  std::reverse(order.begin(), order.end());
  return order;
}

std::vector<Index> reorder(CsrSlice& matrix) {
  std::vector<Index> order = reverse_cuthill_mckee(matrix.start, matrix.column);
  std::vector<Index> place(order.size());
  for (std::size_t i = 0; i < place.size(); ++i) place[std::size_t(order[i])] = Index(i);
  CsrSlice moved;
  moved.start.reserve(matrix.start.size());
  moved.column.reserve(matrix.column.size());
  moved.value.reserve(matrix.value.size());
  for (const Index old : order) {
    for (Index k = matrix.start[std::size_t(old)]; k < matrix.start[std::size_t(old) + 1]; ++k) {
      moved.column.push_back(place[std::size_t(matrix.column[std::size_t(k)])]);
      moved.value.push_back(matrix.value[std::size_t(k)]);
    }
    moved.start.push_back(Index(moved.column.size()));
  }
  matrix = std::move(moved);
  return order;
}

}  // namespace terrace::cg
