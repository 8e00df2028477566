#include "src/gf2/panel_search.hpp"

#include <algorithm>
#include <numeric>

#include "src/gf2/full_factor.hpp"
#include "src/gf2/wide_factor.hpp"

namespace terrace::gf2 {

// --- active rows ---------------------------------------------------------------------------------

template <class B>
ActiveRows<B>::ActiveRows(Index slots)
    : count_(slots), list_(slots), position_(std::size_t(slots)) {
  for (auto& copy : copies_) copy = Buffer<Index, B>(slots);
  reset(slots);
}

template <class B>
void ActiveRows<B>::reset(Index count) {
  count_ = count;
  for (Index slot = 0; slot < count; ++slot) list_[slot] = position_[std::size_t(slot)] = slot;
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
/// Rows that one factorization of a panel takes.
constexpr Index most_candidates(Index words) {
  return words > max_panel_words ? 128 * words : max_candidates;
}
/// Panels as narrow as that go ahead only where there is something to gain: not on the CPU.
template <class B>
constexpr bool goes_ahead(Index words) {
  return std::is_same_v<B, Cuda> && words == max_panel_words;
}
}  // namespace

template <class B>
PanelSearch<B>::PanelSearch(const Context<B>& context, Index slots, Index words, bool alone,
                            bool on_host, Index candidates)
    : context_(context),
      pitch_(round_up(words, max_panel_words)),
      on_host_(on_host && words <= max_panel_words && std::is_same_v<B, Cuda>),
      multiple_(candidates),
      gathered_(on_host_ ? max_candidates * max_panel_words : 0),
      gathered_host_(on_host_ ? max_candidates * max_panel_words : 0),
      factor_host_(on_host_ ? 128 * max_panel_words * max_panel_words : 0),
      info_device_(PanelFactor<B>::info_size(words)),
      candidates_device_(most_candidates(words)),
      transform_(64 * words * pitch_),
      reduced_(64 * words * pitch_),
      info_(PanelFactor<B>::info_size(words)),
      candidates_(most_candidates(words)),
      scan_(slots * pitch_),
      scan_multipliers_(slots * pitch_),
      scan_product_(slots, 64 * words, pitch_),
      left_(1 + nonzero_room(slots)),
      left_host_(slots + 1),
      header_(round_up(1 + 64 * words, pitch_)),
      message_(header_ + 64 * words * pitch_),
      header_host_(header_) {
  if (words > max_panel_words)
    wide_ = std::make_unique<WideFactor<B>>(context, words, most_candidates(words));
  if (goes_ahead<B>(words) && !alone && !on_host_ && candidates == 0)
    full_ = std::make_unique<FullFactor<B>>(context.ahead, words, most_candidates(words));
  fill_zero(context.ahead, scan_.view());  // words beyond a narrow panel stay zero
  if (context.size() > 1 && !alone) {
    mine_ = Buffer<Word, B>(message_);
    all_ = Buffer<Word, B>(message_ * context.size());
    headers_host_ = PinnedBuffer<Word>(header_ * context.size());
    fill_zero(context.ahead, mine_.view());
  }
  context.ahead.synchronize();
}

template <class B>
PanelSearch<B>::~PanelSearch() = default;

template <class B>
Index PanelSearch<B>::bytes(Index slots, Index words, int ranks) {
  const Index pitch = round_up(words, max_panel_words);
  const Index message = round_up(1 + 64 * words, pitch) + 64 * words * pitch;
  return BitProduct<B>::bytes(slots, 64 * words, pitch) +
         8 * (slots * (2 * pitch + 1) + slots / 64 + message * (ranks + 1) + 128 * words * pitch) +
         (words > max_panel_words ? WideFactor<B>::bytes(words, most_candidates(words)) : 0) +
         (goes_ahead<B>(words) ? FullFactor<B>::bytes(words, most_candidates(words)) : 0);
}

template <class B>
PanelFactor<B> PanelSearch<B>::factor() const {
  return {info_device_.data(), transform_.data(), reduced_.data(), pitch_};
}

/// factor_panel() on the host: the candidates go there, the pivots come back; to info_ as well.
template <class B>
void PanelSearch<B>::factor_on_host(const Stream<B>& lane, BitRows<const Word, B> rows,
                                    Index words) {
  const Index size = 64 * words * max_panel_words;
  copy_bits(lane, BitRows<Word, B>{gathered_.data(), words, rows.count, nullptr}, rows, 0, words);
  download(lane, gathered_host_.data(), gathered_.view().slice(0, rows.count * words));
  lane.synchronize();
  factor_panel(host_, {gathered_host_.data(), words, rows.count, nullptr}, words,
               {info_.data(), factor_host_.data(), factor_host_.data() + size});
  host_.synchronize();
  upload(lane, info_device_.view().slice(0, PanelFactor<B>::info_size(words)), info_.data());
  upload(lane, transform_.view().slice(0, size), factor_host_.data());
  upload(lane, reduced_.view().slice(0, size), factor_host_.data() + size);
}

/// Factors rows candidates_[0, candidate_count_) of `base`; waits for the pivots. Not `ahead`: the
/// same pivots on every device.
template <class B>
Index PanelSearch<B>::factor_rows(const Stream<B>& lane, BitRows<const Word, B> base, Index words,
                                  bool ahead) {
  base.count = candidate_count_;
  base.list = candidates_device_.data();
  upload(lane, candidates_device_.view().slice(0, candidate_count_), candidates_.data());
  if (wide_) {
    wide_->factor(lane, base, words, factor(), info_, ahead);
    return info_[0];
  }
  if (on_host_) {
    factor_on_host(lane, base, words);
    return info_[0];
  }
  if (full_ && ahead && words == max_panel_words &&
      full_->factor(lane, base, words, factor(), info_) == 64 * words)
    return info_[0];
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
                                 ActiveRows<B>& active, const Panel& panel, Index k) {
  const Index m = active.count();
  const Index wanted = multiple_ > 0 ? multiple_ * panel.columns
                                     : Index(double(64 * panel.words) / yield_) + spare_candidates;
  candidate_count_ = std::min({m, wanted, most_candidates(panel.words)});
  for (Index i = 0; i < candidate_count_; ++i) candidates_[i] = active[i * m / candidate_count_];
  if (m == 0) {
    rows_.clear();
    return 0;
  }
  const Index tried = candidate_count_;
  Index rank = factor_rows(lane, rows, panel.words);
  keep_pivots(rank, panel.words);
  if (rank == panel.columns || tried == m) return rank;
  yield_ = std::clamp(double(rank) / double(tried), 0.25, yield_);

  // Deficient: reduce every active row by the pivots found, until nothing is left.
  const BitRows<Word, B> scan{scan_.data(), pitch_, m, nullptr};
  const BitRows<Word, B> multipliers{scan_multipliers_.data(), pitch_, m, nullptr};
  rows.list = active.upload(lane, k);
  rows.count = m;
  copy_bits(lane, scan, rows, 0, panel.words);
  while (true) {
    extract_bits(lane, multipliers, scan, 0, panel.words, info_device_.data());
    scan_product_.set_right(lane, {reduced_.data(), pitch_, rank, nullptr}, pitch_);
    scan_product_.set_left(lane, multipliers);
    scan_product_.add(lane, scan, 0, 0, pitch_);
    nonzero_rows(lane, scan, 0, panel.words, left_.data() + 1, left_.data());
    download(lane, left_host_.data(), left_.view().slice(0, m + 1));
    lane.synchronize();
    const Index left = left_host_[0];
    if (left == 0) return rank;
    const Index more = std::min(left, 128 * panel.words - rank);
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
                           const Panel& panel, Index k) {
  const int ranks = context_.size();
  header_host_[0] = Word(rank);
  for (Index i = 0; i < rank; ++i)
    header_host_[1 + i] = Word(matrix.layout.global(rows_[std::size_t(i)], context_.rank()));
  upload(lane, mine_.view().slice(0, header_), header_host_.data());
  upload(lane, candidates_device_.view().slice(0, rank), candidates_.data());
  copy_bits(
      lane, BitRows<Word, B>{mine_.data() + header_, pitch_, rank, nullptr},
      BitRows<const Word, B>{matrix.data.data(), matrix.stride, rank, candidates_device_.data()},
      panel.word, panel.words);
  context_.comm.all_gather(lane, mine_.view(), all_.view());
  copy_rows(lane, headers_host_.data(), header_, all_.data(), message_, header_, ranks);
  lane.synchronize();

  candidate_count_ = 0;
  rank = 0;
  for (int step = 0; step < ranks && rank < panel.columns; ++step) {
    const Index from = (k + step) % ranks;
    const Index count = Index(headers_host_[from * header_]);
    if (count == 0) continue;
    for (Index i = 0; i < count; ++i)
      candidates_[candidate_count_++] = (from * message_ + header_) / pitch_ + i;
    rank = factor_rows(lane, {all_.data(), pitch_, 0, nullptr}, panel.words, false);
    keep_pivots(rank, panel.words);
  }
  rows_.resize(std::size_t(rank));
  for (Index& row : rows_) {
    const Index from = row * pitch_ / message_;
    const Index i = row - (from * message_ + header_) / pitch_;
    row = Index(headers_host_[from * header_ + 1 + i]);
  }
  return rank;
}

/// What rank `root` found alone, on all ranks: pivots, global rows and transform, in one broadcast.
template <class B>
Index PanelSearch<B>::take_over(const Stream<B>& lane, const BitMatrix<B>& matrix, Index rank,
                                const Panel& panel, int root) {
  const Index info_size = PanelFactor<B>::info_size(panel.words), rows = 1 + 64 * panel.words;
  if (context_.rank() == root) {
    info_[0] = rank;
    for (Index q = 0; q < rank; ++q)
      info_[rows + q] = matrix.layout.global(rows_[std::size_t(q)], root);
    upload(lane, info_device_.view().slice(0, info_size), info_.data());
  }
  const std::vector<Piece> pieces = {
      {root, info_device_.data(), info_size * Index(sizeof(Index))},
      {root, transform_.data(), panel.columns * pitch_ * Index(sizeof(Word))}};
  context_.comm.broadcast_group(lane, pieces);
  download(lane, info_.data(), info_device_.view().slice(0, info_size));
  lane.synchronize();
  return info_[0];
}

template <class B>
Index PanelSearch<B>::find(const Stream<B>& lane, const BitMatrix<B>& matrix, ActiveRows<B>& active,
                           const Panel& panel, Index k) {
  const BitRows<const Word, B> rows{matrix.data.data() + panel.word, matrix.stride, 0, nullptr};
  if (context_.size() == 1) {
    const Index rank = find_local(lane, rows, active, panel, k);
    for (Index& row : rows_) row = matrix.layout.global(row, 0);
    return rank;
  }
  // One rank's rows nearly always suffice; where they do not, all ranks' bases meet.
  const int root = int(k % context_.size());
  Index mine = 0;
  if (context_.rank() == root) mine = find_local(lane, rows, active, panel, k);
  const Index rank = take_over(lane, matrix, mine, panel, root);
  if (rank == panel.columns) {
    rows_.assign(&info_[1 + 64 * panel.words], &info_[1 + 64 * panel.words] + rank);
    return rank;
  }
  if (context_.rank() != root) mine = find_local(lane, rows, active, panel, k);
  return meet(lane, matrix, mine, panel, k);
}

#define TERRACE_INSTANTIATE(B)  \
  template class ActiveRows<B>; \
  template class PanelSearch<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::gf2
