// Vector passes of conjugate gradients with a preconditioner, for a few right-hand sides in lock
// step. Vectors are rows x nrhs, row-major, nrhs <= band_cg_columns; S is the scaling of
// kernels/band/low.hpp.
//
// Scalars live beside them, nrhs numbers each, so that no pass waits for the host:
//   state[what * nrhs + v], `what` of band_cg below
// A column whose state[active] is zero keeps its x and r.
#pragma once
#include "kernels/base/buffer.hpp"

namespace terrace::band {

namespace band_cg {
enum : Index {
  active,    ///< set by the host: 1 or 0
  rz,        ///< r.z
  zq,        ///< z.q
  pq,        ///< p.q; zero: the next direction is a first one
  r,         ///< max |r_i|; infinite for a NaN, as all of the maxima
  r_scaled,  ///< max |s_i r_i|
  x,         ///< max |x_i|
  x_scaled,  ///< max |x_i / s_i|
  size
};
}  // namespace band_cg

inline constexpr Index band_cg_columns = 8;
/// Numbers of scratch that every pass may use.
inline constexpr Index band_cg_scratch = 1024 * 4 * band_cg_columns;

/// What all passes need.
template <class B>
struct BandCg {
  Index rows = 0, nrhs = 1;
  View<const double, B> scale;  ///< S, `rows` numbers
  View<double, B> state;        ///< band_cg::size * nrhs
  View<double, B> scratch;      ///< band_cg_scratch
};

/// state[r] := max of the binary exponents of s_i b_i, -infinity when all are zero.
void band_cg_exponents(const Stream<Cpu>&, const BandCg<Cpu>&, View<const double, Cpu> b);
void band_cg_exponents(const Stream<Cuda>&, const BandCg<Cuda>&, View<const double, Cuda> b);
/// x := x times factor[v] times factor[nrhs + v].
void band_cg_scale(const Stream<Cpu>&, const BandCg<Cpu>&, View<const double, Cpu> factor,
                   View<double, Cpu> x);
void band_cg_scale(const Stream<Cuda>&, const BandCg<Cuda>&, View<const double, Cuda> factor,
                   View<double, Cuda> x);
/// x (rows x 2) := 1, s_i. nrhs is not used.
void band_cg_ones(const Stream<Cpu>&, const BandCg<Cpu>&, View<double, Cpu> x);
void band_cg_ones(const Stream<Cuda>&, const BandCg<Cuda>&, View<double, Cuda> x);
/// state[r], state[r_scaled] of the vector r.
void band_cg_norms(const Stream<Cpu>&, const BandCg<Cpu>&, View<const double, Cpu> r);
void band_cg_norms(const Stream<Cuda>&, const BandCg<Cuda>&, View<const double, Cuda> r);

/// r := b - q; state[r] .. state[x_scaled].
void band_cg_residual(const Stream<Cpu>&, const BandCg<Cpu>&, View<const double, Cpu> b,
                      View<const double, Cpu> q, View<const double, Cpu> x, View<double, Cpu> r);
void band_cg_residual(const Stream<Cuda>&, const BandCg<Cuda>&, View<const double, Cuda> b,
                      View<const double, Cuda> q, View<const double, Cuda> x, View<double, Cuda> r);
/// state[rz] := r.z, state[zq] := z.q.
void band_cg_products(const Stream<Cpu>&, const BandCg<Cpu>&, View<const double, Cpu> r,
                      View<const double, Cpu> z, View<const double, Cpu> q);
void band_cg_products(const Stream<Cuda>&, const BandCg<Cuda>&, View<const double, Cuda> r,
                      View<const double, Cuda> z, View<const double, Cuda> q);
/// p := z - (zq / pq) p, which is A-orthogonal to the p before; p := z where pq is zero.
void band_cg_direction(const Stream<Cpu>&, const BandCg<Cpu>&, View<const double, Cpu> z,
                       View<double, Cpu> p);
void band_cg_direction(const Stream<Cuda>&, const BandCg<Cuda>&, View<const double, Cuda> z,
                       View<double, Cuda> p);
/// state[pq] := p.q.
void band_cg_curvature(const Stream<Cpu>&, const BandCg<Cpu>&, View<const double, Cpu> p,
                       View<const double, Cpu> q);
void band_cg_curvature(const Stream<Cuda>&, const BandCg<Cuda>&, View<const double, Cuda> p,
                       View<const double, Cuda> q);
/// With alpha = rz / pq: x += alpha p, r -= alpha q; state[r] .. state[x_scaled].
void band_cg_step(const Stream<Cpu>&, const BandCg<Cpu>&, View<const double, Cpu> p,
                  View<const double, Cpu> q, View<double, Cpu> x, View<double, Cpu> r);
void band_cg_step(const Stream<Cuda>&, const BandCg<Cuda>&, View<const double, Cuda> p,
                  View<const double, Cuda> q, View<double, Cuda> x, View<double, Cuda> r);

}  // namespace terrace::band
