// Vectors that A takes near zero: a caller's, in place of the constants that multigrid keeps by itself.
#pragma once
#include <string>
#include <vector>

#include "kernels/cg/near_null_space.hpp"
#include "src/cg/operators.hpp"
#include "src/cg/reorder.hpp"

namespace terrace::cg {

/// What a caller gives: n x columns, own rows, row-major, in the order of b's rows.
struct NearNullSpace {
  static constexpr Index most_columns = 32;
  Index columns = 0;  ///< the same on every rank
  std::vector<double> values;
  std::string where;  ///< for messages
  bool operator==(const NearNullSpace&) const = default;
};

/// The same of one level: what its rows are unknowns of, and the vectors' values there, row-major.
struct NodeVectors {
  Index columns = 0;   ///< 0: constants
  Index unknowns = 1;  ///< of a node; on the first level
  Nodes nodes;
  std::vector<double> values;
};
/// Scaled, looked at, and nodes found: rows B i ... B i + B - 1 are one node where A's entries fill most of
/// the blocks of B x B that hold them, for the B from 2 to columns that fits best; else each row is one. `order` as in CgRequest.
/// Error(input) where columns depend on one another, are zero or too many. Collective.
NodeVectors node_vectors(const Control& control, const NearNullSpace& given, const RankRows& a,
                         const RowOrder& order);

/// Of all ranks, on each. Collective.
NodeVectors whole_vectors(const Control& control, const NodeVectors& own);

/// Aggregates of one level, and the tentative prolongation that goes with them.
struct NodeAggregates {
  RankRows prolongation;  ///< own columns alone
  NodeVectors next;
};
/// Of one rank's rows. Collective.
NodeAggregates aggregate_nodes(const Control& control, const RankRows& a,
                               const std::vector<double>& diagonal, double threshold,
                               const NodeVectors& vectors);
/// P = T - weight D^-1 A T over all ranks. Collective.
RankRows smoothed_nodes(const Control& control, const RankRows& a,
                        const std::vector<double>& diagonal, const RankRows& t, double weight);

}  // namespace terrace::cg
