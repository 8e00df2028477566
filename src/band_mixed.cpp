#include "src/band_mixed.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

#include "kernels/band_symmetric.hpp"
#include "src/tridiagonal.hpp"

namespace terrace {

std::string to_string(MixedReason reason) {
  switch (reason) {
    case MixedReason::converged:
      return "converged";
    case MixedReason::not_definite:
      return "a pivot of the low-precision factor is not positive";
    case MixedReason::iterations:
      return "the limit of iterations was reached";
    case MixedReason::stagnation:
      return "the residual stopped falling";
    case MixedReason::not_finite:
      return "a number is not finite";
  }
  return "";
}

namespace {

constexpr double kUnit = 0x1.0p-53;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Backward errors: what the recurrence aims at; what a true residual must keep, whose sums have 64
/// terms in a tile column and a strip of each in reach; and what is as good as can be had when it
/// falls no further.
constexpr double kTarget = 4 * kUnit;
double accepted(const BandShape& s) {
  return kUnit * (8 + std::sqrt(64 + double(ceil_div(s.reach, s.width))));
}
double attainable(const BandShape& s) {
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

/// One group of right-hand sides.
template <class B>
class Group {
 public:
  Group(Context<B>& context, View<const double, B> a, BandMixed<B>& m, Index nrhs,
        const MixedLimits& limits)
      : lane_(context.ahead),
        a_(a),
        m_(m),
        s_(m.shape),
        cg_(passes(m, nrhs)),
        nrhs_(nrhs),
        limits_(limits),
        b_(columns(m.b, s_, nrhs)),
        x_(columns(m.x, s_, nrhs)),
        r_(columns(m.r, s_, nrhs)),
        z_(columns(m.z, s_, nrhs)),
        p_(columns(m.p, s_, nrhs)),
        q_(columns(m.q, s_, nrhs)) {}

  /// Solves for columns from .. of `all` (ld numbers a row), in their place.
  MixedResult run(View<double, B> all, Index ld, Index from) {
    for (const View<double, B>& v : {b_, x_, r_, z_, p_, q_}) fill_zero(lane_, v);
    fill_zero(lane_, m_.state.view());
    copy_rows<double, B>(lane_, b_.data, nrhs_, all.data + from, ld, nrhs_, s_.n);
    if (!normalise()) return failed(MixedReason::not_finite);
    band_cg_residual(lane_, cg_, b_, q_, x_, r_);
    for (Index v = 0; v < nrhs_; ++v) before_[v] = kInfinity;
    while (true) {
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
      if (!iterate()) return failed(MixedReason::not_finite);
      times(x_);
      band_cg_residual(lane_, cg_, b_, q_, x_, r_);
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
  [[nodiscard]] double seen(Index what, Index v) const { return m_.seen[what * nrhs_ + v]; }
  MixedResult failed(MixedReason reason) {
    result_.reason = reason;
    return result_;
  }
  void times(View<double, B> x) {
    band_symmetric_times(lane_, s_, a_, false, nrhs_, x, q_, m_.strips);
  }

  /// b by powers of two, so that S b is of size one. False when an entry is not finite.
  bool normalise() {
    band_cg_exponents(lane_, cg_, b_);
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
    band_cg_scale(lane_, cg_, factors, vector);
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

  /// Iterations until the recurrence is content, stops, or goes on for too long. False when a
  /// number is not finite.
  bool iterate() {
    double best[kMixedGroup], last_alpha = 0, last_pq = 0;
    Index since = 0;
    std::fill_n(best, nrhs_, kInfinity);
    fill_zero(lane_, m_.state.view().slice(band_cg::pq * nrhs_, nrhs_));
    // The eigenvalues are those that the first column's first iteration sees.
    const bool watched = result_.iterations == 0;
    while (result_.iterations < limits_.iterations) {
      give_active();
      band_low_solve(lane_, s_, m_.low, m_.scale, nrhs_, r_, z_, m_.low_scratch);
      band_cg_products(lane_, cg_, r_, z_, q_);
      band_cg_direction(lane_, cg_, z_, p_);
      times(p_);
      band_cg_curvature(lane_, cg_, p_, q_);
      band_cg_step(lane_, cg_, p_, q_, x_, r_);
      look(lane_, m_, nrhs_);
      ++result_.iterations;
      const double rz = seen(band_cg::rz, 0), pq = seen(band_cg::pq, 0);
      if (watched && active_[0] && rz > 0 && pq > 0) {
        const double alpha = rz / pq;
        const double beta = last_pq > 0 ? std::max(0.0, -seen(band_cg::zq, 0) / last_pq) : 0.0;
        if (last_pq > 0) beside_.push_back(std::sqrt(beta) / last_alpha);
        diagonal_.push_back(1 / alpha + (last_pq > 0 ? beta / last_alpha : 0.0));
        last_alpha = alpha;
        last_pq = pq;
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
        if (now < 0.5 * best[v]) {
          best[v] = now;
          stuck = false;
        }
      }
      since = stuck ? since + 1 : 0;
      if (!left || since > limits_.patience) return true;
    }
    return true;
  }

  const Stream<B>& lane_;
  const View<const double, B> a_;
  BandMixed<B>& m_;
  const BandShape s_;
  const BandCg<B> cg_;
  const Index nrhs_;
  const MixedLimits limits_;
  const View<double, B> b_, x_, r_, z_, p_, q_;
  MixedResult result_;
  int exponent_[kMixedGroup] = {};
  double size_[kMixedGroup] = {}, scaled_size_[kMixedGroup] = {};  // of b and S b
  double before_[kMixedGroup] = {}, plain_[kMixedGroup] = {};
  bool active_[kMixedGroup] = {};
  std::vector<double> diagonal_, beside_;  // Lanczos' tridiagonal matrix
};

Index group_of(Index nrhs) { return std::clamp<Index>(nrhs, 1, kMixedGroup); }
Index strip_numbers(const BandShape& s, Index group) {
  return band_symmetric_scratch(s, std::max<Index>(group, 2));  // the norms are two columns
}

}  // namespace

template <class B>
MixedMemory band_mixed_memory(const BandShape& s, Index nrhs) {
  const Index group = group_of(nrhs), word = sizeof(double), rows = s.padded();
  MixedMemory memory;
  memory.factor = (band_low_words(B{}, s) + rows) * word;
  memory.vectors = (5 * rows * group + 2 * rows * std::max<Index>(group, 2)) * word;
  memory.scratch = (band_low_scratch(B{}, s, group) + strip_numbers(s, group) + band_cg_scratch +
                    (band_cg::size + 2) * group + 1) *
                   word;
  return memory;
}

template <class B>
BandMixed<B> band_mixed(const BandShape& s, Index nrhs) {
  BandMixed<B> m;
  m.shape = s;
  m.nrhs = nrhs;
  m.group = group_of(nrhs);
  const Index numbers = s.padded() * m.group, two = s.padded() * std::max<Index>(m.group, 2);
  m.low = Buffer<Word, B>(band_low_words(B{}, s));
  m.low_scratch = Buffer<Word, B>(band_low_scratch(B{}, s, m.group));
  m.scale = Buffer<double, B>(s.padded());
  for (Buffer<double, B>* v : {&m.b, &m.x, &m.r, &m.z}) *v = Buffer<double, B>(numbers);
  for (Buffer<double, B>* v : {&m.p, &m.q}) *v = Buffer<double, B>(two);
  m.state = Buffer<double, B>(band_cg::size * std::max<Index>(m.group, 2));
  m.factors = Buffer<double, B>(2 * m.group);
  m.sums = Buffer<double, B>(band_cg_scratch);
  m.strips = Buffer<double, B>(strip_numbers(s, m.group));
  m.status = Buffer<Index, B>(1);
  m.seen = PinnedBuffer<double>(m.state.size());
  m.given = PinnedBuffer<double>(2 * m.group);
  return m;
}

template <class B>
bool mixed_factor(Context<B>& c, std::type_identity_t<View<const double, B>> a, BandMixed<B>& m,
                  const MixedLimits& limits) {
  const Stream<B>& lane = c.ahead;
  const BandShape& s = m.shape;
  m.failure = MixedReason::converged;
  m.shift = 2 * band_low_roundoff(B{});
  if (s.n == 0) return true;
  const auto status = [&] {
    Index value = 0;
    download(lane, &value, m.status.view());
    lane.synchronize();
    return value;
  };
  for (int raises = 0;; ++raises, m.shift *= 8) {
    band_low_load(lane, s, a, m.shift, m.scale, m.low, m.status, m.low_scratch);
    bool good = status() == 0;
    const bool scaled = good;
    if (good) {
      band_low_factor(lane, s, m.low, m.status, m.low_scratch);
      good = status() == 0;
    }
    if (good) break;
    if (!scaled || raises == limits.raises) {
      m.failure = MixedReason::not_definite;
      return false;
    }
  }
  // ||A|| and ||S A S||: largest sums of rows.
  const BandCg<B> pass = passes(m, Index(2));
  const View<double, B> ones = columns(m.p, s, Index(2)), sums = columns(m.q, s, Index(2));
  fill_zero(lane, ones);
  band_cg_ones(lane, pass, ones);
  band_symmetric_times(lane, s, a, true, 2, ones, sums, m.strips);
  band_cg_norms(lane, pass, sums);
  look(lane, m, Index(2));
  m.norm = m.seen[band_cg::r * 2];
  m.scaled_norm = m.seen[band_cg::r_scaled * 2 + 1];
  if (std::isfinite(m.norm) && std::isfinite(m.scaled_norm)) return true;
  m.failure = MixedReason::not_finite;
  return false;
}

template <class B>
MixedResult mixed_solve(Context<B>& c, std::type_identity_t<View<const double, B>> a,
                        BandMixed<B>& m, std::type_identity_t<View<double, B>> x,
                        const MixedLimits& limits) {
  MixedResult result;
  if (m.shape.n == 0) return result;
  for (Index from = 0; from < m.nrhs && result.reason == MixedReason::converged; from += m.group) {
    const Index nrhs = std::min(m.group, m.nrhs - from);
    const MixedResult part = Group<B>(c, a, m, nrhs, limits).run(x, m.nrhs, from);
    result.reason = part.reason;
    result.iterations = std::max(result.iterations, part.iterations);
    result.restarts += part.restarts;
    result.backward_error = std::max(result.backward_error, part.backward_error);
    if (from == 0) {
      result.smallest = part.smallest;
      result.largest = part.largest;
    }
  }
  return result;
}

template <class B>
double mixed_condition(Context<B>& c, std::type_identity_t<View<const double, B>> a,
                       BandMixed<B>& m, const MixedResult& solved, const MixedLimits& limits) {
  const Stream<B>& lane = c.ahead;
  const Index n = m.shape.n;
  if (n == 0) return 0;
  std::vector<double> v(std::size_t(n), 1.0 / double(n)), sign(v.size(), 0.0), before(v.size());
  const Buffer<double, B> w(m.shape.padded());
  fill_zero(lane, w.view());
  const auto apply = [&] {  // v := A^-1 v, or M^-1 v where that is nearly the same
    upload(lane, w.view().slice(0, n), v.data());
    if (solved.smallest >= 0.5 ||
        Group<B>(c, a, m, 1, limits).run(w, 1, 0).reason != MixedReason::converged)
      band_low_solve(lane, m.shape, m.low, m.scale, 1, w, w, m.low_scratch);
    download(lane, v.data(), w.view().slice(0, n));
    lane.synchronize();
  };
  const auto size = [&] {
    double sum = 0;
    for (const double value : v) sum += std::abs(value);
    return sum;
  };
  apply();
  double found = size();
  for (int round = 0; round < 5 && n > 1; ++round) {
    before.swap(sign);
    for (std::size_t i = 0; i < v.size(); ++i) sign[i] = v[i] < 0 ? -1.0 : 1.0;
    if (sign == before) break;
    v = sign;
    apply();  // the gradient of ||A^-1 v||
    const auto at = std::max_element(v.begin(), v.end(), [](double one, double other) {
      return std::abs(one) < std::abs(other);
    });
    const std::size_t unit = std::size_t(at - v.begin());
    std::fill(v.begin(), v.end(), 0.0);
    v[unit] = 1;
    apply();
    const double now = size();
    if (!(now > found)) break;
    found = now;
  }
  if (n > 1) {
    for (std::size_t i = 0; i < v.size(); ++i)
      v[i] = (i % 2 == 0 ? 1.0 : -1.0) * (1 + double(i) / double(n - 1));
    apply();
    found = std::max(found, 2 * size() / (3 * double(n)));
  }
  return m.norm * found;
}

#define TERRACE_INSTANTIATE(B)                                                        \
  template MixedMemory band_mixed_memory<B>(const BandShape&, Index);                 \
  template BandMixed<B> band_mixed<B>(const BandShape&, Index);                       \
  template bool mixed_factor(Context<B>&, View<const double, B>, BandMixed<B>&,       \
                             const MixedLimits&);                                     \
  template MixedResult mixed_solve(Context<B>&, View<const double, B>, BandMixed<B>&, \
                                   View<double, B>, const MixedLimits&);              \
  template double mixed_condition(Context<B>&, View<const double, B>, BandMixed<B>&,  \
                                  const MixedResult&, const MixedLimits&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace
