#include "src/gf2/full_factor.hpp"

namespace terrace::gf2 {

namespace {

template <class B>
Index words_for(Index pitch, Index candidates) {
  return 2 * candidates * pitch + FullPanel<B>::scratch_words(candidates, pitch);
}
constexpr Index indices_for(Index pitch, Index candidates) {
  return full_signs + 64 * pitch + candidates + full_candidates;
}
constexpr Index pitch_of(Index words) { return round_up(words, bit_row_alignment); }

}  // namespace

template <class B>
FullFactor<B>::FullFactor(const Stream<B>& lane, Index words, Index candidates) {
  if (!has_full_panels<B>()) return;
  panel_.pitch = pitch_of(words);
  words_ = Buffer<Word, B>(words_for<B>(panel_.pitch, candidates));
  indices_ = Buffer<Index, B>(indices_for(panel_.pitch, candidates));
  fill_zero(lane, indices_.view().slice(0, full_signs));
  panel_.rows[0] = words_.data();
  panel_.rows[1] = panel_.rows[0] + candidates * panel_.pitch;
  panel_.scratch = panel_.rows[1] + candidates * panel_.pitch;
  panel_.done = indices_.data();
  panel_.pivots = panel_.done + full_signs;
  panel_.numbers = panel_.pivots + 64 * panel_.pitch;
  panel_.candidates = panel_.numbers + candidates;
}

template <class B>
Index FullFactor<B>::bytes(Index words, Index candidates) {
  const Index pitch = pitch_of(words);
  return has_full_panels<B>()
             ? 8 * (words_for<B>(pitch, candidates) + indices_for(pitch, candidates))
             : 0;
}

template <class B>
bool FullFactor<B>::begin(const Stream<B>& lane, BitRows<const Word, B> rows, Index words,
                          PanelFactor<B> out) {
  if (words_.size() == 0 || words < max_panel_words || rows.count < full_columns) return false;
  panel_.count = rows.count;
  reduce_full_panel(lane, panel_, rows, words, out);
  return true;
}

#define TERRACE_INSTANTIATE(B) template class FullFactor<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::gf2
