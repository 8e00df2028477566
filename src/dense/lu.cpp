// RowElimination's members for elimination in which pivot rows rest (LU).
#include <algorithm>
#include <numeric>

#include "kernels/dense/lu.hpp"
#include "src/dense/elimination.hpp"

namespace terrace::dense {

template <class B>
Index RowElimination<B>::base(Index k) const {
  return plan_.lu ? resting_[std::size_t(k)] / row_grain * row_grain : 0;
}

template <class B>
dense::Rows<B> RowElimination<B>::met(Index k) const {
  if (!plan_.lu) return rows_;
  const Index b = base(k), count = slots_ - b;
  dense::Rows<B> rows = rows_;
  rows.a = a_.view().slice(b * plan_.ld, a_.size() - b * plan_.ld);
  rows.slots = count;
  rows.global_row = direct() ? numbers_.view().slice(0, count) : global_row_.view().slice(b, count);
  rows.column_of = column_of_.view().slice(b, count);
  return rows;
}

template <class B>
void RowElimination<B>::begin_lu(const Stream<B>& lane) {
  resting_.assign(1, 0);
  if (direct())
    for (Index k = 0; k < steps(); ++k)
      resting_.push_back(std::min(plan_.n, (k + 1) * plan_.block));
  place_.resize(std::size_t(slots_));
  std::iota(place_.begin(), place_.end(), Index(0));
  origin_ = place_;
  upload(lane, numbers_.view(), place_.data());
  std::vector<Index> rows(place_.size());
  for (Index s = 0; s < slots_; ++s) rows[std::size_t(s)] = plan_.rows.global(s, context_.rank());
  upload(lane, global_row_.view(), rows.data());
  lane.synchronize();
}

template <class B>
void RowElimination<B>::retire(const Stream<B>& lane, Index k, View<const Index, B> pivots) {
  const Index b = base(k), count = slots_ - b;
  Retirement<B> what;
  what.pivots = pivots;
  what.top = resting_[std::size_t(k)] - b;
  what.from = from(k);
  what.y = y();
  what.ids = global_row_.view().slice(b, count);
  if (guard_) what.sizes = guard_->sizes().slice(b, count);
  what.list = moves_;
  what.keep = plan_.keep;
  what.room = kept_;
  retire_rows<B>(lane, met(k), panel(k), what);
}

template <class B>
void RowElimination<B>::note_moves(Index k, const std::vector<Index>& pivots) {
  const Index b = base(k), top = resting_[std::size_t(k)];
  const Moves moves = moves_of(pivots, top - b);
  std::vector<Index> first_slots;
  first_slots.reserve(pivots.size());
  for (const Index p : pivots) first_slots.push_back(origin_[std::size_t(b + p)]);
  const auto put = [&](Index slot, Index origin) {
    origin_[std::size_t(slot)] = origin;
    place_[std::size_t(origin)] = slot;
  };
  for (std::size_t m = 0; m < moves.to.size(); ++m)
    put(b + moves.to[m], origin_[std::size_t(b + moves.from[m])]);
  for (std::size_t i = 0; i < first_slots.size(); ++i) put(top + Index(i), first_slots[i]);
  resting_.push_back(top + Index(pivots.size()));
}

template <class B>
void RowElimination<B>::solve_upper(const Stream<B>& lane, Index right) {
  const Index n = plan_.n;
  if (right == 0) return;
  if (direct()) {  // the whole triangle at once
    const View<double, B> x = a_.view().slice(n, a_.size() - n);
    return dense::solve_upper<B>(lane, n, right, a_, plan_.ld, x, plan_.ld, n_[0]);
  }
  list_panels(lane);
  for (Index k = steps(); k-- > 0;) substitute(lane, k, right, false);
}

template <class B>
EliminationOutcome RowElimination<B>::solve_factored(Index right) {
  const Stream<B>& lane = context_.ahead;
  EliminationOutcome found;
  if (right == 0) return found;
  list_panels(lane);
  for (Index k = 0; k < steps(); ++k) substitute(lane, k, right, true);
  solve_upper(lane, right);
  found.overflow = has_overflow(lane, plan_.n, plan_.n + right);
  return found;
}

template <class B>
void RowElimination<B>::adopt_factors() {
  const Stream<B>& lane = context_.ahead;
  std::iota(pivot_row_.begin(), pivot_row_.end(), Index(0));
  begin_lu(lane);
  for (Index s = 0; s < slots_; ++s)
    destination_[std::size_t(s)] = plan_.rows.global(s, context_.rank());
  resting_.assign(1, 0);
  for (Index k = 0; k < steps(); ++k) {
    Index count = resting_.back();
    while (count < slots_ && destination_[std::size_t(count)] < (k + 1) * plan_.block) ++count;
    resting_.push_back(count);
  }
}

template <class B>
void RowElimination<B>::list_panels(const Stream<B>& lane) {
  if (context_.size() == 1) return;
  // Of every panel: the place of its rows among what the ranks send, and on this rank, in the order
  // of its slots, the rows of the panel that they are.
  std::vector<Index> place(static_cast<std::size_t>(plan_.n)), own(std::size_t(slots_), Index(0));
  for (Index k = 0; k < steps(); ++k) {
    const Index first = k * plan_.block, width = panel(k).width;
    std::vector<Index> next(std::size_t(context_.size()) + 1, 0);
    const auto owner = [&](Index t) {
      return plan_.rows.owner(pivot_row_[std::size_t(first + t)]);
    };
    for (Index t = 0; t < width; ++t) ++next[std::size_t(owner(t)) + 1];
    std::partial_sum(next.begin(), next.end(), next.begin());
    Index mine = resting_[std::size_t(k)];
    for (Index t = 0; t < width; ++t) {
      place[std::size_t(first + t)] = next[std::size_t(owner(t))]++;
      if (owner(t) == context_.rank()) own[std::size_t(mine++)] = t;
    }
  }
  upload(lane, list_.view().slice(0, plan_.n), static_cast<const Index*>(place.data()));
  upload(lane, numbers_.view(), static_cast<const Index*>(own.data()));
  lane.synchronize();
}

template <class B>
dense::Rows<B> RowElimination<B>::other_rows(Index k, Index right, bool below) const {
  const Index from = below ? resting_[std::size_t(k) + 1] : 0;
  dense::Rows<B> rows = rows_;
  rows.a = a_.view().slice(from * plan_.ld, a_.size() - from * plan_.ld);
  rows.slots = below ? slots_ - from : resting_[std::size_t(k)];
  rows.columns = plan_.n + right;
  return rows;
}

template <class B>
void RowElimination<B>::substitute_alone(const Stream<B>& lane, Index k, Index right, bool lower) {
  const dense::Panel<B> p = panel(k);
  const Index top = p.first * plan_.ld, ld = plan_.ld;
  const auto at = [&](Index column) {
    return a_.view().slice(top + column, a_.size() - top - column);
  };
  if (lower)
    dense::solve_unit_lower<B>(lane, p.width, right, at(p.first), ld, at(plan_.n), ld);
  else
    dense::solve_upper<B>(lane, p.width, right, at(p.first), ld, at(plan_.n), ld, p.n);
  dense::subtract_product_of<B>(lane, other_rows(k, right, lower), p, plan_.n, right, at(plan_.n),
                                ld, y());
}

template <class B>
void RowElimination<B>::substitute(const Stream<B>& lane, Index k, Index right, bool lower) {
  if (context_.size() == 1) return substitute_alone(lane, k, right, lower);
  const Index first = k * plan_.block, width = panel(k).width;
  const Index length = width + right, top = resting_[std::size_t(k)], ld = plan_.ld;
  const Index count = resting_[std::size_t(k) + 1] - top;
  double* const rows = a_.data() + top * ld;
  // The panel's triangle and its right-hand sides, side by side, to all ranks.
  std::vector<Index> counts(std::size_t(context_.size()), 0);
  for (Index t = 0; t < width; ++t)
    ++counts[std::size_t(plan_.rows.owner(pivot_row_[std::size_t(first + t)]))];
  std::vector<Piece> pieces;
  Index at = 0;
  for (int rank = 0; rank < context_.size(); ++rank) {
    const View<double, B> part =
        other_rows_.view().slice(at * length, counts[std::size_t(rank)] * length);
    if (rank == context_.rank() && count > 0) {
      copy_rows<double>(lane, part.data, length, rows + first, ld, width, count);
      copy_rows<double>(lane, part.data + width, length, rows + plan_.n, ld, right, count);
    }
    pieces.push_back({rank, part.data, part.size * Index(sizeof(double))});
    at += counts[std::size_t(rank)];
  }
  context_.comm.broadcast_group(lane, pieces);
  dense::place_rows<B>(lane, length, list_.view().slice(first, width), other_rows_, pivot_rows_);
  const View<double, B> x = pivot_rows_.view().slice(width, pivot_rows_.size() - width);
  if (lower)
    dense::solve_unit_lower<B>(lane, width, right, pivot_rows_, length, x, length);
  else
    dense::solve_upper<B>(lane, width, right, pivot_rows_, length, x, length, n_[0]);
  // X to this rank's rows of the panel, and out of the others.
  if (count > 0) {
    dense::place_rows<B>(lane, length, numbers_.view().slice(top, count), pivot_rows_, other_rows_);
    copy_rows<double>(lane, rows + plan_.n, ld, other_rows_.data() + width, length, right, count);
  }
  dense::subtract_product_of<B>(lane, other_rows(k, right, lower), panel(k), plan_.n, right, x,
                                length, other_rows_.view());
}

template <class B>
void RowElimination<B>::archive_rows(const Stream<B>& lane, Archive& archive, Index k) {
  const std::vector<Range> own = plan_.rows.ranges(context_.rank());
  const Index columns = plan_.n + plan_.right;
  std::vector<Index> now(static_cast<std::size_t>(slots_)), column(now.size()), place(now.size());
  download(lane, now.data(), global_row_.view());
  download(lane, column.data(), column_of_.view());
  lane.synchronize();
  for (std::size_t s = 0; s < now.size(); ++s)
    place[std::size_t(plan_.rows.slot(now[s]))] = Index(s);
  const auto row = [&](Index position) {
    return a_.data() + place[std::size_t(position)] * plan_.ld;
  };
  archive.pieces(
      "rows", plan_.n, columns, own,
      [&](Index position, Index count, Word* to) {
        for (Index i = 0; i < count; ++i)
          copy_rows<Word>(lane, to + i * columns, columns,
                          reinterpret_cast<const Word*>(row(position + i)), plan_.ld, columns, 1);
        lane.synchronize();
      },
      [&](Index position, Index count, const Word* from) {
        for (Index i = 0; i < count; ++i)
          copy_rows<Word>(lane, reinterpret_cast<Word*>(row(position + i)), plan_.ld,
                          from + i * columns, columns, columns, 1);
        lane.synchronize();
      });
  archive.pieces(
      "pivot_columns", plan_.n, 1, own,
      [&](Index position, Index count, Word* to) {
        for (Index i = 0; i < count; ++i)
          to[i] = Word(column[std::size_t(place[std::size_t(position + i)])]);
      },
      [&](Index position, Index count, const Word* from) {
        for (Index i = 0; i < count; ++i) column[std::size_t(position + i)] = Index(from[i]);
      });
  if (archive.loading()) sort_rows(lane, column, k);
}

template <class B>
void RowElimination<B>::sort_rows(const Stream<B>& lane, const std::vector<Index>& column,
                                  Index k) {
  std::vector<Index> order(column.size()), ids(column.size()), columns(column.size());
  std::iota(order.begin(), order.end(), Index(0));
  const auto late = [&](Index slot) {  // rows without a pivot last, as they lie
    const Index c = column[std::size_t(slot)];
    return c >= 0 ? c : plan_.n;
  };
  std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) { return late(a) < late(b); });
  const auto row = [&](Index slot) { return a_.view().slice(slot * plan_.ld, plan_.columns); };
  const View<double, B> spare = pivot_rows_.view().slice(0, plan_.columns);
  std::vector<bool> done(order.size());
  for (Index start = 0; start < slots_; ++start) {
    if (done[std::size_t(start)]) continue;
    copy<double, B>(lane, spare, row(start));
    Index s = start;
    for (; order[std::size_t(s)] != start; s = order[std::size_t(s)]) {
      copy<double, B>(lane, row(s), row(order[std::size_t(s)]));
      done[std::size_t(s)] = true;
    }
    copy<double, B>(lane, row(s), spare);
    done[std::size_t(s)] = true;
  }
  origin_ = order;
  for (Index s = 0; s < slots_; ++s) {
    place_[std::size_t(order[std::size_t(s)])] = s;
    ids[std::size_t(s)] = plan_.rows.global(order[std::size_t(s)], context_.rank());
    columns[std::size_t(s)] = column[std::size_t(order[std::size_t(s)])];
  }
  upload(lane, global_row_.view(), ids.data());
  upload(lane, column_of_.view(), columns.data());
  lane.synchronize();
  if (direct()) return;
  resting_.assign(1, 0);
  for (Index panel = 0; panel < k; ++panel) {
    Index count = resting_.back();
    while (count < slots_ && columns[std::size_t(count)] >= 0 &&
           columns[std::size_t(count)] < (panel + 1) * plan_.block)
      ++count;
    resting_.push_back(count);
  }
}

#define TERRACE_INSTANTIATE(B)                                                            \
  template Index RowElimination<B>::base(Index) const;                                    \
  template dense::Rows<B> RowElimination<B>::met(Index) const;                            \
  template void RowElimination<B>::begin_lu(const Stream<B>&);                            \
  template void RowElimination<B>::retire(const Stream<B>&, Index, View<const Index, B>); \
  template void RowElimination<B>::note_moves(Index, const std::vector<Index>&);          \
  template EliminationOutcome RowElimination<B>::solve_factored(Index);                   \
  template void RowElimination<B>::adopt_factors();                                       \
  template void RowElimination<B>::solve_upper(const Stream<B>&, Index);                  \
  template void RowElimination<B>::archive_rows(const Stream<B>&, Archive&, Index);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::dense
