// Vector passes of conjugate gradients on the CPU. Bound by memory: the classic iteration moves 64
// bytes a row.
#include "kernels/vectors.hpp"

#include <algorithm>

#include "kernels/cpu/sums.hpp"
#include "kernels/parallel.hpp"
#include "kernels/vector_passes.hpp"

namespace terrace {
namespace {

constexpr Index grain_least = 4096;  // elements of a piece
constexpr Index most_pieces = 1024;

/// One piece. Column v is e % k; sums in four chains for k = 1, so that additions overlap.
template <Index k, class F>
[[gnu::always_inline]] inline void piece_of(const F& f, const vector_passes::Scalars& scalars,
                                            Index from, Index to, double* out) {
  constexpr Index chains = k == 1 ? 4 : 1, values = F::sums > 0 ? F::sums : 1;
  using Column = decltype(f.column(scalars, 0));
  Column column[k];
  for (Index v = 0; v < k; ++v) column[v] = f.column(scalars, v);
  double s[chains][k][values] = {};
  Index e = from;
  for (; e + chains * k <= to; e += chains * k)
    for (Index c = 0; c < chains; ++c)
      for (Index v = 0; v < k; ++v) f(e + c * k + v, e / k + c, column[v], s[c][v]);
  for (; e < to; e += k)
    for (Index v = 0; v < k; ++v) f(e + v, e / k, column[v], s[0][v]);
  for (Index what = 0; what < F::sums; ++what) {
    for (Index v = 0; v < k; ++v) {
      double sum = s[0][v][what];
      for (Index c = 1; c < chains; ++c) sum += s[c][v][what];
      out[what * k + v] = sum;
    }
  }
}

template <Index k, class F>
void run_columns(const Stream<Cpu>& stream, const CgPass<Cpu>& c, Index size, const F& f) {
  static_assert(most_pieces * F::sums * cg_most_columns <= CgPass<Cpu>::partial_count);
  stream.run([=] {
    double* const now = c.now.data;
    if (F::iterates && *c.skip() != 0) {
      if (F::ends) now[cg_row::halted(k)] = 1;
      return;
    }
    const vector_passes::Scalars scalars(c);
    const Index grain = round_up(std::max(grain_least, ceil_div(size, most_pieces)), k);
    double* const partials = c.partials.data;
    parallel_ranges(size, grain, [&](Index from, Index to) {
      piece_of<k>(f, scalars, from, to, partials + from / grain * F::sums * k);
    });
    if constexpr (F::ends) {
      bool any = false;
      for (Index v = 0; v < k; ++v) {
        const vector_passes::Step step = f.column(scalars, v);
        now[cg_row::alpha * k + v] = step.alpha;
        now[cg_row::den * k + v] = step.den;
        now[cg_row::dd * k + v] = step.dd;
        any = any || step.on;
      }
      now[cg_row::halted(k)] = any ? 0 : 1;
      const Index row = cg_row::size(k), finished = c.finished.data[0]++;
      std::copy_n(now, row, c.history.data + finished % (c.history.size / row) * row);
    }
    double* const target = (F::target == vector_passes::Target::now ? c.now : c.next).data;
    for (Index j = 0; j < F::sums * k; ++j) {
      double sum = 0;
      for (Index p = 0; p < ceil_div(size, grain); ++p) sum += partials[p * F::sums * k + j];
      target[F::first * k + j] = sum;
    }
  });
}

template <class F>
void run(const Stream<Cpu>& stream, const CgPass<Cpu>& c, Index size, const F& f) {
  switch (c.columns) {
    case 1:
      return run_columns<1>(stream, c, size, f);
    case 2:
      return run_columns<2>(stream, c, size, f);
    case 4:
      return run_columns<4>(stream, c, size, f);
    case 8:
      return run_columns<8>(stream, c, size, f);
    default:
      return run_columns<16>(stream, c, size, f);
  }
}

}  // namespace

TERRACE_VECTOR_PASSES(Cpu)

void gather(const Stream<Cpu>& stream, View<const Index, Cpu> index, View<const double, Cpu> from,
            View<double, Cpu> to) {
  stream.run([=] {
    parallel_ranges(index.size, grain_least, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) to.data[i] = from.data[index.data[i]];
    });
  });
}

}  // namespace terrace
