// Rows of one rank whose columns are those of several ranks, where the matrix is: put together,
// picked, numbered anew. Local columns are own ones first, 0 ... own - 1, and others behind them; they
// ascend within each row, of arguments and of results.
//
// Every function has one template, specialised in kernels/cg/{cpu,cuda}. They wait where they return
// rows. All are bound by memory: 24 bytes an entry, read and written.
#pragma once
#include "kernels/cg/distinct.hpp"

namespace terrace::cg {

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
/// Column c >= own becomes to[c - own]. Does not wait.
template <class B>
void renumber_columns(const Stream<B>&, View<std::int32_t, B> column, Index own,
                      View<const std::int32_t, B> to);

/// to[k]: column[k] in the whole matrix, own.first + c of own columns and needed[c - own.count] of others.
/// Does not wait.
template <class B>
void global_columns(const Stream<B>&, View<const std::int32_t, B> column, NumberRange own,
                    View<const Index, B> needed, View<Index, B> to);

/// to[k] = from[k] + by; -1 stays. Does not wait.
template <class B>
void shift_numbers(const Stream<B>&, View<const std::int32_t, B> from, Index by, View<Index, B> to);
/// Entries of a with columns of the whole matrix, by ascending columns: those in front of the own ones are
/// needed[0] ... needed[left - 1]. Does not wait.
template <class B>
void global_rows(const Stream<B>&, const CsrRows<B>& a, NumberRange own,
                 View<const Index, B> needed, Index left, View<std::int32_t, B> column,
                 View<double, B> value);

/// sizes[i] = start[i + 1] - start[i]. Does not wait.
template <class B>
void row_sizes(const Stream<B>&, View<const Index, B> start, View<Index, B> sizes);
/// v[i], sizes but for the last: becomes first + v[0] + ... + v[i - 1].
template <class B>
void sizes_to_starts(const Stream<B>&, View<Index, B> v, Index first, Scratch<B>&);

/// Rows, and which they are.
template <class B>
struct ListedRows {
  SparseRows<B> rows;
  Buffer<Index, B> row;
  [[nodiscard]] CsrRows<B> view() const {
    CsrRows<B> listed = rows.view();
    listed.row = row;
    return listed;
  }
};
/// Sums of parts of rows: row k of `parts` is a part of row of[k] - own.first, own.count rows. Each row
/// and column once, ascending; sums in the order of the parts. 40 bytes an entry.
template <class B>
ListedRows<B> sum_parts(const Stream<B>&, const CsrRows<B>& parts, View<const Index, B> of,
                        NumberRange own, Index columns, Scratch<B>&);

}  // namespace terrace::cg
