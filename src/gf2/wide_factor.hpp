// Reduced form of the candidate rows of a wide panel: factor_panel() for up to 64 * max_wide_words
// columns.
//
// The candidates are eliminated in sub-panels of 512 columns. As long as these have full rank, the
// device went ahead alone, in place (src/gf2/full_factor.hpp). For what is left an identity stands
// beside the candidates, which becomes the transformation: with W = [candidates | T], one sub-panel's
// pivot rows S and columns P, R = S[:, P]^-1 S and W[i, :] ^= W[i, P] R for all rows i; one wait each.
// 2 m c^2 bit operations for m rows and c columns. After a sub-panel of zeros the next with a one is
// looked for.
//
// Rows that come later stand below the pivots' in W = [R; rows | T; 0], less M [R | T] for what they
// have in the pivots' columns. Bits of T then stand at their pivots' columns, as the order is not known.
#pragma once
#include "kernels/gf2/product.hpp"
#include "src/gf2/panel_search.hpp"

namespace terrace::gf2 {

template <class B>
class WideFactor {
 public:
  /// Takes all memory, for panels of `words` words and `candidates` rows.
  WideFactor(const Context<B>& context, Index words, Index candidates);
  static Index bytes(Index words, Index candidates);

  /// As factor_panel(), but for the pitch, which is out.pitch; info_host gets a copy of info. The
  /// first `done` columns are eliminated: their pivots are in info_host, and `ahead` are the rows as
  /// FullFactor has them. Waits for the lane.
  void factor(const Stream<B>& lane, BitRows<const Word, B> rows, Index words, PanelFactor<B> out,
              const PinnedBuffer<Index>& info_host, Index done, BitRows<const Word, B> ahead);
  /// The factor of more rows: `out` and info_host have that of `known` pivots. In the new info these
  /// are rows 0 ... known - 1, and those of `rows` the next.
  void extend(const Stream<B>& lane, BitRows<const Word, B> rows, Index words, PanelFactor<B> out,
              const PinnedBuffer<Index>& info_host, Index known);

 private:
  void begin(const Stream<B>& lane, BitRows<const Word, B> rows, Index words, Index rank,
             const PinnedBuffer<Index>& info_host, BitRows<const Word, B> ahead);
  void begin_more(const Stream<B>& lane, BitRows<const Word, B> rows, Index words,
                  PanelFactor<B> out, Index known);
  void finish(const Stream<B>& lane, Index count, Index word, Index words, Index rank,
              PanelFactor<B> out, const PinnedBuffer<Index>& info_host, bool more);
  Index factor_next(const Stream<B>& lane, Index count, Index word, Index words, Index rank,
                    const PinnedBuffer<Index>& info_host, bool more);
  Index next_nonzero(const Stream<B>& lane, Index word, Index words);

  Index panel_pitch_;  ///< words of a row of W before T, and of T
  BitMatrix<B> work_;  ///< W
  ActiveRows<B> active_;
  PanelSearch<B> search_;
  Buffer<Word, B> pivot_rows_, reduced_, multipliers_;
  BitProduct<B> reducing_, product_;  ///< T S; M R
  Buffer<Index, B> pivots_;           ///< candidates that became pivots, in pivot order
  PinnedBuffer<Index> pivots_host_;
  Buffer<Index, B> numbers_;  ///< 0, 1, 2, ...
  Buffer<Index, B> columns_;  ///< of pivots
  PinnedBuffer<Index> columns_host_;
  Buffer<Index, B> nonzero_;
  PinnedBuffer<Index> nonzero_host_;
};

}  // namespace terrace::gf2
