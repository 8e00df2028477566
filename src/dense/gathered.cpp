// RowElimination's members for partial pivoting on several devices: the panel's columns of all rows (by
// LU of those that do not rest) go to rank 0, which factors them as one device does, in the order of A.
// N, the pivots and LU come back.
//
// Of 16,384 rows on two ranks 512 columns are 34 MB each way: 0.1 ms at 300 GB/s, and to factor them at
// 2.2 us a column 1.1 ms and more. A tournament factors twice, the rows of each rank and then the winners.
//
// Tried by Gauss-Jordan: only rows without a pivot go, the others get N = A[:, J] U^-1 where they are.
// 3 % faster at n = 12,000, 4 to 15 % slower at 16,384, 4,096 and 2,000.
#include <algorithm>

#include "src/dense/elimination.hpp"

namespace terrace::dense {

namespace {

/// `count` numbers of 8 bytes to or from a rank.
template <class T>
void add(std::vector<Piece>& pieces, int peer, T* data, Index count) {
  static_assert(sizeof(T) == 8);
  if (count > 0) pieces.push_back({peer, data, 8 * count});
}

}  // namespace

/// The rows of panel k, all ranks' one behind the other's: where each rank's begin. sent_host_: this
/// rank's slots in met(k), in the order of A; of all rows, place in the panel; of the panel, global rows
/// and their columns.
template <class B>
std::vector<Index> RowElimination<B>::list_sent_rows(Index k) {
  for (; counted_ < std::min(plan_.n, k * plan_.block); ++counted_)
    column_of_row_[std::size_t(pivot_row_[std::size_t(counted_)])] = counted_;
  const Index n = plan_.n;
  Index* const own = sent_host_.data();
  Index *const place = own + n, *const ids = place + n, *const columns = ids + n;
  const auto rests = [&](Index row) { return plan_.lu && column_of_row_[std::size_t(row)] >= 0; };
  std::vector<Index> standing(std::size_t(n), 0), at(1, 0);
  Index count = 0;
  for (Index row = 0; row < n; ++row) {
    if (rests(row)) continue;
    ids[count] = row;
    columns[count] = column_of_row_[std::size_t(row)];
    standing[std::size_t(row)] = count++;
  }
  count = 0;
  for (int r = 0; r < context_.size(); ++r) {
    const bool mine = r == context_.rank();
    Index slot = 0, listed = 0;
    for (const Range& range : plan_.rows.ranges(r))
      for (Index row = range.first; row < range.end(); ++row, ++slot) {
        if (rests(row)) continue;
        place[count++] = standing[std::size_t(row)];
        if (mine) own[listed++] = (plan_.lu ? place_[std::size_t(slot)] : slot) - base(k);
      }
    at.push_back(count);
  }
  return at;
}

/// On rank 0, whose own rows are `part`: the others' come behind them in part.a, and their N and marks
/// go back.
template <class B>
void RowElimination<B>::factor_for_all(const Stream<B>& lane, const dense::Rows<B>& part,
                                       const dense::Panel<B>& panel, const std::vector<Index>& at) {
  const Index all = at.back(), n = plan_.n;
  const auto numbers = [&](Index which) { return sent_by_all_.view().slice(which * n, all); };
  const View<Index, B> place = numbers(0), marks = numbers(3);
  upload(lane, sent_by_all_.view().slice(0, 3 * n), sent_host_.data() + n);
  dense::Rows<B> sent = part;
  sent.slots = all;
  sent.column_of = {};
  std::vector<Piece> there, back;
  for (int r = 1; r < context_.size(); ++r) {
    const Index first = at[std::size_t(r)], count = at[std::size_t(r) + 1] - first;
    add(there, r, sent.a.data + first * sent.ld, count * sent.ld);
    add(back, r, sent.a.data + first * sent.ld, count * sent.ld);
    add(back, r, marks.data + first, count);
  }
  context_.comm.exchange(lane, {}, there);

  dense::Panel<B> whole = panel;
  whole.n = gathered_;
  dense::load_panel(lane, {}, whole, true);  // no rows: info alone
  dense::Rows<B> standing = sent;
  standing.global_row = numbers(1);
  standing.column_of = numbers(2);
  if constexpr (dense::is_direct(B{})) dense::put_rows<B>(lane, sent, whole, place, all, {});
  dense::factor_panel(lane, standing, whole, work_.view());
  sent.column_of = marks;
  if constexpr (dense::is_direct(B{}))
    dense::get_rows<B>(lane, sent, whole, place, all, standing.column_of);
  copy<Index, B>(lane, part.column_of, marks.slice(0, part.slots));
  context_.comm.exchange(lane, back, {});
}

template <class B>
void RowElimination<B>::choose_gathered(const Stream<B>& lane, const dense::Rows<B>& rows,
                                        const dense::Panel<B>& panel, Index k) {
  const std::vector<Index> at = list_sent_rows(k);
  const auto me = std::size_t(context_.rank());
  const Index count = at[me + 1] - at[me];
  const View<Index, B> list = sent_.view().slice(0, count);
  upload(lane, list, sent_host_.data());
  dense::Rows<B> part = rows;  // this rank's rows, their columns of the panel alone
  part.columns = panel.first + panel.width;
  dense::collect_rows<B>(lane, part, list, panel.first, other_rows_.view());
  part.a = other_rows_.view();
  part.ld = part.columns = panel.width;
  part.slots = count;
  part.column_of = sent_.view().slice(slots_, count);
  if (context_.rank() == 0) {
    factor_for_all(lane, part, panel, at);
  } else {
    std::vector<Piece> there, back;
    add(there, 0, part.a.data, count * part.ld);
    add(back, 0, part.a.data, count * part.ld);
    add(back, 0, part.column_of.data, count);
    context_.comm.exchange(lane, there, {});
    context_.comm.exchange(lane, {}, back);
  }
  const std::vector<Piece> found = {{0, panel.lu.data, 8 * panel.width * panel.block},
                                    {0, panel.pivots.data, 8 * panel.width},
                                    {0, panel.info.data, 16}};
  context_.comm.broadcast_group(lane, found);
  if constexpr (dense::is_direct(B{}))
    dense::put_rows<B>(lane, part, panel, list, rows.slots, rows.column_of);
}

#define TERRACE_INSTANTIATE(B)                                                                 \
  template std::vector<Index> RowElimination<B>::list_sent_rows(Index);                        \
  template void RowElimination<B>::factor_for_all(const Stream<B>&, const Rows<B>&,            \
                                                  const Panel<B>&, const std::vector<Index>&); \
  template void RowElimination<B>::choose_gathered(const Stream<B>&, const Rows<B>&,           \
                                                   const Panel<B>&, Index);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::dense
