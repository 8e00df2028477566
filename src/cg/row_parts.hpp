// Orders of the unknowns of a sparse symmetric matrix that bring its entries near the diagonal, so that
// neighbouring rows gather neighbouring entries of p, and parts that need few entries of p of one another.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/base/backend.hpp"
#include "kernels/base/large_vector.hpp"

namespace terrace::cg {

/// Which columns each row has: those at start[i] .. start[i + 1], 0 <= column < rows, in any order,
/// duplicates and the diagonal allowed. Below 2^31 rows.
struct RowGraph {
  std::vector<Index> start{0};
  LargeVector<std::int32_t> column;
  [[nodiscard]] Index rows() const { return Index(start.size()) - 1; }
  [[nodiscard]] Index length(Index i) const {
    return start[std::size_t(i) + 1] - start[std::size_t(i)];
  }
};

/// The reverse Cuthill-McKee order of the graph of a symmetric pattern. Returns old numbers in the
/// new order: result[new] = old. Each component begins at a node far from all others (George and Liu
/// 1979), components in the order of their lowest node; ties go to the lower node, so that the
/// result depends on the pattern alone. Of a pattern that is not symmetric some order. Time n +
/// nonzeros log(degree), times the few searches for a far node.
std::vector<std::int32_t> reverse_cuthill_mckee(const RowGraph& graph);

/// Rows in a new order: order[new] = old; part r is first[r] .. first[r + 1] of it.
struct RowParts {
  std::vector<std::int32_t> order;
  std::vector<Index> first{0};
  const char* method = "reverse-cuthill-mckee";  ///< or "bisection", "metis"
  Index needed = 0;                              ///< columns that parts need of one another
  /// Whether these are parts, and need fewer.
  [[nodiscard]] bool is_better(const RowParts& than) const {
    return first.size() > 1 && needed < than.needed;
  }
};
/// Parts with about equal numbers of entries that need few columns of one another, each in reverse
/// Cuthill-McKee order; halves(), or parts_of_metis() where they are better. Depends on pattern and
/// `parts` alone, and METIS. Time as of log2(parts) + 1 orders.
RowParts part_rows(RowGraph&& graph, int parts);

/// A graph in an order that makes neighbours in it neighbours in memory, which is three times as
/// fast; `names`: of its rows, in the matrix.
struct NearGraph {
  RowGraph graph;
  std::vector<std::int32_t> names;
  [[nodiscard]] std::vector<Index> lengths() const;  ///< of the matrix's rows
};
NearGraph near_graph(RowGraph&& graph);
/// An order of the whole, outward from a far node, is cut in two, and each half likewise (recursive
/// graph bisection, Simon 1991).
RowParts halves(const NearGraph& near, int parts);
/// By METIS (kernels/cg/graph_parts.hpp); no parts where it has none.
RowParts parts_of_metis(const NearGraph& near, int parts);

/// Most memory that it takes, the graph included.
Index part_rows_bytes(Index rows, Index nonzeros, int parts);

}  // namespace terrace::cg
