#include "src/dense/elimination.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "distrib/agree.hpp"
#include "kernels/base/error.hpp"
#include "kernels/base/matrix.hpp"
#include "kernels/base/rows.hpp"
#include "kernels/dense/low.hpp"
#include "kernels/dense/lu.hpp"
#include "src/frame/eliminate.hpp"
#include "src/frame/guard.hpp"

namespace terrace::dense {

namespace {

/// Sign of the permutation j -> p[j].
int parity(const std::vector<Index>& p) {
  std::vector<bool> seen(p.size());
  int sign = 1;
  for (std::size_t start = 0; start < p.size(); ++start)
    for (std::size_t j = start; !seen[j]; j = std::size_t(p[j])) {
      seen[j] = true;
      if (std::size_t(p[j]) != start) sign = -sign;
    }
  return sign;
}

}  // namespace

template <class B>
RowElimination<B>::RowElimination(Context<B>& context, const EliminationPlan& plan)
    : context_(context), plan_(plan), slots_(plan.rows.slots(context.rank())) {
  const Index most = plan.rows.slots(0), block = plan.block, ranks = context.size();
  collectively(context.control, [&] {
    const BufferSizes sizes = dense::sizes(B{}, most, plan.rows.block, block, int(ranks));
    const bool partial = plan.pivoting == Pivoting::partial;
    const Index record = dense::record_size(block) * (partial ? 1 : sizes.leaves * block);
    a_ = Buffer<double, B>((std::is_same_v<B, Cpu> ? slots_ : round_up(slots_, 2)) * plan.ld);
    for (Buffer<double, B>& n : n_) n = Buffer<double, B>(sizes.panel);
    lu_ = Buffer<double, B>(2 * block * block);
    summary_ = Buffer<double, B>(steps() * (2 + 2 * block));
    work_ = Buffer<double, B>(sizes.work);
    record_ = Buffer<double, B>(record);
    records_ = Buffer<double, B>(record * ranks);
    pivot_rows_ = Buffer<double, B>(block * plan.sent_columns());
    separate_y_ = sizes.separate_y;
    if (ranks > 1 || separate_y_) other_rows_ = Buffer<double, B>(block * plan.sent_columns());
    if (plan.emulated) integers_ = Buffer<std::byte, B>(products_bytes<B>(plan, most));
    if (plan.low) integers_ = Buffer<std::byte, B>(low_bytes(B{}, most, plan.columns, plan.block));
    global_row_ = Buffer<Index, B>(slots_);
    column_of_ = Buffer<Index, B>(slots_);
    pivots_ = Buffer<Index, B>(block);
    info_ = Buffer<Index, B>(2);
    list_ = Buffer<Index, B>(std::max(plan.n, 2 * block));
    summary_host_ = PinnedBuffer<double>(steps() * (2 + 2 * block));
    list_host_ = PinnedBuffer<Index>(std::max(plan.n, std::max(slots_, 2 * block)));
    pivot_row_.resize(std::size_t(plan.n));
    destination_.resize(std::size_t(slots_));
    if (plan.lu) {
      numbers_ = Buffer<Index, B>(slots_);
      moves_ = Buffer<Index, B>(list_size(block));
      if (plan.keep) kept_ = Buffer<double, B>(block * plan.columns);
    }
    if (plan.gathered) {
      sent_ = Buffer<Index, B>(2 * slots_);
      sent_host_ = PinnedBuffer<Index>(4 * plan.n);
      if (context.rank() == 0) {
        gathered_ = Buffer<double, B>(dense::sizes(B{}, plan.n, 1, block, 1).panel);
        sent_by_all_ = Buffer<Index, B>(4 * plan.n);
      }
    }
    for (Index s = 0; s < slots_; ++s) list_host_[s] = plan.rows.global(s, context.rank());
    upload(context.ahead, global_row_.view(), list_host_.data());
    if (const Index used = plan.n + plan.right; plan.columns > used)  // the others are loaded
      clear_columns(context.ahead, slots_, plan.ld - used, a_.data() + used, plan.ld);
    context.ahead.synchronize();
    if (plan.guard)  // a check reads the rows once, an update of a panel does 2 block flops a
                     // number
      guard_ = std::make_unique<DenseGuard<B>>(
          context, plan.rows, plan.n, plan.n + plan.right - 1, plan.inverse, plan.lu,
          plan.guard_interval > 0 ? plan.guard_interval
                                  : ceil_div(std::is_same_v<B, Cpu> ? 2304 : 16384, plan.block));
  });
  rows_ = {a_, slots_, plan.columns, plan.ld, plan.rows.block, global_row_, column_of_};
}

template <class B>
dense::Panel<B> RowElimination<B>::panel(Index k) const {
  dense::Panel<B> panel;
  panel.first = k * plan_.block;
  panel.width = std::min(plan_.block, plan_.n - panel.first);
  panel.block = plan_.block;
  panel.n = n_[std::size_t(k % 2)];
  if (plan_.lu && k + 1 < Index(resting_.size())) panel.skip = base(k + 1) - base(k);
  panel.lu = lu_;
  panel.pivots = pivots_;
  panel.info = info_;
  panel.summary = summary_.view().slice(k * (2 + 2 * plan_.block), 2 + 2 * plan_.block);
  return panel;
}

template <class B>
Index RowElimination<B>::from(Index k) const {
  return plan_.inverse ? 0 : std::min(plan_.n, (k + 1) * plan_.block);
}

template <class B>
void RowElimination<B>::choose_partial(const Stream<B>& lane, const dense::Rows<B>& rows,
                                       const dense::Panel<B>& panel) {
  if (context_.size() == 1) return dense::factor_panel(lane, rows, panel, work_.view());
  dense::first_candidate(lane, rows, panel, record_.view(), work_.view());
  for (Index j = 0; j < panel.width; ++j) {
    context_.comm.template all_gather<double>(lane, record_, records_.view());
    dense::eliminate_column<B>(lane, rows, panel, j, records_, context_.rank(), record_, work_);
  }
}

template <class B>
void RowElimination<B>::choose_tournament(const Stream<B>& lane, const dense::Rows<B>& rows,
                                          const dense::Panel<B>& panel) {
  dense::choose_candidates(lane, rows, panel, record_.view(), work_.view());
  context_.comm.template all_gather<double>(lane, record_, records_.view());
  dense::play_final<B>(lane, rows, panel, records_, work_);
  dense::load_panel(lane, rows, panel, false);
  dense::divide_by_upper(lane, rows, panel, work_.view());
}

template <class B>
void RowElimination<B>::choose(const Stream<B>& lane, Index k) {
  const dense::Panel<B> p = panel(k);
  const dense::Rows<B> rows = met(k);
  if (plan_.gathered) {
    choose_gathered(lane, rows, p, k);
  } else {
    if (!direct() || k == first_) dense::load_panel(lane, rows, p, true);
    if (plan_.pivoting == Pivoting::partial)
      choose_partial(lane, rows, p);
    else
      choose_tournament(lane, rows, p);
  }
  const bool final = direct() || plan_.lu || plan_.gathered;  // pivot rows of N
  dense::finish_panel(lane, rows, p, final, work_.view());
  if (!direct()) download(lane, summary_host_.data() + k * p.summary.size, p.summary);
}

template <class B>
void RowElimination<B>::note_panel(Index k) {
  const Index first = k * plan_.block, width = std::min(plan_.block, plan_.n - first);
  const double* const summary = summary_host_.data() + k * (2 + 2 * plan_.block);
  if (!outcome_.good()) return;
  if (summary[0] >= 0) {
    outcome_.bad_column = first + Index(summary[0]);
    outcome_.overflow = summary[1] == 2;
    return;
  }
  for (Index t = 0; t < width; ++t) {
    pivot_row_[std::size_t(first + t)] = Index(summary[2 + t]);
    const double u = summary[2 + plan_.block + t];
    outcome_.log_abs_determinant += std::log(std::fabs(u));
    if (u < 0) outcome_.determinant_sign = -outcome_.determinant_sign;
  }
}

template <class B>
void RowElimination<B>::note_panels(Index end) {
  for (; noted_ < end; ++noted_) note_panel(noted_);
}

template <class B>
bool RowElimination<B>::stop(Index k) {
  if (guard_ && guard_->stops()) return true;
  if (direct()) {  // the host follows at a distance, so that the device never waits for it
    const Index end = k - Index(known_.size()) + 1;
    if (end <= noted_) return !outcome_.good();
    known_[std::size_t(end - 1) % known_.size()].synchronize();
    note_panels(end);
  } else {
    context_.ahead.synchronize();
    note_panels(k + 1);
  }
  return !outcome_.good();
}

template <class B>
void RowElimination<B>::archive(Archive& archive, Index k) {
  const Stream<B>& lane = context_.ahead;
  if (!archive.loading()) {
    note_panels(k);
    if constexpr (dense::is_direct(B{}))  // the next panel stands where it will be factored
      if (direct() && k < steps()) dense::store_panel(lane, met(k), panel(k));
  }
  const std::vector<Range> own = plan_.rows.ranges(context_.rank());
  if (plan_.lu) {
    archive_rows(lane, archive, k);
  } else {
    archive.rows(lane, "rows", plan_.n, plan_.n + plan_.right, own, a_.data(), plan_.ld);
    archive.rows(lane, "pivot_columns", plan_.n, 1, own, column_of_.data(), 1);
  }
  archive.list("pivot_rows", pivot_row_);
  archive.value("bad_column", outcome_.bad_column);
  archive.value("overflow", outcome_.overflow);
  archive.value("log_abs_determinant", outcome_.log_abs_determinant);
  archive.value("determinant_sign", outcome_.determinant_sign);
  first_ = archive.loading() ? k : first_;
  noted_ = k;
  if (archive.loading() && guard_)
    guard_->begin(guarded_rows(k), column_of_.data(), pivot_row_,
                  std::min(plan_.n, k * plan_.block), k);
}

template <class B>
void RowElimination<B>::share(const Stream<B>& lane, Index k) {
  if constexpr (dense::is_direct(B{}))
    if (direct()) {
      dense::take_rows(lane, met(k), panel(k), from(k), plan_.inverse, y());
      if (plan_.lu) retire(lane, k, pivots_.view().slice(0, panel(k).width));
      if (plan_.low) dense::begin_low<B>(lane, met(k), panel(k), y(), from(k), integers_.view());
      if (k + 1 < steps()) dense::load_panel(lane, met(k + 1), panel(k + 1), false);
      return;
    }
  // The pivot rows of panel k lie on any ranks: each sends its own, packed in pivot order.
  const Index first = k * plan_.block, width = std::min(plan_.block, plan_.n - first);
  const Index* const pivot = pivot_row_.data() + first;
  const Index length = plan_.columns - from(k);
  std::vector<Index> begin(std::size_t(context_.size()) + 1, 0);
  for (Index t = 0; t < width; ++t) ++begin[std::size_t(plan_.rows.owner(pivot[t])) + 1];
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  Index* const mine = list_host_.data();
  Index* const position = mine + plan_.block;
  std::vector<Index> next = begin;
  Index count = 0;
  for (Index t = 0; t < width; ++t) {
    const int owner = plan_.rows.owner(pivot[t]);
    position[t] = next[std::size_t(owner)]++;
    if (owner == context_.rank()) mine[count++] = slot_of(pivot[t]) - base(k);
  }
  upload(lane, list_.view().slice(0, 2 * plan_.block), list_host_.data());
  const View<const Index, B> list = list_.view().slice(0, count);
  if (context_.size() == 1) {
    dense::collect_rows(lane, met(k), list, from(k), pivot_rows_.view());
  } else {
    const auto part = [&](int rank) {
      const Index at = begin[std::size_t(rank)];
      return other_rows_.view().slice(at * length, (begin[std::size_t(rank) + 1] - at) * length);
    };
    dense::collect_rows(lane, met(k), list, from(k), part(context_.rank()));
    std::vector<Piece> pieces;
    for (int rank = 0; rank < context_.size(); ++rank)
      pieces.push_back({rank, part(rank).data, part(rank).size * Index(sizeof(double))});
    context_.comm.broadcast_group(lane, pieces);
    dense::place_rows<B>(lane, length, list_.view().slice(plan_.block, width), other_rows_,
                         pivot_rows_);
  }
  if (!plan_.lu) dense::begin_update(lane, rows_, panel(k), from(k), plan_.inverse);
  dense::solve_lower<B>(lane, panel(k), length, from(k), plan_.inverse, pivot_rows_, y());
  if (plan_.lu) {
    note_moves(k, {mine, mine + count});
    retire(lane, k, list);
  }
  if (plan_.low) dense::begin_low<B>(lane, met(k), panel(k), y(), from(k), integers_.view());
}

template <class B>
void RowElimination<B>::update_next(const Stream<B>& lane, Index k) {
  const dense::Panel<B> p = panel(k);
  const Index end = p.first + p.width;
  if constexpr (dense::is_direct(B{}))
    if (direct()) {
      if (end < plan_.n) dense::update_panel<B>(lane, met(k), p, y(), from(k), panel(k + 1));
      return;
    }
  const Index next_end = std::min(plan_.n, end + plan_.block);
  if constexpr (dense::is_direct(B{})) {
    if (plan_.low) {  // in FP64: the workspace of low precision is the other lane's
      if (end < next_end) dense::update<B>(lane, met(k), p, y(), from(k), end, next_end);
      return;
    }
  }
  update(lane, k, end, next_end);
}

template <class B>
void RowElimination<B>::update(const Stream<B>& lane, Index k, Index c0, Index c1) {
  if (plan_.low)
    dense::update_low<B>(lane, met(k), panel(k), y(), from(k), c0, c1, integers_.view());
  else
    dense::update<B>(lane, met(k), panel(k), y(), from(k), c0, c1);
}

template <class B>
void RowElimination<B>::update_rest(const Stream<B>& lane, Index k) {
  const dense::Panel<B> p = panel(k);
  const Index end = p.first + p.width, next_end = std::min(plan_.n, end + plan_.block);
  const Index columns = plan_.columns;
  if constexpr (dense::is_direct(B{})) {
    if (plan_.emulated) {
      const emulated::Shape shape = shape_of_products(plan_, slots_);
      dense::begin_emulated(lane, rows_, p, shape, integers_.view());
      const auto apply = [&](Index c0, Index c1) {
        for (Index c = c0; c < c1; c += shape.n)
          dense::update_emulated<B>(lane, rows_, p, y(), from(k), c, std::min(c1, c + shape.n),
                                    shape, integers_.view());
      };
      if (plan_.inverse) apply(0, end);
      apply(next_end, columns);
    }
  }
  if (!plan_.emulated) {
    if (plan_.inverse) dense::update<B>(lane, rows_, p, y(), from(k), 0, end);
    update(lane, k, next_end, columns);
  }
  if (!direct()) return;
  download(lane, summary_host_.data() + k * p.summary.size, p.summary);
  known_[std::size_t(k) % known_.size()] = lane.record();
}

template <class B>
void RowElimination<B>::begin_guard() {
  if (guard_) guard_->begin(guarded_rows(0), column_of_.data(), pivot_row_, 0, 0);
}

template <class B>
void RowElimination<B>::end_guard() {
  if (guard_ && !guard_->stops() && (direct() || outcome_.good()))
    guard_->finish(guarded_rows(steps()), column_of_.data(), pivot_row_, plan_.n, steps());
}

template <class B>
void RowElimination<B>::guard(const Stream<B>& lane, Index k) {
  flip_for_tests(lane, context_.rank(), k + 1, a_.data(), 8 * a_.size());
  if (!guard_) return;
  const Index end = std::min(plan_.n, (k + 1) * plan_.block);
  const Range next{end, std::min(plan_.block, plan_.n - end)};
  // Direct: the next panel is updated where it will be factored.
  GuardPanel<B> apart;
  if (direct() && next.count > 0) {
    const View<double, B> n = n_[std::size_t((k + 1) % 2)].view();
    const Index first = base(k + 1);
    apart = {next, n.data, std::max(n.size / plan_.block - first, row_grain), first};
  }
  guard_->step(guarded_rows(k + 1), column_of_.data(), pivot_row_, end, k, apart);
}

template <class B>
EliminationOutcome RowElimination<B>::run(Progress& progress, const StageTimes<B>& stages) {
  const Stream<B>& lane = context_.ahead;
  outcome_ = {};
  first_ = noted_ = counted_ = 0;
  if (plan_.gathered) column_of_row_.assign(std::size_t(plan_.n), Index(-1));
  std::fill_n(list_host_.data(), slots_, Index(-1));
  upload(lane, column_of_.view(), list_host_.data());
  lane.synchronize();
  if (plan_.lu) begin_lu(lane);
  progress.begin("elimination", double(steps()));
  eliminate(context_, *this, progress, stages);
  progress.end();
  if (guard_ && guard_->stops()) return outcome_;
  if (direct()) note_panels(steps());
  if (!outcome_.good()) return outcome_;
  outcome_.determinant_sign *= parity(pivot_row_);
  // The guard's column is done with: one more would change the others' bits in a product of cuBLAS.
  if (plan_.lu) solve_upper(lane, plan_.right - (guard_ ? 1 : 0));
  if (plan_.inverse) {  // stored column k belongs to row p(k) of A
    std::copy(pivot_row_.begin(), pivot_row_.end(), list_host_.data());
    upload(lane, list_.view().slice(0, plan_.n), list_host_.data());
    dense::permute_columns<B>(lane, rows_, list_.view().slice(0, plan_.n), pivot_rows_);
  }
  std::vector<Index> columns(static_cast<std::size_t>(slots_));
  download(lane, columns.data(), column_of_.view());
  lane.synchronize();
  destination_ = std::move(columns);
  const bool all = plan_.inverse || (plan_.keep && !plan_.low);  // in low precision X shows it
  outcome_.overflow = has_overflow(lane, all ? 0 : plan_.n, plan_.n + plan_.right);
  return outcome_;
}

template <class B>
bool RowElimination<B>::has_overflow(const Stream<B>& lane, Index begin, Index end) const {
  const double most = slots_ == 0 ? 0
                                  : max_abs<B>(lane, slots_, end - begin,
                                               a_.view().slice(begin, a_.size() - begin), plan_.ld);
  return context_.control.reduce(most, Reduce::max) == std::numeric_limits<double>::infinity();
}

template <class B>
EliminationOutcome RowElimination<B>::run_guarded(Progress& progress,
                                                  const std::function<void()>& load) {
  EliminationOutcome found = run(progress);
  if (!guard_) return found;
  Checkpoints* const checkpoints = std::exchange(progress.checkpoints, nullptr);
  const auto again = [&] {
    load();
    found = run(progress);
    if (guard_->confirmed()) guard_->accuse();
  };
  while (guard_->suspects()) {
    guard_->try_again();
    again();
  }
  if (!found.good()) {
    const EliminationOutcome before = found;
    again();
    while (guard_->suspects()) {
      guard_->try_again();
      again();
    }
    if (found.good())
      confirmed_fault(context_.control,
                      before.bad_column >= 0
                          ? fmt::format("column {} had no pivot, and has one with the matrix read "
                                        "again",
                                        before.bad_column)
                          : std::string("the result was not finite, and is with the matrix read "
                                        "again"));
    found = before;
  }
  progress.checkpoints = checkpoints;
  return found;
}

#define INSTANTIATE(B) template class RowElimination<B>;
TERRACE_FOR_EACH_BACKEND(INSTANTIATE)
#undef INSTANTIATE

}  // namespace terrace::dense
