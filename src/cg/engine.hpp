// One solve by conjugate gradients as passes on a lane: what cg_solve.cpp launches.
//
// With M the preconditioner and (a, b) a sum over the ranks, iteration i is
//   classic            q = A p, (p, q) | alpha, r -= alpha q, z = M^-1 r, (r, z) | beta, x, p
//   single reduction   w = A u | (w, u), (r, u) | beta, alpha, p, s, x, r | u = M^-1 r
//   pipelined          n = A m beside (w, u), (r, u) | beta, alpha, z, q, s, p, x, r, u, w |
//                      m = M^-1 w
// Its scalars stand in row i % 4 of work.scalars, i counted from the last restart.
#pragma once
#include "kernels/base/graph.hpp"
#include "kernels/base/matrix.hpp"
#include "kernels/cg/resident.hpp"
#include "src/cg/conjugate_gradients.hpp"

namespace terrace::cg {

/// Scalars of one column after an iteration, or at a restart.
struct CgScalars {
  double pq = 0, pp = 0, rr = 0, rz = 0, zz = 0, alpha = 0;
};

template <class B, class A>
class CgEngine {
 public:
  CgEngine(const Context<B>& context, A& a, CgWork<B>& work, CgNorm norm, double floor)
      : c_(context), a_(a), w_(work), norm_(norm), floor_(floor) {
    r_ = w_.residual();
  }
  [[nodiscard]] bool lagged() const { return w_.method != CgMethod::classic; }
  bool head = false;  ///< products read the heads only

  void set_stops(const std::vector<double>& squares) {
    stop_ = squares.front();
    upload(lane_, stops(), squares.data());
    lane_.synchronize();
  }
  /// r = b - A x and its scalars; the true residual. The direction p survives with `keep`. Without
  /// `precondition` a general M is not applied, and (r, z) and (z, z) are left out; not of variants.
  [[nodiscard]] std::vector<CgScalars> residual(bool x_is_zero, bool keep,
                                                bool precondition = true) {
    fill_zero(lane_, w_.scalars.view().slice(0, 4 * size()));
    const Index one = 1;  // the first iteration's row in the ring
    upload(lane_, w_.finished.view(), &one);
    if (away_) copy(lane_, w_.x.view(), w_.resident.vectors.view().slice(0, w_.local_rows));
    away_ = false;
    const CgPass<B> at = pass(lagged() ? 1 : 0);
    true_residual(at, x_is_zero, keep);
    if (general() && precondition) solve_residual(at);
    if (lagged()) copy(lane_, row(0), row(1));
    reduce(row(0), cg_row::rr, 3);
    return read(row(0));
  }
  /// What residual() left out, and all its scalars.
  [[nodiscard]] std::vector<CgScalars> preconditioned() {
    solve_residual(pass(0));
    reduce(row(0), cg_row::rz, 2);
    return read(row(0));
  }
  /// The first direction of an iteration from r: p = M^-1 r + keep p.
  void start(const CgColumns& keep) {
    std::visit([&](const auto& v) { begin(v, keep); }, w_.vectors);
  }
  /// Whether iterations run in one launch, run_resident().
  [[nodiscard]] bool resident() const {
    return w_.resident.on && !general() && !head && norm_ == CgNorm::unpreconditioned;
  }
  void run_resident(Index first, Index count) const {
    const CgRing<B> rows{w_.ring.view(), w_.ring_rows, size()};
    const View<double, B> scratch = w_.resident.scratch;
    if constexpr (requires { a_.tiles(); } && std::is_same_v<B, Cuda>)
      resident_cg(lane_, a_.tiles(), d().size > 0 ? resident_part(2) : View<double, B>{},
                  w_.operand().memory.view(), resident_part(0), resident_part(1), rows, first,
                  count, {stop_, floor_}, scratch);
    if constexpr (std::is_same_v<A, CsrOperator<B>>)
      resident_cg(lane_, w_.resident.shares(a_.matrix()), d(), w_.operand().own(), w_.x, r_, rows,
                  first, count, {stop_, floor_}, scratch);
  }
  void iterate(Index i) const {
    std::visit([&](const auto& v) { step(v, i); }, w_.vectors);
  }
  /// After iteration i of the pipelined variant: r, u, w, s, z from their definitions, p kept
  /// (van der Vorst, Ye 2000; Cools et al. 2018).
  void replace(Index i) const {
    const auto& v = std::get<CgPipelined<B>>(w_.vectors);
    true_residual(pass(i + 1), false, false);
    fill_directions(v, i + 1);
    fill_pipe(v, i + 1);
  }

  /// Of the variants, whose p.A p comes from recurrences: whether the direction that they would not
  /// step along, u + beta p, has p.A p <= 0 by a product with A. The iteration is over then.
  [[nodiscard]] bool bends_down(double beta) const {
    const View<double, B> u = w_.operand().own();  // single reduction: it is u already
    if (const auto* v = std::get_if<CgPipelined<B>>(&w_.vectors))
      cg_start<B>(lane_, pass(0), general() ? View<const double, B>(v->u) : r_,
                  general() ? View<const double, B>{} : d(), {}, u);
    if (beta != 0) add<B>(lane_, 1.0, u, beta, w_.aside(), u);
    a_.apply(c_, w_.operand(), w_.product(), ignored(), w_.sums);
    if constexpr (!A::replicated) c_.comm.all_reduce(lane_, Reduce::sum, ignored());
    double product[2];
    download(lane_, product, ignored());
    lane_.synchronize();
    if (c_.size() > 1) c_.control.broadcast(product, Index(sizeof product), 0);
    return !(product[0] > 0);
  }

  [[nodiscard]] Index size() const { return cg_row::size(w_.columns); }
  [[nodiscard]] std::vector<CgScalars> columns_of(const double* host) const {
    std::vector<CgScalars> result;
    const Index k = w_.columns;
    // Of the variants: p.A p and p.p from their recurrences.
    const Index pq = lagged() ? cg_row::den : cg_row::pq, pp = lagged() ? cg_row::dd : cg_row::pp;
    for (Index v = 0; v < k; ++v)
      result.push_back({host[pq * k + v], host[pp * k + v], host[cg_row::rr * k + v],
                        host[cg_row::rz * k + v], host[cg_row::zz * k + v],
                        host[cg_row::alpha * k + v]});
    return result;
  }
  [[nodiscard]] double norm2(const CgScalars& s) const { return cg_norm2(norm_, s.rr, s.rz, s.zz); }

  [[nodiscard]] bool general() const { return bool(w_.general); }

 private:
  void solve_residual(const CgPass<B>& at) const {
    w_.general(c_, r_, w_.solved(), nullptr);
    cg_pair<B>(lane_, at, r_, w_.solved(), false);
  }
  /// Scalars as all ranks have them: the word of rank 0.
  [[nodiscard]] std::vector<CgScalars> read(View<const double, B> scalars) const {
    std::vector<double> host(std::size_t(size()), 0.0);
    download(lane_, host.data(), scalars);
    lane_.synchronize();
    if (c_.size() > 1) c_.control.broadcast(host.data(), size() * Index(sizeof(double)), 0);
    return columns_of(host.data());
  }
  [[nodiscard]] View<const double, B> d() const { return w_.inverse_diagonal; }
  [[nodiscard]] View<double, B> row(Index i) const {
    return w_.scalars.view().slice(i % 4 * size(), size());
  }
  [[nodiscard]] View<double, B> stops() const {
    return w_.scalars.view().slice(4 * size(), w_.columns);
  }
  [[nodiscard]] View<double, B> ignored() const {
    return w_.scalars.view().slice(4 * size() + cg_most_columns, 2 * w_.columns);
  }
  [[nodiscard]] View<double, B> resident_part(Index which) const {
    const Index part = w_.resident.vectors.size() / 3;
    return w_.resident.vectors.view().slice(which * part, part);
  }
  [[nodiscard]] CgPass<B> pass(Index i) const {
    return {w_.columns,      row(i + 3), row(i),         row(i + 1),         stops(),
            floor_,          norm_,      w_.ring.view(), w_.finished.view(), w_.partials.view(),
            w_.ticket.view()};
  }
  void reduce(View<double, B> scalars, Index from, Index count) const {
    if constexpr (!A::replicated)
      c_.comm.all_reduce(lane_, Reduce::sum, scalars.slice(from * w_.columns, count * w_.columns));
  }
  /// to = A operand; sums = local (operand, to), (operand, operand) of each column.
  void multiply(View<double, B> to, View<double, B> sums, const double* skip,
                const Meanwhile& meanwhile = {}) const {
    const Operand<B>& operand = w_.operand();
    if constexpr (requires { a_.apply_head(c_, operand, to, sums, w_.sums, skip); }) {
      if (head) return a_.apply_head(c_, operand, to, sums, w_.sums, skip);
    }
    if constexpr (A::replicated) {
      if (meanwhile) meanwhile();
      a_.apply(c_, operand, to, sums, w_.sums, skip);
    } else {
      a_.apply(c_, operand, to, sums, w_.sums, skip, false, meanwhile);
    }
  }
  /// r = b - A x, and its sums. The operand survives with `keep`.
  void true_residual(const CgPass<B>& at, bool x_is_zero, bool keep) const {
    const View<double, B> operand = w_.operand().own();
    if (x_is_zero) {
      fill_zero(lane_, w_.product());
    } else {
      if (keep) copy(lane_, w_.aside(), operand);
      copy(lane_, operand, w_.x.view());
      a_.apply(c_, w_.operand(), w_.product(), ignored(), w_.sums);
      if (keep) copy(lane_, operand, w_.aside());
    }
    cg_residual<B>(lane_, at, w_.b, w_.product(), d(), r_);
  }
  /// operand = M^-1 r + keep operand, where residual() left M^-1 r of a general M.
  void first_operand(const CgColumns& keep) const {
    if (general())
      cg_start<B>(lane_, pass(0), w_.solved(), {}, keep, w_.operand().own());
    else
      cg_start<B>(lane_, pass(0), r_, d(), keep, w_.operand().own());
  }

  // --- Hestenes and Stiefel: rho = (r, z) ------------------------------------------------------
  void begin(const CgClassic<B>&, const CgColumns& keep) {
    first_operand(keep);
    if (resident()) to_the_chip();
  }
  void step(const CgClassic<B>& v, Index i) const {
    const CgPass<B> at = pass(i);
    if constexpr (A::replicated && std::is_same_v<B, Cuda>) {
      if (w_.columns == 1 && !general() && cg_finishes(lane_, w_.local_rows)) {
        multiply(v.q, {}, at.skip());
        return cg_finish(lane_, at, v.q, d(), r_, w_.x, v.p.own());
      }
    }
    // q = A p, (p, q), (p, p)
    multiply(v.q, row(i).slice(cg_row::pq * w_.columns, 2 * w_.columns), at.skip());
    if (!A::sums_columns && w_.columns > 1) cg_dots<B>(lane_, at, v.p.own(), v.q);
    reduce(row(i), cg_row::pq, 2);
    // alpha = rho / (p, q), r = r - alpha q; with D also z = D r and all the sums
    cg_step<B>(lane_, at, v.q, d(), r_);
    // z = M^-1 r, rho' = (r, z), (z, z)
    if (general()) {
      w_.general(c_, r_, v.z, at.skip());
      cg_pair<B>(lane_, at, r_, v.z, true);
    }
    reduce(row(i), cg_row::rr, 3);
    // beta = rho' / rho, x = x + alpha p, p = z + beta p
    if (general())
      cg_direction<B>(lane_, at, v.z, {}, w_.x, v.p.own());
    else
      cg_direction<B>(lane_, at, r_, d(), w_.x, v.p.own());
  }

  // --- Chronopoulos and Gear: rho = (r, u), delta = (w, u) -------------------------------------
  void begin(const CgSingleReduction<B>& v, const CgColumns& keep) {
    if (r_.data != v.u.own().data) first_operand(keep);
  }
  void step(const CgSingleReduction<B>& v, Index i) const {
    const CgPass<B> at = pass(i);
    // w = A u, delta, (u, u); the sums of r are those of the last step
    multiply(v.w, row(i).slice(cg_row::pq, 2), at.skip());
    reduce(row(i), cg_row::pq, 5);
    // With ' for the last step: beta = rho / rho', (p, A p) = delta - beta rho / alpha',
    // alpha = rho / (p, A p), p = u + beta p, s = w + beta s, x = x + alpha p, r = r - alpha s,
    // u = D r
    cg_update<B>(lane_, at, {v.u.own(), v.p, v.s, w_.x, r_, v.w, d()});
    // u = M^-1 r, rho, (u, u)
    if (general()) {
      const CgPass<B> next = pass(i + 1);
      w_.general(c_, r_, v.u.own(), next.skip());
      cg_pair<B>(lane_, next, r_, v.u.own(), true);
    }
  }

  // --- Ghysels and Vanroose: rho = (r, u), delta = (w, u) --------------------------------------
  void begin(const CgPipelined<B>& v, const CgColumns&) { fill_pipe(v, 1); }
  void step(const CgPipelined<B>& v, Index i) const {
    const CgPass<B> at = pass(i);
    // n = A m, and beside it rho, delta of the vectors as they are
    multiply(v.n, ignored(), at.skip(), [&] { reduce(row(i), cg_row::pq, 5); });
    // beta and alpha as there,
    // z = n + beta z, q = m + beta q, s = w + beta s, p = u + beta p,
    // x = x + alpha p, r = r - alpha s, u = u - alpha q, w = w - alpha z; with D also m = D w
    cg_pipe<B>(lane_, at, {v.m.own(), v.z, v.s, v.p, w_.x, r_, v.w, v.u, v.q, v.n, d()});
    // m = M^-1 w
    if (general()) w_.general(c_, v.w, v.m.own(), pass(i + 1).skip());
  }
  /// m = M^-1 from.
  void solve(const CgPipelined<B>& v, const CgPass<B>& at, View<const double, B> from) const {
    if (general())
      w_.general(c_, from, v.m.own(), nullptr);
    else
      cg_start<B>(lane_, at, from, d(), {}, v.m.own());
  }
  /// s, q and z from p.
  void fill_directions(const CgPipelined<B>& v, Index i) const {
    // s = A p
    copy(lane_, v.m.own(), v.p.view());
    a_.apply(c_, v.m, v.s, ignored(), w_.sums);
    // q = M^-1 s, z = A q
    solve(v, pass(i), v.s);
    if (general()) copy(lane_, v.q.view(), v.m.own());
    a_.apply(c_, v.m, v.z, ignored(), w_.sums);
  }
  /// u, w and m from r, and the sums of row i.
  void fill_pipe(const CgPipelined<B>& v, Index i) const {
    const CgPass<B> at = pass(i);
    // u = M^-1 r, w = A u
    solve(v, at, r_);
    if (general()) copy(lane_, v.u.view(), v.m.own());
    a_.apply(c_, v.m, v.w, ignored(), w_.sums);
    // rho, delta; m = M^-1 w
    cg_pipe_sums<B>(lane_, at, r_, v.m.own(), v.w);
    solve(v, at, v.w);
  }

  /// The vectors of iterations in one launch.
  void to_the_chip() {
    const Index rows = w_.local_rows;
    copy(lane_, w_.ring.view().slice(0, size()), row(0));
    if (w_.resident.vectors.size() == 0) return;  // as they are
    copy(lane_, resident_part(0).slice(0, rows), w_.x.view());
    copy(lane_, resident_part(1).slice(0, rows), r_);
    if (d().size > 0) copy(lane_, resident_part(2).slice(0, rows), d());
    away_ = true;
  }

  const Context<B>& c_;
  A& a_;
  CgWork<B>& w_;
  CgNorm norm_;
  double floor_, stop_ = 0;
  bool away_ = false;  // x is in w_.resident.vectors
  View<double, B> r_;
  const Stream<B>& lane_ = c_.ahead;
};

}  // namespace terrace::cg
