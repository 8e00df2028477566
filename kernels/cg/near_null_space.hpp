// Aggregation multigrid that keeps given vectors, near null vectors of A, instead of constants: rows are
// the unknowns of nodes, aggregates are of nodes, and each has a small orthonormal basis of the vectors
// (Vanek, Mandel, Brezina 1996, algorithm 4.1). On the host, in threads; the same bits for any number.
#pragma once
#include "kernels/cg/multigrid.hpp"

namespace terrace::cg {

/// of[i]: the node whose unknown row i is, 0 .. count - 1, each with one row at least.
struct Nodes {
  std::vector<std::int32_t> of;
  Index count = 0;
};

/// A row for each node, with its strong neighbours in any order: those where the sum of
/// a_ij^2 / (a_ii a_jj) over the block is at least threshold^2 times the root of the product of both
/// diagonal blocks' sums. Column nodes.count stands for all nodes of other ranks. Values are 1.
/// `diagonal`: of own rows.
HostRows strong_nodes(const HostRows& a, const std::vector<double>& diagonal, const Nodes& nodes,
                      double threshold);

/// T and the next level's vectors: T times these are the vectors given.
struct TentativeBasis {
  HostRows prolongation;       ///< T, rows x coarse rows; orthonormal columns, one aggregate each
  Nodes nodes;                 ///< of coarse rows: the aggregates
  std::vector<double> values;  ///< coarse rows x k, row-major
};
/// `aggregates` of nodes; `values`: rows x k, row-major. An aggregate where vectors depend on one another
/// has fewer columns; rows of those without one are empty.
TentativeBasis tentative_basis(const Nodes& nodes, const Aggregates& aggregates,
                               const std::vector<double>& values, Index k);

/// P = T - weight D^-1 A T. `t`: a row for each column of A, own rows first. Empty rows of T stay so.
HostRows smoothed_basis(const HostRows& a, const std::vector<double>& diagonal, const HostRows& t,
                        double weight);

}  // namespace terrace::cg
