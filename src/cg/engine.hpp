// One solve by conjugate gradients as passes on a lane: what conjugate_gradients.cpp launches.
//
// Iteration i (counted from the last restart) has its scalars in row i % 4 of work.scalars:
//   classic            q = A p | reduce | r -= alpha q | z = M^-1 r | reduce | x, p
//   single reduction   w = A u | reduce | p, s, x, r | u = M^-1 r
//   pipelined          reduce beside n = A m | z, s, p, x, r, u, w | m = M^-1 w
#pragma once
#include "kernels/base/graph.hpp"
#include "kernels/cg/resident.hpp"
#include "src/cg/conjugate_gradients.hpp"

namespace terrace {

/// Scalars of one column after an iteration, or at a restart.
struct CgScalars {
  double pq = 0, pp = 0, rr = 0, rz = 0, zz = 0, alpha = 0;
};

template <class B, class A>
class CgEngine {
 public:
  CgEngine(const Context<B>& context, A& a, CgWork<B>& work, CgNorm norm, double floor)
      : c_(context), a_(a), w_(work), norm_(norm), floor_(floor) {
    r_ = w_.method == CgMethod::single_reduction && !general() && d().size == 0 ? w_.p.own()
                                                                                : w_.r.view();
  }
  [[nodiscard]] bool lagged() const { return w_.method != CgMethod::classic; }
  [[nodiscard]] View<double, B> residual_vector() const { return r_; }
  bool head = false;  ///< products read the head plane only

  void set_stops(const std::vector<double>& squares) {
    stop_ = squares.front();
    upload(lane_, stops(), squares.data());
    lane_.synchronize();
  }
  /// r = b - A x and its scalars; the true residual. The direction p survives with `keep`.
  [[nodiscard]] std::vector<CgScalars> residual(bool x_is_zero, bool keep) {
    fill_zero(lane_, w_.scalars.view().slice(0, 4 * size()));
    const Index one = 1;  // the first iteration's row in the ring
    upload(lane_, w_.finished.view(), &one);
    if (away_) copy(lane_, w_.x.view(), w_.resident.view().slice(0, w_.local_rows));
    away_ = false;
    const CgPass<B> at = pass(lagged() ? 1 : 0);
    true_residual(at, x_is_zero, keep);
    if (general()) {
      w_.general(c_, r_, w_.z, nullptr);
      cg_pair<B>(lane_, at, r_, w_.z, false);
    }
    if (lagged()) copy(lane_, row(0), row(1));
    reduce(row(0), cg_row::rr, 3);
    std::vector<double> host(std::size_t(size()), 0.0);
    download(lane_, host.data(), row(0));
    lane_.synchronize();
    if (c_.size() > 1) c_.control.broadcast(host.data(), size() * Index(sizeof(double)), 0);
    return columns_of(host.data());
  }
  /// The first direction of an iteration from r: p = z + keep p.
  void start(const CgColumns& keep) {
    const View<const double, B> z = general() ? w_.z.view() : r_;
    const View<const double, B> scaling = general() ? View<const double, B>{} : d();
    if (w_.method == CgMethod::pipelined) return start_pipe(1, false);
    if (w_.method == CgMethod::single_reduction && r_.data == w_.p.own().data) return;
    cg_start<B>(lane_, pass(0), z, scaling, keep, w_.p.own());
    if (resident()) {
      const Index rows = w_.local_rows;
      copy(lane_, w_.ring.view().slice(0, size()), row(0));
      copy(lane_, resident_part(0).slice(0, rows), w_.x.view());
      copy(lane_, resident_part(1).slice(0, rows), r_);
      if (d().size > 0) copy(lane_, resident_part(2).slice(0, rows), d());
      away_ = true;
    }
  }
  /// Whether iterations run in one launch, run_resident().
  [[nodiscard]] bool resident() const {
    return w_.resident.size() > 0 && !general() && !head && norm_ == CgNorm::unpreconditioned;
  }
  void run_resident(Index first, Index count) const {
    if constexpr (requires { a_.tiles(); } && std::is_same_v<B, Cuda>)
      resident_cg(lane_, a_.tiles(), d().size > 0 ? resident_part(2) : View<double, B>{},
                  w_.p.memory.view(), resident_part(0), resident_part(1),
                  {w_.ring.view(), w_.ring_rows, size()}, first, count, {stop_, floor_},
                  w_.resident_scratch.view());
  }
  void iterate(Index i) const {
    if (w_.method == CgMethod::classic)
      classic(i);
    else if (w_.method == CgMethod::single_reduction)
      single(i);
    else
      pipelined(i);
  }
  /// After iteration i of the pipelined variant: r, u, w, s, z from their definitions, p kept
  /// (van der Vorst, Ye 2000; Cools et al. 2018).
  void replace(Index i) const {
    true_residual(pass(i + 1), false, false);
    start_pipe(i + 1, true);
  }

  /// Of the variants, whose p.A p comes from recurrences: whether the direction that they would not
  /// step along, u + beta p, has p.A p <= 0 by a product with A. The iteration is over then.
  [[nodiscard]] bool bends_down(double beta) const {
    const View<double, B> p = w_.p.own();
    if (w_.method == CgMethod::pipelined)
      cg_start<B>(lane_, pass(0), general() ? View<const double, B>(w_.u) : r_,
                  general() ? View<const double, B>{} : d(), {}, p);
    if (beta != 0) add<B>(lane_, 1.0, p, beta, w_.t, p);
    a_.apply(c_, w_.p, w_.q, ignored(), w_.sums);
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

 private:
  [[nodiscard]] bool general() const { return bool(w_.general); }
  [[nodiscard]] View<const double, B> d() const { return w_.inverse_diagonal; }
  [[nodiscard]] View<double, B> row(Index i) const {
    return w_.scalars.view().slice(i % 4 * size(), size());
  }
  [[nodiscard]] View<double, B> stops() const {
    return w_.scalars.view().slice(4 * size(), w_.columns);
  }
  [[nodiscard]] View<double, B> ignored() const {
    return w_.scalars.view().slice(4 * size() + cg_most_columns, 2);
  }
  [[nodiscard]] View<double, B> resident_part(Index which) const {
    const Index part = w_.resident.size() / 3;
    return w_.resident.view().slice(which * part, part);
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
  void multiply(View<double, B> q, View<double, B> sums, const double* skip,
                const Meanwhile& meanwhile = {}) const {
    if constexpr (requires { a_.apply_head(c_, w_.p, q, sums, w_.sums, skip); }) {
      if (head) return a_.apply_head(c_, w_.p, q, sums, w_.sums, skip);
    }
    if constexpr (A::replicated) {
      if (meanwhile) meanwhile();
      a_.apply(c_, w_.p, q, sums, w_.sums, skip);
    } else {
      a_.apply(c_, w_.p, q, sums, w_.sums, skip, false, meanwhile);
    }
  }
  void true_residual(const CgPass<B>& at, bool x_is_zero, bool keep) const {
    if (x_is_zero) {
      fill_zero(lane_, w_.q.view());
    } else {
      if (keep) copy(lane_, w_.t.view(), w_.p.own());
      copy(lane_, w_.p.own(), w_.x.view());
      a_.apply(c_, w_.p, w_.q, ignored(), w_.sums);
      if (keep) copy(lane_, w_.p.own(), w_.t.view());
    }
    cg_residual<B>(lane_, at, w_.b, w_.q, d(), r_);
  }

  void classic(Index i) const {
    const CgPass<B> at = pass(i);
    multiply(w_.q, row(i).slice(cg_row::pq, 2), at.skip());
    if (w_.columns > 1) cg_dots<B>(lane_, at, w_.p.own(), w_.q);
    reduce(row(i), cg_row::pq, 2);
    cg_step<B>(lane_, at, w_.q, d(), r_);
    if (general()) {
      w_.general(c_, r_, w_.z, at.skip());
      cg_pair<B>(lane_, at, r_, w_.z, true);
    }
    reduce(row(i), cg_row::rr, 3);
    if (general())
      cg_direction<B>(lane_, at, w_.z, {}, w_.x, w_.p.own());
    else
      cg_direction<B>(lane_, at, r_, d(), w_.x, w_.p.own());
  }
  void single(Index i) const {
    const CgPass<B> at = pass(i);
    multiply(w_.q, row(i).slice(cg_row::pq, 2), at.skip());
    reduce(row(i), cg_row::pq, 5);
    cg_update<B>(lane_, at, {w_.p.own(), w_.t, w_.s, w_.x, r_, w_.q, d()});
    if (general()) {
      const CgPass<B> next = pass(i + 1);
      w_.general(c_, r_, w_.p.own(), next.skip());
      cg_pair<B>(lane_, next, r_, w_.p.own(), true);
    }
  }
  void pipelined(Index i) const {
    const CgPass<B> at = pass(i);
    multiply(w_.q, ignored(), at.skip(), [&] { reduce(row(i), cg_row::pq, 5); });
    cg_pipe<B>(lane_, at, {w_.p.own(), w_.z, w_.s, w_.t, w_.x, r_, w_.w, w_.u, w_.v, w_.q, d()});
    if (general()) w_.general(c_, w_.w, w_.p.own(), pass(i + 1).skip());
  }
  /// u, w, m (with `all`: s and z as well) from r and p, and the sums of row i.
  void start_pipe(Index i, bool all) const {
    const CgPass<B> at = pass(i);
    const View<double, B> m = w_.p.own();
    const auto solve = [&](View<const double, B> from) {  // m = M^-1 from
      if (general())
        w_.general(c_, from, m, nullptr);
      else
        cg_start<B>(lane_, at, from, d(), {}, m);
    };
    if (all) {
      copy(lane_, m, w_.t.view());
      a_.apply(c_, w_.p, w_.s, ignored(), w_.sums);
      solve(w_.s);
      if (general()) copy(lane_, w_.v.view(), m);
      a_.apply(c_, w_.p, w_.z, ignored(), w_.sums);
    }
    solve(r_);
    if (general()) copy(lane_, w_.u.view(), m);
    a_.apply(c_, w_.p, w_.w, ignored(), w_.sums);
    cg_pipe_sums<B>(lane_, at, r_, m, w_.w);
    solve(w_.w);
  }

  const Context<B>& c_;
  A& a_;
  CgWork<B>& w_;
  CgNorm norm_;
  double floor_, stop_ = 0;
  bool away_ = false;  // x is in w_.resident
  View<double, B> r_;
  const Stream<B>& lane_ = c_.ahead;
};

}  // namespace terrace
