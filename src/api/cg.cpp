#include "src/api/terrace/cg.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "src/api/cg_request.hpp"
#include "src/api/csr_rows.hpp"
#include "src/api/held_band.hpp"
#include "src/api/inside.hpp"
#include "src/cg/operators.hpp"
#include "src/cg/operators_user.hpp"
#include "src/cg/system.hpp"

namespace terrace::api::cg {

namespace {

using terrace::cg::Asymmetry;
using terrace::cg::CgHooks;
using terrace::cg::CgRequest;
using terrace::cg::CgResult;

constexpr double least_entries = 1e6;  // of a matrix, from which a GPU gains

BackendHint hint(double entries) { return {std::cbrt(entries), std::cbrt(least_entries)}; }

void require_order(Index n, Index columns) {
  if (columns != n)
    fail_together(Exit::usage, fmt::format("the matrix of order {} has {} columns; "
                                           "Local::columns; give n",
                                           n, columns));
}

void refuse_asymmetry(const std::optional<Asymmetry>& found) {
  if (found)
    fail_together(
        Exit::input,
        fmt::format("the matrix is not symmetric: A[{0}, {1}] = {2:.17g}, A[{1}, {0}] = "
                    "{3:.17g}; in the matrix; conjugate gradients need a symmetric matrix",
                    found->row, found->column, found->value, found->transposed));
}

}  // namespace

struct Operator::Inside {
  virtual ~Inside() = default;
  virtual std::vector<Result> solve(Local<const double> b, Local<double> x, const Options&) = 0;
  // New values of a matrix of this kind; of another one a usage error.
  virtual void update(const double*) { refuse("csr"); }
  virtual void update(const Local<const double>&) { refuse("dense"); }
  virtual void update(const band::Matrix&) { refuse("band"); }
  Index n = 0;

 private:
  static void refuse(const char* maker) {
    fail_together(Exit::usage,
                  fmt::format("these are not the values of this operator; update_values; it takes "
                              "them where cg::{} has made it",
                              maker));
  }
};

namespace {

template <class B>
void put_values(terrace::Context<B>& on, terrace::cg::DenseOperator<B>& to,
                const Local<const double>& a) {
  Held<const double, B> held(on, to.n(), a, to.n(), "a");
  held.require_finite();
  to.scale = {};  // on every rank, also on one without rows
  const Range own = to.rows();
  const auto put = [&](Index position, Index count, const double* rows) {
    to.put_rows(on, position, count, rows);
  };
  held.read({&own, 1}, put, true);
}

template <class B>
void put_values(terrace::Context<B>& on, terrace::cg::BandOperator<B>& to, const band::Matrix& a) {
  HeldBand<B> held(on, to.n(), a);
  const auto put = [&](Range range, bool there) {
    held.read(
        {&range, 1},
        [&](Index position, Index count, const double* columns) {
          to.put_columns(on, range.first + position, count, held.height(), columns);
        },
        there);
  };
  put(to.columns_before(), false);
  put(to.rows(), true);
}

template <class B>
void put_values(terrace::Context<B>& on, terrace::cg::CsrOperator<B>& to, const double* value) {
  collectively(on.control, [&] {
    for (Index k = 0; k < to.entries(); ++k)
      if (!std::isfinite(value[k]))
        throw terrace::Error(Exit::input,
                             fmt::format("entry {} is {}; in the CSR values; only finite numbers "
                                         "are accepted",
                                         k, value[k]));
  });
  to.put_values(on, value);
}

/// The caller stops the iteration: agreed, a step later, over the votes.
CgHooks hooks_of(Context::Inside& ranks, const Options& options) {
  CgHooks hooks;
  if (ranks.control.reduce(Index(bool(options.observe)), Reduce::max) == 0) return hooks;
  const auto votes = std::make_shared<Votes>(ranks.control);  // of this solve alone
  hooks.observe = [votes, &options](const std::string&, Index iteration, double residual) {
    const bool no = options.observe && !options.observe(iteration, residual);
    if (votes->poll(Word(no)) != 0)
      fail_together(
          Exit::requeue,
          "the caller stopped the run; in cg::Options::observe; call again to start anew");
  };
  return hooks;
}

/// What each column came to, for the caller.
Result result_of(const CgResult& r, double setup) {
  return {terrace::cg::converged(r.reason),
          terrace::cg::to_string(r.reason),
          r.iterations,
          r.true_residual,
          r.scaled_residual,
          setup};
}

template <class B, template <class> class A>
struct OperatorOn : Operator::Inside {
  Context ranks;
  terrace::Context<B>& context;
  std::unique_ptr<A<B>> a;
  terrace::cg::CgKept<B, A<B>> kept;  ///< goes before it
  bool one_at_a_time = false, has_diagonal = true;
  bool in_order = true;  ///< of CSR: the caller's entries are the operator's

  OperatorOn(Context group, terrace::Context<B>& on, std::unique_ptr<A<B>> matrix)
      : ranks(std::move(group)), context(on), a(std::move(matrix)) {
    n = a->n();
    if (ranks.inside().options.check) refuse_asymmetry(a->asymmetry(on));
  }
  void update(const double* value) override {
    if constexpr (std::is_same_v<A<B>, terrace::cg::CsrOperator<B>>) {
      ranks.inside().require_alike({});
      if (!in_order)
        fail_together(Exit::usage,
                      "rows of this CSR matrix have columns out of order or twice; update_values; "
                      "sort them before cg::csr, or make the operator anew");
      update_by(There(), value);
    } else {
      Inside::update(value);
    }
  }
  void update(const Local<const double>& values) override {
    if constexpr (std::is_same_v<A<B>, terrace::cg::DenseOperator<B>>) {
      ranks.inside().require_alike({{"Local::columns of a", values.columns}});
      require_order(n, values.columns);
      update_by(There(values), values);
    } else {
      Inside::update(values);
    }
  }
  void update(const band::Matrix& values) override {
    if constexpr (std::is_same_v<A<B>, terrace::cg::BandOperator<B>>) {
      require_alike(ranks.inside(), n, values);
      if (std::max<Index>(0, std::min(values.half_bandwidth, n - 1)) != a->half_bandwidth())
        fail_together(Exit::usage,
                      fmt::format("the band has half-bandwidth {}, the operator {}; update_values; "
                                  "give the same, or make it anew",
                                  values.half_bandwidth, a->half_bandwidth()));
      a->begin_again();
      update_by(There(values), values);
    } else {
      Inside::update(values);
    }
  }
  template <class Values>
  void update_by(const There& there, const Values& values) {
    (void)ranks.inside().template on<B>(there);  // the device is ours again
    ranks.inside().wait_for_caller(there);
    kept.new_values();
    put_values(context, *a, values);
    if (ranks.inside().options.check) refuse_asymmetry(a->asymmetry(context));
  }
  std::vector<Result> solve(Local<const double> b, Local<double> x,
                            const Options& options) override {
    terrace::api::Context::Inside& inside = ranks.inside();
    (void)inside.on<B>();  // the device is ours again
    inside.require_alike(alike(options, b.columns, x.columns));
    inside.wait_for_caller(There(b, x, options.near_null_space));
    constexpr bool dense = std::is_same_v<A<B>, terrace::cg::DenseOperator<B>>;
    const CgRequest base = request_of(options, dense, !dense && !one_at_a_time);
    if (b.columns != x.columns || b.columns < 1)
      fail_together(Exit::usage,
                    "b and x differ in columns, or have none; Local::columns; give one "
                    "for each right-hand side");
    CgRequest request = base;
    request.guard = inside.options.guard;
    const terrace::cg::NearNullSpace vectors = near_null_space(inside, options);
    if (vectors.columns > 0) request.near_null_space = &vectors;
    if (one_at_a_time) request.at_once = 1;
    if (inside.control.reduce(Index(has_diagonal), Reduce::min) == 0 &&
        (request.jacobi || request.preconditioner == "chebyshev"))
      fail_together(Exit::usage,
                    "this preconditioner needs the diagonal; cg::user; give it, or use "
                    "none");
    const Index nrhs = b.columns;
    Held<const double, B> right(context, n, b, nrhs, "b");
    Held<double, B> result(context, n, x, nrhs, "x");
    right.require_finite();
    AskingProgress progress(inside);
    const CgHooks hooks = hooks_of(inside, options);
    if (options.start_given) result.require_finite();
    const auto solution = lies_there(right, result, nrhs)
                              ? solve_there(right, result, nrhs, request, progress, hooks)
                              : solve_on_host(right, result, nrhs, request, progress, hooks);
    std::vector<Result> results;
    for (const CgResult& r : solution.results) results.push_back(result_of(r, solution.setup));
    return results;
  }

 private:
  /// The caller's vectors in the operator's rows; none: no columns.
  terrace::cg::NearNullSpace near_null_space(Context::Inside& inside, const Options& options) {
    const Local<const double>& given = options.near_null_space;
    const Control& control = inside.control;
    const Index columns = given.columns;
    if (columns > 0 && options.preconditioner != "amg")
      fail_together(
          Exit::usage,
          "a near null-space is for amg; cg::Options::near_null_space; leave it out, or use amg");
    terrace::cg::NearNullSpace vectors{columns, {}, "cg::Options::near_null_space"};
    if (columns == 0) return vectors;
    Held<const double, B> held(context, n, given, columns, "near_null_space");
    held.require_finite();
    const Range own = a->rows();
    collectively(control, [&] { vectors.values.resize(std::size_t(own.count * columns)); });
    held.read({&own, 1}, [&](Index position, Index count, const double* data) {
      std::copy_n(data, count * columns, vectors.values.begin() + position * columns);
    });
    return vectors;
  }
  /// On one rank in memory of the backend: on the CPU, one right-hand side.
  [[nodiscard]] bool lies_there(const Held<const double, B>& b, const Held<double, B>& x,
                                Index nrhs) const {
    constexpr bool host = std::is_same_v<B, Cpu>;
    const auto fits = [nrhs](const auto& held) {
      return held.on_device() != host && held.ld() == nrhs;
    };
    return context.size() == 1 && (nrhs == 1 || !host) && n > 0 && fits(b) && fits(x);
  }
  terrace::cg::CgSolution solve_there(const Held<const double, B>& b, const Held<double, B>& x,
                                      Index nrhs, const CgRequest& request, Progress& progress,
                                      const CgHooks& hooks) {
    const Index size = n * nrhs;
    const Buffer<double, B> work(size);  // so that x stays as it was if this fails
    if (request.x_given)
      copy(context.ahead, work.view(), View<const double, B>{x.data(), size});
    else
      fill_zero(context.ahead, work.view());
    context.ahead.synchronize();
    auto solution = terrace::cg::solve_system(
        context, *a, request, nrhs, terrace::cg::CgRows<const double>(b.data(), size, true),
        terrace::cg::CgRows<double>(work.data(), size, true), progress, hooks, &kept);
    copy(context.ahead, View<double, B>{x.data(), size}, View<const double, B>(work));
    context.ahead.synchronize();
    return solution;
  }
  terrace::cg::CgSolution solve_on_host(const Held<const double, B>& b, const Held<double, B>& x,
                                        Index nrhs, const CgRequest& request, Progress& progress,
                                        const CgHooks& hooks) {
    const Range own = a->rows();
    std::vector<double> from, to;
    collectively(context.control, [&] {
      from.resize(std::size_t(own.count * nrhs));
      to.assign(std::size_t(own.count * nrhs), 0.0);
    });
    const auto take = [&](std::vector<double>& into) {
      return [&into, nrhs](Index position, Index count, const double* data) {
        std::copy_n(data, count * nrhs, into.begin() + position * nrhs);
      };
    };
    b.read({&own, 1}, take(from));
    if (request.x_given) x.read({&own, 1}, take(to));
    auto solution = terrace::cg::solve_system(context, *a, request, nrhs, std::move(from), to,
                                              progress, hooks, &kept);
    std::vector<Index> places;
    for (Index i = 0; i < own.count; ++i) places.push_back(own.first + i);
    x.write(places, [&](Index position, Index count, double* out) {
      std::copy_n(to.data() + position * nrhs, count * nrhs, out);
    });
    return solution;
  }
};

template <template <class> class A, class B>
Operator finished(const Context& ranks, terrace::Context<B>& on, std::unique_ptr<A<B>> a) {
  return Operator(std::make_unique<OperatorOn<B, A>>(ranks, on, std::move(a)));
}

Operator from_csr(Context& context, Index n, const Rows& rows, std::vector<Index> start,
                  const Index* column, const double* value) {
  Context::Inside& ranks = context.inside();
  const Control& control = ranks.control;
  collectively(control, [&] {
    const Index begin = start.front();
    for (Index& s : start) s -= begin;
    for (std::size_t i = 1; i < start.size(); ++i)
      if (start[i] < start[i - 1])
        throw terrace::Error(Exit::input, fmt::format("the row pointers fall at row {}; in the CSR "
                                                      "rows; give pointers that rise",
                                                      rows.first + Index(i) - 1));
  });
  const std::vector<Index> first = row_starts(ranks, n, rows);
  const double entries = control.reduce(double(start.back()), Reduce::sum);
  return with_backend(ranks, There(), hint(entries), [&]<class B>(terrace::Context<B>& on) {
    CsrMade<B> made_of = csr_operator(on, first, start, column, value);
    auto made = std::make_unique<OperatorOn<B, terrace::cg::CsrOperator>>(context, on,
                                                                          std::move(made_of.a));
    made->in_order = made_of.in_order;
    return Operator(std::move(made));
  });
}

}  // namespace

Operator::Operator(std::unique_ptr<Inside> inside) : inside_(std::move(inside)) {}
Operator::~Operator() = default;
Operator::Operator(Operator&&) noexcept = default;
Operator& Operator::operator=(Operator&&) noexcept = default;
std::int64_t Operator::n() const { return inside_->n; }
std::vector<Result> Operator::solve(Local<const double> b, Local<double> x,
                                    const Options& options) {
  return at_border([&] { return inside_->solve(b, x, options); });
}

void Operator::update_values(const double* value) {
  at_border([&] { inside_->update(value); });
}
void Operator::update_values(Local<const double> a) {
  at_border([&] { inside_->update(a); });
}
void Operator::update_values(const band::Matrix& a) {
  at_border([&] { inside_->update(a); });
}

Operator csr(Context& context, std::int64_t n, Rows rows, const std::int64_t* start,
             const std::int64_t* column, const double* value) {
  return at_border([&] {
    return from_csr(
        context, n, rows,
        rows.count > 0 ? std::vector<Index>(start, start + rows.count + 1) : std::vector<Index>{0},
        column, value);
  });
}
Operator csr(Context& context, std::int64_t n, Rows rows, const std::int32_t* start,
             const std::int32_t* column, const double* value) {
  return at_border([&] {
    std::vector<Index> wide{0}, columns;
    collectively(context.inside().control, [&] {
      if (rows.count <= 0) return;
      wide.assign(start, start + rows.count + 1);
      columns.assign(column, column + (wide.back() - wide.front()));
    });
    return from_csr(context, n, rows, std::move(wide), columns.data(), value);
  });
}

Operator dense(Context& context, std::int64_t n, Local<const double> a) {
  return at_border([&] {
    Context::Inside& ranks = context.inside();
    ranks.require_alike({{"n", n}, {"Local::columns of a", a.columns}});
    require_order(n, a.columns);
    return with_backend(ranks, There(a), hint(double(n) * double(n)),
                        [&]<class B>(terrace::Context<B>& on) {
                          auto made = std::make_unique<terrace::cg::DenseOperator<B>>(on, n);
                          put_values(on, *made, a);
                          return finished<terrace::cg::DenseOperator>(context, on, std::move(made));
                        });
  });
}

Operator band(Context& context, std::int64_t n, const band::Matrix& a) {
  return at_border([&] {
    Context::Inside& ranks = context.inside();
    require_alike(ranks, n, a);
    return with_backend(ranks, There(a), hint(double(n) * double(a.half_bandwidth + 1)),
                        [&]<class B>(terrace::Context<B>& on) {
                          auto made = std::make_unique<terrace::cg::BandOperator<B>>(
                              on, n, a.half_bandwidth);
                          put_values(on, *made, a);
                          return finished<terrace::cg::BandOperator>(context, on, std::move(made));
                        });
  });
}

Operator user(Context& context, std::int64_t n, Rows rows, Product product,
              const double* diagonal) {
  return at_border([&] {
    Context::Inside& ranks = context.inside();
    const std::vector<Index> first = row_starts(ranks, n, rows);
    if (ranks.options.backend == Backend::cuda)
      fail_together(Exit::usage,
                    "a product of the caller's runs on the host; Options::backend is "
                    "cuda; leave it automatic");
    if (ranks.control.reduce(Index(bool(product)), Reduce::min) == 0)
      fail_together(Exit::usage, "no product; cg::user; give a function on each rank");
    terrace::Context<Cpu>& on = ranks.on<Cpu>();
    const Range own{first[std::size_t(on.rank())], rows.count};
    std::vector<double> copy;
    if (diagonal) copy.assign(diagonal, diagonal + rows.count);
    auto made = std::make_unique<OperatorOn<Cpu, terrace::cg::UserOperator>>(
        context, on,
        std::make_unique<terrace::cg::UserOperator<Cpu>>(on, n, own, std::move(product),
                                                         std::move(copy)));
    made->one_at_a_time = true;
    made->has_diagonal = diagonal != nullptr || rows.count == 0;
    return Operator(std::move(made));
  });
}

}  // namespace terrace::api::cg
