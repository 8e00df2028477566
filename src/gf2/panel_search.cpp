#include "src/gf2/panel_search.hpp"

#include <algorithm>
#include <numeric>

#include "src/gf2/full_factor.hpp"
#include "src/gf2/wide_factor.hpp"

namespace terrace::gf2 {

// --- active rows ---------------------------------------------------------------------------------

template <class B>
ActiveRows<B>::ActiveRows(BlockCyclic layout, int rank)
    : layout_(layout),
      rank_(rank),
      list_(layout.slots(rank)),
      position_(std::size_t(layout.slots(rank))) {
  for (auto& copy : copies_) copy = Buffer<Index, B>(list_.size());
  for (int r = 0; r < layout.ranks; ++r) counts_.push_back(layout.slots(r));
  reset(list_.size());
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

template <class B>
void ActiveRows<B>::remove_global(Index row) {
  const auto [owner, slot] = layout_.seat(row);
  --counts_[std::size_t(owner)];
  if (owner == rank_) remove(slot);
}

// --- search --------------------------------------------------------------------------------------

namespace {
constexpr Index spare_candidates =
    64;  // rows beyond the panel's width that random rows need at most
/// Rows that one factorization of a panel takes.
constexpr Index most_candidates(Index words) {
  return words > max_panel_words ? 128 * words : max_candidates;
}
/// Narrow panels go ahead only where there is something to gain: not on the CPU.
template <class B>
constexpr bool goes_ahead(Index words) {
  return words > max_panel_words || (std::is_same_v<B, Cuda> && words == max_panel_words);
}
Index sum_of(const std::vector<Index>& counts) {
  return std::accumulate(counts.begin(), counts.end(), Index(0));
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
      header_host_(header_),
      told_host_(1 + most_candidates(words)) {
  if (words > max_panel_words)
    wide_ = std::make_unique<WideFactor<B>>(context, words, most_candidates(words));
  if (goes_ahead<B>(words) && !alone && !on_host_ && candidates == 0)
    full_ = std::make_unique<FullFactor<B>>(context.ahead, words, most_candidates(words));
  fill_zero(context.ahead, scan_.view());  // words beyond a narrow panel stay zero
  if (context.size() > 1 && !alone) {
    mine_ = Buffer<Word, B>(message_);
    all_ = Buffer<Word, B>(message_ * context.size());
    headers_host_ = PinnedBuffer<Word>(header_ * context.size());
    told_ = Buffer<Index, B>(told_host_.size());
    fill_zero(context.ahead, mine_.view());
    fill_zero(context.ahead, told_.view());
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
         8 * (slots * (2 * pitch + 1) + slots / 64 + message * (ranks + 1) + 128 * words * pitch +
              (ranks > 1 ? 1 + most_candidates(words) : 0)) +
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

/// Which rows are tried first: candidates_[0, candidate_count_).
template <class B>
void PanelSearch<B>::choose_candidates(const ActiveRows<B>& active, const Panel& panel) {
  const Index m = active.count();
  const Index wanted = multiple_ > 0 ? multiple_ * panel.columns
                                     : Index(double(64 * panel.words) / yield_) + spare_candidates;
  candidate_count_ = std::min({m, wanted, most_candidates(panel.words)});
  for (Index i = 0; i < candidate_count_; ++i) candidates_[i] = active[i * m / candidate_count_];
}

/// Rows candidates_[0, candidate_count_) of `base`.
template <class B>
BitRows<const Word, B> PanelSearch<B>::upload_candidates(const Stream<B>& lane,
                                                         BitRows<const Word, B> base) {
  upload(lane, candidates_device_.view().slice(0, candidate_count_), candidates_.data());
  return {base.data, base.stride, candidate_count_, candidates_device_.data()};
}

/// Enqueues what the device does alone; false: nothing. Info on the device then says how far it came.
template <class B>
bool PanelSearch<B>::begin_factor(const Stream<B>& lane, BitRows<const Word, B> rows, Index words) {
  return full_ && full_->begin(lane, rows, words, factor());
}

/// Info on the host; waits for it.
template <class B>
void PanelSearch<B>::read_info(const Stream<B>& lane, Index words) {
  download(lane, info_.data(), info_device_.view().slice(0, PanelFactor<B>::info_size(words)));
  lane.synchronize();
}

/// The rest, once the first `done` columns are eliminated, whose pivots are in info_; waits for the
/// pivots. The same ones on every device where none are done.
template <class B>
Index PanelSearch<B>::end_factor(const Stream<B>& lane, BitRows<const Word, B> rows, Index words,
                                 Index done) {
  if (done == 64 * words) return done;
  if (wide_) {
    wide_->factor(lane, rows, words, factor(), info_, done,
                  done > 0 ? full_->rows(done) : BitRows<const Word, B>{});
  } else if (on_host_) {
    factor_on_host(lane, rows, words);
  } else {
    factor_panel(lane, rows, words, factor());
    read_info(lane, words);
  }
  return info_[0];
}

/// Factors rows candidates_[0, candidate_count_) of `base`; waits for the pivots.
template <class B>
Index PanelSearch<B>::factor_rows(const Stream<B>& lane, BitRows<const Word, B> base, Index words) {
  const BitRows<const Word, B> rows = upload_candidates(lane, base);
  const bool begun = begin_factor(lane, rows, words);
  if (begun) read_info(lane, words);
  return end_factor(lane, rows, words, begun ? info_[0] : 0);
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
  rows_.clear();
  if (active.count() == 0) return 0;
  choose_candidates(active, panel);
  return scan_others(lane, rows, active, panel, k, factor_rows(lane, rows, panel.words));
}

/// The rest of find_local(), once the first candidates gave `rank` pivots.
template <class B>
Index PanelSearch<B>::scan_others(const Stream<B>& lane, BitRows<const Word, B> rows,
                                  ActiveRows<B>& active, const Panel& panel, Index k, Index rank) {
  const Index m = active.count(), tried = candidate_count_;
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
    const BitRows<const Word, B> rows = upload_candidates(lane, {all_.data(), pitch_, 0, nullptr});
    rank = end_factor(lane, rows, panel.words, 0);  // the same on all ranks
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

/// Rows of all ranks, as many of each as it has, to all_, and their numbers to told_ behind the first:
/// the rows to factor. candidate_count_ of them.
template <class B>
BitRows<const Word, B> PanelSearch<B>::bring_candidates(const Stream<B>& lane,
                                                        const BitMatrix<B>& matrix,
                                                        const ActiveRows<B>& active,
                                                        const Panel& panel) {
  const std::vector<Index>& counts = active.counts();
  const Index total = sum_of(counts), wanted = std::min(total, panel.columns + spare_candidates);
  std::vector<Piece> pieces;
  Index first = 0;
  for (int r = 0; r < context_.size(); ++r) {
    const Index m = counts[std::size_t(r)], count = total > 0 ? m * wanted / total : 0;
    Word* const to = all_.data() + first * pitch_;
    Index* const numbers = told_.data() + 1 + first;
    if (r == context_.rank()) {
      for (Index i = 0; i < count; ++i) {
        candidates_[i] = active[i * m / count];
        told_host_[1 + i] = matrix.layout.global(candidates_[i], r);
      }
      candidate_count_ = count;
      const BitRows<const Word, B> rows =
          upload_candidates(lane, {matrix.data.data(), matrix.stride, 0, nullptr});
      copy_bits(lane, BitRows<Word, B>{to, pitch_, count, nullptr}, rows, panel.word, panel.words);
      upload(lane, View<Index, B>{numbers, count}, told_host_.data() + 1);
    }
    pieces.push_back({r, to, count * pitch_ * Index(sizeof(Word))});
    pieces.push_back({r, numbers, count * Index(sizeof(Index))});
    first += count;
  }
  context_.comm.broadcast_group(lane, pieces);
  candidate_count_ = first;
  return {all_.data(), pitch_, first, nullptr};
}

/// What rank `root` found, on all ranks: info, transform, whether that is all there is among what it
/// looked at, and, but where they are known (`numbered`), the global rows of its candidates. Waits.
template <class B>
Index PanelSearch<B>::tell(const Stream<B>& lane, const Panel& panel, int root, bool numbered) {
  const Index size = PanelFactor<B>::info_size(panel.words);
  const Index told = numbered ? 1 : told_.size();
  if (context_.rank() == root) upload(lane, told_.view().slice(0, told), told_host_.data());
  const std::vector<Piece> pieces = {
      {root, info_device_.data(), size * Index(sizeof(Index))},
      {root, transform_.data(), panel.columns * pitch_ * Index(sizeof(Word))},
      {root, told_.data(), told * Index(sizeof(Index))}};
  context_.comm.broadcast_group(lane, pieces);
  download(lane, told_host_.data(), told_.view());
  read_info(lane, panel.words);
  return info_[0];
}

/// One rank's rows, or a part of all ranks', which nearly always suffice: the pivots among these.
template <class B>
Index PanelSearch<B>::propose(const Stream<B>& lane, const BitMatrix<B>& matrix,
                              ActiveRows<B>& active, const Panel& panel, Index k, int root,
                              bool together) {
  const Index words = panel.words, first_row = 1 + 64 * words;
  const BitRows<const Word, B> base{matrix.data.data() + panel.word, matrix.stride, 0, nullptr};
  BitRows<const Word, B> rows;
  if (together) rows = bring_candidates(lane, matrix, active, panel);
  if (context_.rank() != root) {
    Index rank = tell(lane, panel, root, together);
    if (rank < panel.columns && told_host_[0] == 0) rank = tell(lane, panel, root, together);
    return rank;
  }
  if (!together) {
    choose_candidates(active, panel);
    rows = upload_candidates(lane, base);
  }
  const bool begun = begin_factor(lane, rows, words);
  Index done = 0;
  if (begun) {
    told_host_[0] = 0;
    for (Index i = 0; i < candidate_count_ && !together; ++i)
      told_host_[1 + i] = matrix.layout.global(candidates_[i], root);
    done = tell(lane, panel, root, together);
    if (done == panel.columns) return done;
  }
  Index rank = end_factor(lane, rows, words, done);
  told_host_[0] = 1;
  if (!together) {
    rank = scan_others(lane, base, active, panel, k, rank);
    for (Index q = 0; q < rank; ++q)
      told_host_[1 + info_[first_row + q]] = matrix.layout.global(rows_[std::size_t(q)], root);
  }
  return tell(lane, panel, root, together);
}

template <class B>
Index PanelSearch<B>::find(const Stream<B>& lane, const BitMatrix<B>& matrix, ActiveRows<B>& active,
                           const Panel& panel, Index k, bool hopeful) {
  const BitRows<const Word, B> rows{matrix.data.data() + panel.word, matrix.stride, 0, nullptr};
  if (context_.size() == 1) {
    const Index rank = find_local(lane, rows, active, panel, k);
    for (Index& row : rows_) row = matrix.layout.global(row, 0);
    return rank;
  }
  const std::vector<Index>& counts = active.counts();
  const auto most = std::max_element(counts.begin(), counts.end());
  const int root = int(most - counts.begin());
  const bool together = *most < panel.columns + spare_candidates;
  Index rank = 0;
  if (together || hopeful) {
    rank = propose(lane, matrix, active, panel, k, root, together);
    if (rank == panel.columns || (together && candidate_count_ == sum_of(counts))) {
      rows_.resize(std::size_t(rank));
      for (Index q = 0; q < rank; ++q)
        rows_[std::size_t(q)] = told_host_[1 + info_[1 + 64 * panel.words + q]];
      return rank;
    }
  }
  if (together || !hopeful || context_.rank() != root)
    rank = find_local(lane, rows, active, panel, k);
  return meet(lane, matrix, rank, panel, k);
}

#define TERRACE_INSTANTIATE(B)  \
  template class ActiveRows<B>; \
  template class PanelSearch<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::gf2
