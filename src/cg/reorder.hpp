// Orders of the unknowns of a sparse symmetric matrix that bring its entries near the diagonal, so
// that neighbouring rows gather neighbouring entries of p and ranks exchange less.
#pragma once
#include <span>
#include <vector>

#include "src/cg/operators.hpp"

namespace terrace::cg {

/// The reverse Cuthill-McKee order of the graph of a symmetric pattern: start (n + 1 positions) and
/// column (0 <= column < n, in any order, duplicates and the diagonal allowed). Returns old numbers
/// in the new order: result[new] = old. Each component begins at a node far from all others (George
/// and Liu 1979), components in the order of their lowest node; ties go to the lower node, so that
/// the result depends on the pattern alone. Time n + nonzeros log(degree), times the few searches
/// for a far node.
std::vector<Index> reverse_cuthill_mckee(const std::vector<Index>& start,
                                         std::span<const Index> column);

/// Rows and columns of a whole matrix into that order, which is returned.
std::vector<Index> reorder(CsrSlice& matrix);

}  // namespace terrace::cg
