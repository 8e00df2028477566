#include "src/gf2/echelon.hpp"

#include <algorithm>
#include <memory>

#include "distrib/agree.hpp"
#include "src/frame/guard.hpp"
#include "src/gf2/columns.hpp"
#include "src/gf2/guarded.hpp"
#include "src/gf2/panel_search.hpp"
#include "src/gf2/row_share.hpp"

namespace terrace::gf2 {

namespace {

template <class B>
class Echelon : public GuardedMatrix<B> {
  using Base = GuardedMatrix<B>;
  using Base::context_, Base::matrix_, Base::guard_;

 public:
  static constexpr bool share_after_update = true;

  Echelon(Context<B>& context, BitMatrix<B>& matrix, Index columns, EchelonForm form,
          PanelPlan plan, const StageTimes<B>& stages)
      : Base(context, matrix),
        columns_(columns),
        form_(form),
        panel_words_(std::min(plan.columns / 64, std::max<Index>(1, ceil_div(columns, 64)))),
        active_(matrix.layout, matrix.rank),
        stored_(plan.product.stored),
        search_(context, matrix.slots(), panel_words_, false, plan.host_panels, plan.candidates),
        share_(context, 64 * panel_words_, matrix.stride),
        reduced_(64 * panel_words_ * matrix.stride),
        multipliers_(matrix.slots() * panel_words_),
        reducing_(64 * panel_words_, 64 * panel_words_, matrix.stride,
                  {plan.product.tables, false, plan.product.shape}),
        product_(matrix.slots(), 64 * panel_words_, matrix.stride, plan.product),
        nonzero_(1),
        nonzero_host_(1),
        stages_(stages) {
    if (plan.guard) this->guard_with(form == EchelonForm::inverse, plan, 64 * panel_words_);
  }
  /// What is left to check at the end.
  void end_guard() {
    if (guard_) guard_->finish(steps());
  }

  [[nodiscard]] Index steps() const {
    return matrix_.layout.extent > 0 ? ceil_div(columns_, 64 * panel_words_) : 0;
  }

  void choose(const Stream<B>& lane, Index k) {
    rank_ = 0;
    if (k < next_panel_) return;  // known to be zero
    if (found.rank() == matrix_.layout.extent) {
      stop_ = true;
      return;
    }
    const Panel panel = panel_at(k);
    if (!all_rows()) {
      update_list_ = active_.upload(lane, k);
      update_count_ = active_.count();
    }
    rank_ = search_.find(lane, matrix_, active_, panel, k);
    keep(panel);
    if (form_ == EchelonForm::inverse && rank_ < panel.columns) {
      Index q = 0;
      while (q < rank_ && search_.columns()[q] == q) ++q;
      found.first_zero_pivot = 64 * panel.word + q;
      stop_ = true;
    } else if (rank_ == 0) {
      skip_zero_columns(lane, panel, k);
    }
  }

  [[nodiscard]] bool stop(Index) const { return stop_; }

  // S from its owners, R = T S: each rank a strip of the columns, then all strips for all. Tables that
  // are stored are built by one rank, which has the only strip.
  void share(const Stream<B>& lane, Index k) {
    if (rank_ == 0) return;
    const Panel panel = panel_at(k);
    first_word_ = form_ == EchelonForm::inverse ? 0 : panel.word / 8 * 8;
    reduced_word_ = first_word_;
    width_ = matrix_.stride - first_word_;
    const int builder = stored_ ? int(k % context_.size()) : -1;
    cut_strips(builder);
    reduce_pivot_rows(
        lane, panel,
        share_.deal(lane, matrix_.layout, search_.rows(), matrix_.data.data(), matrix_.stride,
                    first_word_, cuts_, [&](Index slot) { return list_position(slot); }));
    if (stored_) {
      Word* const tabled = builder == context_.rank() ? reduced_.data() : nullptr;
      product_.set_right(lane, BitRows<Word, B>{tabled, width_, rank_, nullptr}, width_);
      if (context_.size() > 1) context_.comm.broadcast(lane, builder, product_.tables());
    } else {
      product_.set_strips(reduced_.data(), rank_, cuts_);
      product_.set_strip(lane, context_.rank());
      share_strips(lane);
    }
    for (const Index row : search_.rows()) active_.remove_global(row);
  }

  // M = A[:, P], and the pivot rows' M so that they become rows of R.
  void update_next(const Stream<B>& lane, Index k) {
    if (rank_ == 0) return;
    const Panel panel = panel_at(k);
    next_first_ = next_last_ = first_word_;
    if (rank_ == 64 * panel.words && panel.word % bit_row_alignment == 0 &&
        panel.words % bit_row_alignment == 0) {
      // The panel's own columns are M, and end as unit columns, or as T's part of the inverse.
      flip_pivots(lane, panel);
      BitRows<const Word, B> m{matrix_.data.data() + panel.word, matrix_.stride, rows().count,
                               rows().list};
      if (!product_.packed()) {
        copy_bits(lane, multipliers(), m, 0, panel.words);
        m = multipliers();
      }
      product_.set_left(lane, m);
      clear_bits(lane, rows(), panel.word, panel.words);
      flip_pivots(lane, panel);
      if (form_ != EchelonForm::inverse)
        first_word_ = next_first_ = next_last_ = panel.word + panel.words;
    } else {
      extract_bits(lane, multipliers(), rows(), panel.word, panel.words, search_.factor().info);
      flip_bits(lane, multipliers_.data(), panel_words_, share_.own_positions(),
                share_.own_pivots(), share_.own_count());
      if (form_ == EchelonForm::inverse) {
        clear_bits(lane, rows(), panel.word, panel.words);
        flip_pivots(lane, panel);
      }
      product_.set_left(lane, multipliers());
    }
    if (k + 1 < steps()) {
      const Panel next = panel_at(k + 1);
      next_first_ = next.word / 8 * 8;
      next_last_ = round_up(next.word + next.words, 8);
      add(lane, next_first_, next_last_);
    }
  }

  void update_rest(const Stream<B>& lane, Index) {
    if (rank_ == 0) return;
    add(lane, first_word_, next_first_);
    add(lane, next_last_, matrix_.stride);
    if (guard_) guard_->pivots(found.panels.back().word * 64, search_.rows());
  }

  void archive(Archive& archive, Index k) {
    this->archive_rows(archive);
    archive.list("pivot_columns", found.columns);
    archive.list("pivot_rows", found.rows);
    std::vector<Index> panels;
    for (const Pivots::PanelRange& p : found.panels)
      panels.insert(panels.end(), {p.first, p.count, p.word, p.words});
    archive.list("panels", panels);
    archive.value("next_panel", next_panel_);
    archive.value("hopeful", search_.hopeful());
    if (!archive.loading()) return;
    for (std::size_t i = 0; i + 3 < panels.size(); i += 4)
      found.panels.push_back({panels[i], panels[i + 1], panels[i + 2], panels[i + 3]});
    for (const Index row : found.rows) active_.remove_global(row);
    if (!guard_) return;
    guard_->resume(k);
    for (const Pivots::PanelRange& p : found.panels)
      guard_->pivots(64 * p.word,
                     {found.rows.begin() + p.first, found.rows.begin() + p.first + p.count});
  }

  Pivots found;

 private:
  [[nodiscard]] Panel panel_at(Index k) const {
    const Index word = k * panel_words_;
    const Index words = std::min(panel_words_, ceil_div(columns_, 64) - word);
    return {word, words, std::min(64 * words, columns_ - 64 * word)};
  }
  [[nodiscard]] bool all_rows() const { return form_ != EchelonForm::echelon; }
  /// The rows that this panel updates.
  [[nodiscard]] BitRows<Word, B> rows() const {
    return all_rows()
               ? matrix_.rows()
               : BitRows<Word, B>{matrix_.data.data(), matrix_.stride, update_count_, update_list_};
  }
  [[nodiscard]] Index list_position(Index slot) const {
    return all_rows() ? slot : active_.position(slot);
  }
  [[nodiscard]] BitRows<Word, B> multipliers() const {
    return {multipliers_.data(), panel_words_, rows().count, nullptr};
  }
  // A[:, from .. to) ^= M R
  void add(const Stream<B>& lane, Index from, Index to) {
    product_.add(lane, rows(), from, from - reduced_word_, to - from);
  }

  /// Each rank's strip of the width_ words: equal ones, or all for `builder`.
  void cut_strips(int builder) {
    const int ranks = context_.size();
    const Index each = round_up(ceil_div(width_, Index(ranks)), bit_row_alignment);
    cuts_.assign(1, 0);
    for (int p = 0; p < ranks; ++p)
      cuts_.push_back(builder >= 0 ? (p < builder ? 0 : width_) : std::min(width_, (p + 1) * each));
  }

  /// R = T S in this rank's strip.
  void reduce_pivot_rows(const Stream<B>& lane, const Panel& panel,
                         BitRows<const Word, B> pivot_rows) {
    const auto rank = std::size_t(context_.rank());
    const Index from = cuts_[rank], words = cuts_[rank + 1] - from;
    if (words == 0) return;
    const PanelFactor<B> factor = search_.factor();
    const BitRows<const Word, B> transform{factor.transform, factor.pitch, rank_, nullptr};
    const BitRows<Word, B> strip{reduced_.data() + rank_ * from, words, rank_, nullptr};
    stages_.time(lane, Stage::widen, [&] {
      fill_zero(lane, reduced_.view().slice(rank_ * from, rank_ * words));
      reducing_.set_right(lane, pivot_rows, words);
      reducing_.set_left(lane, transform);
      reducing_.add(lane, strip, 0, 0, words);
    });
    if (form_ != EchelonForm::inverse) return;
    const Index first = std::max(panel.word, from),
                last = std::min(panel.word + panel.words, from + words);
    if (first < last)
      copy_bits(lane, {strip.data + first - from, words, rank_, nullptr}, transform,
                first - panel.word, last - first);
  }

  void share_strips(const Stream<B>& lane) {
    if (context_.size() == 1) return;
    std::vector<Piece> pieces;
    for (int p = 0; p < context_.size(); ++p) {
      const View<Word, B> strip = product_.strip_memory(p);
      pieces.push_back({p, strip.data, strip.size * Index(sizeof(Word))});
    }
    context_.comm.broadcast_group(lane, pieces);
  }

  /// Toggles, in each pivot row, the bit of its own pivot among the panel's columns.
  void flip_pivots(const Stream<B>& lane, const Panel& panel) {
    flip_bits(lane, matrix_.data.data() + panel.word, matrix_.stride, share_.own_slots(),
              share_.own_pivots(), share_.own_count());
  }

  void keep(const Panel& panel) {
    if (rank_ > 0) found.panels.push_back({found.rank(), rank_, panel.word, panel.words});
    for (Index q = 0; q < rank_; ++q)
      found.columns.push_back(64 * panel.word + search_.columns()[q]);
    found.rows.insert(found.rows.end(), search_.rows().begin(), search_.rows().end());
  }

  /// Which panel is the next with a one in an active row; none: the rank is exhausted.
  void skip_zero_columns(const Stream<B>& lane, const Panel& panel, Index k) {
    const Index last = ceil_div(columns_, 64);
    lane.wait(context_.bulk.record());
    first_nonzero_word(
        lane, {matrix_.data.data(), matrix_.stride, active_.count(), active_.upload(lane, k)},
        std::min(last, panel.word + panel.words), last, nonzero_.data());
    download(lane, nonzero_host_.data(), nonzero_.view());
    lane.synchronize();
    const Index word = context_.control.reduce(nonzero_host_[0], Reduce::min);
    next_panel_ = word / panel_words_;
    if (word == last) stop_ = true;
  }

  Index columns_;
  EchelonForm form_;
  Index panel_words_;
  ActiveRows<B> active_;
  bool stored_;
  PanelSearch<B> search_;
  RowShare<B> share_;
  Buffer<Word, B> reduced_, multipliers_;
  BitProduct<B> reducing_, product_;  ///< T S; M R
  Buffer<Index, B> nonzero_;
  PinnedBuffer<Index> nonzero_host_;
  StageTimes<B> stages_;
  Index rank_ = 0, next_panel_ = 0, next_first_ = 0, next_last_ = 0;
  Index first_word_ = 0;                ///< first that the update changes
  Index reduced_word_ = 0, width_ = 0;  ///< words of R
  std::vector<Index> cuts_;             ///< of R's strips in reduced_
  const Index* update_list_ = nullptr;  ///< of the rows that the echelon form updates
  Index update_count_ = 0;
  bool stop_ = false;
};

}  // namespace

template <class B>
Index echelon_bytes(BlockCyclic layout, Index stride, PanelPlan plan) {
  if (plan.by_columns) return column_bytes<B>(layout, stride, plan);
  const Index block = plan.columns;
  const Index words = block / 64, slots = layout.slots(0);
  return ActiveRows<B>::backend_bytes(slots) + PanelSearch<B>::bytes(slots, words, layout.ranks) +
         8 * (2 * block * stride + slots * words) +
         (plan.guard ? BitGuard<B>::bytes(layout, stride) : 0) +
         BitProduct<B>::bytes(block, block, stride, {plan.product.tables, false, {}}) +
         BitProduct<B>::bytes(slots, block, stride, plan.product);
}

template <class B>
Pivots reduce_to_echelon(Context<B>& context, BitMatrix<B>& matrix, Index columns, EchelonForm form,
                         PanelPlan plan, Progress& progress, const StageTimes<B>& stages) {
  if (plan.by_columns)
    return reduce_by_columns(context, matrix, columns, form, plan, progress, stages);
  auto method = collectively(context.control, [&] {
    return std::make_unique<Echelon<B>>(context, matrix, columns, form, plan, stages);
  });
  progress.begin("eliminating", double(method->steps()));
  eliminate(context, *method, progress, stages);
  progress.end();
  return std::move(method->found);
}

#define TERRACE_INSTANTIATE(B)                                                                 \
  template Index echelon_bytes<B>(BlockCyclic, Index, PanelPlan);                              \
  template Pivots reduce_to_echelon(Context<B>&, BitMatrix<B>&, Index, EchelonForm, PanelPlan, \
                                    Progress&, const StageTimes<B>&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::gf2
