// Vector passes of conjugate gradients, fused so that each vector is read once a pass.
//
// The scalars of iteration k live in a row of four doubles in the memory of the backend, so that no
// pass waits for the host:   row = { p.q, p.p, r.r, r.z }   with q = A p, z = D r (D = 1 without a
// preconditioner). Every pass decides from the rows alone whether the iteration may still step;
// when it may not, x, r and p stay as they are, in this and in every later iteration.
#pragma once
#include "kernels/sums.hpp"

namespace terrace {

namespace cg_row {
enum : Index { pq, pp, rr, rz, size };
}

/// When conjugate gradients stop, as the kernels need it.
struct CgLimits {
  double stop = 0;   ///< r.r at which the iteration has converged
  double floor = 0;  ///< p.q / p.p at and below which A is numerically singular along p
};

constexpr bool cg_finite(double v) { return v - v == 0; }
/// True when r (with these sums) is not yet small enough, and is usable.
constexpr bool cg_active(double rr, double rz, CgLimits limits) {
  return rr > limits.stop && rz > 0 && cg_finite(rr) && cg_finite(rz);
}
/// The step alpha = r.z / p.q, or 0 when the iteration must not step.
constexpr double cg_step_length(double rr, double rz, double pq, double pp, CgLimits limits) {
  if (!cg_active(rr, rz, limits) || !(pq > 0) || !cg_finite(pp) || !(pq > limits.floor * pp))
    return 0;
  const double alpha = rz / pq;
  return cg_finite(alpha) ? alpha : 0;
}

/// r = b - q, p = D r; row[rr], row[rz] = local r.r, r.D r. All of n elements; `inverse_diagonal`
/// of size 0 means D = 1. 40 n bytes.
void cg_restart(const Stream<Cpu>&, View<const double, Cpu> b, View<const double, Cpu> q,
                View<const double, Cpu> inverse_diagonal, View<double, Cpu> r, View<double, Cpu> p,
                View<double, Cpu> row, const SumSpace<Cpu>& space);
void cg_restart(const Stream<Cuda>&, View<const double, Cuda> b, View<const double, Cuda> q,
                View<const double, Cuda> inverse_diagonal, View<double, Cuda> r,
                View<double, Cuda> p, View<double, Cuda> row, const SumSpace<Cuda>& space);

/// x += alpha p, r -= alpha q; now[rr], now[rz] = local r.r, r.D r of the new r. alpha comes from
/// before[rr], before[rz] and now[pq], now[pp]. 48 n bytes (56 n with D).
void cg_step(const Stream<Cpu>&, View<const double, Cpu> before, View<double, Cpu> now, CgLimits,
             View<const double, Cpu> p, View<const double, Cpu> q,
             View<const double, Cpu> inverse_diagonal, View<double, Cpu> x, View<double, Cpu> r,
             const SumSpace<Cpu>& space);
void cg_step(const Stream<Cuda>&, View<const double, Cuda> before, View<double, Cuda> now, CgLimits,
             View<const double, Cuda> p, View<const double, Cuda> q,
             View<const double, Cuda> inverse_diagonal, View<double, Cuda> x, View<double, Cuda> r,
             const SumSpace<Cuda>& space);

/// p = D r + (now[rz] / before[rz]) p. 24 n bytes (32 n with D).
void cg_direction(const Stream<Cpu>&, View<const double, Cpu> before, View<const double, Cpu> now,
                  CgLimits, View<const double, Cpu> r, View<const double, Cpu> inverse_diagonal,
                  View<double, Cpu> p);
void cg_direction(const Stream<Cuda>&, View<const double, Cuda> before,
                  View<const double, Cuda> now, CgLimits, View<const double, Cuda> r,
                  View<const double, Cuda> inverse_diagonal, View<double, Cuda> p);

/// to[i] = from[index[i]].
void gather(const Stream<Cpu>&, View<const Index, Cpu> index, View<const double, Cpu> from,
            View<double, Cpu> to);
void gather(const Stream<Cuda>&, View<const Index, Cuda> index, View<const double, Cuda> from,
            View<double, Cuda> to);

}  // namespace terrace
