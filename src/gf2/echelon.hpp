// Elimination over GF(2) on row slices, panel by panel: the method of src/frame/eliminate.hpp.
//
// Pivoting is implicit: a pivot row stays where it is. With the pivot rows S of a panel (r of
// them), their pivot columns P and T = S[:, P]^-1,
//
//   R = T S                      the panel's reduced pivot rows: identity in the columns P
//   A[i, :] ^= A[i, P] R         for every row i (echelon form: for every active row)
//
// and a pivot row becomes its row of R. n^3 / 2 multiply-adds for the reduced form of a full-rank
// square matrix, n^3 / 3 for the echelon form, n^3 for the inverse.
#pragma once
#include <vector>

#include "src/frame/eliminate.hpp"
#include "src/gf2/matrix.hpp"
#include "src/gf2/plan.hpp"

namespace terrace::gf2 {

enum class EchelonForm {
  reduced,  ///< every pivot column a unit column
  echelon,  ///< only the rows that are not pivots yet are updated
  inverse   ///< in place: the columns of a panel take the panel's part of the transformation
};

/// Equal on all ranks.
struct Pivots {
  std::vector<Index> columns;  ///< ascending
  std::vector<Index> rows;     ///< row of A that became each pivot
  struct PanelRange {
    Index first, count;  ///< pivots of the panel
    Index word, words;   ///< its columns
  };
  std::vector<PanelRange> panels;
  /// Inverse only: first column without a pivot (the matrix is singular), or -1.
  Index first_zero_pivot = -1;
  [[nodiscard]] Index rank() const { return Index(columns.size()); }
};

/// Bytes on the backend, beside the matrix, on the fullest rank.
template <class B>
Index echelon_bytes(BlockCyclic layout, Index stride, PanelPlan plan);

/// Eliminates the first `columns` columns of `matrix` in place; words beyond them (right-hand
/// sides, a witness) follow. Rows of rank r < rows that are no pivots end zero in these columns.
/// The inverse stops at the first panel without full rank; otherwise, with pivots (c_q, i_q), bit
/// i_r of row c_q of the inverse is bit c_r of row i_q of the matrix. Collective. Messages per
/// panel: one broadcast of its pivots, one of the pivot rows, and where one rank's rows do not
/// suffice, one all-gather of candidates. Stage::widen is R = T S.
template <class B>
Pivots reduce_to_echelon(Context<B>& context, BitMatrix<B>& matrix, Index columns, EchelonForm form,
                         PanelPlan plan, Progress& progress, const StageTimes<B>& stages = {});

}  // namespace terrace::gf2
