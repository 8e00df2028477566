#include "src/api/terrace/dense.hpp"

#include <fmt/core.h>

#include "src/api/band_work.hpp"
#include "src/api/dense_work.hpp"
#include "src/dense/cholesky.hpp"
#include "src/dense/condition.hpp"

namespace terrace::api::dense {

namespace {

/// By the band's Cholesky, as a band of all columns; none where the matrix is not one for that, and
/// `why`, unless it only looked so.
template <class B>
std::optional<Report> solve_by_cholesky(Context::Inside& ranks, terrace::Context<B>& on, Index n,
                                        const Held<const double, B>& a, const Held<double, B>& b,
                                        Index right, Assume assume, std::string& why) {
  terrace::dense::SymmetricMatrix matrix(on.control, n, reader(a));
  if (assume == Assume::automatic && !matrix.looks_definite()) return {};
  terrace::band::BandSystem system;
  system.matrix = {n, n - 1, matrix.columns()};
  system.rhs = reader(b);
  system.folder = std::string(1, '.');
  system.guard = ranks.options.guard;
  system.more = terrace::dense::condition_probes;
  band::Reading reading;
  band::Work<B> work(ranks, on, std::move(system), reading, right, {}, false);
  work.attempt();
  if (const auto refused = matrix.refused(work.done->failure.minor)) {
    why = fmt::format("the matrix is {}; LU goes on", refused->words());
    return {};
  }
  work.finish();
  Report report;
  report.log_abs_determinant = work.report.log_abs_determinant;
  timed(work.report.seconds.check, [&] {
    report.reciprocal_condition =
        matrix.reciprocal_condition(work.done->ranges, [&](std::vector<double>& rows) {
          if (!work.done->solve_more(rows, terrace::dense::condition_probes))
            throw std::logic_error("a whole matrix has a factor");
        });
    note_condition(report, n);
    if (ranks.options.check) report.residual = work.done->residual();
  });
  if (ranks.options.check && !(report.residual < terrace::band::kBandPass))
    check_failed(
        fmt::format("the residual is {:.3g}, above {}", report.residual, terrace::band::kBandPass));
  work.give(b, right);
  report.seconds = work.report.seconds;
  return report;
}

}  // namespace

Report invert(Context& context, std::int64_t n, Local<double> a, const Options& options) {
  return at_border([&] {
    Context::Inside& ranks = context.inside();
    require_sizes(n, a.columns, 0);
    return with_backend(ranks, a.where == Where::device, hint(n),
                        [&]<class B>(terrace::Context<B>& on) {
                          Held<double, B> held(on, n, a, n, "a");
                          terrace::dense::DenseRequest request = request_of(ranks, options);
                          request.inverse = true;
                          Work<B> work(ranks, on, n, request);
                          work.refuse_not_finite(held);
                          Report report = work.run(reader(held), {}, true);
                          work.give(report, held);
                          return report;
                        });
  });
}

Report solve(Context& context, std::int64_t n, Local<const double> a, Local<double> b,
             const Options& options) {
  return solve(context, n, a, b, Assume::general, options);
}

Report solve(Context& context, std::int64_t n, Local<const double> a, Local<double> b,
             Assume assume, const Options& options) {
  return at_border([&] {
    Context::Inside& ranks = context.inside();
    require_sizes(n, a.columns, b.columns);
    const bool definite = assume != Assume::general;
    if (definite && options.emulated)
      fail_together(Exit::usage,
                    "Cholesky's method has FP64 only; Options::emulated; leave it out");
    return with_backend(ranks, a.where == Where::device || b.where == Where::device, hint(n),
                        [&]<class B>(terrace::Context<B>& on) {
                          Held<const double, B> matrix(on, n, a, n, "a");
                          Held<double, B> right(on, n, b, b.columns, "b");
                          right.require_finite();
                          std::string why;
                          if (definite) matrix.require_finite();
                          if (definite && n > 0 && b.columns > 0)
                            if (auto report = solve_by_cholesky(ranks, on, n, matrix, right,
                                                                b.columns, assume, why))
                              return *report;
                          terrace::dense::DenseRequest request = request_of(ranks, options);
                          request.right = b.columns;
                          Work<B> work(ranks, on, n, request);
                          work.refuse_not_finite(matrix);
                          Report report = work.run(reader(matrix), reader(right), true);
                          if (!why.empty()) report.warnings.insert(report.warnings.begin(), why);
                          work.give(report, right);
                          return report;
                        });
  });
}

Report determinant(Context& context, std::int64_t n, Local<const double> a,
                   const Options& options) {
  return at_border([&] {
    Context::Inside& ranks = context.inside();
    require_sizes(n, a.columns, 0);
    return with_backend(ranks, a.where == Where::device, hint(n),
                        [&]<class B>(terrace::Context<B>& on) {
                          Held<const double, B> held(on, n, a, n, "a");
                          const Local<const double> none{nullptr, a.rows, 0, 0, Where::host};
                          const Held<const double, B> right(on, n, none, 0, "b");
                          Work<B> work(ranks, on, n, request_of(ranks, options));
                          work.refuse_not_finite(held);
                          return work.run(reader(held), reader(right), false);
                        });
  });
}

}  // namespace terrace::api::dense
