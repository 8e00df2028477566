#include "src/gf2/panel_search.hpp"

#include <algorithm>
#include <numeric>

#include "src/gf2/full_factor.hpp"
#include "src/gf2/wide_factor.hpp"

namespace terrace::gf2 {

namespace {
constexpr Index spare_candidates =
    64;  // rows beyond the panel's width that random rows need at most
/// Rows that one factorization of a panel takes.
constexpr Index most_candidates(Index words) {
  return words > max_panel_words ? 128 * words : max_candidates;
}
/// Of a rank's message: how many rows it has, and how many it might have; then their global rows.
constexpr Index header_numbers = 2;
constexpr Index header_words(Index words, Index pitch) {
  return round_up(header_numbers + 64 * words, pitch);
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
      header_(header_words(words, pitch_)),
      message_(header_ + 64 * words * pitch_),
      header_host_(header_),
      told_host_(1 + most_candidates(words)) {
  if (!alone) wide_ = std::make_unique<WideFactor<B>>(context, words, most_candidates(words));
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
Index PanelSearch<B>::bytes(Index slots, Index words, int ranks, bool alone) {
  const Index pitch = round_up(words, max_panel_words);
  const Index message = header_words(words, pitch) + 64 * words * pitch;
  return BitProduct<B>::bytes(slots, 64 * words, pitch) +
         8 * (slots * (2 * pitch + 1) + slots / 64 + message * (ranks + 1) + 128 * words * pitch +
              (ranks > 1 ? 1 + most_candidates(words) : 0)) +
         (alone ? 0 : WideFactor<B>::bytes(words, most_candidates(words))) +
         (goes_ahead<B>(words) && !alone ? FullFactor<B>::bytes(words, most_candidates(words)) : 0);
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
  const Index most = most_candidates(panel.words);
  const Index wanted = multiple_ > 0 ? multiple_ * panel.columns
                       : hopeful_    ? 64 * panel.words + spare_candidates
                                     : most;
  candidate_count_ = std::min({m, wanted, most});
  for (Index i = 0; i < candidate_count_; ++i) candidates_[i] = active[i * m / candidate_count_];
}

/// Rows candidates_[first, candidate_count_) of `base`.
template <class B>
BitRows<const Word, B> PanelSearch<B>::upload_candidates(const Stream<B>& lane,
                                                         BitRows<const Word, B> base, Index first) {
  const Index count = candidate_count_ - first;
  upload(lane, candidates_device_.view().slice(0, count), candidates_.data() + first);
  return {base.data, base.stride, count, candidates_device_.data()};
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
/// pivots.
template <class B>
Index PanelSearch<B>::end_factor(const Stream<B>& lane, BitRows<const Word, B> rows, Index words,
                                 Index done) {
  if (done == 64 * words) return done;
  if (pitch_ > max_panel_words) {
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

/// Factors rows candidates_[0, candidate_count_) of `base`, of which the first `rank` are the pivots
/// that factor() has; with wide_ these rows are not read. Waits for the pivots.
template <class B>
Index PanelSearch<B>::factor_rows(const Stream<B>& lane, BitRows<const Word, B> base, Index words,
                                  Index rank) {
  if (rank > 0 && wide_) {
    wide_->extend(lane, upload_candidates(lane, base, rank), words, factor(), info_, rank);
    return info_[0];
  }
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

/// This rank's active rows within the panel to scan_.
template <class B>
void PanelSearch<B>::begin_scan(const Stream<B>& lane, BitRows<const Word, B> rows,
                                ActiveRows<B>& active, Index words, Index k) {
  rows.list = active.upload(lane, k);
  rows.count = active.count();
  copy_bits(lane, BitRows<Word, B>{scan_.data(), pitch_, rows.count, nullptr}, rows, 0, words);
}

/// Reduces the `m` rows of scan_ by the `rank` pivots in info and reduced_: how many are not zero then.
/// Their numbers in scan_ are left_host_[1 ...]. Waits for them.
template <class B>
Index PanelSearch<B>::scan_rows(const Stream<B>& lane, Index m, Index words, Index rank) {
  if (m == 0) return 0;
  const BitRows<Word, B> scan{scan_.data(), pitch_, m, nullptr};
  if (rank > 0) {
    const BitRows<Word, B> multipliers{scan_multipliers_.data(), pitch_, m, nullptr};
    extract_bits(lane, multipliers, scan, 0, words, info_device_.data());
    scan_product_.set_right(lane, {reduced_.data(), pitch_, rank, nullptr}, pitch_);
    scan_product_.set_left(lane, multipliers);
    scan_product_.add(lane, scan, 0, 0, pitch_);
  }
  nonzero_rows(lane, scan, 0, words, left_.data() + 1, left_.data());
  download(lane, left_host_.data(), left_.view().slice(0, m + 1));
  lane.synchronize();
  return left_host_[0];
}

/// A basis of this rank's active rows within the panel, at candidates_[0, rank) and rows_ (slots).
template <class B>
Index PanelSearch<B>::find_local(const Stream<B>& lane, BitRows<const Word, B> rows,
                                 ActiveRows<B>& active, const Panel& panel, Index k) {
  const Index m = active.count(), words = panel.words;
  Index rank = 0;
  rows_.clear();
  if (m == 0) return 0;
  if (hopeful_ || m <= most_candidates(words)) {
    choose_candidates(active, panel);
    rank = factor_rows(lane, rows, words, 0);
    learn(rank, panel);
    const Index tried = candidate_count_;
    keep_pivots(rank, words);
    if (rank == panel.columns || tried == m) return rank;
  }
  begin_scan(lane, rows, active, words, k);
  while (true) {
    const Index left = scan_rows(lane, m, words, rank);
    if (left == 0) return rank;
    const Index more = std::min(left, most_candidates(words) - rank);
    for (Index i = 0; i < more; ++i)
      candidates_[rank + i] = active[left_host_[1 + i * left / more]];
    candidate_count_ = rank + more;
    const bool first = rank == 0;
    rank = factor_rows(lane, rows, words, rank);
    if (first) learn(rank, panel);
    keep_pivots(rank, words);
    if (rank == panel.columns || more == left) return rank;
  }
}

/// Of each rank's `left` rows outside the span of the pivots in rows_ as many as there is room for, to
/// all_: at candidates_, behind the pivots; numbers_ has the global rows of both. How many are left
/// out, of this rank and of all. Waits.
template <class B>
typename PanelSearch<B>::Outside PanelSearch<B>::gather(const Stream<B>& lane,
                                                        const BitMatrix<B>& matrix,
                                                        const ActiveRows<B>& active,
                                                        const Panel& panel, Index left) {
  const int ranks = context_.size(), me = context_.rank();
  const Index pivots = Index(rows_.size()), room = most_candidates(panel.words) - pivots;
  const Index sent = std::min({left, 64 * panel.words, std::max<Index>(1, room / ranks)});
  for (Index i = 0; i < sent; ++i) candidates_[i] = active[left_host_[1 + i * left / sent]];
  candidate_count_ = sent;
  header_host_[0] = Word(sent);
  header_host_[1] = Word(left);
  for (Index i = 0; i < sent; ++i)
    header_host_[header_numbers + i] = Word(matrix.layout.global(candidates_[i], me));
  upload(lane, mine_.view().slice(0, header_), header_host_.data());
  const BitRows<const Word, B> rows =
      upload_candidates(lane, {matrix.data.data(), matrix.stride, 0, nullptr});
  copy_bits(lane, BitRows<Word, B>{mine_.data() + header_, pitch_, rows.count, nullptr}, rows,
            panel.word, panel.words);
  context_.comm.all_gather(lane, mine_.view(), all_.view());
  copy_rows(lane, headers_host_.data(), header_, all_.data(), message_, header_, ranks);
  lane.synchronize();

  candidate_count_ = pivots;
  numbers_ = rows_;
  Outside outside;
  for (int r = 0; r < ranks; ++r) {
    const Word* const header = &headers_host_[r * header_];
    const Index count = std::min(Index(header[0]), pivots + room - candidate_count_);
    for (Index i = 0; i < count; ++i) {
      candidates_[candidate_count_++] = (r * message_ + header_) / pitch_ + i;
      numbers_.push_back(Index(header[header_numbers + i]));
    }
    outside.of_all += Index(header[1]) - count;
    if (r == me) outside.of_mine = Index(header[1]) - count;
  }
  return outside;
}

/// The pivots over all active rows of all ranks, once those of rows_ are known to all.
template <class B>
Index PanelSearch<B>::complete(const Stream<B>& lane, const BitMatrix<B>& matrix,
                               ActiveRows<B>& active, const Panel& panel, Index k, int root) {
  const Index m = active.count(), words = panel.words;
  Index rank = Index(rows_.size());
  if (m > 0)
    begin_scan(lane, {matrix.data.data() + panel.word, matrix.stride, 0, nullptr}, active, words,
               k);
  Outside outside{m, 1};
  while (outside.of_all > 0 && rank < panel.columns) {
    outside = gather(lane, matrix, active, panel,
                     outside.of_mine > 0 ? scan_rows(lane, m, words, rank) : 0);
    if (candidate_count_ == rank) break;
    if (context_.rank() == root) factor_rows(lane, {all_.data(), pitch_, 0, nullptr}, words, rank);
    told_host_[0] = 1;
    const bool first = rank == 0;
    rank = tell(lane, panel, root, true);
    if (first) learn(rank, panel);
    name_rows(rank, words, numbers_.data());
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

/// The global rows of `rank` pivots, from those of the candidates.
template <class B>
void PanelSearch<B>::name_rows(Index rank, Index words, const Index* numbers) {
  rows_.resize(std::size_t(rank));
  for (Index q = 0; q < rank; ++q) rows_[std::size_t(q)] = numbers[info_[1 + 64 * words + q]];
}

/// What rank `root` found, on all ranks: info, transform, whether that is all there is among what it
/// looked at, and, but where they are known (`numbered`), the global rows of its candidates. Waits.
/// Where all of it are too few, reduced_ too.
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
  const Index rank = info_[0];
  if (told_host_[0] == 1 && rank > 0 && rank < panel.columns)
    context_.comm.broadcast(lane, root, reduced_.view().slice(0, rank * pitch_));
  return rank;
}

/// Pivots among one rank's rows, or among a part of all ranks' (`together`): these nearly always suffice.
template <class B>
Index PanelSearch<B>::propose(const Stream<B>& lane, const BitMatrix<B>& matrix,
                              const ActiveRows<B>& active, const Panel& panel, int root,
                              bool together) {
  BitRows<const Word, B> rows;
  if (together) rows = bring_candidates(lane, matrix, active, panel);
  Index rank = 0;
  if (context_.rank() == root) {
    if (!together) {
      choose_candidates(active, panel);
      for (Index i = 0; i < candidate_count_; ++i)
        told_host_[1 + i] = matrix.layout.global(candidates_[i], root);
      rows = upload_candidates(lane, {matrix.data.data() + panel.word, matrix.stride, 0, nullptr});
    }
    const bool begun = begin_factor(lane, rows, panel.words);
    told_host_[0] = 0;
    if (begun) rank = tell(lane, panel, root, together);
    if (rank < panel.columns) {
      end_factor(lane, rows, panel.words, rank);
      told_host_[0] = 1;
      rank = tell(lane, panel, root, together);
    }
  } else {
    rank = tell(lane, panel, root, together);
    if (rank < panel.columns && told_host_[0] == 0) rank = tell(lane, panel, root, together);
  }
  name_rows(rank, panel.words, told_host_.data() + 1);
  return rank;
}

template <class B>
Index PanelSearch<B>::find(const Stream<B>& lane, const BitMatrix<B>& matrix, ActiveRows<B>& active,
                           const Panel& panel, Index k) {
  if (context_.size() == 1) {
    const BitRows<const Word, B> rows{matrix.data.data() + panel.word, matrix.stride, 0, nullptr};
    const Index rank = find_local(lane, rows, active, panel, k);
    for (Index& row : rows_) row = matrix.layout.global(row, 0);
    return rank;
  }
  const std::vector<Index>& counts = active.counts();
  const auto most = std::max_element(counts.begin(), counts.end());
  const int root = int(most - counts.begin());
  const bool together = *most < panel.columns + spare_candidates;
  rows_.clear();
  if (hopeful_) {
    const Index rank = propose(lane, matrix, active, panel, root, together);
    learn(rank, panel);
    if (rank == panel.columns || (together && candidate_count_ == sum_of(counts))) return rank;
  }
  return complete(lane, matrix, active, panel, k, root);
}

#define TERRACE_INSTANTIATE(B) template class PanelSearch<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::gf2
