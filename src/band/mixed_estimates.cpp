// What mixed precision estimates of a matrix: condition and determinant.
#include <algorithm>
#include <cmath>

#include "kernels/base/random.hpp"
#include "src/band/determinant.hpp"
#include "src/band/mixed_group.hpp"

namespace terrace::band {

using namespace mixed;

namespace {

/// Rows that count as this rank's, of its vectors, and where they are in the whole.
template <class B>
Range own_rows(const BandMixed<B>& m) {
  return m.ends ? m.ends->mine() : Range{0, m.shape.n};
}
template <class B>
Index natural_row(const BandMixed<B>& m, Index i) {
  return m.ends ? m.ends->natural(i) : i;
}
template <class B>
double sum_of(const Context<B>& c, const BandMixed<B>& m, double own) {
  return m.ends ? c.control.reduce(own, Reduce::sum) : own;
}

/// v := A^-1 v, or M^-1 v where that is nearly the same, for vectors on the host.
template <class B>
class Inverse {
 public:
  Inverse(Context<B>& c, View<const double, B> a, BandMixed<B>& m, const MixedResult& solved,
          const MixedLimits& limits)
      : c_(c),
        a_(a),
        m_(m),
        direct_(solved.smallest >= 0.5),
        limits_(limits),
        own_(own_rows(m)),
        w_(m.shape.padded()),
        v(std::size_t(own_.count)) {
    fill_zero(c.ahead, w_.view());
  }
  void apply() {
    const Stream<B>& lane = c_.ahead;
    const View<double, B> own = w_.view().slice(own_.first, own_.count);
    fill_zero(lane, w_.view());
    upload(lane, own, static_cast<const double*>(v.data()));
    if (direct_ ||
        Group<B>(c_, a_, m_, 1, limits_).run(w_, 1, 0).reason != MixedReason::converged) {
      const View<double, B> z = columns(m_.z, m_.shape, Index(1));
      precondition(c_, m_, 1, w_.view(), z);
      copy<double, B>(lane, w_.view(), z);
    }
    download(lane, v.data(), View<const double, B>(own));
    lane.synchronize();
  }
  /// v := f(row of the whole vector).
  template <class F>
  void fill(F&& f) {
    for (Index i = 0; i < own_.count; ++i) v[std::size_t(i)] = f(natural_row(m_, own_.first + i));
  }
  /// Sum of the magnitudes.
  [[nodiscard]] double size() const {
    double sum = 0;
    for (const double value : v) sum += std::abs(value);
    return sum_of(c_, m_, sum);
  }
  /// The row of the whole vector where it is largest, the first of them.
  [[nodiscard]] Index largest() const {
    double most = -1;
    for (const double value : v) most = std::max(most, std::abs(value));
    if (m_.ends) most = c_.control.reduce(most, Reduce::max);
    Index row = order(m_);
    for (Index i = 0; i < own_.count; ++i)
      if (std::abs(v[std::size_t(i)]) == most) row = std::min(row, natural_row(m_, own_.first + i));
    return m_.ends ? c_.control.reduce(row, Reduce::min) : row;
  }

 private:
  Context<B>& c_;
  const View<const double, B> a_;
  BandMixed<B>& m_;
  const bool direct_;
  const MixedLimits limits_;
  const Range own_;
  const Buffer<double, B> w_;

 public:
  std::vector<double> v;
};

}  // namespace

template <class B>
double mixed_condition(Context<B>& c, std::type_identity_t<View<const double, B>> a,
                       BandMixed<B>& m, const MixedResult& solved, const MixedLimits& limits) {
  const Index n = order(m);
  if (n == 0) return 0;
  Inverse<B> inverse(c, a, m, solved, limits);
  std::vector<double>& v = inverse.v;
  std::vector<double> sign(v.size(), 0.0), before(v.size());
  inverse.fill([&](Index) { return 1.0 / double(n); });
  inverse.apply();
  double found = inverse.size();
  for (int round = 0; round < 5 && n > 1; ++round) {
    before.swap(sign);
    for (std::size_t i = 0; i < v.size(); ++i) sign[i] = v[i] < 0 ? -1.0 : 1.0;
    if (agreed(c, m, sign == before)) break;
    v = sign;
    inverse.apply();  // the gradient of ||A^-1 v||
    const Index unit = inverse.largest();
    inverse.fill([&](Index row) { return row == unit ? 1.0 : 0.0; });
    inverse.apply();
    const double now = inverse.size();
    if (!(now > found)) break;
    found = now;
  }
  if (n > 1) {
    inverse.fill(
        [&](Index row) { return (row % 2 == 0 ? 1.0 : -1.0) * (1 + double(row) / double(n - 1)); });
    inverse.apply();
    found = std::max(found, 2 * inverse.size() / (3 * double(n)));
  }
  return m.norm * found;
}

namespace {

/// log of the product of the factor's diagonal over S, of this rank's rows; and of the separator's
/// system.
template <class B>
double log_of_factor(Context<B>& c, const BandMixed<B>& m) {
  const Stream<B>& lane = c.ahead;
  const BandShape& s = m.shape;
  LogProduct of_factor, of_scale;
  if (s.n > 0) {
    std::vector<double> scale(std::size_t(s.padded())), diagonal(scale.size());
    band_low_diagonal(lane, s, m.low, m.r.view().slice(0, s.padded()));
    download(lane, diagonal.data(), m.r.view().slice(0, s.padded()));
    download(lane, scale.data(), m.scale.view());
    lane.synchronize();
    const Index end = m.ends ? m.ends->interior() : s.n;
    for (Index i = own_rows(m).first; i < std::min(end, s.n); ++i) {
      of_factor.times(diagonal[std::size_t(i)]);
      of_scale.times(scale[std::size_t(i)]);
    }
  }
  if (m.ends && m.ends->parts.reduced.tiles > 0) {
    const BandShape& r = m.ends->plan.reduced;
    for (const double d : diagonal_of<B>(lane, m.ends->parts.reduced.band, r.column(), r.n))
      of_factor.times(d);
  }
  return of_factor.log() - of_scale.log();
}

/// Random signs, the same for a row on any number of ranks.
double sign_of(Index at) { return random_uniform(0x10b, at, 0) < 0 ? -1.0 : 1.0; }

}  // namespace

template <class B>
double mixed_log_determinant(Context<B>& c, std::type_identity_t<View<const double, B>> a,
                             BandMixed<B>& m, double* error, Index probes) {
  const Stream<B>& lane = c.ahead;
  const BandShape& s = m.shape;
  const Index n = order(m), group = m.group, rows = s.padded();
  if (n == 0) return 0;
  const auto at = [&](Index count) { return std::size_t(count); };
  const double of_factor = sum_of(c, m, log_of_factor(c, m));
  const Range own = own_rows(m);
  std::vector<double> scale(at(rows));
  download(lane, scale.data(), m.scale.view());
  lane.synchronize();
  // z.log(I + E) z for vectors z of signs; I + E = S^-1 (M^-1 A) S has a unit diagonal's size.
  std::vector<double> z(at(rows * group), 0.0), w(z.size());
  double sum = 0, squares = 0;
  Index done = 0;
  const View<double, B> x = columns(m.p, s, group), y = columns(m.q, s, group),
                        solved = columns(m.z, s, group);
  for (; done < probes; done += group) {
    for (Index i = own.first; i < s.n; ++i)  // those of S on both ends
      for (Index v = 0; v < group; ++v)
        z[at(i * group + v)] = sign_of(done * n + natural_row(m, i) * group + v);
    std::vector<double> terms(at(group), 0.0), e = z;  // e = E^k z
    for (int k = 1; k <= 3; ++k) {
      for (Index i = 0; i < rows * group; ++i) w[at(i)] = e[at(i)] * scale[at(i / group)];
      upload(lane, x, w.data());
      product(c, m, a, false, group, x, y);
      precondition(c, m, group, y, solved);
      download(lane, w.data(), solved);
      lane.synchronize();
      for (Index i = own.first * group; i < s.n * group; ++i)
        e[at(i)] = w[at(i)] / scale[at(i / group)] - e[at(i)];
      for (Index i = own.first * group; i < own.end() * group; ++i)
        terms[at(i % group)] += (k % 2 == 1 ? 1.0 : -1.0) / k * z[at(i)] * e[at(i)];
    }
    for (const double own_term : terms) {
      const double term = sum_of(c, m, own_term);
      sum += term;
      squares += term * term;
    }
  }
  const double mean = sum / double(done);
  if (error)
    *error = std::sqrt(std::max(0.0, squares / double(done) - mean * mean) / double(done - 1));
  return 2 * of_factor + mean;
}

#define TERRACE_INSTANTIATE(B)                                                             \
  template double mixed_log_determinant(Context<B>&, View<const double, B>, BandMixed<B>&, \
                                        double*, Index);                                   \
  template double mixed_condition(Context<B>&, View<const double, B>, BandMixed<B>&,       \
                                  const MixedResult&, const MixedLimits&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::band
