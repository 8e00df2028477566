// Sparse rows over the ranks where the matrix is: from an operator, to a product, and what of them goes
// from rank to rank while multigrid's levels are made. Only rows and numbers at the borders of the
// ranks' parts pass through the host.
#pragma once
#include "kernels/cg/joined_rows.hpp"
#include "src/cg/operators.hpp"

namespace terrace::cg {

/// From the host, each row by ascending columns.
template <class B>
RowsThere<B> uploaded_rows(const Stream<B>& lane, RankRows&& a);

/// Entries in own columns, ready for products; the others to `outer`. Takes a.rows where there are no
/// others. `own`: columns; `left`: needed ones of earlier ranks; `scattered` as CsrRows has it.
template <class B>
CsrPart<B> take_inner(const Stream<B>& lane, RowsThere<B>& a, Index own, Index left, bool scattered,
                      Scratch<B>& scratch, CsrPart<B>& outer);

/// Takes columns of other ranks that have no entry out.
template <class B>
void drop_unused(const Stream<B>& lane, RowsThere<B>& a, Index own);

/// Own rows that other ranks need, because they are columns of these ranks' rows.
template <class B>
class AskedRows {
 public:
  /// `needed`: what this rank needs of others, as RankRows has it. Collective.
  AskedRows(const Context<B>& context, const std::vector<Index>& first,
            const std::vector<Index>& needed);
  /// The numbers of the needed rows, in their order, `own` being those of own rows. Collective.
  template <class T>
  std::vector<T> values(const Context<B>& context, View<const T, B> own) const;
  /// P of own rows, and behind them of the needed ones, whose columns need not ascend. Collective.
  RowsThere<B> with_needed_rows(const Context<B>& context, const RowsThere<B>& p,
                                Scratch<B>& scratch) const;

 private:
  std::vector<Index> count_;  // of each rank
  Buffer<Index, B> listed_;   // the rows, rank by rank
  Index all_ = 0;
};

/// Sums over the ranks of `t`, whose rows are own ones and `needed_rows` of others; t.first and t.needed
/// are of its columns. In the order of the ranks. Collective.
template <class B>
RowsThere<B> gathered(const Context<B>& context, const std::vector<Index>& first_row,
                      const std::vector<Index>& needed_rows, RowsThere<B>&& t, Scratch<B>& scratch);

}  // namespace terrace::cg
