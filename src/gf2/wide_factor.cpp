#include "src/gf2/wide_factor.hpp"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace terrace::gf2 {

template <class B>
WideFactor<B>::WideFactor(const Context<B>& context, Index words, Index candidates)
    : panel_pitch_(round_up(words, bit_row_alignment)),
      work_({candidates, candidates, 1}, 0, 2 * panel_pitch_),
      active_({candidates, candidates, 1}, 0),
      search_(context, candidates, max_panel_words, true),
      pivot_rows_(64 * max_panel_words * work_.stride),
      reduced_(64 * max_panel_words * work_.stride),
      multipliers_(candidates * panel_pitch_),
      reducing_(64 * max_panel_words, 64 * max_panel_words, work_.stride),
      product_(candidates, 64 * max_panel_words, work_.stride),
      pivots_(64 * words),
      pivots_host_(64 * words),
      numbers_(64 * words),
      columns_(64 * max_panel_words),
      columns_host_(64 * max_panel_words),
      nonzero_(1),
      nonzero_host_(1) {
  std::vector<Index> numbers(std::size_t(64 * words));
  std::iota(numbers.begin(), numbers.end(), 0);
  upload(context.ahead, numbers_.view(), numbers.data());
  context.ahead.synchronize();
}

template <class B>
Index WideFactor<B>::bytes(Index words, Index candidates) {
  const Index pitch = round_up(words, bit_row_alignment), stride = 2 * pitch;
  return 8 * (candidates * (stride + pitch + 2) + 128 * max_panel_words * stride + 128 * words +
              64 * max_panel_words + 1) +
         PanelSearch<B>::bytes(candidates, max_panel_words, 1, true) +
         BitProduct<B>::bytes(64 * max_panel_words, 64 * max_panel_words, stride) +
         BitProduct<B>::bytes(candidates, 64 * max_panel_words, stride);
}

/// W = [candidates | T], with the first `rank` columns eliminated.
template <class B>
void WideFactor<B>::begin(const Stream<B>& lane, BitRows<const Word, B> rows, Index words,
                          Index rank, const PinnedBuffer<Index>& info_host,
                          BitRows<const Word, B> ahead) {
  const Index count = rows.count, stride = work_.stride, done = rank / 64;
  const BitRows<Word, B> work{work_.data.data(), stride, count, nullptr};
  fill_zero(lane, work_.data.view().slice(0, count * stride));
  active_.reset(count);
  search_.hopeful() = false;  // a device that went ahead found too few
  if (rank == 0) {
    copy_bits(lane, work, rows, 0, words);
    return;
  }
  for (Index q = 0; q < rank; ++q) {
    pivots_host_[q] = info_host[1 + 64 * words + q];
    active_.remove(pivots_host_[q]);
  }
  upload(lane, pivots_.view().slice(0, rank), pivots_host_.data());
  flip_bits(lane, work.data, stride, pivots_.data(), numbers_.data(), rank);
  copy_bits(lane, BitRows<Word, B>{work.data + done, stride, count, nullptr}, ahead, done,
            words - done);
  copy_bits(lane, BitRows<Word, B>{work.data + panel_pitch_, stride, count, nullptr}, ahead, 0,
            done);
}

/// W = [R, candidates | T, 0], with the columns of the `known` pivots eliminated.
template <class B>
void WideFactor<B>::begin_more(const Stream<B>& lane, BitRows<const Word, B> rows, Index words,
                               PanelFactor<B> out, Index known) {
  const Index stride = work_.stride, width = 64 * max_panel_words;
  const BitRows<Word, B> first{work_.data.data(), stride, known, nullptr};
  const BitRows<Word, B> more{first.data + known * stride, stride, rows.count, nullptr};
  fill_zero(lane, work_.data.view().slice(0, (known + rows.count) * stride));
  copy_bits(lane, first, BitRows<const Word, B>{out.reduced, out.pitch, known, nullptr}, 0, words);
  copy_bits(lane, more, rows, 0, words);
  active_.reset(known + rows.count);
  search_.hopeful() = false;
  for (Index q = 0; q < known; ++q) {
    pivots_host_[q] = q;
    active_.remove(q);
  }
  const BitRows<Word, B> multipliers{multipliers_.data(), panel_pitch_, rows.count, nullptr};
  extract_bits(lane, multipliers, more, 0, words, out.info);
  for (Index q = 0; q < known; q += width) {  // T's bits to the columns of their pivots
    const Index count = std::min(width, known - q);
    fill_zero(lane, reduced_.view().slice(0, count * panel_pitch_));
    flip_bits(lane, reduced_.data(), panel_pitch_, numbers_.data(), out.info + 1 + q, count);
    product_.set_right(lane, {reduced_.data(), panel_pitch_, count, nullptr}, panel_pitch_);
    product_.set_left(lane, {out.transform + q / 64, out.pitch, known, nullptr});
    product_.add(lane, first, panel_pitch_, 0, panel_pitch_);
  }
  for (Index q = 0; q < known; q += width) {  // M [R | T]
    const BitRows<const Word, B> right{first.data + q * stride, stride, std::min(width, known - q),
                                       nullptr};
    product_.set_right(lane, right, stride);
    product_.set_left(lane, {multipliers.data + q / 64, panel_pitch_, rows.count, nullptr});
    product_.add(lane, more, 0, 0, stride);
  }
}

/// Up to 512 columns from word `word` on; how many pivots they give. `rank` are known.
template <class B>
Index WideFactor<B>::factor_next(const Stream<B>& lane, Index count, Index word, Index words,
                                 Index rank, const PinnedBuffer<Index>& info_host, bool more) {
  const Index stride = work_.stride;
  const BitRows<Word, B> work{work_.data.data(), stride, count, nullptr};
  const Panel panel{word, std::min(max_panel_words, words - word),
                    64 * std::min(max_panel_words, words - word)};
  const Index found = search_.find_local(lane, {work.data + word, stride, 0, nullptr}, active_,
                                         panel, word / max_panel_words);
  if (found == 0) return 0;
  for (Index q = 0; q < found; ++q) {
    const Index row = search_.rows()[std::size_t(q)];
    pivots_host_[rank + q] = row;
    info_host[1 + rank + q] = columns_host_[q] = 64 * word + search_.columns()[q];
    active_.remove(row);
  }
  const Index* pivots = pivots_.data() + rank;
  upload(lane, pivots_.view().slice(rank, found), pivots_host_.data() + rank);
  if (more) upload(lane, columns_.view().slice(0, found), columns_host_.data());
  flip_bits(lane, work.data + panel_pitch_, stride, pivots,
            more ? columns_.data() : numbers_.data() + rank, found);

  const PanelFactor<B> factor = search_.factor();
  const Index width = stride - word;
  const BitRows<Word, B> pivot_rows{pivot_rows_.data(), width, found, nullptr};
  const BitRows<Word, B> reduced{reduced_.data(), width, found, nullptr};
  const BitRows<Word, B> multipliers{multipliers_.data(), panel.words, count, nullptr};
  copy_bits(lane, pivot_rows, BitRows<const Word, B>{work.data, stride, found, pivots}, word,
            width);
  fill_zero(lane, reduced_.view().slice(0, found * width));
  reducing_.set_right(lane, pivot_rows, width);
  reducing_.set_left(lane, {factor.transform, factor.pitch, found, nullptr});
  reducing_.add(lane, reduced, 0, 0, width);
  extract_bits(lane, multipliers, work, word, panel.words, factor.info);
  flip_bits(lane, multipliers.data, panel.words, pivots, numbers_.data(), found);
  product_.set_right(lane, reduced, width);
  product_.set_left(lane, multipliers);
  product_.add(lane, work, word, 0, width);
  return found;
}

/// The first sub-panel from word `word` on that is not zero in some active row, or `words`.
template <class B>
Index WideFactor<B>::next_nonzero(const Stream<B>& lane, Index word, Index words) {
  const Index* const list = active_.upload(lane, word / max_panel_words);
  first_nonzero_word(lane, {work_.data.data(), work_.stride, active_.count(), list}, word, words,
                     nonzero_.data());
  download(lane, nonzero_host_.data(), nonzero_.view());
  lane.synchronize();
  const Index first = nonzero_host_[0];
  return first == words ? words : first / max_panel_words * max_panel_words;
}

template <class B>
void WideFactor<B>::factor(const Stream<B>& lane, BitRows<const Word, B> rows, Index words,
                           PanelFactor<B> out, const PinnedBuffer<Index>& info_host, Index done,
                           BitRows<const Word, B> ahead) {
  begin(lane, rows, words, done, info_host, ahead);
  finish(lane, rows.count, done / 64, words, done, out, info_host, false);
}

template <class B>
void WideFactor<B>::extend(const Stream<B>& lane, BitRows<const Word, B> rows, Index words,
                           PanelFactor<B> out, const PinnedBuffer<Index>& info_host, Index known) {
  begin_more(lane, rows, words, out, known);
  finish(lane, known + rows.count, next_nonzero(lane, 0, words), words, known, out, info_host,
         true);
}

/// Eliminates W's columns from word `word` on; pivots in the order of their columns. Bit j of T is that
/// of the pivot in column j where there may be `more`, else of pivot j.
template <class B>
void WideFactor<B>::finish(const Stream<B>& lane, Index count, Index word, Index words, Index rank,
                           PanelFactor<B> out, const PinnedBuffer<Index>& info_host, bool more) {
  while (word < words && active_.count() > 0) {
    const Index found = factor_next(lane, count, word, words, rank, info_host, more);
    rank += found;
    word += max_panel_words;
    if (found > 0 || word >= words) continue;
    word = next_nonzero(lane, word, words);
  }
  std::vector<std::pair<Index, Index>> pivots;  // columns, rows of W
  for (Index q = 0; q < rank; ++q) pivots.emplace_back(info_host[1 + q], pivots_host_[q]);
  std::sort(pivots.begin(), pivots.end());
  info_host[0] = rank;
  for (Index q = 0; q < rank; ++q) {
    info_host[1 + q] = pivots[std::size_t(q)].first;
    info_host[1 + 64 * words + q] = pivots[std::size_t(q)].second;
  }
  upload(lane, pivots_.view().slice(0, rank), &info_host[1 + 64 * words]);
  upload(lane, View<Index, B>{out.info, PanelFactor<B>::info_size(words)}, info_host.data());
  const BitRows<const Word, B> pivot_rows{work_.data.data(), work_.stride, rank, pivots_.data()};
  copy_bits(lane, BitRows<Word, B>{out.reduced, out.pitch, rank, nullptr}, pivot_rows, 0,
            out.pitch);
  const BitRows<Word, B> transform{out.transform, out.pitch, rank, nullptr};
  if (more)
    extract_bits(lane, transform, pivot_rows, panel_pitch_, out.pitch, out.info);
  else
    copy_bits(lane, transform, pivot_rows, panel_pitch_, out.pitch);
  lane.synchronize();
}

#define TERRACE_INSTANTIATE(B) template class WideFactor<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::gf2
