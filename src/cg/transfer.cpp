#include "src/cg/transfer.hpp"

#include <algorithm>

#include "distrib/agree.hpp"
#include "src/cg/rows_there.hpp"

namespace terrace::cg {
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
    RowsThere<B> there = uploaded_rows(context.ahead, RankRows(a));
    Scratch<B> scratch;
    take(context, there, is_scattered(context.ahead, there.rows.view()), scratch);
  });
}

template <class B>
Transfer<B>::Transfer(const Context<B>& context, RowsThere<B>&& a, bool scattered,
                      Scratch<B>& scratch)
    : Transfer(context, a.first, a.needed) {
  collectively(context.control, [&] { take(context, a, scattered, scratch); });
}

template <class B>
Transfer<B> Transfer<B>::of_whole(const Context<B>& context, RowsThere<B>&& a, bool scattered,
                                  Scratch<B>& scratch) {
  Transfer all;
  all.before_ = a.first[std::size_t(context.rank())];
  all.columns_ = a.first.back();
  collectively(context.control, [&] {
    all.part_ = take_whole(context.ahead, a, context.rank(), scattered, scratch);
  });
  return all;
}

template <class B>
void Transfer<B>::take(const Context<B>& context, RowsThere<B>& a, bool scattered,
                       Scratch<B>& scratch) {
  part_ = take_part(context.ahead, a, columns_, halo_.left(), scattered, false, scratch);
}

template <class B>
Operand<B> Transfer<B>::operand(const Context<B>& context) const {
  return collectively(context.control, [&] {
    // A product reads an entry of p for each row, for sums that nobody wants.
    const Index origin = round_up(halo_.left(), 32);
    Operand<B> p{Buffer<double, B>(origin + std::max(columns_ + halo_.right(), before_ + rows())),
                 origin, columns_, 1};
    fill_zero(context.ahead, p.memory.view());
    return p;
  });
}

template <class B>
void Transfer<B>::apply(const Context<B>& context, View<const double, B> p, View<double, B> q,
                        View<double, B> ignored, const SumSpace<B>& space,
                        const double* skip) const {
  const CsrRows<B> rows = part_.view();
  if (multiply_short_rows(context.ahead, rows, p.data, q, skip)) return;
  multiply(context.ahead, rows, p.data, q, sums_to(space, ignored), false, skip);
}

template <class B>
void Transfer<B>::apply(const Context<B>& context, const Operand<B>& p, View<double, B> q,
                        View<double, B> ignored, const SumSpace<B>& space,
                        const double* skip) const {
  if (!crosses_)
    return apply(context, {p.own().data + before_, columns_ - before_}, q, ignored, space, skip);
  halo_.exchange(context.comm, context.ahead, p.own().data);
  apply(context, p.own(), q, ignored, space, skip);
}

#define TERRACE_INSTANTIATE(B) template class Transfer<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::cg
