#include "src/gf2/columns.hpp"

#include <algorithm>
#include <memory>
#include <numeric>

#include "distrib/agree.hpp"
#include "kernels/gf2/columns.hpp"
#include "src/frame/guard.hpp"
#include "src/gf2/guarded.hpp"

namespace terrace::gf2 {

namespace {

/// Step k clears the columns of word k; everything happens in choose().
template <class B>
class Columns : public GuardedMatrix<B> {
  using Base = GuardedMatrix<B>;
  using Base::context_, Base::matrix_, Base::guard_;

 public:
  static constexpr bool share_after_update = false;

  Columns(Context<B>& context, BitMatrix<B>& matrix, Index columns, EchelonForm form,
          const PanelPlan& plan)
      : Base(context, matrix),
        columns_(columns),
        form_(form),
        order_(matrix.slots()),
        state_(2),
        found_(std::max<Index>(1, std::min(matrix.slots(), columns))),
        state_host_(2),
        order_host_(std::size_t(matrix.slots())) {
    std::iota(order_host_.begin(), order_host_.end(), 0);
    gauss_ = {matrix.data.data(), matrix.stride, matrix.slots(), matrix.words,
              order_.data(),      state_.data(), found_.data()};
    gauss_.in_place = form == EchelonForm::inverse;
    gauss_.shape = plan.column_shape;
    gauss_.swap = plan.column_swap;
    gauss_.path = plan.column_path;
    if (gauss_.path != PivotPath::plain) staged_ = Buffer<Word, B>(matrix.stride);
    gauss_.staged = staged_.data();
    if constexpr (std::is_same_v<B, Cuda>)
      if (gauss_.path == PivotPath::texture) {
        texture_ = std::make_unique<RowTexture>(staged_.data(), staged_.size());
        gauss_.texture = texture_->handle();
      }
    upload(context.ahead, order_.view(), order_host_.data());
    begin_at(0);
    if (plan.guard)  // as often as with panels of as many columns
      this->guard_with(form == EchelonForm::inverse, plan, 64);
  }
  void end_guard() {
    if (guard_) guard_->finish(steps());
  }

  [[nodiscard]] Index steps() const {
    return matrix_.layout.extent > 0 ? ceil_div(columns_, 64) : 0;
  }

  void choose(const Stream<B>& lane, Index k) {
    if (rank_ == matrix_.slots()) {
      stop_ = true;
      return;
    }
    lane.wait(context_.bulk.record());
    const Index first = rank_, last = std::min(64 * (k + 1), columns_);
    const Index above = form_ == EchelonForm::echelon ? first : 0;
    for (Index c = 64 * k; c < last; ++c) {
      search_column(lane, gauss_, c, true);
      clear_column(lane, gauss_, c, above);
    }
    download(lane, state_host_.data(), state_.view());
    lane.synchronize();
    rank_ = state_host_[0] + (state_host_[1] >= 0 ? 1 : 0);
    if (form_ != EchelonForm::inverse) return;
    if (rank_ < last) stop_ = singular_ = true;
    if (guard_) tell_guard(lane, {first, rank_ - first});
  }

  [[nodiscard]] bool stop(Index) const { return stop_; }
  void share(const Stream<B>&, Index) {}
  void update_next(const Stream<B>&, Index) {}
  void update_rest(const Stream<B>&, Index) {}
  void archive(Archive& archive, Index k) {
    const Stream<B>& lane = context_.ahead;
    this->archive_rows(archive);
    std::vector<Index> columns;
    if (!archive.loading()) columns = take_pivots();
    archive.list("pivot_columns", columns);
    archive.list("order", order_host_);
    if (!archive.loading()) return;
    upload(lane, order_.view(), order_host_.data());
    upload(lane, found_.view().slice(0, Index(columns.size())), columns.data());
    begin_at(Index(columns.size()));
    if (!guard_) return;
    guard_->resume(k);
    guard_->pivots(0, {order_host_.begin(), order_host_.begin() + rank_});
  }

  [[nodiscard]] Pivots pivots() {
    if (gauss_.swap) put_back();
    Pivots found;
    found.columns = take_pivots();
    found.rows.assign(order_host_.begin(), order_host_.begin() + rank_);
    for (Index q = 0; q < rank_; ++q) {
      const Index word = found.columns[std::size_t(q)] / 64;
      if (found.panels.empty() || found.panels.back().word != word)
        found.panels.push_back({q, 0, word, 1});
      ++found.panels.back().count;
    }
    if (singular_) {
      Index q = 0;
      while (q < rank_ && found.columns[std::size_t(q)] == q) ++q;
      found.first_zero_pivot = q;
    }
    return found;
  }

 private:
  void begin_at(Index rank) {
    const Index state[2] = {rank, -1};
    upload(context_.ahead, state_.view(), state);
    context_.ahead.synchronize();
    rank_ = rank;
  }
  /// These pivots are eliminated; the last of a singular matrix may leave columns out.
  void tell_guard(const Stream<B>& lane, Range pivots) {
    std::vector<Index> columns(std::size_t(pivots.count)), rows(columns.size());
    if (pivots.count == 0) return;
    download(lane, columns.data(), found_.view().slice(pivots.first, pivots.count));
    download(lane, rows.data(), order_.view().slice(pivots.first, pivots.count));
    lane.synchronize();
    for (std::size_t q = 0; q < rows.size(); ++q) guard_->pivots(columns[q], {rows[q]});
  }
  /// Rows that were swapped go where they were.
  void put_back() {
    const Stream<B>& lane = context_.ahead;
    const Buffer<Word, B> rows(matrix_.data.size());
    copy_bits(lane, BitRows<Word, B>{rows.data(), matrix_.stride, matrix_.slots(), order_.data()},
              matrix_.rows(), 0, matrix_.stride);
    copy_bits(lane, matrix_.rows(),
              BitRows<const Word, B>{rows.data(), matrix_.stride, matrix_.slots(), nullptr}, 0,
              matrix_.stride);
    lane.synchronize();
  }
  /// The pivots' columns; order_host_ as on the backend.
  std::vector<Index> take_pivots() {
    std::vector<Index> columns(static_cast<std::size_t>(rank_));
    const Stream<B>& lane = context_.ahead;
    download(lane, columns.data(), found_.view().slice(0, rank_));
    download(lane, order_host_.data(), order_.view());
    lane.synchronize();
    return columns;
  }

  Index columns_;
  EchelonForm form_;
  Buffer<Index, B> order_, state_, found_;
  PinnedBuffer<Index> state_host_;
  std::vector<Index> order_host_;
  ColumnGauss<B> gauss_;
  Buffer<Word, B> staged_;
  std::unique_ptr<RowTexture> texture_;
  Index rank_ = 0;
  bool stop_ = false, singular_ = false;
};

}  // namespace

template <class B>
Index column_bytes(BlockCyclic layout, Index stride, PanelPlan plan) {
  return 8 * (2 * layout.slots(0) + 3) + (plan.guard ? BitGuard<B>::bytes(layout, stride) : 0);
}

template <class B>
Pivots reduce_by_columns(Context<B>& context, BitMatrix<B>& matrix, Index columns, EchelonForm form,
                         PanelPlan plan, Progress& progress, const StageTimes<B>& stages) {
  auto method = collectively(context.control, [&] {
    return std::make_unique<Columns<B>>(context, matrix, columns, form, plan);
  });
  progress.begin("eliminating", double(method->steps()));
  eliminate(context, *method, progress, stages);
  progress.end();
  return method->pivots();
}

#define TERRACE_INSTANTIATE(B)                                                                 \
  template Index column_bytes<B>(BlockCyclic, Index, PanelPlan);                               \
  template Pivots reduce_by_columns(Context<B>&, BitMatrix<B>&, Index, EchelonForm, PanelPlan, \
                                    Progress&, const StageTimes<B>&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::gf2
