// A wide panel that the device reduces alone, 512 columns after 512 columns, for as long as each of
// these steps finds 512 pivots among its 576 candidates: 64 rows that the step before left, 512 new.
// The host enqueues all of it and waits once. A step without 512 pivots changes nothing, and neither
// do those behind it: *done tells.
#pragma once
#include "kernels/gf2/bits.hpp"

namespace terrace::gf2 {

constexpr Index full_columns = 64 * max_panel_words;  ///< of a step
constexpr Index full_candidates = full_columns + 64;  ///< rows among which a step looks for pivots

/// Whether factor_full_panel() works on this backend and the bound device.
template <class B>
bool has_full_panels();
template <>
bool has_full_panels<Cpu>();
template <>
bool has_full_panels<Cuda>();

/// All memory is that of B. With W the rows at first, P the first 512 k columns, S the 512 k pivot
/// rows of k steps and T = S[:, P]^-1, before(k) holds
///
///                | words 0 ... 8 k | 8 k ... pitch
///   pivot row q  | T[q]            | T[q] S
///   row i        | W[i, P] T       | W[i] + W[i, P] T S
template <class B>
struct FullPanel {
  Word* rows[2] = {};        ///< count x pitch words each; step k reads before(k)
  Index pitch = 0;           ///< a multiple of 8
  Index count = 0;           ///< at least 1
  Index* done = nullptr;     ///< [0]: steps with full rank; then signs, zero before the first panel
  Index* pivots = nullptr;   ///< [q]: the row that became pivot q; its column is q
  Index* numbers = nullptr;  ///< [i]: the pivot that row i became, or -1
  Index* candidates = nullptr;  ///< full_candidates rows, or -1, of the next step
  Word* scratch = nullptr;      ///< scratch_words()
  [[nodiscard]] constexpr Word* before(Index k) const { return k % 2 == 0 ? rows[0] : rows[1]; }
  [[nodiscard]] constexpr Word* after(Index k) const { return before(k + 1); }
  [[nodiscard]] static Index scratch_words(Index count, Index pitch);
};
template <>
Index FullPanel<Cpu>::scratch_words(Index count, Index pitch);
template <>
Index FullPanel<Cuda>::scratch_words(Index count, Index pitch);

constexpr Index full_signs = 3;  ///< numbers at `done`

/// Reduces panel.count rows of `words` words: step k, of the 512 columns from word 8 k on, finds 512
/// pivots in these among the candidates, and makes after(k) from before(k). Writes pivots, numbers,
/// *done; of `out` what factor_panel() would of the pivots of the *done steps: info, and transform,
/// where these are all columns. out.reduced is left alone: it would be the identity. A step: 2 * 576 *
/// 512^2 bit operations, 512 of them dependent; 512 x 64 pitch bit-MAC a row.
void reduce_full_panel(const Stream<Cpu>&, FullPanel<Cpu> panel, BitRows<const Word, Cpu> rows,
                       Index words, PanelFactor<Cpu> out);
void reduce_full_panel(const Stream<Cuda>&, FullPanel<Cuda> panel, BitRows<const Word, Cuda> rows,
                       Index words, PanelFactor<Cuda> out);

}  // namespace terrace::gf2
