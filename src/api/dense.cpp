#include "src/api/terrace/dense.hpp"

#include <fmt/core.h>

#include "src/api/dense_cholesky.hpp"

namespace terrace::api::dense {

Report invert(Context& context, std::int64_t n, Local<double> a, const Options& options) {
  return at_border([&] {
    Context::Inside& ranks = context.inside();
    require_sizes(ranks, n, a.columns, 0, options);
    return with_backend(ranks, There(a), hint(n), [&]<class B>(terrace::Context<B>& on) {
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
    require_sizes(ranks, n, a.columns, b.columns, options, assume);
    const bool definite = assume != Assume::general;
    if (definite && options.emulated)
      fail_together(Exit::usage,
                    "Cholesky's method has FP64 only; Options::emulated; leave it out");
    return with_backend(ranks, There(a, b), hint(n), [&]<class B>(terrace::Context<B>& on) {
      Held<const double, B> matrix(on, n, a, n, "a");
      Held<double, B> right(on, n, b, b.columns, "b");
      std::string why;
      if (definite) {
        right.require_finite();
        matrix.require_finite();
      }
      if (definite && n > 0 && b.columns > 0)
        if (ByCholesky<B> way(ranks, on, n, reader(matrix));
            way.attempt(assume, b.columns, reader(right), 0, why)) {
          way.give(right, b.columns);
          return way.report;
        }
      terrace::dense::DenseRequest request = request_of(ranks, options);
      request.right = b.columns;
      Work<B> work(ranks, on, n, request);
      work.refuse_not_finite(matrix, right);
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
    require_sizes(ranks, n, a.columns, 0, options);
    return with_backend(ranks, There(a), hint(n), [&]<class B>(terrace::Context<B>& on) {
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
