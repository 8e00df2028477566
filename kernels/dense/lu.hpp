// Gaussian elimination in place of Gauss-Jordan's: a row that was a pivot row rests as a row of U.
//
// A rank's pivot rows move to the top of its slots, in the order of their columns; the rows that lay
// there take the slots that become free. What is left to eliminate is the end of the slots, and the
// work of a panel shrinks with it: 2/3 n^3 flops.
//
//   slots 0 ... used       rows of U (and of L left of it), in the order of their columns
//   slots used ... slots   rows without a pivot so far
#pragma once
#include <vector>

#include "kernels/dense/dense.hpp"

namespace terrace::dense {

/// A view of Rows begins at a multiple of this, so that slivers and cuBLAS's vectors stay whole; what
/// lies between it and the first row in use has N = 0.
constexpr Index row_grain = 32;

/// What retire_rows() moves: row from[i] goes to slot to[i]. `pivots`: slots of the pivot rows, which
/// become slots top, top + 1 ...; the i-th row there that is none of them takes the i-th place of
/// those that lie further down.
struct Moves {
  std::vector<Index> from, to;
};
Moves moves_of(const std::vector<Index>& pivots, Index top);

/// The pivot rows of a panel that come to rest.
template <class B>
struct Retirement {
  View<const Index, B> pivots;  ///< slots of this view, in the order of their columns
  Index top = 0;                ///< they become slots top, top + 1 ...
  Index from = 0;               ///< first column of y's rows
  View<const double, B> y;      ///< as solve_lower() leaves it
  View<Index, B> ids;           ///< global rows of the slots: moved with the rows
  View<double, B> sizes;        ///< likewise, or empty
  View<Index, B> list;          ///< room for list_size(block) numbers
  bool keep = false;            ///< L too
  View<double, B> room;         ///< with `keep`: for block rows of columns
};
constexpr Index list_size(Index block) { return 7 * block + 1; }

/// The panel's pivot rows move to slots top, top + 1 ... of A, columns [from, columns) being rows of
/// Y and the panel's own those of LU; with `keep` also columns left of the panel, and A[:, J] := N in
/// the rows below. The rows that lay there move out of the way, with column_of and N, which is zero
/// for rows in [panel.skip, top + pivots.size). The panel's summary gets the ids of the pivot rows.
template <class B>
void retire_rows(const Stream<B>&, const Rows<B>& rows, const Panel<B>& panel,
                 const Retirement<B>& what);

/// x := U^-1 x, n rows of `right` numbers; U the upper triangle of row-major `u`. n^2 right flops.
/// `work`: room for n doubles (CUDA).
template <class B>
void solve_upper(const Stream<B>&, Index n, Index right, View<const double, B> u, Index ldu,
                 View<double, B> x, Index ldx, View<double, B> work);

/// x := L^-1 x, L the unit lower triangle of row-major `l`. n^2 right flops.
template <class B>
void solve_unit_lower(const Stream<B>&, Index n, Index right, View<const double, B> l, Index ldl,
                      View<double, B> x, Index ldx);

/// A[:, from ... from + right) -= A[:, J] x in all rows of this view; x: panel.width rows. Panel::n
/// and `y` (BufferSizes::panel, block rows of columns) are spoilt. 2 slots width right flops.
template <class B>
void subtract_product_of(const Stream<B>&, const Rows<B>& rows, const Panel<B>& panel, Index from,
                         Index right, View<const double, B> x, Index ldx, View<double, B> y);

}  // namespace terrace::dense
