#include "src/cg/row_parts.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>

#include "kernels/cg/graph_parts.hpp"

namespace terrace::cg {
namespace {

class Adjacency {
 public:
  explicit Adjacency(const RowGraph& graph) : graph_(graph), seen_(std::size_t(graph.rows()), 0) {}

  [[nodiscard]] bool taken(Index i) const { return seen_[std::size_t(i)] == for_good; }
  /// Takes nodes away from later searches.
  void take(std::span<const std::int32_t> nodes) {
    for (const std::int32_t i : nodes) seen_[std::size_t(i)] = for_good;
  }
  /// Appends the nodes of root's component, nearest first; where `sorted` a node's new neighbours
  /// by degree. The number of levels.
  Index search(std::int32_t root, bool sorted, std::vector<std::int32_t>& order) {
    ++round_;
    const std::size_t first = order.size();
    order.push_back(root);
    seen_[std::size_t(root)] = round_;
    Index levels = 0;
    for (std::size_t from = first, end = order.size(); from < end; end = order.size(), ++levels) {
      last_ = from;
      for (; from < end; ++from) {
        const std::size_t i = std::size_t(order[from]), begin = order.size();
        for (Index k = graph_.start[i]; k < graph_.start[i + 1]; ++k) {
          const std::int32_t j = graph_.column[std::size_t(k)];
          if (seen_[std::size_t(j)] == round_ || taken(j)) continue;
          seen_[std::size_t(j)] = round_;
          order.push_back(j);
        }
        if (sorted)
          std::sort(order.begin() + std::ptrdiff_t(begin), order.end(), [&](auto a, auto b) {
            const Index at_a = graph_.length(a), at_b = graph_.length(b);
            return at_a != at_b ? at_a < at_b : a < b;
          });
      }
    }
    return levels;
  }
  /// The node of least degree in the last level of the last search, which wrote `order`.
  [[nodiscard]] std::int32_t far_node(const std::vector<std::int32_t>& order) const {
    const auto last = order.begin() + std::ptrdiff_t(last_);
    return *std::min_element(last, order.end(), [&](auto a, auto b) {
      const Index at_a = graph_.length(a), at_b = graph_.length(b);
      return at_a != at_b ? at_a < at_b : a < b;
    });
  }

 private:
  static constexpr std::uint32_t for_good = std::numeric_limits<std::uint32_t>::max();
  const RowGraph& graph_;
  std::vector<std::uint32_t> seen_;  // the last search that reached a node
  std::uint32_t round_ = 0;
  std::size_t last_ = 0;  // where the last level of the last search begins in its order
};

/// All nodes, component by component, each from a node far from all others; `sorted` as in Adjacency.
std::vector<std::int32_t> outward(const RowGraph& graph, bool sorted) {
  std::vector<std::int32_t> order;
  order.reserve(std::size_t(graph.rows()));
  Adjacency nodes(graph);
  for (Index i = 0; i < graph.rows(); ++i) {
    while (!nodes.taken(i)) {  // again where the pattern is not symmetric
      // From a node of least degree in the last level on, while that makes the search deeper.
      const std::size_t first = order.size();
      auto root = std::int32_t(i);
      Index levels = 0;
      for (;;) {
        const Index found = nodes.search(root, false, order);
        if (found <= levels) break;
        levels = found;
        root = nodes.far_node(order);
        order.resize(first);
      }
      if (sorted) {
        order.resize(first);
        nodes.search(root, true, order);
      }
      nodes.take(std::span(order).subspan(first));
    }
  }
  return order;
}

/// Rows and columns `rows` of a graph, in this order. `place`: -1 for each row, before and after.
RowGraph induced(const RowGraph& graph, std::span<const std::int32_t> rows,
                 std::vector<std::int32_t>& place) {
  RowGraph some;
  some.start.reserve(rows.size() + 1);
  for (std::size_t i = 0; i < rows.size(); ++i) place[std::size_t(rows[i])] = std::int32_t(i);
  const auto each = [&](std::int32_t row, const auto& f) {
    for (Index k = graph.start[std::size_t(row)]; k < graph.start[std::size_t(row) + 1]; ++k)
      if (const auto j = place[std::size_t(graph.column[std::size_t(k)])]; j >= 0) f(j);
  };
  Index count = 0;
  for (const std::int32_t row : rows) {
    each(row, [&](std::int32_t) { ++count; });
    some.start.push_back(count);
  }
  some.column.reserve(std::size_t(count));
  for (const std::int32_t row : rows) each(row, [&](std::int32_t j) { some.column.push_back(j); });
  for (const std::int32_t row : rows) place[std::size_t(row)] = -1;
  return some;
}

/// The last part of `to`, so far.
void append(const std::vector<std::int32_t>& order, const std::vector<std::int32_t>& names,
            RowParts& to) {
  for (const std::int32_t i : order) to.order.push_back(names[std::size_t(i)]);
  to.first.push_back(Index(to.order.size()));
}

/// `names`: of the graph's rows, in the whole matrix; `length`: entries of its rows.
void bisect(RowGraph&& given, std::vector<std::int32_t> names, int parts,
            const std::vector<Index>& length, RowParts& to) {
  RowGraph graph = std::move(given);
  if (parts == 1) return append(reverse_cuthill_mckee(graph), names, to);
  std::vector<std::int32_t> order = outward(graph, false);
  // Before row `cut` stands at least the left parts' share of the entries.
  const int left = parts / 2;
  const auto entries_of = [&](std::int32_t row) {
    return length[std::size_t(names[std::size_t(row)])];
  };
  Index entries = 0, before = 0;
  for (const std::int32_t row : order) entries += entries_of(row);
  const Index share = entries / parts * left + entries % parts * left / parts;
  std::size_t cut = 0;
  for (; cut < order.size() && before < share; ++cut) before += entries_of(order[cut]);
  RowGraph half[2];
  std::vector<std::int32_t> named[2], place(order.size(), -1);
  for (const int side : {0, 1}) {
    const auto rows = side == 0 ? std::span(order).first(cut) : std::span(order).subspan(cut);
    half[side] = induced(graph, rows, place);
    named[side].reserve(rows.size());
    for (const std::int32_t row : rows) named[side].push_back(names[std::size_t(row)]);
  }
  graph = RowGraph();  // "= {}" would keep the memory
  for (auto* list : {&names, &order, &place}) *list = std::vector<std::int32_t>();
  bisect(std::move(half[0]), std::move(named[0]), left, length, to);
  bisect(std::move(half[1]), std::move(named[1]), parts - left, length, to);
}

/// Columns that parts need of one another.
Index needed_by(const NearGraph& near, const RowParts& parts) {
  const RowGraph& graph = near.graph;
  const std::vector<std::int32_t>& names = near.names;
  std::vector<std::int32_t> of(names.size()), seen(names.size(), -1), row(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) row[std::size_t(names[i])] = std::int32_t(i);
  const auto each = [&](const auto& f) {
    for (std::size_t r = 0; r + 1 < parts.first.size(); ++r)
      for (Index i = parts.first[r]; i < parts.first[r + 1]; ++i)
        f(std::int32_t(r), std::size_t(row[std::size_t(parts.order[std::size_t(i)])]));
  };
  each([&](std::int32_t r, std::size_t i) { of[i] = r; });
  Index count = 0;
  each([&](std::int32_t r, std::size_t i) {
    for (Index k = graph.start[i]; k < graph.start[i + 1]; ++k) {
      const auto j = std::size_t(graph.column[std::size_t(k)]);
      if (of[j] == r || seen[j] == r) continue;
      seen[j] = r;
      ++count;
    }
  });
  return count;
}

}  // namespace

std::vector<std::int32_t> reverse_cuthill_mckee(const RowGraph& graph) {
  std::vector<std::int32_t> order = outward(graph, true);
  std::reverse(order.begin(), order.end());
  return order;
}

NearGraph near_graph(RowGraph&& given) {
  const RowGraph graph = std::move(given);
  NearGraph near;
  const std::size_t n = std::size_t(graph.rows());
  near.names.reserve(n);
  near.graph.start.reserve(n + 1);
  near.graph.column.reserve(graph.column.size());
  std::vector<std::int32_t> place(n, -1);
  const auto placed = [&](std::int32_t row) {
    std::int32_t& at = place[std::size_t(row)];
    if (at < 0) {
      at = std::int32_t(near.names.size());
      near.names.push_back(row);
    }
    return at;
  };
  // Breadth first: a row's columns have their places once it is read.
  std::size_t next = 0;
  for (std::size_t root = 0; root < n; ++root)
    for (placed(std::int32_t(root)); next < near.names.size(); ++next) {
      const auto row = std::size_t(near.names[next]);
      for (Index k = graph.start[row]; k < graph.start[row + 1]; ++k)
        near.graph.column.push_back(placed(graph.column[std::size_t(k)]));
      near.graph.start.push_back(Index(near.graph.column.size()));
    }
  return near;
}

std::vector<Index> NearGraph::lengths() const {
  std::vector<Index> length(names.size());
  for (std::size_t i = 0; i < length.size(); ++i)
    length[std::size_t(names[i])] = graph.length(Index(i));
  return length;
}

RowParts halves(const NearGraph& near, int parts) {
  RowParts to;
  to.method = "bisection";
  to.order.reserve(near.names.size());
  bisect(RowGraph(near.graph), near.names, parts, near.lengths(), to);
  to.needed = needed_by(near, to);
  return to;
}

RowParts parts_of_metis(const NearGraph& near, int parts) {
  const std::vector<std::int32_t> of = metis_parts(near.graph.start, near.graph.column, parts);
  RowParts to;
  if (of.empty()) return to;
  std::vector<std::vector<std::int32_t>> rows(static_cast<std::size_t>(parts));
  for (std::size_t i = 0; i < of.size(); ++i) rows[std::size_t(of[i])].push_back(std::int32_t(i));
  to.method = "metis";
  std::vector<std::int32_t> place(of.size(), -1);
  for (const std::vector<std::int32_t>& own : rows)
    append(reverse_cuthill_mckee(induced(near.graph, own, place)), own, to);
  for (std::int32_t& row : to.order) row = near.names[std::size_t(row)];
  to.needed = needed_by(near, to);
  return to;
}

RowParts part_rows(RowGraph&& graph, int parts) {
  const NearGraph near = near_graph(std::move(graph));
  if (parts == 1) {
    RowParts whole;
    append(reverse_cuthill_mckee(near.graph), near.names, whole);
    return whole;
  }
  RowParts by_halves = halves(near, parts), by_metis = parts_of_metis(near, parts);
  return by_metis.is_better(by_halves) ? by_metis : by_halves;
}

Index part_rows_bytes(Index rows, Index nonzeros, int parts) {
  if (parts == 1) return 8 * nonzeros + 40 * rows;
  const Index metis = metis_bytes(rows, nonzeros);
  if (metis == 0) return 8 * nonzeros + 56 * rows;
  return std::max(12 * nonzeros + 72 * rows, 4 * nonzeros + 24 * rows + metis);
}

}  // namespace terrace::cg
