#include "src/cg/csr_load.hpp"

#include <algorithm>
#include <limits>

#include "distrib/agree.hpp"
#include "kernels/cg/heads.hpp"
#include "kernels/cg/joined_rows.hpp"

namespace terrace::cg {
namespace {

constexpr Index piece = Index(1) << 21;  // entries that are staged or moved up at once

}  // namespace

// Runs that are too long are cut into even parts until none is.
template <class B>
Runs runs_of(const Stream<B>& lane, View<const Index, B> start, Index most) {
  Runs runs;
  runs.row.push_back(start.size - 1);
  runs.entry.push_back(downloaded(lane, start.slice(start.size - 1, 1)).front());
  for (bool more = true; more;) {
    std::vector<Index> row{0};
    for (std::size_t k = 0; k < runs.count(); ++k) {
      const Index rows = runs.rows(k), entries = runs.entries(k);
      const Index parts =
          entries > most ? std::clamp<Index>(2 * ceil_div(entries, most), 1, rows) : 1;
      for (Index part = 1; part <= parts; ++part)
        row.push_back(runs.row[k] + rows / parts * part + rows % parts * part / parts);
    }
    more = row.size() > runs.row.size();
    if (more) runs.entry = downloaded(lane, start, row);
    runs.row = std::move(row);
  }
  return runs;
}

template <class B>
void CsrPart<B>::keep_heads(const Stream<B>& lane) {
  if (head.size() == 0) head = Buffer<std::uint32_t, B>(entries);
  take_heads(lane, values(), head.view());
}

template <class B>
void CsrPart<B>::take_chunks(RowChunks<B>&& cut) {
  chunk = std::move(cut.chunk);
  longs = std::move(cut.longs);
  partial = std::move(cut.partial);
}

template <class B>
void CsrPart<B>::prepare(const Stream<B>& lane) {
  Scratch<B> scratch;
  take_chunks(chunks_of<B>(lane, view(), scratch));
  scattered = is_scattered(lane, view());
}

template <class B>
bool is_scattered(const Stream<B>& lane, const CsrRows<B>& rows) {
  if (std::is_same_v<B, Cpu>) return false;
  const Buffer<Index, B> near(2);
  sample_nearness(lane, rows, near.view());
  const std::vector<Index> counted = downloaded(lane, near.view());
  return is_scattered(counted[0], counted[1]);
}

template <class B>
CsrPart<B> part_of(const Stream<B>& lane, SparseRows<B>&& rows, bool scattered,
                   Scratch<B>& scratch) {
  CsrPart<B> part;
  part.take_chunks(chunks_of<B>(lane, rows.view(), scratch));
  part.entries = rows.nonzeros();
  part.start = std::move(rows.start);
  part.column = std::move(rows.column);
  part.value = std::move(rows.value);
  part.scattered = scattered;
  return part;
}

template <class B>
CsrLoad<B>::CsrLoad(const Context<B>& context, std::vector<Index> first)
    : first_(std::move(first)) {
  const auto me = std::size_t(context.rank());
  rows_ = {first_[me], first_[me + 1] - first_[me]};
  collectively(context.control, [&] { part_.start = Buffer<Index, B>(rows_.count + 1); });
}

template <class B>
CsrLoad<B>::CsrLoad(const Context<B>& context, std::vector<Index> first,
                    std::span<const Index> start)
    : CsrLoad(context, std::move(first)) {
  collectively(context.control, [&] {
    io::upload_plain<Index, B>(context.ahead, part_.start.view(), start.data(),
                               io::Copies::of<B>(Index(start.size_bytes())));
  });
  take_entries(context, {0, start.back()});
}

template <class B>
void CsrLoad<B>::put_start(const Context<B>& context, Index position, Index count,
                           const Index* start) {
  upload(context.ahead, part_.start.view().slice(position, count), start);
  context.ahead.synchronize();
}

template <class B>
void CsrLoad<B>::take_entries(const Context<B>& context, Range range) {
  const Stream<B>& lane = context.ahead;
  collectively(context.control, [&] {
    if (range.first > 0) {
      Buffer<Index, B> from_zero(rows_.count + 1);
      Scratch<B> scratch;
      row_sizes<B>(lane, part_.start, from_zero.view().slice(0, rows_.count));
      sizes_to_starts<B>(lane, from_zero, 0, scratch);
      lane.synchronize();
      std::swap(part_.start, from_zero);
    }
    part_.entries = range.count;
    part_.column = Buffer<std::int32_t, B>(part_.entries);
    part_.value = Buffer<double, B>(part_.entries);
    if (!std::is_same_v<B, Cpu>) staged_ = Buffer<Index, B>(std::min(piece, part_.entries));
    faults_ = Buffer<CsrFaults, B>(1);
    fill_zero(lane, faults_.view());
    lane.synchronize();
  });
}

template <class B>
void CsrLoad<B>::put_columns(const Context<B>& context, Index position, Index count,
                             const Index* columns) {
  const Stream<B>& lane = context.ahead;
  for (Index done = 0; done < count;) {
    const Index some = std::min(piece, count - done);
    View<const Index, B> from{columns + done, some};
    if constexpr (!std::is_same_v<B, Cpu>) {
      upload(lane, staged_.view().slice(0, some), columns + done);
      from = staged_.view().slice(0, some);
    }
    number_columns(lane, from, part_.column.view().slice(position + done, some), first_.back(),
                   rows_.first, faults_.view());
    done += some;
  }
  lane.synchronize();
}

template <class B>
void CsrLoad<B>::put_numbered(const Context<B>& context, const std::int32_t* columns) {
  upload(context.ahead, part_.column.view(), columns);
  context.ahead.synchronize();
}

template <class B>
void CsrLoad<B>::put_values(const Context<B>& context, Index position, Index count,
                            const double* values) {
  upload(context.ahead, part_.value.view().slice(position, count), values);
  context.ahead.synchronize();
}

template <class B>
CsrFaults CsrLoad<B>::faults(const Context<B>& context) {
  judge(context.ahead, part_.view(), faults_.view());
  const CsrFaults mine = downloaded(context.ahead, faults_.view()).front();
  std::vector<Index> all{mine.outside, mine.far, mine.unsorted, mine.not_finite};
  context.control.reduce(all, Reduce::max);
  if (all[1] > 0)
    fail_together(
        Exit::resources,
        "an entry 2^31 columns or more from the first row of its rank; in the CSR matrix; "
        "number neighbours near each other, or use fewer ranks");
  return {all[0], all[1], all[2], all[3]};
}

template <class B>
Index CsrLoad<B>::asymmetry(const Context<B>& context) {
  diagonal_ = Buffer<double, B>(rows_.count);
  find_diagonal(context.ahead, part_.view(), diagonal_.view());
  const Buffer<Index, B> worst =
      uploaded<Index, B>(context.ahead, {std::numeric_limits<Index>::max()});
  find_asymmetry(context.ahead, part_.view(), rows_.first, first_.back(), diagonal_.view(),
                 worst.view());
  return downloaded(context.ahead, worst.view()).front();
}

/// Rows move up in place, a piece at a time through a second place: a piece's own entries end where
/// the next piece begins, or before.
template <class B>
void CsrLoad<B>::close_up(const Context<B>& context, const Buffer<Index, B>& inner_start) {
  const Stream<B>& lane = context.ahead;
  const Runs runs = runs_of<B>(lane, part_.start, piece);
  const std::vector<Index> end = downloaded<Index, B>(lane, inner_start, runs.row);
  Index most = 0;
  for (std::size_t k = 0; k < runs.count(); ++k) most = std::max(most, runs.entries(k));
  const Buffer<std::int32_t, B> column(most);
  const Buffer<double, B> value(most);
  for (std::size_t k = 0; k < runs.count(); ++k) {
    const Index to = end[k], count = end[k + 1] - to;
    pick_inner(lane, part_.view(), runs.row[k], runs.rows(k), inner_start.view(), column.view(),
               value.view());
    copy(lane, part_.column.view().slice(to, count), column.view().slice(0, count));
    copy(lane, part_.value.view().slice(to, count), value.view().slice(0, count));
  }
  lane.synchronize();
}

template <class B>
OuterRows<B> CsrLoad<B>::take_outer(const Context<B>& context) {
  const Stream<B>& lane = context.ahead;
  OuterRows<B> taken;
  if (context.size() > 1) {
    Buffer<Index, B> inner_start(rows_.count + 1);
    taken = copy_outer(lane, part_.view(), inner_start.view());
    if (taken.row.size() > 0) {
      close_up(context, inner_start);
      part_.entries -= taken.column.size();
      part_.start = std::move(inner_start);
    }
  }
  if (taken.start.size() == 0) taken.start = uploaded<Index, B>(lane, {0});
  return taken;
}

template <class B>
CsrPart<B> CsrLoad<B>::take(const Context<B>& context) {
  staged_ = Buffer<Index, B>();
  part_.prepare(context.ahead);
  return std::move(part_);
}

#define TERRACE_INSTANTIATE(B)                                             \
  template Runs runs_of<B>(const Stream<B>&, View<const Index, B>, Index); \
  template struct CsrPart<B>;                                              \
  template bool is_scattered(const Stream<B>&, const CsrRows<B>&);         \
  template class CsrLoad<B>;                                               \
  template CsrPart<B> part_of(const Stream<B>&, SparseRows<B>&&, bool, Scratch<B>&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::cg
