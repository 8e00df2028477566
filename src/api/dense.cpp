#include "src/api/terrace/dense.hpp"

#include <fmt/core.h>

#include <limits>

#include "src/api/held.hpp"
#include "src/api/inside.hpp"
#include "src/dense/system.hpp"

namespace terrace::api::dense {

namespace {

using terrace::dense::DensePlan;
using terrace::dense::DenseSystem;
using terrace::dense::EliminationOutcome;

constexpr Index exact_check = 1024;  // the largest order whose residual is exact
constexpr double least_size = 700;   // order from which a GPU gains, measured on an H200

void require_sizes(Index n, Index columns, Index right) {
  if (n < 0 || columns != n || right < 0)
    fail_together(Exit::usage, fmt::format("the matrix of order {} has {} columns; Local::columns; "
                                           "give n",
                                           n, columns));
}

std::string warning(double reciprocal) {
  return fmt::format(
      "the reciprocal condition is {:.2g}, below n * 2.2e-16: rounding alone may have "
      "changed every digit of the result",
      reciprocal);
}

/// One run of DenseSystem on the caller's memory. `b` of no columns: the determinant alone.
template <class B>
class Work {
 public:
  Work(Context::Inside& ranks, terrace::Context<B>& context, Index n, bool inverse, Index right,
       const Options& options)
      : ranks_(ranks), context_(context), n_(n), progress_(ranks) {
    terrace::dense::DenseRequest request;
    request.inverse = inverse;
    request.right = right;
    request.block = options.block;
    request.emulated = options.emulated;
    request.guard = ranks.options.guard;
    plan_ = terrace::dense::plan_dense<B>(context.size(), n, request);
    const Index bytes = plan_.bytes + (Index(64) << 20);
    require_memory(context.control, std::is_same_v<B, Cpu> ? bytes : Index(64) << 20,
                   std::is_same_v<B, Cpu> ? 0 : plan_.bytes);
  }

  /// What was found, or an Error; `give` takes the result over once it has passed.
  template <class T, class Give>
  Report run(const Held<T, B>& a, const terrace::dense::RowReader& b, bool singular_is_error,
             const Give& give) {
    Report report;
    bool there = true;  // what is read is copied, to where the elimination works
    const auto reader_of_a = [&](std::span<const Range> ranges, const io::Sink<double>& sink) {
      a.read(ranges, sink, there);
    };
    DenseSystem<B> system(context_, plan_, reader_of_a, b);
    timed(report.seconds.prepare, [&] { system.read(); });
    const EliminationOutcome found =
        timed(report.seconds.solve, [&] { return system.solve(progress_); });
    report.log_abs_determinant = found.log_abs_determinant;
    report.determinant_sign = found.determinant_sign;
    if (!found.good()) {
      if (found.bad_column >= 0 && !found.overflow && !singular_is_error) {
        report.determinant_sign = 0;
        report.log_abs_determinant = -std::numeric_limits<double>::infinity();
        return report;
      }
      if (found.overflow)
        no_result("the elimination overflowed; in the matrix; scale it", found.bad_column);
      no_result(fmt::format("the matrix is singular; zero pivot in column {}; it has no inverse",
                            found.bad_column),
                found.bad_column);
    }
    timed(report.seconds.check, [&] {
      report.reciprocal_condition = system.reciprocal_condition();
      if (report.reciprocal_condition < double(n_) * std::numeric_limits<double>::epsilon())
        report.warnings.push_back(warning(report.reciprocal_condition));
      if (!ranks_.options.check) return;
      // A check multiplies rows where the elimination worked, but for an exact one, and for a matrix
      // that is scaled on the way.
      there = a.near_one() && (!plan_.inverse || n_ > exact_check);
      report.residual = system.check(progress_);
      if (!(report.residual <= terrace::dense::residual_limit))
        check_failed(fmt::format("the residual's ratio {:.3g} is above {}", report.residual,
                                 terrace::dense::residual_limit));
    });
    timed(report.seconds.give, [&] { give(system.destination(), system.rows()); });
    return report;
  }

 private:
  Context::Inside& ranks_;
  terrace::Context<B>& context_;
  Index n_;
  AskingProgress progress_;
  DensePlan plan_;
};

template <class T, class B>
terrace::dense::RowReader reader(const Held<T, B>& held) {
  return [&held](std::span<const Range> ranges, const io::Sink<double>& sink) {
    held.read(ranges, sink);
  };
}

BackendHint hint(Index n) { return {double(n), least_size}; }

}  // namespace

Report invert(Context& context, std::int64_t n, Local<double> a, const Options& options) {
  return at_border([&] {
    Context::Inside& ranks = context.inside();
    require_sizes(n, a.columns, 0);
    return with_backend(ranks, a.where == Where::device, hint(n),
                        [&]<class B>(terrace::Context<B>& on) {
                          Held<double, B> held(on, n, a, n, "a");
                          held.require_finite();
                          Work<B> work(ranks, on, n, true, 0, options);
                          return work.run(held, {}, true, [&](auto destination, const auto& rows) {
                            held.write(destination, rows, held.near_one());
                          });
                        });
  });
}

Report solve(Context& context, std::int64_t n, Local<const double> a, Local<double> b,
             const Options& options) {
  return at_border([&] {
    Context::Inside& ranks = context.inside();
    require_sizes(n, a.columns, b.columns);
    return with_backend(
        ranks, a.where == Where::device || b.where == Where::device, hint(n),
        [&]<class B>(terrace::Context<B>& on) {
          Held<const double, B> matrix(on, n, a, n, "a");
          Held<double, B> right(on, n, b, b.columns, "b");
          matrix.require_finite();
          right.require_finite();
          Work<B> work(ranks, on, n, false, b.columns, options);
          return work.run(matrix, reader(right), true, [&](auto destination, const auto& rows) {
            right.write(destination, rows, matrix.near_one() && right.near_one());
          });
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
                          held.require_finite();
                          const Local<const double> none{nullptr, a.rows, 0, 0, Where::host};
                          const Held<const double, B> right(on, n, none, 0, "b");
                          Work<B> work(ranks, on, n, false, 0, options);
                          return work.run(held, reader(right), false, [](auto, const auto&) {});
                        });
  });
}

}  // namespace terrace::api::dense
