#include "src/api/terrace/dense.hpp"

#include "src/api/dense_work.hpp"

namespace terrace::api::dense {

Report invert(Context& context, std::int64_t n, Local<double> a, const Options& options) {
  return at_border([&] {
    Context::Inside& ranks = context.inside();
    require_sizes(n, a.columns, 0);
    return with_backend(ranks, a.where == Where::device, hint(n),
                        [&]<class B>(terrace::Context<B>& on) {
                          Held<double, B> held(on, n, a, n, "a");
                          held.require_finite();
                          terrace::dense::DenseRequest request = request_of(ranks, options);
                          request.inverse = true;
                          Work<B> work(ranks, on, n, request);
                          Report report = work.run(reader(held), {}, true);
                          work.give(report, held);
                          return report;
                        });
  });
}

Report solve(Context& context, std::int64_t n, Local<const double> a, Local<double> b,
             const Options& options) {
  return at_border([&] {
    Context::Inside& ranks = context.inside();
    require_sizes(n, a.columns, b.columns);
    return with_backend(ranks, a.where == Where::device || b.where == Where::device, hint(n),
                        [&]<class B>(terrace::Context<B>& on) {
                          Held<const double, B> matrix(on, n, a, n, "a");
                          Held<double, B> right(on, n, b, b.columns, "b");
                          matrix.require_finite();
                          right.require_finite();
                          terrace::dense::DenseRequest request = request_of(ranks, options);
                          request.right = b.columns;
                          Work<B> work(ranks, on, n, request);
                          Report report = work.run(reader(matrix), reader(right), true);
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
                          held.require_finite();
                          const Local<const double> none{nullptr, a.rows, 0, 0, Where::host};
                          const Held<const double, B> right(on, n, none, 0, "b");
                          Work<B> work(ranks, on, n, request_of(ranks, options));
                          return work.run(reader(held), reader(right), false);
                        });
  });
}

}  // namespace terrace::api::dense
