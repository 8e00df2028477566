// Vector passes of conjugate gradients on the CPU. Bound by memory: cg_step moves 48 bytes a row,
// cg_direction 24; both reach the read rate of the host's memory.
#include "kernels/vectors.hpp"

#include "kernels/cpu/sums.hpp"

namespace terrace {
namespace {

constexpr Index grain_least = 4096;

// Sums in four interleaved chains, so that additions overlap.
struct Chains {
  double a[4] = {}, b[4] = {};
  [[nodiscard]] Pair total() const {
    return {(a[0] + a[1]) + (a[2] + a[3]), (b[0] + b[1]) + (b[2] + b[3])};
  }
};

// r.r and r.(d r); d null means 1.
Pair squares(const double* r, const double* d, Index count) {
  Chains s;
  for (Index i = 0; i < count; ++i) {
    const double square = r[i] * r[i];
    s.a[i & 3] += square;
    if (d) s.b[i & 3] += square * d[i];
  }
  Pair result = s.total();
  if (!d) result.b = result.a;
  return result;
}

TERRACE_VECTOR_CLONES
void subtract(const double* b, const double* q, const double* d, double* r, double* p,
              Index count) {
  for (Index i = 0; i < count; ++i) r[i] = b[i] - q[i];
  for (Index i = 0; i < count; ++i) p[i] = d ? d[i] * r[i] : r[i];
}

TERRACE_VECTOR_CLONES
void step(double alpha, const double* p, const double* q, double* x, double* r, Index count) {
  for (Index i = 0; i < count; ++i) x[i] += alpha * p[i];
  for (Index i = 0; i < count; ++i) r[i] -= alpha * q[i];
}

TERRACE_VECTOR_CLONES
void direct(double beta, const double* r, const double* d, double* p, Index count) {
  if (d)
    for (Index i = 0; i < count; ++i) p[i] = d[i] * r[i] + beta * p[i];
  else
    for (Index i = 0; i < count; ++i) p[i] = r[i] + beta * p[i];
}

const double* at(View<const double, Cpu> v, Index i) { return v.size > 0 ? v.data + i : nullptr; }

}  // namespace

void cg_restart(const Stream<Cpu>& stream, View<const double, Cpu> b, View<const double, Cpu> q,
                View<const double, Cpu> inverse_diagonal, View<double, Cpu> r, View<double, Cpu> p,
                View<double, Cpu> row, const SumSpace<Cpu>& space) {
  const SumTarget<Cpu> sums = sums_to(space, row.slice(cg_row::rr, 2));
  stream.run([=] {
    sum_pieces(r.size, piece_grain(r.size, grain_least), sums, [&](Index from, Index to) {
      const double* d = at(inverse_diagonal, from);
      subtract(b.data + from, q.data + from, d, r.data + from, p.data + from, to - from);
      return squares(r.data + from, d, to - from);
    });
  });
}

void cg_step(const Stream<Cpu>& stream, View<const double, Cpu> before, View<double, Cpu> now,
             CgLimits limits, View<const double, Cpu> p, View<const double, Cpu> q,
             View<const double, Cpu> inverse_diagonal, View<double, Cpu> x, View<double, Cpu> r,
             const SumSpace<Cpu>& space) {
  const SumTarget<Cpu> sums = sums_to(space, now.slice(cg_row::rr, 2));
  stream.run([=] {
    const double alpha = cg_step_length(before.data[cg_row::rr], before.data[cg_row::rz],
                                        now.data[cg_row::pq], now.data[cg_row::pp], limits);
    sum_pieces(r.size, piece_grain(r.size, grain_least), sums, [&](Index from, Index to) {
      if (alpha != 0)
        step(alpha, p.data + from, q.data + from, x.data + from, r.data + from, to - from);
      return squares(r.data + from, at(inverse_diagonal, from), to - from);
    });
  });
}

void cg_direction(const Stream<Cpu>& stream, View<const double, Cpu> before,
                  View<const double, Cpu> now, CgLimits limits, View<const double, Cpu> r,
                  View<const double, Cpu> inverse_diagonal, View<double, Cpu> p) {
  stream.run([=] {
    const double alpha = cg_step_length(before.data[cg_row::rr], before.data[cg_row::rz],
                                        now.data[cg_row::pq], now.data[cg_row::pp], limits);
    if (alpha == 0 || !cg_active(now.data[cg_row::rr], now.data[cg_row::rz], limits)) return;
    const double beta = now.data[cg_row::rz] / before.data[cg_row::rz];
    parallel_ranges(r.size, grain_least, [&](Index from, Index to) {
      direct(beta, r.data + from, at(inverse_diagonal, from), p.data + from, to - from);
    });
  });
}

void gather(const Stream<Cpu>& stream, View<const Index, Cpu> index, View<const double, Cpu> from,
            View<double, Cpu> to) {
  stream.run([=] {
    parallel_ranges(index.size, grain_least, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) to.data[i] = from.data[index.data[i]];
    });
  });
}

}  // namespace terrace
