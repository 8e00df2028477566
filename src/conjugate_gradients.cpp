#include "src/conjugate_gradients.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "distrib/agree.hpp"

namespace terrace {

std::string to_string(CgReason reason) {
  switch (reason) {
    case CgReason::rtol:
      return "rtol";
    case CgReason::atol:
      return "atol";
    case CgReason::max_iterations:
      return "max-iterations";
    case CgReason::indefinite_matrix:
      return "indefinite-matrix";
    case CgReason::indefinite_preconditioner:
      return "indefinite-preconditioner";
    case CgReason::nan_or_inf:
      return "nan-or-inf";
    case CgReason::breakdown:
      return "breakdown";
    case CgReason::stagnation:
      return "stagnation";
  }
  return "";
}

namespace {

constexpr double eps = std::numeric_limits<double>::epsilon();

struct Scalars {
  double pq = 0, pp = 0, rr = 0, rz = 0;
};

/// Why iteration k may not be followed by another; nothing when it may.
std::optional<CgReason> verdict(const Scalars& before, const Scalars& now, CgLimits limits) {
  if (!cg_finite(now.pq) || !cg_finite(now.pp)) return CgReason::nan_or_inf;
  if (now.pq <= 0) return CgReason::indefinite_matrix;
  if (cg_step_length(before.rr, before.rz, now.pq, now.pp, limits) == 0) return CgReason::breakdown;
  if (!cg_finite(now.rr) || !cg_finite(now.rz)) return CgReason::nan_or_inf;
  if (now.rr <= limits.stop) return CgReason::rtol;
  if (now.rz < 0) return CgReason::indefinite_preconditioner;
  if (now.rz == 0) return CgReason::breakdown;
  return {};
}

/// The passes of one solve, all on the lane `ahead`; scalars of iteration k in row k % 4.
template <class B, class A>
struct Passes {
  const Context<B>& c;
  A& a;
  CgWork<B>& w;
  View<const double, B> d;  // inverse diagonal or empty
  const Stream<B>& lane = c.ahead;
  CgLimits limits{};

  [[nodiscard]] View<double, B> row(Index k) const {
    return w.rows.view().slice(k % 4 * cg_row::size, cg_row::size);
  }
  void reduce(Index k, Index from) const {  // two scalars at once
    c.comm.all_reduce(lane, Reduce::sum, row(k).slice(from, 2));
  }
  /// r = b - A x, p = D r: the true residual, and the start of an iteration after k.
  [[nodiscard]] Scalars restart(Index k, bool x_is_zero = false) const {
    if (x_is_zero) {
      fill_zero(lane, w.q.view());
    } else {
      copy(lane, a.direction(), w.x.view());
      a.apply(c, w.q, row(k).slice(cg_row::pq, 2), w.sums);
    }
    cg_restart(lane, w.b, w.q, d, w.r, a.direction(), row(k), w.sums);
    reduce(k, cg_row::rr);
    observe(k);
    return wait_for(k);
  }
  void iterate(Index k) const {
    a.apply(c, w.q, row(k).slice(cg_row::pq, 2), w.sums);  // q = A p
    reduce(k, cg_row::pq);
    cg_step(lane, row(k - 1), row(k), limits, a.direction(), w.q, d, w.x, w.r, w.sums);
    reduce(k, cg_row::rr);
    cg_direction(lane, row(k - 1), row(k), limits, w.r, d, a.direction());
  }
  void observe(Index k) const {
    w.observer.wait(lane.record());
    download(w.observer, w.seen.data() + k % 4 * cg_row::size, row(k));
  }
  [[nodiscard]] Scalars wait_for(Index k) const {
    w.observer.synchronize();
    const double* s = w.seen.data() + k % 4 * cg_row::size;
    return {s[cg_row::pq], s[cg_row::pp], s[cg_row::rr], s[cg_row::rz]};
  }
};

double largest(const Control& control, const std::vector<double>& v) {
  double most = 0;
  for (double value : v) {
    if (std::isnan(value)) most = std::numeric_limits<double>::infinity();
    most = std::max(most, std::fabs(value));
  }
  return control.reduce(most, Reduce::max);
}

}  // namespace

template <class B>
template <class A>
CgWork<B>::CgWork(const Context<B>& context, A& a, bool jacobi)
    : sums(collectively(context.control, [&] { return SumSpace<B>(context.ahead); })) {
  const Index count = a.rows().count;
  std::vector<double> diagonal;
  collectively(context.control, [&] {
    b = Buffer<double, B>(count);
    x = Buffer<double, B>(count);
    r = Buffer<double, B>(count);
    q = Buffer<double, B>(count);
    rows = Buffer<double, B>(4 * cg_row::size);
    seen = PinnedBuffer<double>(4 * cg_row::size);
    if (jacobi) inverse_diagonal = Buffer<double, B>(count);
  });
  fill_zero(context.ahead, rows.view());
  norm = row_sum_norm(context, a, q.view(), rows.view().slice(0, 2), sums);
  diagonal = a.diagonal(context);
  const auto first_row = [&](auto&& bad) {
    const Index none = std::numeric_limits<Index>::max();
    const Index at = std::find_if(diagonal.begin(), diagonal.end(), bad) - diagonal.begin();
    const Index row = context.control.reduce(at < count ? a.rows().first + at : none, Reduce::min);
    return row == none ? -1 : row;
  };
  negative_row = first_row([](double v) { return v < 0; });
  unusable_row = first_row([](double v) { return !(v > 0) || !cg_finite(1 / v); });
  if (jacobi) {
    for (double& v : diagonal) v = 1 / v;
    upload(context.ahead, inverse_diagonal.view(), diagonal.data());
    context.ahead.synchronize();
  }
}

template <class B, class A>
CgResult conjugate_gradients(const Context<B>& context, A& a, CgWork<B>& work,
                             const CgOptions& options, const std::vector<double>& b,
                             std::vector<double>& x) {
  const Control& control = context.control;
  const Stream<B>& lane = context.ahead;
  const Index n = a.n(), rows = a.rows().count;
  const Index most = options.max_iterations < 0 ? 10 * n + 1000 : options.max_iterations;
  const Index patience = 2 * n + 500;  // iterations without a new smallest residual
  CgResult result;

  const double b_most = largest(control, b), x_most = largest(control, x);
  if (b_most == 0) {  // the solution is zero
    std::fill(x.begin(), x.end(), 0.0);
    result.reason = CgReason::rtol;
    return result;
  }
  if (!cg_finite(b_most) || !cg_finite(x_most)) {
    result.reason = CgReason::nan_or_inf;
    return result;
  }
  const int shift = std::ilogb(b_most);
  const auto scaled = [&](const std::vector<double>& from, View<double, B> to, int by) {
    std::vector<double> host(from.size());
    std::transform(from.begin(), from.end(), host.begin(),
                   [&](double v) { return std::ldexp(v, by); });
    upload(lane, to, host.data());
    lane.synchronize();
  };
  scaled(b, work.b, -shift);
  fill_zero(lane, work.x.view());

  Passes<B, A> pass{context, a, work, work.inverse_diagonal};
  const double b_norm = std::sqrt(pass.restart(0, true).rr);
  const double by_rtol = options.rtol * b_norm, by_atol = std::ldexp(options.atol, -shift);
  const double tolerance = std::max(by_rtol, by_atol);
  // Jacobi is for badly scaled matrices, where small p.q / p.p means nothing.
  pass.limits = {tolerance * tolerance, options.jacobi ? 0.0 : 0.25 * eps * work.norm};
  if (x_most > 0) scaled(x, work.x, -shift);

  // What the true residual says before an iteration starts from it.
  const auto settled = [&](double residual, double before, Index k) -> std::optional<CgReason> {
    if (!cg_finite(residual)) return CgReason::nan_or_inf;
    if (residual <= tolerance) return residual <= by_rtol ? CgReason::rtol : CgReason::atol;
    if (options.jacobi && work.unusable_row >= 0) return CgReason::indefinite_preconditioner;
    if (work.negative_row >= 0) return CgReason::indefinite_matrix;
    if (!(residual < 0.5 * before)) return CgReason::stagnation;
    if (k >= most) return CgReason::max_iterations;
    return {};
  };

  Index k = 0;  // iterations done
  double before = std::numeric_limits<double>::infinity();
  std::optional<CgReason> failure;
  while (true) {
    Scalars last = pass.restart(k);
    const double residual = std::sqrt(last.rr);
    result.true_residual = residual / b_norm;
    if (k == 0) result.initial_residual = result.true_residual;
    const auto end = settled(residual, before, k);
    if (end) result.reason = *end;
    if (failure && !(end && converged(*end))) result.reason = *failure;
    if (end || failure) break;
    before = residual;

    // Iteration `next` is under way while the host looks at the one before it.
    double smallest = last.rr;
    std::optional<CgReason> reason;
    for (Index next = k + 1, best = k; !reason; ++next) {
      if (next <= most) pass.iterate(next);
      if (next > k + 1) {
        const Scalars now = pass.wait_for(next - 1);
        reason = verdict(last, now, pass.limits);
        if (cg_step_length(last.rr, last.rz, now.pq, now.pp, pass.limits) == 0) break;  // no step
        result.history.push_back(std::sqrt(now.rr) / b_norm);
        if (options.observe) options.observe(next - 1, result.history.back());
        if (now.rr < smallest) {
          smallest = now.rr;
          best = next - 1;
        }
        if (!reason && next - 1 - best >= patience) reason = CgReason::stagnation;
        last = now;
      }
      if (next > most && !reason) reason = CgReason::max_iterations;
      if (!reason) pass.observe(next);
    }
    k = Index(result.history.size());
    if (!converged(*reason)) failure = reason;
  }
  result.iterations = k;
  result.recurrence_residual = k > 0 ? result.history.back() : result.true_residual;

  std::vector<double> r(std::size_t(rows), 0.0);
  download(lane, r.data(), work.r.view());
  download(lane, x.data(), work.x.view());
  lane.synchronize();
  const double r_most = largest(control, r), solution_most = largest(control, x);
  result.scaled_residual = solution_most > 0 && work.norm > 0
                               ? r_most / (double(n) * eps) / work.norm / solution_most
                               : (r_most > 0 ? std::numeric_limits<double>::infinity() : 0.0);
  for (double& v : x) v = std::ldexp(v, shift);
  if (result.reason == CgReason::indefinite_matrix) result.position = work.negative_row;
  if (result.reason == CgReason::indefinite_preconditioner) result.position = work.unusable_row;
  return result;
}

#define TERRACE_INSTANTIATE_FOR(B, A)                                                           \
  template CgWork<B>::CgWork(const Context<B>&, A<B>&, bool);                                   \
  template CgResult conjugate_gradients(const Context<B>&, A<B>&, CgWork<B>&, const CgOptions&, \
                                        const std::vector<double>&, std::vector<double>&);
#define TERRACE_INSTANTIATE(B)              \
  TERRACE_INSTANTIATE_FOR(B, DenseOperator) \
  TERRACE_INSTANTIATE_FOR(B, BandOperator)  \
  TERRACE_INSTANTIATE_FOR(B, CsrOperator)
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)

}  // namespace terrace
