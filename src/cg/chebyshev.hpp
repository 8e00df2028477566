// Chebyshev polynomial preconditioner: z = p(D^-1 A) D^-1 r, with products with A alone.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "distrib/context.hpp"
#include "distrib/layout.hpp"
#include "kernels/base/matrix.hpp"
#include "kernels/cg/coarsening.hpp"
#include "kernels/cg/preconditioner.hpp"
#include "kernels/cg/vectors.hpp"
#include "src/cg/diagonal.hpp"
#include "src/cg/eigen_estimate.hpp"
#include "src/cg/operand.hpp"

namespace terrace::cg {

/// Where a polynomial of `degree` is small, and what was learnt at set-up.
struct ChebyshevNotes {
  Index degree = 0;                  ///< products with A an application
  double low = 0, high = 0;          ///< the interval for the eigenvalues of D^-1 A
  double largest = 0, smallest = 0;  ///< of D^-1 A as steps of Lanczos saw them
  Index bad_row = -1;                ///< global row of the diagonal that is not positive
  bool indefinite = false;           ///< p.A p <= 0 was met
};

/// The largest ratio of high and low, at which the polynomial's residual is 1/2 on all of the
/// interval: eigenvalues there end in [1/2, 3/2], those below it grow by about (degree + 1)^2.
inline double chebyshev_ratio(Index degree) {
  const double sigma = std::cosh(std::acosh(2.0) / double(degree + 1));
  return (sigma + 1) / (sigma - 1);
}

/// The residual polynomial 1 - s p(s) is T(sigma - s / delta) / T(sigma), T the Chebyshev
/// polynomial of degree + 1, theta and delta the middle and half the length of [low, high], sigma =
/// theta / delta (Saad, Iterative Methods for Sparse Linear Systems, 2nd ed., 12.3). p > 0 on (0,
/// high], so as an operator it is symmetric and positive definite where high is no less than the
/// largest eigenvalue.
///
/// Product: callable as product(const Operand<B>& p, View<double, B> q, const double* skip), q = A
/// p of own rows on context.ahead; collective.
template <class B>
class Chebyshev {
 public:
  Chebyshev() = default;
  [[nodiscard]] const ChebyshevNotes& notes() const { return notes_; }
  /// False: the diagonal or a product was not positive; must not be applied.
  [[nodiscard]] bool usable() const { return notes_.bad_row < 0 && !notes_.indefinite; }

  /// Collective. `diagonal`: of own rows; `p`: an operand of own rows (and columns),
  /// kept. ratio 0: chebyshev_ratio(degree), or less where all of the spectrum that was seen lies
  /// closer to its largest eigenvalue: condition 2, degree 8, 18 applications become 2. `bound`: no
  /// eigenvalue of D^-1 A is larger; one of 2, as M-matrices have, is close enough with a ratio.
  /// Otherwise makes up to 15 products, with a ratio 8.
  template <class Product>
  Chebyshev(const Context<B>& context, const Product& product, Operand<B>&& p, Range rows,
            View<const double, B> diagonal, Index degree, double ratio = 0,
            double bound = std::numeric_limits<double>::infinity())
      : p_(std::move(p)),
        rest_(rows.count * p_.columns),
        q_(rows.count * p_.columns),
        inverse_(rows.count) {
    notes_.degree = degree;
    notes_.bad_row = faults_of<B>(context, diagonal, rows).unusable;
    if (notes_.bad_row >= 0) return;
    invert_each<B>(context.ahead, diagonal, inverse_.view());
    context.ahead.synchronize();
    constexpr double close = 2.1;
    if (ratio > 1 && bound <= close)
      notes_.largest = bound;
    else
      find_bounds(context, product, rows, ratio > 1 ? 8 : 15);
    notes_.high = std::min(1.1 * notes_.largest, bound);
    notes_.low = ratio > 1 ? notes_.high / ratio
                           : std::max(notes_.high / chebyshev_ratio(degree), 0.9 * notes_.smallest);
  }

  /// `degree` products and as many passes of 64 bytes per row.
  template <class Product>
  void apply(const Context<B>& context, const Product& product, View<const double, B> r,
             View<double, B> z, const double* skip = nullptr) const {
    begin(context, product, r, z, true, skip);
  }

  // As a smoother, with smooth() before a correction from elsewhere and improve() after it.

  /// The same; leaves what residual() needs.
  template <class Product>
  void smooth(const Context<B>& context, const Product& product, View<const double, B> r,
              View<double, B> z, const double* skip = nullptr) const {
    begin(context, product, r, z, false, skip);
  }
  /// r - A z of the z that smooth() made of r, by one more product; in memory of this object.
  template <class Product>
  View<const double, B> residual(const Context<B>& context, const Product& product,
                                 View<const double, B> r, const double* skip = nullptr) const {
    product(p_, q_.view(), skip);
    add<B>(context.ahead, 1.0, notes_.degree > 0 ? View<const double, B>(rest_) : r, -1.0, q_,
           rest_.view());
    return rest_;
  }
  /// Where the correction of z is put, own rows.
  [[nodiscard]] View<double, B> correction() const { return p_.own(); }
  /// z += the correction, then z += p(D^-1 A) D^-1 (r - A z), from what residual() left: as an
  /// operator symmetric with apply(). degree + 1 products.
  template <class Product>
  void improve(const Context<B>& context, const Product& product, View<double, B> z,
               const double* skip = nullptr) const {
    product(p_, q_.view(), skip);
    chebyshev_correct(context.ahead, 1 / theta(), p_.columns, inverse_, q_, rest_.view(), p_.own(),
                      z, skip);
    continue_from(context, product, rest_, z, {false, true}, skip);
  }

  /// f(array) of what nothing here writes.
  template <class F>
  void each_array(const F& f) const {
    f(inverse_);
  }

 private:
  [[nodiscard]] double theta() const { return 0.5 * (notes_.high + notes_.low); }
  [[nodiscard]] double delta() const { return 0.5 * (notes_.high - notes_.low); }
  [[nodiscard]] double sigma() const { return theta() / delta(); }
  /// `ends`: nothing follows.
  template <class Product>
  void begin(const Context<B>& context, const Product& product, View<const double, B> r,
             View<double, B> z, bool ends, const double* skip) const {
    chebyshev_start(context.ahead, 1 / theta(), p_.columns, inverse_, r, p_.own(),
                    notes_.degree > 0 ? View<double, B>() : z, skip);
    continue_from(context, product, r, z, {true, ends}, skip);
  }
  /// The steps after the start or a correction, of which `from` is the residual that it began with; `all`:
  /// what they are together.
  template <class Product>
  void continue_from(const Context<B>& context, const Product& product, View<const double, B> from,
                     View<double, B> z, const ChebyshevStep& all, const double* skip) const {
    double rho = 1 / sigma();
    for (Index k = 0; k < notes_.degree; ++k) {
      product(p_, q_.view(), skip);
      const double next = 1 / (2 * sigma() - rho);
      chebyshev_step(context.ahead, next * rho, 2 * next / delta(), p_.columns, inverse_, from, q_,
                     rest_.view(), p_.own(), z,
                     {all.first && k == 0, all.last && k + 1 == notes_.degree}, skip);
      from = rest_;
      rho = next;
    }
  }
  /// Conjugate gradients with D^-1 from a random right-hand side. Their scalars stay on the backend
  /// until the end.
  template <class Product>
  void find_bounds(const Context<B>& context, const Product& product, Range rows, Index steps) {
    constexpr Index width = cg_row::size(1);
    const Stream<B>& lane = context.ahead;
    const Index k = p_.columns, size = rows.count * k;
    // Rows of scalars: one of zeros, those of the start and of each step, and one that is scratch.
    const Buffer<double, B> z(size), scrap(size), scalars((steps + 3) * width + 1),
        partials(CgPass<B>::partial_count);
    const Buffer<Index, B> finished(1);
    const Buffer<Word, B> ticket(1);
    fill_zero(lane, scalars.view()), fill_zero(lane, finished.view());
    fill_zero(lane, ticket.view());
    const auto row = [&](Index i) { return scalars.view().slice((i + 1) * width, width); };
    const auto pass = [&](Index i) {
      const View<double, B> scratch = row(steps + 1);
      return CgPass<B>{
          1,     row(i - 1),      row(i),  scratch,  scalars.view().slice((steps + 3) * width, 1),
          0,     CgNorm::natural, scratch, finished, partials,
          ticket};
    };
    const auto reduce = [&](Index i, Index what, Index count) {
      context.comm.all_reduce(lane, Reduce::sum, row(i).slice(what, count));
    };
    fill_uniform<B>(lane, 0x9e37, rows.first, k, rest_.view());
    chebyshev_start(lane, 1, k, inverse_, rest_, p_.own(), z.view());
    cg_pair<B>(lane, pass(0), rest_, z, false);
    reduce(0, cg_row::rr, 3);
    for (Index i = 1; i <= steps; ++i) {
      product(p_, q_.view(), nullptr);
      cg_dots<B>(lane, pass(i), p_.own(), q_);
      reduce(i, cg_row::pq, 2);
      cg_step<B>(lane, pass(i), q_, {}, rest_.view());
      chebyshev_start(lane, 1, k, inverse_, rest_, scrap.view(), z.view());
      cg_pair<B>(lane, pass(i), rest_, z, true);
      reduce(i, cg_row::rr, 3);
      cg_direction<B>(lane, pass(i), z, {}, scrap.view(), p_.own());
    }
    std::vector<double> host(std::size_t((steps + 1) * width));
    download(lane, host.data(), scalars.view().slice(width, (steps + 1) * width));
    lane.synchronize();
    context.control.broadcast(host.data(), Index(host.size() * sizeof(double)), 0);
    take_bounds(host, width);
  }
  /// From the scalars of the start and of each step.
  void take_bounds(const std::vector<double>& scalars, Index width) {
    const auto at = [&](std::size_t i, Index what) {
      return scalars[i * std::size_t(width) + std::size_t(what)];
    };
    std::vector<double> alpha, beta;
    for (std::size_t i = 1; i < scalars.size() / std::size_t(width); ++i) {
      const double rz = at(i - 1, cg_row::rz), pq = at(i, cg_row::pq);
      if (!(rz > 1e-24 * at(0, cg_row::rz))) break;
      notes_.indefinite = !(pq > 0) || !std::isfinite(pq);
      if (notes_.indefinite) return;
      alpha.push_back(rz / pq);
      beta.push_back(at(i, cg_row::rz) / rz);
    }
    const EigenEstimate estimate = estimate_eigenvalues(alpha, beta);
    notes_.largest = estimate.largest;
    notes_.smallest = estimate.smallest;
    if (!(notes_.largest > 0)) notes_.largest = 1;  // no rows
  }

  ChebyshevNotes notes_;
  Operand<B> p_;
  Buffer<double, B> rest_, q_, inverse_;
};

}  // namespace terrace::cg
