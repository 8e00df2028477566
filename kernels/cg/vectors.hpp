// Vector passes of conjugate gradients, fused so that each vector is read once a pass, for
// `columns` (1, 2, 4, 8 or 16) systems in lock step: vectors are rows x columns, row-major.
//
// The scalars of an iteration live in the memory of the backend, so that no pass waits for the
// host: a row of cg_row::size(columns) numbers, `what` of column v at [what * columns + v], and one
// flag. Every pass decides from the rows alone whether a column may still step; when it may not,
// its x, r and p stay as they are, in this and in every later iteration. Once no column may, the
// flag `halted` is set and later passes (and products) return at once.
//
// With D the inverse diagonal of a preconditioner (D = 1 without), or M^-1 in general, z = M^-1 r.
#pragma once
#include <array>

#include "kernels/base/sums.hpp"

namespace terrace::cg {

namespace cg_row {
enum : Index {
  pq,     ///< p.q, q = A p; in the variants of one reduction w.u, w = A u, u = M^-1 r
  pp,     ///< p.p; there u.u
  rr,     ///< r.r after the step; there before it, as the next two
  rz,     ///< r.z
  zz,     ///< z.z
  alpha,  ///< length of the step, 0: none
  den,    ///< p.A p of the step
  dd,     ///< p.p of the step
  count
};
constexpr Index halted(Index columns) { return count * columns; }
constexpr Index size(Index columns) { return count * columns + 1; }
}  // namespace cg_row

constexpr Index cg_most_columns = 16;

/// The norm of r that is compared: ||r||, ||z|| or sqrt(r.z).
enum class CgNorm { unpreconditioned, preconditioned, natural };

/// When conjugate gradients stop, as the kernels need it.
struct CgLimits {
  double stop = 0;   ///< square of the norm at which the iteration has converged
  double floor = 0;  ///< p.q / p.p at and below which A is numerically singular along p
};

constexpr bool cg_finite(double v) { return v - v == 0; }
/// True when r, with this square of its norm and r.z, is not yet small enough, and is usable.
constexpr bool cg_active(double norm2, double rz, CgLimits limits) {
  return norm2 > limits.stop && rz > 0 && cg_finite(norm2) && cg_finite(rz);
}
/// The step alpha = r.z / p.q, or 0 when the iteration must not step.
constexpr double cg_step_length(double norm2, double rz, double pq, double pp, CgLimits limits) {
  if (!cg_active(norm2, rz, limits) || !(pq > 0) || !cg_finite(pp) || !(pq > limits.floor * pp))
    return 0;
  const double alpha = rz / pq;
  return cg_finite(alpha) ? alpha : 0;
}
constexpr double cg_norm2(CgNorm norm, double rr, double rz, double zz) {
  return norm == CgNorm::unpreconditioned ? rr : norm == CgNorm::preconditioned ? zz : rz;
}

/// What the passes of one iteration share.
template <class B>
struct CgPass {
  Index columns = 1;
  View<double, B> before, now;  ///< rows of the iteration before, and of this one
  View<double, B> next;         ///< of the one after: the variants of one reduction
  View<const double, B> stop;   ///< `columns` squares: CgLimits::stop
  double floor = 0;
  CgNorm norm = CgNorm::unpreconditioned;
  View<double, B> history;  ///< ring of finished rows, a whole number of them
  View<Index, B> finished;  ///< 1: rows written to the ring so far
  View<double, B> partials;
  View<Word, B> ticket;
  static constexpr Index partial_count = Index(1) << 17;

  [[nodiscard]] constexpr const double* skip() const {
    return before.data + cg_row::halted(columns);
  }
};

/// Coefficients that the host gives, one a column.
using CgColumns = std::array<double, std::size_t(cg_most_columns)>;

// Each function has one overload a backend, specialised in kernels/{cpu,cuda}/vectors.*. `d` is the
// inverse diagonal (rows), or empty: D = 1. Bytes are of one column without D.

/// r = b - q; now[rr], now[rz], now[zz] = local r.r, r.D r, |D r|^2. 24 bytes per row.
template <class B>
void cg_residual(const Stream<B>&, const CgPass<B>&, View<const double, B> b,
                 View<const double, B> q, View<const double, B> d, View<double, B> r);
/// now[rz], now[zz] = local r.z, z.z. 16 bytes per row.
template <class B>
void cg_pair(const Stream<B>&, const CgPass<B>&, View<const double, B> r, View<const double, B> z,
             bool in_iteration);
/// p = D z + keep p (p = D z where keep is zero). 24 bytes per row.
template <class B>
void cg_start(const Stream<B>&, const CgPass<B>&, View<const double, B> z, View<const double, B> d,
              const CgColumns& keep, View<double, B> p);
/// now[pq], now[pp] = local p.q, p.p. 16 bytes per row.
template <class B>
void cg_dots(const Stream<B>&, const CgPass<B>&, View<const double, B> p, View<const double, B> q);

/// r -= alpha q; now[rr], now[rz], now[zz]. alpha comes from `before` and now[pq], now[pp]. 24
/// bytes per row.
template <class B>
void cg_step(const Stream<B>&, const CgPass<B>&, View<const double, B> q, View<const double, B> d,
             View<double, B> r);
/// x += alpha p, p = D z + (now[rz] / before[rz]) p where the iteration goes on. Ends it: alpha,
/// den, dd and halted of `now`, and a row of the history. 40 bytes per row.
template <class B>
void cg_direction(const Stream<B>&, const CgPass<B>&, View<const double, B> z,
                  View<const double, B> d, View<double, B> x, View<double, B> p);

/// cg_dots, cg_step and cg_direction in one launch, of one column: the whole rest of an iteration
/// whose vectors are whole on every rank. Where cg_finishes().
void cg_finish(const Stream<Cuda>&, const CgPass<Cuda>&, View<const double, Cuda> q,
               View<const double, Cuda> d, View<double, Cuda> r, View<double, Cuda> x,
               View<double, Cuda> p);
bool cg_finishes(const Stream<Cuda>&, Index rows);
constexpr Index cg_few_rows = 32768;

/// One iteration of Chronopoulos and Gear (1989) after w = A u and one reduction of pq .. zz:
///   p = u + beta p, s = w + beta s, x += alpha p, r -= alpha s, u = D r,
///   next[rr], next[rz], next[zz]
/// Ends the iteration as cg_direction. u and r may be the same vector (D = 1). 80 bytes per row.
template <class B>
struct CgUpdate {
  View<double, B> u, p, s, x, r;
  View<const double, B> w, d;
};
template <class B>
void cg_update(const Stream<B>&, const CgPass<B>&, const CgUpdate<B>&);

/// One iteration of Ghysels and Vanroose (2014) after n = A m, m = M^-1 w, and the reduction:
///   z = n + beta z, s = w + beta s, p = u + beta p, x += alpha p, r -= alpha s, w -= alpha z,
///   and u = D r, m = D w; or with u and q given (q = M^-1 s): q = m + beta q, u -= alpha q;
///   next[pq] = w.u, next[pp] = u.u, next[rr], next[rz], next[zz]
/// Ends the iteration as cg_direction. 112 bytes per row.
template <class B>
struct CgPipe {
  View<double, B> m, z, s, p, x, r, w;
  View<double, B> u, q;  ///< empty: from D
  View<const double, B> n, d;
};
template <class B>
void cg_pipe(const Stream<B>&, const CgPass<B>&, const CgPipe<B>&);
/// The sums of cg_pipe for r, u, w as they are.
template <class B>
void cg_pipe_sums(const Stream<B>&, const CgPass<B>&, View<const double, B> r,
                  View<const double, B> u, View<const double, B> w);

}  // namespace terrace::cg
