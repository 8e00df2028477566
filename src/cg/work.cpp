// The vectors of a solve by conjugate gradients, and what is known of A before it.
#include <algorithm>
#include <atomic>
#include <limits>

#include "distrib/agree.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/cg/resident.hpp"
#include "src/cg/conjugate_gradients.hpp"
#include "src/cg/operators_triangle.hpp"

namespace terrace {

template <class B>
Index CgWork<B>::bytes(Index rows, bool jacobi, Index columns, CgMethod method, bool general) {
  const Index vectors = method == CgMethod::classic            ? 6 + (general ? 1 : 0)
                        : method == CgMethod::single_reduction ? 7
                                                               : 9 + (general ? 2 : 0);
  return 8 * rows * (vectors * columns + (jacobi ? 1 : 0)) + 2 * 8 * CgPass<B>::partial_count;
}

template <class B>
template <class A>
CgWork<B>::CgWork(const Context<B>& context, A& a, bool jacobi, Index columns_, CgMethod method_)
    : columns(columns_),
      local_rows(a.rows().count),
      method(method_),
      p(a.operand(context, columns_)),
      sums(collectively(context.control, [&] { return SumSpace<B>(context.ahead); })) {
  const Index count = local_rows, size = cg_row::size(columns);
  collectively(context.control, [&] {
    for (Buffer<double, B>* vector : {&b, &x, &r}) *vector = Buffer<double, B>(count * columns);
    q = Buffer<double, B>((A::replicated ? triangle::padded(count) : count) * columns);
    t = Buffer<double, B>(count * columns);
    if (method != CgMethod::classic) s = Buffer<double, B>(count);
    if (method == CgMethod::pipelined) {
      w = Buffer<double, B>(count);
      z = Buffer<double, B>(count);
    }
    scalars = Buffer<double, B>(4 * size + cg_most_columns + 2);
    ring = Buffer<double, B>(ring_rows * size);
    partials = Buffer<double, B>(CgPass<B>::partial_count);
    finished = Buffer<Index, B>(1);
    ticket = Buffer<Word, B>(1);
    seen = PinnedBuffer<double>(ring_rows * size);
    if (jacobi) inverse_diagonal = Buffer<double, B>(count);
    if constexpr (requires { a.tiles(); } && std::is_same_v<B, Cuda>) {
      if (context.size() == 1 && columns == 1 && method == CgMethod::classic &&
          a.tiles().read == triangle::Read::whole && resident_cg_fits(a.n())) {
        resident = Buffer<double, B>(3 * triangle::padded(count));
        resident_scratch = Buffer<double, B>(resident_cg_scratch(a.n()));
      }
    }
  });
  fill_zero(context.ahead, resident.view());
  fill_zero(context.ahead, scalars.view());
  fill_zero(context.ahead, ticket.view());
  normalise(context, a);
  norm = a.scale.norm;
  const auto& diagonal = a.diagonal(context);
  const auto first_row = [&](auto&& bad) {
    const Index none = std::numeric_limits<Index>::max();
    std::atomic<Index> at{count};
    parallel_ranges(count, 1 << 15, [&](Index from, Index to) {
      for (Index i = from; i < std::min(to, at.load()); ++i)
        if (bad(diagonal[std::size_t(i)])) {
          Index before = at;
          while (i < before && !at.compare_exchange_weak(before, i)) {
          }
        }
    });
    const Index row = context.control.reduce(at < count ? a.rows().first + at : none, Reduce::min);
    return row == none ? -1 : row;
  };
  negative_row = first_row([](double value) { return value < 0; });
  unusable_row = first_row([](double value) { return !(value > 0) || !cg_finite(1 / value); });
  if (jacobi) {
    std::vector<double> inverse(diagonal.size());
    parallel_ranges(count, 1 << 15, [&](Index from, Index to) {
      for (Index i = from; i < to; ++i) inverse[std::size_t(i)] = 1 / diagonal[std::size_t(i)];
    });
    upload(context.ahead, inverse_diagonal.view(), inverse.data());
    context.ahead.synchronize();
  }
}

template <class B>
void CgWork<B>::precondition(const Context<B>& context, CgPreconditioner<B> given, int power) {
  general = std::move(given);
  general_power = power;
  inverse_diagonal = {};
  collectively(context.control, [&] {
    if (method != CgMethod::single_reduction && z.size() == 0)
      z = Buffer<double, B>(local_rows * columns);
    if (method == CgMethod::single_reduction) z = Buffer<double, B>(local_rows);
    if (method == CgMethod::pipelined) {
      u = Buffer<double, B>(local_rows);
      v = Buffer<double, B>(local_rows);
    }
  });
}

#define TERRACE_INSTANTIATE_FOR(B, A) \
  template CgWork<B>::CgWork(const Context<B>&, A<B>&, bool, Index, CgMethod);
#define TERRACE_INSTANTIATE(B)                 \
  template struct CgWork<B>;                   \
  TERRACE_INSTANTIATE_FOR(B, DenseOperator)    \
  TERRACE_INSTANTIATE_FOR(B, TriangleOperator) \
  TERRACE_INSTANTIATE_FOR(B, BandOperator)     \
  TERRACE_INSTANTIATE_FOR(B, CsrOperator)
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE
#undef TERRACE_INSTANTIATE_FOR

}  // namespace terrace
