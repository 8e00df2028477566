// Rows of a CSR matrix in another order over the ranks, and what b, x and others are to it.
#pragma once
#include <string>
#include <vector>

#include "src/cg/operators.hpp"

namespace terrace::cg {

/// The rows of A in another order than a caller's, over the ranks: those of rank r are first[r] .. first[r + 1].
struct RowOrder {
  std::vector<Index> old;      ///< the caller's number of each row of A; of all rows, on every rank
  std::vector<Index> callers;  ///< `first` of the caller's rows, which b and x have
  std::vector<Index> first;    ///< `first` of A's rows
  std::string method = {};     ///< how it was found, as RowParts says
  Index halo_before = 0;  ///< entries of p that ranks would need of others in the caller's order
  [[nodiscard]] bool empty() const { return first.empty(); }
  [[nodiscard]] Range callers_rows(int rank) const {
    const Index begin = callers[std::size_t(rank)];
    return {begin, callers[std::size_t(rank) + 1] - begin};
  }
};

/// Rows and columns of the whole matrix in `parts` parts that need little of one another, each in reverse
/// Cuthill-McKee order: part_rows(). A part goes to each rank where there are as many; else the order is cut
/// so that each rank has about equally many nonzeros. `first` and `own`, this rank's rows, become those of the
/// matrix in that order. Rank 0 orders the whole pattern, and rank 1 by METIS. Error(usage) beyond 2^31 rows. Collective.
RowOrder reorder(const Control& control, std::vector<Index>& first, CsrSlice& own, int parts);

/// Bytes of host memory that it takes on the rank that needs most, `own` included; 8 n of them stay.
Index reorder_bytes(Index n, Index nonzeros, int ranks);

/// Rows of `columns` numbers each, own rows of the caller's, as own rows of A; with `back` the other way.
/// Collective.
std::vector<double> permuted(const Control& control, const RowOrder& order, Index columns,
                             const std::vector<double>& rows, bool back);

}  // namespace terrace::cg
