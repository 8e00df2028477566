// A wide panel that the device reduces alone, 512 columns after 512 columns, for as long as each of
// these steps finds 512 pivots. The host enqueues all steps and waits once.
//
//   split_candidates    every step has its 576 candidates: 64 rows that the step before left, 512 new
//   factor_full_panel   step k: its pivots, and T = S[:, P]^-1
//   update_full_panel   step k: all rows, in place
//
// A step without 512 pivots changes nothing, and neither do those behind it: *done tells.
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
  Word* rows[2] = {};           ///< count x pitch words each; step k reads before(k)
  Index pitch = 0;              ///< a multiple of 8
  Index count = 0;              ///< at least 1
  Index* done = nullptr;        ///< [0]: steps with full rank
  Index* pivots = nullptr;      ///< [q]: the row that became pivot q; its column is q
  Index* numbers = nullptr;     ///< [i]: the pivot that row i became, or -1
  Index* candidates = nullptr;  ///< full_candidates rows, or -1, of the next step
  Word* transform = nullptr;    ///< T of the last step alone, 512 x max_panel_words
  Word* scratch = nullptr;      ///< scratch_words()
  [[nodiscard]] constexpr Word* before(Index k) const { return k % 2 == 0 ? rows[0] : rows[1]; }
  [[nodiscard]] constexpr Word* after(Index k) const { return before(k + 1); }
  [[nodiscard]] static Index scratch_words(Index count, Index pitch);
};
template <>
Index FullPanel<Cpu>::scratch_words(Index count, Index pitch);
template <>
Index FullPanel<Cuda>::scratch_words(Index count, Index pitch);

/// candidates, numbers and *done before the first step.
void split_candidates(const Stream<Cpu>&, FullPanel<Cpu> panel);
void split_candidates(const Stream<Cuda>&, FullPanel<Cuda> panel);

/// Step k: 512 pivots among the candidates, in the columns from word 8 k on. Writes transform,
/// pivots, numbers, candidates, and *done = k + 1; nothing where *done is not k or the rank is
/// below 512. 2 * 576 * 512^2 bit operations, 512 dependent steps.
void factor_full_panel(const Stream<Cpu>&, FullPanel<Cpu> panel, Index k);
void factor_full_panel(const Stream<Cuda>&, FullPanel<Cuda> panel, Index k);

/// Step k: after(k) from before(k); nothing where *done is not k + 1. 512 x 64 pitch
/// bit-MAC a row; reads and writes the rows once.
void update_full_panel(const Stream<Cpu>&, FullPanel<Cpu> panel, Index k);
void update_full_panel(const Stream<Cuda>&, FullPanel<Cuda> panel, Index k);

/// What factor_panel() would write of a panel of 64 * words columns and the pivots of the *done
/// steps: info; and transform, where these are all of its columns. `reduced` is left alone: it
/// would be the identity.
void finish_full_panel(const Stream<Cpu>&, FullPanel<Cpu> panel, Index words, PanelFactor<Cpu> out);
void finish_full_panel(const Stream<Cuda>&, FullPanel<Cuda> panel, Index words,
                       PanelFactor<Cuda> out);

}  // namespace terrace::gf2
