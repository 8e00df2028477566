// Rows of one rank whose columns are those of several ranks, where the matrix is: put together, taken
// apart, numbered anew. Local columns are own ones first, 0 ... own - 1, and others behind them; they
// ascend within each row, of arguments and of results.
//
// Every function has one template, specialised in kernels/cg/{cpu,cuda}. They wait where they return
// rows. All are bound by memory: 24 bytes an entry, read and written.
#pragma once
#include "kernels/cg/coarsening.hpp"

namespace terrace::cg {

/// Rows as a product over ranks wants them.
template <class B>
struct PartedRows {
  SparseRows<B> inner;   ///< all rows, own columns
  SparseRows<B> outer;   ///< of rows that have others, those, numbered from the first own one
  Buffer<Index, B> row;  ///< which rows these are
};
/// `own`: columns. The first `left` others stand in front of the own ones in a vector to be multiplied,
/// the rest behind them.
template <class B>
PartedRows<B> part_rows(const Stream<B>&, const CsrRows<B>& a, Index own, Index left, Scratch<B>&);

/// Row i of a, and of b where b.row lists i; entries in the same column are added. b.row ascends.
template <class B>
SparseRows<B> add_rows(const Stream<B>&, const CsrRows<B>& a, const CsrRows<B>& b, Index columns,
                       Scratch<B>&);

/// The rows listed, in any order.
template <class B>
SparseRows<B> take_rows(const Stream<B>&, const CsrRows<B>& a, View<const Index, B> listed,
                        Scratch<B>&);

/// used[c - own] = 1 of each column c >= own. Does not wait.
template <class B>
void mark_columns(const Stream<B>&, View<const std::int32_t, B> column, Index own,
                  View<std::int32_t, B> used);
/// Column c >= own becomes own + to[c - own]. Does not wait.
template <class B>
void renumber_columns(const Stream<B>&, View<std::int32_t, B> column, Index own,
                      View<const std::int32_t, B> to);

}  // namespace terrace::cg
