// Vector passes of conjugate gradients on the CPU. Bound by memory: the classic iteration moves 64
// bytes per row.
#include "kernels/cg/vectors.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/base/cpu/sums.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/cg/vector_passes.hpp"

namespace terrace::cg {
namespace {

constexpr Index grain_least = 4096;  // elements of a piece
constexpr Index most_pieces = 1024;

// The two passes of a classic iteration with one column, in eight chains of a vector's width.

using Lanes = double __attribute__((vector_size(64)));
constexpr Index wide = 8;
inline void load(Lanes& to, const double* from) { std::memcpy(&to, from, sizeof to); }
inline void total(const Lanes& v, double& to) {
  to = ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

TERRACE_VECTOR_CLONES
void step_piece(double alpha, const double* q, const double* d, double* r, Index count,
                double* out) {
  Lanes rr = {}, rz = {}, zz = {}, value, scale, image;
  Index i = 0;
  for (; i + wide <= count; i += wide) {
    load(value, r + i);
    load(image, q + i);
    value -= alpha * image;
    std::memcpy(r + i, &value, sizeof value);
    rr += value * value;
    if (!d) continue;
    load(scale, d + i);
    const Lanes z = scale * value;
    rz += value * z;
    zz += z * z;
  }
  total(rr, out[0]);
  total(rz, out[1]);
  total(zz, out[2]);
  for (; i < count; ++i) {
    const double last = r[i] - alpha * q[i], z = d ? d[i] * last : last;
    r[i] = last;
    out[0] += last * last;
    out[1] += last * z;
    out[2] += z * z;
  }
  if (!d) out[1] = out[2] = out[0];
}

TERRACE_VECTOR_CLONES
void direction_piece(double alpha, double beta, const double* __restrict z,
                     const double* __restrict d, double* __restrict x, double* __restrict p,
                     Index count) {
  if (d) {
    for (Index i = 0; i < count; ++i) {
      const double old = p[i];
      x[i] += alpha * old;
      p[i] = d[i] * z[i] + beta * old;
    }
  } else {
    for (Index i = 0; i < count; ++i) {
      const double old = p[i];
      x[i] += alpha * old;
      p[i] = z[i] + beta * old;
    }
  }
}

/// One piece. Column v is e % k; sums in four chains for k = 1, so that additions overlap.
template <Index k, class F>
[[gnu::always_inline]] inline void piece_of(const F& f, const vector_passes::Scalars& scalars,
                                            Index from, Index to, double* out) {
  constexpr Index chains = k == 1 ? 4 : 1, values = F::sums > 0 ? F::sums : 1;
  using Column = decltype(f.column(scalars, 0));
  if constexpr (k == 1 && std::is_same_v<F, vector_passes::StepPass>) {
    const double alpha = f.column(scalars, 0);
    if (alpha != 0)
      return step_piece(alpha, f.q + from, f.d ? f.d + from : nullptr, f.r + from, to - from, out);
  }
  if constexpr (k == 1 && std::is_same_v<F, vector_passes::Direction>) {
    const vector_passes::Step step = f.column(scalars, 0);
    if (step.on)
      return direction_piece(step.alpha, step.beta, f.z + from, f.d ? f.d + from : nullptr,
                             f.x + from, f.p + from, to - from);
  }
  Column column[k];
  for (Index v = 0; v < k; ++v) column[v] = f.column(scalars, v);
  double s[chains][k][values] = {};
  const auto element = [&](Index at, Index row, Index v, double* sums) {
    f.use(f.load(at), at, row, column[v], sums);
  };
  Index e = from;
  for (; e + chains * k <= to; e += chains * k)
    for (Index c = 0; c < chains; ++c)
      for (Index v = 0; v < k; ++v) element(e + c * k + v, e / k + c, v, s[c][v]);
  for (; e < to; e += k)
    for (Index v = 0; v < k; ++v) element(e + v, e / k, v, s[0][v]);
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

}  // namespace terrace::cg
