#include "src/panel_search.hpp"

#include <algorithm>
#include <numeric>

namespace terrace {

// --- active rows ---------------------------------------------------------------------------------

template <class B>
ActiveRows<B>::ActiveRows(Index slots)
    : count_(slots), list_(slots), position_(std::size_t(slots)) {
  for (auto& copy : copies_) copy = Buffer<Index, B>(slots);
  for (Index slot = 0; slot < slots; ++slot) list_[slot] = position_[std::size_t(slot)] = slot;
}

template <class B>
const Index* ActiveRows<B>::upload(const Stream<B>& lane, Index k) {
  auto& copy = copies_[k % 2];
  terrace::upload(lane, copy.view().slice(0, count_), list_.data());
  return copy.data();
}

template <class B>
void ActiveRows<B>::remove(Index slot) {
  const Index at = position_[std::size_t(slot)], last = list_[--count_];
  list_[at] = last;
  position_[std::size_t(last)] = at;
}

// --- search --------------------------------------------------------------------------------------

namespace {
constexpr Index spare_candidates =
    64;  // rows beyond the panel's width that random rows need at most
}

template <class B>
PanelSearch<B>::PanelSearch(const Context<B>& context, Index slots, Index words)
    : context_(context),
      info_device_(PanelFactor<B>::info_size(words)),
      candidates_device_(max_candidates),
      transform_(64 * words * max_panel_words),
      reduced_(64 * words * max_panel_words),
      info_(PanelFactor<B>::info_size(words)),
      candidates_(max_candidates),
      scan_(slots * max_panel_words),
      scan_multipliers_(slots * max_panel_words),
      left_(slots + 1),
      left_host_(slots + 1),
      header_(round_up(1 + 64 * words, bit_row_alignment)),
      message_(header_ + 64 * words * max_panel_words),
      header_host_(header_) {
  fill_zero(context.ahead, scan_.view());  // words beyond a narrow panel stay zero
  if (context.size() > 1) {
    mine_ = Buffer<Word, B>(message_);
    all_ = Buffer<Word, B>(message_ * context.size());
    headers_host_ = PinnedBuffer<Word>(header_ * context.size());
    fill_zero(context.ahead, mine_.view());
  }
  context.ahead.synchronize();
}

template <class B>
Index PanelSearch<B>::bytes(Index slots, Index words, int ranks) {
  const Index message = round_up(1 + 64 * words, bit_row_alignment) + 64 * words * max_panel_words;
  return 8 * (slots * (2 * max_panel_words + 1) + message * (ranks + 1) +
              128 * words * max_panel_words);
}

template <class B>
PanelFactor<B> PanelSearch<B>::factor() const {
  return {info_device_.data(), transform_.data(), reduced_.data()};
}

/// Factors rows candidates_[0, candidate_count_) of `base`; waits for the pivots.
template <class B>
Index PanelSearch<B>::factor_rows(const Stream<B>& lane, BitRows<const Word, B> base, Index words) {
  base.count = candidate_count_;
  base.list = candidates_device_.data();
  upload(lane, candidates_device_.view().slice(0, candidate_count_), candidates_.data());
  factor_panel(lane, base, words, factor());
  download(lane, info_.data(), info_device_.view().slice(0, PanelFactor<B>::info_size(words)));
  lane.synchronize();
  return info_[0];
}

/// The candidates that became pivots, in pivot order, are the first candidates of the next round.
template <class B>
void PanelSearch<B>::keep_pivots(Index rank, Index words) {
  rows_.resize(std::size_t(rank));
  for (Index q = 0; q < rank; ++q) rows_[std::size_t(q)] = candidates_[info_[1 + 64 * words + q]];
  std::copy(rows_.begin(), rows_.end(), candidates_.data());
  candidate_count_ = rank;
}

/// A basis of this rank's active rows within the panel, at candidates_[0, rank) and rows_ (slots).
template <class B>
Index PanelSearch<B>::find_local(const Stream<B>& lane, BitRows<const Word, B> rows,
                                 const ActiveRows<B>& active, const Index* active_list,
                                 const Panel& panel) {
  const Index m = active.count();
  candidate_count_ = std::min(m, 64 * panel.words + spare_candidates);
  for (Index i = 0; i < candidate_count_; ++i) candidates_[i] = active[i * m / candidate_count_];
  if (m == 0) {
    rows_.clear();
    return 0;
  }
  const bool all_tried = candidate_count_ == m;
  Index rank = factor_rows(lane, rows, panel.words);
  keep_pivots(rank, panel.words);
  if (rank == panel.columns || all_tried) return rank;

  // Deficient: reduce every active row by the pivots found, until nothing is left.
  const BitRows<Word, B> scan{scan_.data(), max_panel_words, m, nullptr};
  const BitRows<Word, B> multipliers{scan_multipliers_.data(), max_panel_words, m, nullptr};
  rows.list = active_list;
  rows.count = m;
  copy_bits(lane, scan, rows, 0, panel.words);
  while (true) {
    extract_bits(lane, multipliers, scan, 0, panel.words, info_device_.data());
    combine(lane, scan, multipliers,
            BitRows<const Word, B>{reduced_.data(), max_panel_words, rank, nullptr}, 0, 0,
            max_panel_words);
    nonzero_rows(lane, scan, 0, panel.words, left_.data() + 1, left_.data());
    download(lane, left_host_.data(), left_.view().slice(0, m + 1));
    lane.synchronize();
    const Index left = left_host_[0];
    if (left == 0) return rank;
    const Index more = std::min(left, std::min(max_candidates, 64 * panel.words * 2) - rank);
    for (Index i = 0; i < more; ++i)
      candidates_[rank + i] = active[left_host_[1 + i * left / more]];
    candidate_count_ = rank + more;
    rank = factor_rows(lane, rows, panel.words);
    keep_pivots(rank, panel.words);
    if (rank == panel.columns) return rank;
  }
}

/// All ranks see all candidates and reduce them rank by rank, in the same order.
template <class B>
Index PanelSearch<B>::meet(const Stream<B>& lane, const BitMatrix<B>& matrix, Index rank,
                           const Panel& panel, Index turn) {
  const int ranks = context_.size();
  header_host_[0] = Word(rank);
  for (Index i = 0; i < rank; ++i)
    header_host_[1 + i] = Word(matrix.layout.global(rows_[std::size_t(i)], context_.rank()));
  upload(lane, mine_.view().slice(0, header_), header_host_.data());
  upload(lane, candidates_device_.view().slice(0, rank), candidates_.data());
  copy_bits(
      lane, BitRows<Word, B>{mine_.data() + header_, max_panel_words, rank, nullptr},
      BitRows<const Word, B>{matrix.data.data(), matrix.stride, rank, candidates_device_.data()},
      panel.word, panel.words);
  context_.comm.all_gather(lane, mine_.view(), all_.view());
  copy_rows(lane, headers_host_.data(), header_, all_.data(), message_, header_, ranks);
  lane.synchronize();

  candidate_count_ = 0;
  rank = 0;
  for (int step = 0; step < ranks && rank < panel.columns; ++step) {
    const Index from = (turn + step) % ranks;
    const Index count = Index(headers_host_[from * header_]);
    if (count == 0) continue;
    for (Index i = 0; i < count; ++i)
      candidates_[candidate_count_++] = (from * message_ + header_) / max_panel_words + i;
    rank = factor_rows(lane, {all_.data(), max_panel_words, 0, nullptr}, panel.words);
    keep_pivots(rank, panel.words);
  }
  rows_.resize(std::size_t(rank));
  for (Index& row : rows_) {
    const Index from = row * max_panel_words / message_;
    const Index i = row - (from * message_ + header_) / max_panel_words;
    row = Index(headers_host_[from * header_ + 1 + i]);
  }
  return rank;
}

template <class B>
Index PanelSearch<B>::find(const Stream<B>& lane, const BitMatrix<B>& matrix,
                           const ActiveRows<B>& active, const Index* active_list,
                           const Panel& panel, Index turn) {
  const BitRows<const Word, B> rows{matrix.data.data() + panel.word, matrix.stride, 0, nullptr};
  const Index rank = find_local(lane, rows, active, active_list, panel);
  if (context_.size() > 1) return meet(lane, matrix, rank, panel, turn);
  for (Index& row : rows_) row = matrix.layout.global(row, 0);
  return rank;
}

#define TERRACE_INSTANTIATE(B)  \
  template class ActiveRows<B>; \
  template class PanelSearch<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)

}  // namespace terrace
