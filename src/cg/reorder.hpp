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

/// The rows of A in another order than a caller's, over the ranks: those of rank r are first[r] .. first[r + 1].
struct RowOrder {
  std::vector<Index> old;      ///< the caller's number of each row of A; of all rows, on every rank
  std::vector<Index> callers;  ///< `first` of the caller's rows, which b and x have
  std::vector<Index> first;    ///< `first` of A's rows
  [[nodiscard]] bool empty() const { return first.empty(); }
  [[nodiscard]] Range callers_rows(int rank) const {
    const Index begin = callers[std::size_t(rank)];
    return {begin, callers[std::size_t(rank) + 1] - begin};
  }
};

/// Rows and columns of the whole matrix into reverse Cuthill-McKee order, which does not depend on the
/// ranks. They are dealt anew, so that each rank has about equally many nonzeros. `first` and `own`, this
/// rank's rows, become those of the matrix in that order. Rank 0 orders the whole pattern. Collective.
RowOrder reorder(const Control& control, std::vector<Index>& first, CsrSlice& own);

/// Bytes of host memory that it takes on the rank that needs most, `own` included; 8 n of them stay.
Index reorder_bytes(Index n, Index nonzeros, int ranks);

/// Rows of `columns` numbers each, own rows of the caller's, as own rows of A; with `back` the other way.
/// Collective.
std::vector<double> permuted(const Control& control, const RowOrder& order, Index columns,
                             const std::vector<double>& rows, bool back);

}  // namespace terrace::cg
