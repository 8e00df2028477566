// What the passes of kernels/cg/vectors.hpp do with one element, the same on both backends.
//
// A pass F has `sums` sums into the row `target` from `first` on, coefficients of each column found
// once, load() of element e, and use() of what was loaded (row i), which may store: a GPU's thread loads
// `ahead` elements before it stores the first. `iterates`: does nothing once halted; `ends`: writes the
// row's end.
#pragma once
#include "kernels/cg/vectors.hpp"

namespace terrace::cg {
namespace vector_passes {

/// Numbers of column v of a row.
struct Row {
  const double* data = nullptr;
  Index columns = 1;
  [[nodiscard]] constexpr double get(Index what, Index v) const { return data[what * columns + v]; }
};

enum class Target { now, next };

/// The scalars of an iteration as every pass of it sees them.
struct Scalars {
  Row before, now;
  const double* stop = nullptr;
  double floor = 0;
  CgNorm norm = CgNorm::unpreconditioned;

  template <class B>
  explicit constexpr Scalars(const CgPass<B>& c)
      : before{c.before.data, c.columns},
        now{c.now.data, c.columns},
        stop(c.stop.data),
        floor(c.floor),
        norm(c.norm) {}
  [[nodiscard]] constexpr CgLimits limits(Index v) const { return {stop[v], floor}; }
  [[nodiscard]] constexpr double norm2(const Row& row, Index v) const {
    return cg_norm2(norm, row.get(cg_row::rr, v), row.get(cg_row::rz, v), row.get(cg_row::zz, v));
  }
};

/// The step of column v, and what its row says of it at the end.
struct Step {
  double alpha = 0, beta = 0, den = 0, dd = 0;
  bool on = false;  ///< another iteration follows
};
/// Classic: before = {rr, rz}, now = {pq, pp} and, for beta, {rr, rz} after the step.
constexpr double classic_alpha(const Scalars& s, Index v) {
  return cg_step_length(s.norm2(s.before, v), s.before.get(cg_row::rz, v), s.now.get(cg_row::pq, v),
                        s.now.get(cg_row::pp, v), s.limits(v));
}
constexpr Step classic_step(const Scalars& s, Index v) {
  Step step;
  step.alpha = classic_alpha(s, v);
  step.den = s.now.get(cg_row::pq, v);
  step.dd = s.now.get(cg_row::pp, v);
  const double rz = s.now.get(cg_row::rz, v);
  step.on = step.alpha != 0 && cg_active(s.norm2(s.now, v), rz, s.limits(v));
  if (step.on) step.beta = rz / s.before.get(cg_row::rz, v);
  return step;
}
/// One reduction: p.A p = w.u - beta r.z / alpha' by the recurrence (Chronopoulos, Gear 1989), and
/// p.p = u.u + beta^2 p'.p', as p' is orthogonal to r.
constexpr Step single_step(const Scalars& s, Index v) {
  Step step;
  const double rz = s.now.get(cg_row::rz, v), last = s.before.get(cg_row::alpha, v);
  step.den = s.now.get(cg_row::pq, v);
  step.dd = s.now.get(cg_row::pp, v);
  if (last != 0) {
    step.beta = rz / s.before.get(cg_row::rz, v);
    step.den -= step.beta * rz / last;
    step.dd += step.beta * step.beta * s.before.get(cg_row::dd, v);
  }
  step.alpha = cg_step_length(s.norm2(s.now, v), rz, step.den, step.dd, s.limits(v));
  step.on = step.alpha != 0;
  return step;
}

struct Residual {
  static constexpr Index sums = 3, first = cg_row::rr;
  static constexpr Target target = Target::now;
  static constexpr int ahead = 2;
  static constexpr bool iterates = false, ends = false;
  const double *b, *q, *d;
  double* r;
  using Column = int;
  [[nodiscard]] constexpr Column column(const Scalars&, Index) const { return 0; }
  struct Element {
    double b, q;
  };
  [[nodiscard]] constexpr Element load(Index e) const { return {b[e], q[e]}; }
  constexpr void use(const Element& held, Index e, Index i, Column, double* s) const {
    const double value = held.b - held.q, z = d ? d[i] * value : value;
    r[e] = value;
    s[0] += value * value;
    s[1] += value * z;
    s[2] += z * z;
  }
};

template <bool in_iteration>
struct Pair {
  static constexpr Index sums = 2, first = cg_row::rz;
  static constexpr Target target = Target::now;
  static constexpr int ahead = 2;
  static constexpr bool iterates = in_iteration, ends = false;
  const double *r, *z;
  using Column = int;
  [[nodiscard]] constexpr Column column(const Scalars&, Index) const { return 0; }
  struct Element {
    double r, z;
  };
  [[nodiscard]] constexpr Element load(Index e) const { return {r[e], z[e]}; }
  constexpr void use(const Element& held, Index, Index, Column, double* s) const {
    s[0] += held.r * held.z;
    s[1] += held.z * held.z;
  }
};

struct Start {
  static constexpr Index sums = 0, first = 0;
  static constexpr Target target = Target::now;
  static constexpr int ahead = 2;
  static constexpr bool iterates = false, ends = false;
  const double *z, *d;
  CgColumns keep;
  double* p;
  using Column = double;
  [[nodiscard]] constexpr Column column(const Scalars&, Index v) const {
    return keep[std::size_t(v)];
  }
  struct Element {
    double z, p;
  };
  [[nodiscard]] constexpr Element load(Index e) const { return {z[e], p[e]}; }
  constexpr void use(const Element& held, Index e, Index i, Column k, double*) const {
    const double value = d ? d[i] * held.z : held.z;
    p[e] = k == 0 ? value : value + k * held.p;
  }
};

struct Dots {
  static constexpr Index sums = 2, first = cg_row::pq;
  static constexpr Target target = Target::now;
  static constexpr int ahead = 2;
  static constexpr bool iterates = true, ends = false;
  const double *p, *q;
  using Column = int;
  [[nodiscard]] constexpr Column column(const Scalars&, Index) const { return 0; }
  struct Element {
    double p, q;
  };
  [[nodiscard]] constexpr Element load(Index e) const { return {p[e], q[e]}; }
  constexpr void use(const Element& held, Index, Index, Column, double* s) const {
    s[0] += held.p * held.q;
    s[1] += held.p * held.p;
  }
};

struct StepPass {
  static constexpr Index sums = 3, first = cg_row::rr;
  static constexpr Target target = Target::now;
  static constexpr int ahead = 4;
  static constexpr bool iterates = true, ends = false;
  const double *q, *d;
  double* r;
  using Column = double;
  [[nodiscard]] constexpr Column column(const Scalars& s, Index v) const {
    return classic_alpha(s, v);
  }
  struct Element {
    double r, q;
  };
  [[nodiscard]] constexpr Element load(Index e) const { return {r[e], q[e]}; }
  constexpr void use(const Element& held, Index e, Index i, Column alpha, double* s) const {
    double value = held.r;
    if (alpha != 0) {
      value -= alpha * held.q;
      r[e] = value;
    }
    const double z = d ? d[i] * value : value;
    s[0] += value * value;
    s[1] += value * z;
    s[2] += z * z;
  }
};

struct Direction {
  static constexpr Index sums = 0, first = 0;
  static constexpr Target target = Target::now;
  static constexpr int ahead = 4;
  static constexpr bool iterates = true, ends = true;
  const double *z, *d;
  double *x, *p;
  using Column = Step;
  [[nodiscard]] constexpr Column column(const Scalars& s, Index v) const {
    return classic_step(s, v);
  }
  struct Element {
    double x, p, z;
  };
  [[nodiscard]] constexpr Element load(Index e) const { return {x[e], p[e], z[e]}; }
  constexpr void use(const Element& held, Index e, Index i, const Column& c, double*) const {
    if (c.alpha == 0) return;
    x[e] = held.x + c.alpha * held.p;
    if (c.on) p[e] = (d ? d[i] * held.z : held.z) + c.beta * held.p;
  }
};

struct Update {
  static constexpr Index sums = 3, first = cg_row::rr;
  static constexpr Target target = Target::next;
  static constexpr int ahead = 2;
  static constexpr bool iterates = true, ends = true;
  double *u, *p, *s, *x, *r;
  const double *w, *d;
  using Column = Step;
  [[nodiscard]] constexpr Column column(const Scalars& c, Index v) const {
    return single_step(c, v);
  }
  struct Element {
    double u, p, s, x, r, w;
  };
  [[nodiscard]] constexpr Element load(Index e) const {
    return {u[e], p[e], s[e], x[e], r[e], w[e]};
  }
  constexpr void use(const Element& held, Index e, Index i, const Column& c, double* sum) const {
    double value = held.r;
    if (c.alpha != 0) {
      const double to = c.beta == 0 ? held.u : held.u + c.beta * held.p;
      const double image = c.beta == 0 ? held.w : held.w + c.beta * held.s;
      p[e] = to;
      s[e] = image;
      x[e] = held.x + c.alpha * to;
      value -= c.alpha * image;
      r[e] = value;
    }
    const double z = d ? d[i] * value : value;
    if (c.alpha != 0 && u != r) u[e] = z;
    sum[0] += value * value;
    sum[1] += value * z;
    sum[2] += z * z;
  }
};

struct Pipe {
  static constexpr Index sums = 5, first = cg_row::pq;
  static constexpr Target target = Target::next;
  static constexpr int ahead = 2;
  static constexpr bool iterates = true, ends = true;
  double *m, *z, *s, *p, *x, *r, *w, *u, *q;
  const double *n, *d;
  using Column = Step;
  [[nodiscard]] constexpr Column column(const Scalars& c, Index v) const {
    return single_step(c, v);
  }
  struct Element {
    double m, z, s, p, x, r, w, u, q, n;
  };
  [[nodiscard]] constexpr Element load(Index e) const {
    return {u ? m[e] : 0, z[e], s[e], p[e], x[e], r[e], w[e], u ? u[e] : 0, u ? q[e] : 0, n[e]};
  }
  constexpr void use(const Element& held, Index e, Index i, const Column& c, double* sum) const {
    double rv = held.r, wv = held.w;
    double uv = u ? held.u : d ? d[i] * rv : rv;
    if (c.alpha != 0) {
      const bool more = c.beta != 0;
      const double zv = more ? held.n + c.beta * held.z : held.n;
      const double sv = more ? wv + c.beta * held.s : wv;
      const double pv = more ? uv + c.beta * held.p : uv;
      z[e] = zv;
      s[e] = sv;
      p[e] = pv;
      x[e] = held.x + c.alpha * pv;
      rv -= c.alpha * sv;
      wv -= c.alpha * zv;
      r[e] = rv;
      w[e] = wv;
      if (u) {
        const double qv = more ? held.m + c.beta * held.q : held.m;
        q[e] = qv;
        uv -= c.alpha * qv;
        u[e] = uv;
      } else {
        uv = d ? d[i] * rv : rv;
        m[e] = d ? d[i] * wv : wv;
      }
    }
    sum[0] += wv * uv;
    sum[1] += uv * uv;
    sum[2] += rv * rv;
    sum[3] += rv * uv;
    sum[4] += uv * uv;
  }
};

struct PipeSums {
  static constexpr Index sums = 5, first = cg_row::pq;
  static constexpr Target target = Target::now;
  static constexpr int ahead = 2;
  static constexpr bool iterates = false, ends = false;
  const double *r, *u, *w;
  using Column = int;
  [[nodiscard]] constexpr Column column(const Scalars&, Index) const { return 0; }
  struct Element {
    double r, u, w;
  };
  [[nodiscard]] constexpr Element load(Index e) const { return {r[e], u[e], w[e]}; }
  constexpr void use(const Element& held, Index, Index, Column, double* sum) const {
    sum[0] += held.w * held.u;
    sum[1] += held.u * held.u;
    sum[2] += held.r * held.r;
    sum[3] += held.r * held.u;
    sum[4] += held.u * held.u;
  }
};

}  // namespace vector_passes

// The public functions in terms of run(stream, pass, rows, F).
#define TERRACE_VECTOR_PASSES(B)                                                                  \
  template <>                                                                                     \
  void cg_residual(const Stream<B>& stream, const CgPass<B>& c, View<const double, B> b,          \
                   View<const double, B> q, View<const double, B> d, View<double, B> r) {         \
    run(stream, c, r.size, vector_passes::Residual{b.data, q.data, d.data, r.data});              \
  }                                                                                               \
  template <>                                                                                     \
  void cg_pair(const Stream<B>& stream, const CgPass<B>& c, View<const double, B> r,              \
               View<const double, B> z, bool in_iteration) {                                      \
    if (in_iteration)                                                                             \
      run(stream, c, r.size, vector_passes::Pair<true>{r.data, z.data});                          \
    else                                                                                          \
      run(stream, c, r.size, vector_passes::Pair<false>{r.data, z.data});                         \
  }                                                                                               \
  template <>                                                                                     \
  void cg_start(const Stream<B>& stream, const CgPass<B>& c, View<const double, B> z,             \
                View<const double, B> d, const CgColumns& keep, View<double, B> p) {              \
    run(stream, c, p.size, vector_passes::Start{z.data, d.data, keep, p.data});                   \
  }                                                                                               \
  template <>                                                                                     \
  void cg_dots(const Stream<B>& stream, const CgPass<B>& c, View<const double, B> p,              \
               View<const double, B> q) {                                                         \
    run(stream, c, p.size, vector_passes::Dots{p.data, q.data});                                  \
  }                                                                                               \
  template <>                                                                                     \
  void cg_step(const Stream<B>& stream, const CgPass<B>& c, View<const double, B> q,              \
               View<const double, B> d, View<double, B> r) {                                      \
    run(stream, c, r.size, vector_passes::StepPass{q.data, d.data, r.data});                      \
  }                                                                                               \
  template <>                                                                                     \
  void cg_direction(const Stream<B>& stream, const CgPass<B>& c, View<const double, B> z,         \
                    View<const double, B> d, View<double, B> x, View<double, B> p) {              \
    run(stream, c, p.size, vector_passes::Direction{z.data, d.data, x.data, p.data});             \
  }                                                                                               \
  template <>                                                                                     \
  void cg_update(const Stream<B>& stream, const CgPass<B>& c, const CgUpdate<B>& v) {             \
    run(stream, c, v.r.size,                                                                      \
        vector_passes::Update{v.u.data, v.p.data, v.s.data, v.x.data, v.r.data, v.w.data,         \
                              v.d.data});                                                         \
  }                                                                                               \
  template <>                                                                                     \
  void cg_pipe(const Stream<B>& stream, const CgPass<B>& c, const CgPipe<B>& v) {                 \
    run(stream, c, v.r.size,                                                                      \
        vector_passes::Pipe{v.m.data, v.z.data, v.s.data, v.p.data, v.x.data, v.r.data, v.w.data, \
                            v.u.data, v.q.data, v.n.data, v.d.data});                             \
  }                                                                                               \
  template <>                                                                                     \
  void cg_pipe_sums(const Stream<B>& stream, const CgPass<B>& c, View<const double, B> r,         \
                    View<const double, B> u, View<const double, B> w) {                           \
    run(stream, c, r.size, vector_passes::PipeSums{r.data, u.data, w.data});                      \
  }

}  // namespace terrace::cg
