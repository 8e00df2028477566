// Elimination over GF(2) column by column (`--method columns`), as in 2013: the plain Gauss that
// panels and tables are measured against. One rank.
//
// For each column one search and one pass of subtraction; rows are reached through an index array,
// so a pivot row stays where it is, as in src/gf2/echelon.hpp. The host looks at the rank once in
// 64 columns and makes the grid as small as the rows left need.
//
//   reduced form   every other row with a one in the column        n^3 / 2 additions of bits
//   echelon form   every row that is no pivot, and the pivot rows of the same 64 columns, so that
//                  these have an identity in their own columns     n^3 / 3
//   inverse        every other row, in place                       n^3
#pragma once
#include "src/gf2/echelon.hpp"

namespace terrace::gf2 {

/// Bytes on the backend, beside the matrix.
template <class B>
Index column_bytes(BlockCyclic layout, Index stride, PanelPlan plan);

/// As reduce_to_echelon(), which calls it where the plan says so.
template <class B>
Pivots reduce_by_columns(Context<B>& context, BitMatrix<B>& matrix, Index columns, EchelonForm form,
                         PanelPlan plan, Progress& progress, const StageTimes<B>& stages = {});

}  // namespace terrace::gf2
