// What the passes of kernels/band/mixed_cg.hpp do with one element, the same on both backends.
//
// A pass has `values` numbers that it gives for each element (row i, column v, place at), summed or
// (with `maximum`) the largest taken, into state[first], state[first + 1], ..; and a coefficient of
// each column, found once.
#pragma once
#include <bit>
#include <limits>

#include "kernels/band/mixed_cg.hpp"

namespace terrace::band::band_cg_passes {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr double magnitude(double v) { return v < 0 ? -v : v == v ? v : kInfinity; }

/// Binary exponent of v; -infinity for zero, infinity for what is not finite.
constexpr double exponent(double v) {
  constexpr Word all = 0x7ff;
  const auto biased = [](double x) { return int(std::bit_cast<Word>(x) >> 52 & all); };
  if (biased(v) == int(all)) return kInfinity;
  if (biased(v) > 0) return biased(v) - 1023;
  return v == 0 ? -kInfinity : biased(v * 0x1p54) - 1077;  // denormal
}

struct Exponents {
  static constexpr int values = 1;
  static constexpr bool maximum = true;
  static constexpr Index first = band_cg::r;
  const double *scale, *b;
  [[nodiscard]] constexpr double coefficient(Index) const { return 0; }
  constexpr void operator()(Index i, Index, Index at, double, double* out) const {
    out[0] = b[at] == 0 ? -kInfinity : exponent(b[at]) + exponent(scale[i]);
  }
};

struct Scale {
  static constexpr int values = 0;
  static constexpr bool maximum = true;
  static constexpr Index first = 0;
  Index nrhs;
  const double* factor;
  double* x;
  [[nodiscard]] constexpr double coefficient(Index) const { return 0; }
  constexpr void operator()(Index, Index v, Index at, double, double*) const {
    x[at] = x[at] * factor[v] * factor[nrhs + v];
  }
};

struct Ones {
  static constexpr int values = 0;
  static constexpr bool maximum = true;
  static constexpr Index first = 0;
  const double* scale;
  double* x;
  [[nodiscard]] constexpr double coefficient(Index) const { return 0; }
  constexpr void operator()(Index i, Index v, Index at, double, double*) const {
    x[at] = v == 0 ? 1.0 : scale[i];
  }
};

struct Norms {
  static constexpr int values = 2;
  static constexpr bool maximum = true;
  static constexpr Index first = band_cg::r;
  const double *scale, *r;
  [[nodiscard]] constexpr double coefficient(Index) const { return 0; }
  constexpr void operator()(Index i, Index, Index at, double, double* out) const {
    out[0] = magnitude(r[at]);
    out[1] = magnitude(r[at] * scale[i]);
  }
};

struct Residual {
  static constexpr int values = 4;
  static constexpr bool maximum = true;
  static constexpr Index first = band_cg::r;
  const double *scale, *b, *q, *x;
  double* r;
  [[nodiscard]] constexpr double coefficient(Index) const { return 0; }
  constexpr void operator()(Index i, Index, Index at, double, double* out) const {
    const double rest = b[at] - q[at], value = x[at];
    r[at] = rest;
    out[0] = magnitude(rest);
    out[1] = magnitude(rest * scale[i]);
    out[2] = magnitude(value);
    out[3] = magnitude(value / scale[i]);
  }
};

struct Products {
  static constexpr int values = 2;
  static constexpr bool maximum = false;
  static constexpr Index first = band_cg::rz;
  const double *r, *z, *q;
  [[nodiscard]] constexpr double coefficient(Index) const { return 0; }
  constexpr void operator()(Index, Index, Index at, double, double* out) const {
    out[0] = r[at] * z[at];
    out[1] = z[at] * q[at];
  }
};

struct Direction {
  static constexpr int values = 0;
  static constexpr bool maximum = true;
  static constexpr Index first = 0;
  Index nrhs;
  const double *state, *z;
  double* p;
  [[nodiscard]] constexpr double coefficient(Index v) const {
    const double pq = state[band_cg::pq * nrhs + v];
    return pq > 0 ? -state[band_cg::zq * nrhs + v] / pq : 0;
  }
  constexpr void operator()(Index, Index, Index at, double beta, double*) const {
    p[at] = beta == 0 ? z[at] : z[at] + beta * p[at];
  }
};

struct Curvature {
  static constexpr int values = 1;
  static constexpr bool maximum = false;
  static constexpr Index first = band_cg::pq;
  const double *p, *q;
  [[nodiscard]] constexpr double coefficient(Index) const { return 0; }
  constexpr void operator()(Index, Index, Index at, double, double* out) const {
    out[0] = p[at] * q[at];
  }
};

struct Step {
  static constexpr int values = 4;
  static constexpr bool maximum = true;
  static constexpr Index first = band_cg::r;
  Index nrhs;
  const double *state, *scale, *p, *q;
  double *x, *r;
  [[nodiscard]] constexpr double coefficient(Index v) const {
    const double pq = state[band_cg::pq * nrhs + v];
    const bool usable = state[band_cg::active * nrhs + v] != 0 && pq > 0;
    return usable ? state[band_cg::rz * nrhs + v] / pq : 0;
  }
  constexpr void operator()(Index i, Index, Index at, double alpha, double* out) const {
    if (alpha != 0) {
      x[at] += alpha * p[at];
      r[at] -= alpha * q[at];
    }
    out[0] = magnitude(r[at]);
    out[1] = magnitude(r[at] * scale[i]);
    out[2] = magnitude(x[at]);
    out[3] = magnitude(x[at] / scale[i]);
  }
};

/// The functions of kernels/band/mixed_cg.hpp from run(stream, b, nrhs, pass) of one backend.
#define TERRACE_BAND_CG_PASSES(B)                                                                  \
  void band_cg_exponents(const Stream<B>& s, const BandCg<B>& c, View<const double, B> b) {        \
    run(s, c, c.nrhs, band_cg_passes::Exponents{c.scale.data, b.data});                            \
  }                                                                                                \
  void band_cg_scale(const Stream<B>& s, const BandCg<B>& c, View<const double, B> factor,         \
                     View<double, B> x) {                                                          \
    run(s, c, c.nrhs, band_cg_passes::Scale{c.nrhs, factor.data, x.data});                         \
  }                                                                                                \
  void band_cg_ones(const Stream<B>& s, const BandCg<B>& c, View<double, B> x) {                   \
    run(s, c, 2, band_cg_passes::Ones{c.scale.data, x.data});                                      \
  }                                                                                                \
  void band_cg_norms(const Stream<B>& s, const BandCg<B>& c, View<const double, B> r) {            \
    run(s, c, c.nrhs, band_cg_passes::Norms{c.scale.data, r.data});                                \
  }                                                                                                \
  void band_cg_residual(const Stream<B>& s, const BandCg<B>& c, View<const double, B> b,           \
                        View<const double, B> q, View<const double, B> x, View<double, B> r) {     \
    run(s, c, c.nrhs, band_cg_passes::Residual{c.scale.data, b.data, q.data, x.data, r.data});     \
  }                                                                                                \
  void band_cg_products(const Stream<B>& s, const BandCg<B>& c, View<const double, B> r,           \
                        View<const double, B> z, View<const double, B> q) {                        \
    run(s, c, c.nrhs, band_cg_passes::Products{r.data, z.data, q.data});                           \
  }                                                                                                \
  void band_cg_direction(const Stream<B>& s, const BandCg<B>& c, View<const double, B> z,          \
                         View<double, B> p) {                                                      \
    run(s, c, c.nrhs, band_cg_passes::Direction{c.nrhs, c.state.data, z.data, p.data});            \
  }                                                                                                \
  void band_cg_curvature(const Stream<B>& s, const BandCg<B>& c, View<const double, B> p,          \
                         View<const double, B> q) {                                                \
    run(s, c, c.nrhs, band_cg_passes::Curvature{p.data, q.data});                                  \
  }                                                                                                \
  void band_cg_step(const Stream<B>& s, const BandCg<B>& c, View<const double, B> p,               \
                    View<const double, B> q, View<double, B> x, View<double, B> r) {               \
    run(s, c, c.nrhs,                                                                              \
        band_cg_passes::Step{c.nrhs, c.state.data, c.scale.data, p.data, q.data, x.data, r.data}); \
  }

}  // namespace terrace::band::band_cg_passes
