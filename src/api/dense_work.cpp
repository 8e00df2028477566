#include "src/api/dense_work.hpp"

#include <fmt/core.h>

#include <limits>

namespace terrace::api::dense {

using terrace::dense::EliminationOutcome;
using terrace::dense::RowReader;
using terrace::dense::StoredFactor;

void require_sizes(const Context::Inside& ranks, Index n, Index columns, Index right,
                   const Options& options, Assume assume) {
  ranks.require_alike({{"n", n},
                       {"Local::columns of a", columns},
                       {"Local::columns of b", right},
                       {"dense::Options::block", options.block},
                       {"dense::Options::emulated", options.emulated},
                       {"what is assumed of the matrix", assume}});
  if (n < 0 || columns != n || right < 0)
    fail_together(Exit::usage, fmt::format("the matrix of order {} has {} columns; Local::columns; "
                                           "give n",
                                           n, columns));
}

terrace::dense::DenseRequest request_of(const Context::Inside& ranks, const Options& options) {
  terrace::dense::DenseRequest request;
  request.inverse = false;
  request.block = options.block;
  request.emulated = options.emulated;
  request.guard = ranks.options.guard;
  return request;
}

void note_condition(Report& report, Index n) {
  if (report.reciprocal_condition < double(n) * std::numeric_limits<double>::epsilon())
    report.warnings.push_back(
        fmt::format("the reciprocal condition is {:.2g}, below n * 2.2e-16: rounding alone may "
                    "have changed every digit of the result",
                    report.reciprocal_condition));
}

void require_residual(double ratio) {
  if (!(ratio <= terrace::dense::residual_limit))
    check_failed(fmt::format("the residual's ratio {:.3g} is above {}", ratio,
                             terrace::dense::residual_limit));
}

template <class B>
Work<B>::Work(Context::Inside& ranks, terrace::Context<B>& context, Index n,
              const terrace::dense::DenseRequest& request, Index keeps)
    : ranks_(ranks),
      context_(context),
      plan_(terrace::dense::plan_dense<B>(context.size(), n, request)) {
  const Index staging = context.size() > 1 ? Index(64) << 20 : 0;
  const bool host = std::is_same_v<B, Cpu>;
  ranks.require(staging + (host ? plan_.bytes + keeps : 0), host ? 0 : plan_.bytes + keeps);
}

template <class B>
Report Work<B>::run(RowReader a, RowReader b, bool singular_is_error,
                    std::optional<StoredFactor> stored) {
  Report report;
  AskingProgress progress(ranks_);
  if (stored)
    system_.emplace(context_, plan_, std::move(a), std::move(b), std::move(*stored));
  else
    system_.emplace(context_, plan_, std::move(a), std::move(b));
  system_->refuse(refuse_);
  timed(report.seconds.prepare, [&] { system_->read(); });
  found_ = timed(report.seconds.solve, [&] { return system_->solve(progress); });
  report.log_abs_determinant = found_.log_abs_determinant;
  report.determinant_sign = found_.determinant_sign;
  if (found_.overflow)
    no_result("the elimination overflowed; in the matrix; scale it", found_.bad_column);
  if (found_.bad_column >= 0) {
    if (singular_is_error)
      no_result(fmt::format("the matrix is singular; zero pivot in column {}; it has no inverse",
                            found_.bad_column),
                found_.bad_column);
    report.determinant_sign = 0;
    report.log_abs_determinant = -std::numeric_limits<double>::infinity();
    return report;
  }
  timed(report.seconds.check, [&] {
    report.reciprocal_condition = system_->reciprocal_condition();
    note_condition(report, plan_.n);
    // Of a factor that was stored its solutions are checked.
    if (ranks_.options.check && !stored) check(report, progress);
  });
  return report;
}

template <class B>
void Work<B>::solve_again(Report& report, Index right, const RowReader& b, bool wanted) {
  AskingProgress progress(ranks_);
  const EliminationOutcome found =
      timed(report.seconds.solve, [&] { return system_->solve_again(right, b); });
  if (!found.good()) no_result("the solution overflowed; in the right-hand sides; scale them", -1);
  if (wanted) timed(report.seconds.check, [&] { check(report, progress); });
}

template <class B>
void Work<B>::check(Report& report, Progress& progress) {
  const double ratio = system_->check(progress);
  report.residual = std::max(report.residual, ratio);
  require_residual(ratio);
}

#define TERRACE_WORK(B) template class Work<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_WORK)
#undef TERRACE_WORK

}  // namespace terrace::api::dense
