#include "src/cg/transfer.hpp"

#include <algorithm>

#include "distrib/agree.hpp"
#include "src/cg/rows_there.hpp"

namespace terrace::cg {
namespace {

template <class B>
CsrPart<B> on_backend(const Stream<B>& lane, const std::vector<Index>& start,
                      const std::vector<Index>& row, const LargeVector<std::int32_t>& column,
                      const LargeVector<double>& value) {
  CsrPart<B> part;
  const auto put = [&](auto& buffer, const auto& from) {
    buffer = std::remove_reference_t<decltype(buffer)>(Index(from.size()));
    if (!from.empty()) upload(lane, buffer.view(), from.data());
  };
  put(part.start, start), put(part.row, row);
  put(part.column, column), put(part.value, value);
  lane.synchronize();
  part.entries = start.back();
  part.prepare(lane, csr_chunks(start.data(), Index(start.size()) - 1));
  return part;
}

}  // namespace

template <class B>
Transfer<B>::Transfer(const Context<B>& context, const std::vector<Index>& first,
                      const std::vector<Index>& needed) {
  const Control& control = context.control;
  const auto me = std::size_t(control.rank());
  columns_ = first[me + 1] - first[me];
  crosses_ = control.reduce(Index(!needed.empty()), Reduce::max) > 0;
  if (crosses_) halo_ = Halo<B>(control, context.ahead, first, needed);
}

template <class B>
Transfer<B>::Transfer(const Context<B>& context, const RankRows& a)
    : Transfer(context, a.first, a.needed) {
  collectively(context.control, [&] {
    const HostRows& rows = a.rows;
    if (a.needed.empty()) {
      inner_ = on_backend(context.ahead, rows.start, {}, rows.column, rows.value);
      return;
    }
    struct Side {
      std::vector<Index> start{0}, row;
      LargeVector<std::int32_t> column;
      LargeVector<double> value;
    } inner, outer;
    const Index left = halo_.left();
    for (Index i = 0; i < rows.rows(); ++i) {
      for (Index e = rows.start[std::size_t(i)]; e < rows.start[std::size_t(i) + 1]; ++e) {
        const Index c = rows.column[std::size_t(e)], place = c - columns_;
        Side& side = place < 0 ? inner : outer;
        side.column.push_back(std::int32_t(place < 0      ? c
                                           : place < left ? place - left
                                                          : columns_ + place - left));
        side.value.push_back(rows.value[std::size_t(e)]);
      }
      inner.start.push_back(Index(inner.column.size()));
      if (Index(outer.column.size()) == outer.start.back()) continue;
      outer.start.push_back(Index(outer.column.size()));
      outer.row.push_back(i);
    }
    inner_ = on_backend(context.ahead, inner.start, {}, inner.column, inner.value);
    outer_ = on_backend(context.ahead, outer.start, outer.row, outer.column, outer.value);
  });
}

template <class B>
Transfer<B>::Transfer(const Context<B>& context, RowsThere<B>&& a, bool scattered,
                      Scratch<B>& scratch)
    : Transfer(context, a.first, a.needed) {
  collectively(context.control, [&] {
    inner_ = take_inner(context.ahead, a, columns_, halo_.left(), scattered, scratch, outer_);
    a.rows = {};
  });
}

template <class B>
Operand<B> Transfer<B>::operand(const Context<B>& context) const {
  return collectively(context.control, [&] {
    // A product reads an entry of p for each row, for sums that nobody wants.
    const Index origin = round_up(halo_.left(), 32);
    Operand<B> p{Buffer<double, B>(origin + std::max(columns_ + halo_.right(), rows())), origin,
                 columns_, 1};
    fill_zero(context.ahead, p.memory.view());
    return p;
  });
}

template <class B>
void Transfer<B>::apply(const Context<B>& context, View<const double, B> p, View<double, B> q,
                        View<double, B> ignored, const SumSpace<B>& space,
                        const double* skip) const {
  multiply(context.ahead, inner_.view(), p.data, q, sums_to(space, ignored), false, skip);
}

template <class B>
void Transfer<B>::apply(const Context<B>& context, const Operand<B>& p, View<double, B> q,
                        View<double, B> ignored, const SumSpace<B>& space,
                        const double* skip) const {
  if (!crosses_) return apply(context, p.own(), q, ignored, space, skip);
  double* const own = p.own().data;
  context.bulk.wait(context.ahead.record());
  multiply(context.bulk, inner_.view(), own, q, sums_to(space, ignored), false, skip);
  halo_.exchange(context.comm, context.ahead, own);
  context.ahead.wait(context.bulk.record());
  if (outer_.view().rows() > 0)
    multiply(context.ahead, outer_.view(), own, q, sums_to(space, ignored, true), false, skip);
}

#define TERRACE_INSTANTIATE(B) template class Transfer<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::cg
