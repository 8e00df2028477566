// Conjugate gradients with a factor in low precision, for one group of right-hand sides.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <tuple>
#include <type_traits>
#include <vector>

#include "kernels/band/symmetric.hpp"
#include "src/band/mixed_ends.hpp"
#include "src/frame/checkpoints.hpp"
#include "src/frame/tridiagonal.hpp"

namespace terrace::band::mixed {

inline constexpr double kUnit = 0x1.0p-53;
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Backward errors: what the recurrence aims at; what a true residual must keep, whose sums have 64
/// terms in a tile column and a strip of each in reach; and what is as good as can be had when it
/// falls no further.
inline constexpr double kTarget = 4 * kUnit;
inline double accepted(const BandShape& s) {
  return kUnit * (8 + std::sqrt(64 + double(ceil_div(s.reach, s.width))));
}
inline double attainable(const BandShape& s) {
  return 2 * accepted(s) + kUnit * std::sqrt(2 * double(s.half_bandwidth) + 1);
}

template <class B>
View<double, B> columns(const Buffer<double, B>& vector, const BandShape& s, Index nrhs) {
  return vector.view().slice(0, s.padded() * nrhs);
}

template <class B>
BandCg<B> passes(const BandMixed<B>& m, Index nrhs) {
  return {m.shape.n, nrhs, m.scale.view(), m.state.view(), m.sums.view()};
}

/// The host's copy of the scalars, of now.
template <class B>
void look(const Stream<B>& lane, const BandMixed<B>& m, Index nrhs) {
  download(lane, m.seen.data(), m.state.view().slice(0, band_cg::size * nrhs));
  lane.synchronize();
}

/// Order of the whole matrix.
template <class B>
Index order(const BandMixed<B>& m) {
  return m.ends ? m.ends->plan.shape.n : m.shape.n;
}
/// On all ranks.
template <class B>
bool agreed(const Context<B>& c, const BandMixed<B>& m, bool good) {
  return m.ends ? c.control.reduce(Index(!good), Reduce::max) == 0 : good;
}
/// y := A x, or |A| x.
template <class B>
void product(Context<B>& c, const BandMixed<B>& m, std::type_identity_t<View<const double, B>> a,
             bool absolute, Index nrhs, std::type_identity_t<View<const double, B>> x,
             std::type_identity_t<View<double, B>> y) {
  if (m.shape.n > 0) band_symmetric_times(c.ahead, m.shape, a, absolute, nrhs, x, y, m.strips);
  if (m.ends) add_separator(c, *m.ends, nrhs, y);
}
/// z := M^-1 r; z may not be r.
template <class B>
void precondition(Context<B>& c, const BandMixed<B>& m, Index nrhs,
                  std::type_identity_t<View<const double, B>> r,
                  std::type_identity_t<View<double, B>> z) {
  if (m.ends) return solve_ends(c, *m.ends, m, nrhs, r, z);
  band_low_solve(c.ahead, m.shape, m.low, m.scale, nrhs, r, z, m.low_scratch);
}
/// A pass of kernels/band/mixed_cg.hpp, and `count` scalars from `first` on that it leaves, of all
/// ranks.
template <class B, class Pass>
void across(Context<B>& c, const BandMixed<B>& m, Reduce op, Index first, Index count, Index nrhs,
            Pass&& pass) {
  if (m.shape.n > 0) pass();
  if (!m.ends) return;
  const View<double, B> scalars = m.state.view().slice(first * nrhs, count * nrhs);
  if (m.shape.n == 0) {
    const std::vector<double> none(std::size_t(scalars.size), op == Reduce::sum ? 0.0 : -kInfinity);
    upload(c.ahead, scalars, none.data());
    c.ahead.synchronize();
  }
  c.comm.all_reduce(c.ahead, op, scalars);
}

/// Checkpoints between iterations, or none.
struct MixedStops {
  Checkpoints* checkpoints = nullptr;
  Index steps = 0;  ///< at most
  std::function<void(Archive&)> state;
};

/// One group of right-hand sides.
template <class B>
class Group {
 public:
  Group(Context<B>& context, View<const double, B> a, BandMixed<B>& m, Index nrhs,
        const MixedLimits& limits, const MixedStops& stops = {})
      : c_(context),
        lane_(context.ahead),
        a_(a),
        m_(m),
        s_(m.shape),
        cg_(passes(m, nrhs)),
        nrhs_(nrhs),
        limits_(limits),
        stops_(stops),
        b_(columns(m.b, s_, nrhs)),
        x_(columns(m.x, s_, nrhs)),
        r_(columns(m.r, s_, nrhs)),
        z_(columns(m.z, s_, nrhs)),
        p_(columns(m.p, s_, nrhs)),
        q_(columns(m.q, s_, nrhs)) {}

  /// Solves for columns from .. of `all` (ld numbers per row), in their place.
  MixedResult run(View<double, B> all, Index ld, Index from) {
    bool inside = m_.inside;
    if (inside)
      take_state();
    else if (!begin(all, ld, from))
      return failed(MixedReason::not_finite);
    while (true) {
      if (!inside) {
        look(lane_, m_, nrhs_);
        if (result_.iterations == 0)
          for (Index v = 0; v < nrhs_; ++v) {
            size_[v] = seen(band_cg::r, v);
            scaled_size_[v] = seen(band_cg::r_scaled, v);
          }
        if (const auto end = settled()) {
          result_.reason = *end;
          break;
        }
        if (result_.iterations > 0) ++result_.restarts;
        begin_iterations();
      }
      inside = false;
      if (!iterate()) return failed(MixedReason::not_finite);
      times(x_);
      residual();
    }
    if (result_.reason == MixedReason::converged) {
      for (Index v = 0; v < nrhs_; ++v)
        result_.backward_error = std::max(result_.backward_error, plain_[v]);
      scale(x_, 1);
      copy_rows<double, B>(lane_, all.data + from, ld, x_.data, nrhs_, nrhs_, s_.n);
      lane_.synchronize();
    }
    std::tie(result_.smallest, result_.largest) = extreme_eigenvalues(diagonal_, beside_);
    return result_;
  }

 private:
  /// False when an entry is not finite.
  [[nodiscard]] bool begin(View<double, B> all, Index ld, Index from) {
    for (const View<double, B>& v : {b_, x_, r_, z_, p_, q_}) fill_zero(lane_, v);
    fill_zero(lane_, m_.state.view());
    copy_rows<double, B>(lane_, b_.data, nrhs_, all.data + from, ld, nrhs_, s_.n);
    if (!normalise()) return false;
    residual();
    for (Index v = 0; v < nrhs_; ++v) before_[v] = kInfinity;
    return true;
  }
  /// act(number): each number of the host that an iteration needs.
  template <class Act>
  void each_number(Act&& act) {
    for (double* const list : {size_, scaled_size_, before_, plain_, best_})
      for (Index v = 0; v < nrhs_; ++v) act(list[v]);
    act(last_alpha_);
    act(last_pq_);
    const auto whole = [&](auto& value) {
      double number = double(value);
      act(number);
      value = std::remove_reference_t<decltype(value)>(number);
    };
    whole(since_);
    whole(watched_);
    whole(result_.iterations);
    whole(result_.restarts);
    for (Index v = 0; v < nrhs_; ++v) {
      whole(active_[v]);
      whole(exponent_[v]);
    }
  }
  void put_state() {
    m_.numbers.clear();
    each_number([&](double& number) { m_.numbers.push_back(number); });
    m_.lanczos = diagonal_;
    m_.off_lanczos = beside_;
    m_.inside = true;
  }
  void take_state() {
    std::size_t at = 0;
    each_number([&](double& number) { number = m_.numbers.at(at++); });
    diagonal_ = m_.lanczos;
    beside_ = m_.off_lanczos;
    m_.inside = false;
  }
  [[nodiscard]] double seen(Index what, Index v) const { return m_.seen[what * nrhs_ + v]; }
  MixedResult failed(MixedReason reason) {
    result_.reason = reason;
    return result_;
  }
  void times(View<double, B> x) { product(c_, m_, a_, false, nrhs_, x, q_); }
  void residual() {
    across(c_, m_, Reduce::max, band_cg::r, 4, nrhs_,
           [&] { band_cg_residual(lane_, cg_, b_, q_, x_, r_); });
  }

  /// b by powers of two, so that S b is of size one. False when an entry is not finite.
  bool normalise() {
    across(c_, m_, Reduce::max, band_cg::r, 1, nrhs_, [&] { band_cg_exponents(lane_, cg_, b_); });
    look(lane_, m_, nrhs_);
    for (Index v = 0; v < nrhs_; ++v) {
      const double exponent = seen(band_cg::r, v);
      if (exponent == kInfinity) return false;
      exponent_[v] = std::isfinite(exponent) ? int(exponent) : 0;
    }
    scale(b_, -1);
    return true;
  }
  void scale(View<double, B> vector, int sign) {
    for (Index v = 0; v < nrhs_; ++v) {  // in halves, which stay in the range of double
      const int half = exponent_[v] / 2;
      m_.given[v] = std::ldexp(1.0, sign * half);
      m_.given[nrhs_ + v] = std::ldexp(1.0, sign * (exponent_[v] - half));
    }
    const View<double, B> factors = m_.factors.view().slice(0, 2 * nrhs_);
    upload(lane_, factors, m_.given.data());
    if (s_.n > 0) band_cg_scale(lane_, cg_, factors, vector);
    lane_.synchronize();
  }

  /// Backward errors of column v by the norms seen; the larger one returned.
  double error(Index v) {
    const auto ratio = [](double rest, double size) {
      return rest == 0 ? 0.0 : rest / size < kInfinity ? rest / size : kInfinity;
    };
    plain_[v] = ratio(seen(band_cg::r, v), m_.norm * seen(band_cg::x, v) + size_[v]);
    return std::max(plain_[v],
                    ratio(seen(band_cg::r_scaled, v),
                          m_.scaled_norm * seen(band_cg::x_scaled, v) + scaled_size_[v]));
  }

  /// What true residuals say; nothing when columns are left, which `active_` names then.
  std::optional<MixedReason> settled() {
    bool left = false, improved = false, close = true;
    for (Index v = 0; v < nrhs_; ++v) {
      const double now = error(v);
      active_[v] = now > accepted(s_);
      if (!active_[v]) continue;
      left = true;
      improved |= now < 0.5 * before_[v];
      close &= now <= attainable(s_);
      before_[v] = std::min(before_[v], now);
    }
    if (!left) return MixedReason::converged;
    if (improved && result_.iterations < limits_.iterations) return {};
    if (close) return MixedReason::converged;
    return improved ? MixedReason::iterations : MixedReason::stagnation;
  }

  void give_active() {
    for (Index v = 0; v < nrhs_; ++v) m_.given[v] = active_[v] ? 1.0 : 0.0;
    upload(lane_, m_.state.view().slice(band_cg::active * nrhs_, nrhs_), m_.given.data());
  }

  void begin_iterations() {
    last_alpha_ = last_pq_ = 0;
    since_ = 0;
    std::fill_n(best_, nrhs_, kInfinity);
    fill_zero(lane_, m_.state.view().slice(band_cg::pq * nrhs_, nrhs_));
    // The eigenvalues are those that the first column's first iteration sees.
    watched_ = result_.iterations == 0;
  }
  /// Iterations until the recurrence is content, stops, or goes on for too long. False when a
  /// number is not finite.
  bool iterate() {
    while (result_.iterations < limits_.iterations) {
      give_active();
      precondition(c_, m_, nrhs_, r_, z_);
      across(c_, m_, Reduce::sum, band_cg::rz, 2, nrhs_,
             [&] { band_cg_products(lane_, cg_, r_, z_, q_); });
      if (s_.n > 0) band_cg_direction(lane_, cg_, z_, p_);
      times(p_);
      across(c_, m_, Reduce::sum, band_cg::pq, 1, nrhs_,
             [&] { band_cg_curvature(lane_, cg_, p_, q_); });
      across(c_, m_, Reduce::max, band_cg::r, 4, nrhs_,
             [&] { band_cg_step(lane_, cg_, p_, q_, x_, r_); });
      look(lane_, m_, nrhs_);
      ++result_.iterations;
      ++m_.done;
      const double rz = seen(band_cg::rz, 0), pq = seen(band_cg::pq, 0);
      if (watched_ && active_[0] && rz > 0 && pq > 0) {
        const double alpha = rz / pq;
        const double beta = last_pq_ > 0 ? std::max(0.0, -seen(band_cg::zq, 0) / last_pq_) : 0.0;
        if (last_pq_ > 0) beside_.push_back(std::sqrt(beta) / last_alpha_);
        diagonal_.push_back(1 / alpha + (last_pq_ > 0 ? beta / last_alpha_ : 0.0));
        last_alpha_ = alpha;
        last_pq_ = pq;
      }
      bool left = false, stuck = true;
      for (Index v = 0; v < nrhs_; ++v) {
        if (!active_[v]) continue;
        const double now = error(v);
        if (!(now < kInfinity)) return false;
        // Not positive: M or A is not definite as far as rounding goes, so no step was taken.
        const bool stepped = seen(band_cg::rz, v) > 0 && seen(band_cg::pq, v) > 0;
        active_[v] = stepped && now > kTarget;
        left |= active_[v];
        if (now < 0.5 * best_[v]) {
          best_[v] = now;
          stuck = false;
        }
      }
      since_ = stuck ? since_ + 1 : 0;
      if (!left || since_ > limits_.patience) return true;
      if (stops_.checkpoints && stops_.checkpoints->due()) {
        put_state();
        stops_.checkpoints->save(1 + m_.done, stops_.steps, stops_.state);
        m_.inside = false;
      }
    }
    return true;
  }

  Context<B>& c_;
  const Stream<B>& lane_;
  const View<const double, B> a_;
  BandMixed<B>& m_;
  const BandShape s_;
  const BandCg<B> cg_;
  const Index nrhs_;
  const MixedLimits limits_;
  const MixedStops stops_;
  const View<double, B> b_, x_, r_, z_, p_, q_;
  MixedResult result_;
  int exponent_[kMixedGroup] = {};
  double size_[kMixedGroup] = {}, scaled_size_[kMixedGroup] = {};  // of b and S b
  double before_[kMixedGroup] = {}, plain_[kMixedGroup] = {};
  bool active_[kMixedGroup] = {};
  double best_[kMixedGroup] = {}, last_alpha_ = 0, last_pq_ = 0;
  Index since_ = 0;
  bool watched_ = false;
  std::vector<double> diagonal_, beside_;  // Lanczos' tridiagonal matrix
};

}  // namespace terrace::band::mixed
