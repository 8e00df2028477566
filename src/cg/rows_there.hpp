// Sparse rows over the ranks where the matrix is: from an operator, to a product, and what of them goes
// from rank to rank while multigrid's levels are made. The host sees numbers of rows at the borders of the
// ranks' parts.
#pragma once
#include "kernels/cg/joined_rows.hpp"
#include "src/cg/coarse_rows.hpp"
#include "src/cg/operators.hpp"

namespace terrace::cg {

/// From the host, each row by ascending columns.
template <class B>
RowsThere<B> uploaded_rows(const Stream<B>& lane, RankRows&& a);

/// Takes a.rows, ready for products with a vector where the first `left` needed entries stand in front of
/// the `own` ones and the rest behind them; `scattered` as CsrRows has it. With `keep` the columns stay,
/// numbered as before.
template <class B>
CsrPart<B> take_part(const Stream<B>& lane, RowsThere<B>& a, Index own, Index left, bool scattered,
                     bool keep, Scratch<B>& scratch);

/// Takes a.rows, ready for products with all of a vector, given from the first entry of this `rank` on.
template <class B>
CsrPart<B> take_whole(const Stream<B>& lane, RowsThere<B>& a, int rank, bool scattered,
                      Scratch<B>& scratch);

/// Takes columns of other ranks that have no entry out.
template <class B>
void drop_unused(const Stream<B>& lane, RowsThere<B>& a, Index own);

/// Own rows that other ranks need, because they are columns of these ranks' rows.
template <class B>
class AskedRows {
 public:
  /// a.asked is made where it is not there. Collective.
  AskedRows(const Context<B>& context, RowsThere<B>& a);
  /// Numbers of own rows, and behind them those of the needed rows, in their order. Collective, on
  /// several ranks.
  template <class T>
  Buffer<T, B> joined(const Context<B>& context, const Buffer<T, B>& own) const;
  /// P of own rows, and behind them of the needed ones, whose columns need not ascend. Collective.
  RowsThere<B> with_needed_rows(const Context<B>& context, const RowsThere<B>& p,
                                Scratch<B>& scratch) const;

 private:
  Buffer<Index, B> listed_;  // the rows, rank by rank
  // Of each rank where its rows begin, among those and among the needed ones.
  std::vector<Index> bounds_{0}, wanted_;
};

/// Rows of several ranks, in the order of the ranks; columns of the whole matrix.
template <class B>
struct ArrivedRows {
  Buffer<Index, B> start, column, row;  ///< row: as the sender numbered it, if it did
  Buffer<double, B> value;
  std::vector<Index> begin;  ///< of each rank, where its rows begin, and the end
  [[nodiscard]] Index rows() const { return start.size() - 1; }
};
/// Rows bounds[r] ... bounds[r + 1] - 1 of `a` go to rank r; `row`: their numbers, from row bounds[0] on, or
/// null. The hosts tell one another how many; the rest goes from backend to backend. Collective.
template <class B>
ArrivedRows<B> exchanged(const Context<B>& context, const CsrRows<B>& a,
                         const std::vector<Index>& bounds, const ColumnNumbers& number,
                         const std::vector<Index>* row, Scratch<B>& scratch);

/// Sums over the ranks of `t`, whose rows are own ones and `needed_rows` of others; t.first and t.needed
/// are of its columns. In the order of the ranks. Collective.
template <class B>
RowsThere<B> gathered(const Context<B>& context, const std::vector<Index>& first_row,
                      const std::vector<Index>& needed_rows, RowsThere<B>&& t, Scratch<B>& scratch);

/// Of v rank r has entries first[r] ... first[r + 1] - 1; then all of it. Collective.
template <class B, class T>
void gather_parts(const Context<B>& context, const std::vector<Index>& first, T* v) {
  std::vector<Piece> out, in;
  const auto part = [&](int to, int of) {
    const Index begin = first[std::size_t(of)], end = first[std::size_t(of) + 1];
    return Piece{to, v + begin, (end - begin) * Index(sizeof(T))};
  };
  for (int r = 0; r < context.size(); ++r) {
    if (r == context.rank()) continue;
    if (const Piece sent = part(r, context.rank()); sent.bytes > 0) out.push_back(sent);
    if (const Piece got = part(r, r); got.bytes > 0) in.push_back(got);
  }
  context.comm.exchange(context.ahead, out, in);
}
/// All rows on each rank. Collective.
template <class B>
RowsThere<B> whole_rows(const Context<B>& context, const RowsThere<B>& a, Scratch<B>& scratch);

}  // namespace terrace::cg
