#include "src/api/dense_factor.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "kernels/base/matrix.hpp"
#include "src/api/dense_cholesky.hpp"
#include "src/api/dense_work.hpp"
#include "src/api/factor_head.hpp"
#include "src/dense/factor_file.hpp"

namespace terrace::api::dense {

namespace {

using terrace::dense::RowReader;
using terrace::dense::StoredFactor;

/// The matrix, for the check, where the caller had it, and the way of right-hand sides.
template <class B>
struct Solves : FactorHead<Factor::Inside, B> {
  using Outside = Factor::Inside;
  using Head = FactorHead<Factor::Inside, B>;
  using Head::context, Head::ranks, Head::report;
  static constexpr Index room = 64;  // right-hand sides at once; a check takes as many
  Index n;
  std::optional<Held<const double, B>> matrix;
  Buffer<double, Cpu> kept;
  Buffer<double, B> kept_there;

  /// `a` of no columns: none.
  Solves(const Context& group, terrace::Context<B>& on, Index order, const Local<const double>& a)
      : Head(group, on), n(order) {
    if (a.columns > 0 || n == 0) matrix.emplace(on, n, a, n, "a");
  }
  /// What stays: reads the matrix from wherever it is.
  [[nodiscard]] RowReader reads() const {
    const auto read = [this](bool there) {
      return [this, there](std::span<const Range> ranges, const io::Sink<double>& sink) {
        matrix->read(ranges, sink, there);
      };
    };
    return {read(false), read(true)};
  }
  /// Bytes of this rank that keep() takes, at most.
  [[nodiscard]] Index bytes_kept() const {
    if (!checked()) return 0;
    return 8 * n * context.control.reduce(matrix->rows(), Reduce::max);
  }
  [[nodiscard]] bool checked() const { return ranks.inside().options.check && matrix; }
  /// After the factorization: copies the matrix, so that the caller's memory may go, or forgets it.
  void keep(const Local<const double>& a) {
    if (!checked()) return matrix.reset();
    const bool there = a.where == Where::device;
    const Index rows = matrix->rows(), size = rows * n;
    collectively(context.control, [&] {
      if (there)
        kept_there = Buffer<double, B>(size);
      else
        kept = Buffer<double, Cpu>(size);
    });
    if (!there) {
      matrix->pack(0, rows, kept.data());
    } else if (size > 0) {
      copy_rows<double>(context.ahead, kept_there.data(), n, a.data, matrix->ld(), n, rows);
      context.ahead.synchronize();
    }
    matrix.emplace(
        context, n,
        Local<const double>{there ? kept_there.data() : kept.data(), a.rows, n, n, a.where}, n,
        "a");
  }

  Report solve(Local<double> b) override {
    (void)Head::begin(b, matrix.has_value());
    Report now = report;
    now.residual = 0;
    now.seconds = {};
    Held<double, B> all(context, n, b, b.columns, "b");
    timed(now.seconds.prepare, [&] { all.require_finite(); });
    if (b.columns > room)
      solve_in_parts(now, b, all);
    else if (b.columns > 0)
      solve_at_once(now, b.columns, all), give(now, all);
    return now;
  }
  /// b is as it was until all is solved.
  void solve_in_parts(Report& now, const Local<double>& b, const Held<double, B>& all) {
    const Index columns = b.columns, slots = Index(destination().size());
    std::vector<double> x(std::size_t(slots * columns)), some(std::size_t(slots * room));
    for (Index first = 0; first < columns; first += room) {
      const Index count = std::min(room, columns - first);
      const Local<double> these{b.data ? b.data + first : nullptr, b.rows, count, all.ld(),
                                b.where};
      const Held<double, B> part(context, n, these, count, "b");
      solve_at_once(now, count, part);
      solution(count, some.data());
      for (Index s = 0; s < slots; ++s)
        std::copy_n(some.begin() + s * count, count, x.begin() + s * columns + first);
    }
    timed(now.seconds.give, [&] {
      all.write(destination(), [&](Index position, Index count, double* out) {
        std::copy_n(x.begin() + position * columns, count * columns, out);
      });
    });
  }
  /// `columns` <= room, and checks.
  virtual void solve_at_once(Report& now, Index columns, const Held<double, B>& b) = 0;
  /// What that found: to the caller, or to the host, this rank's rows of `destination`.
  virtual void give(Report& now, const Held<double, B>& to) = 0;
  virtual void solution(Index columns, double* out) = 0;
  [[nodiscard]] virtual std::span<const Index> destination() const = 0;
};

/// L and U.
template <class B>
struct LuOn : Solves<B> {
  using Base = Solves<B>;
  using Base::context, Base::ranks, Base::report, Base::matrix, Base::n;
  std::optional<Work<B>> work;

  /// With `stored` factors nothing is eliminated.
  LuOn(const Context& group, terrace::Context<B>& on, Index order, const Local<const double>& a,
       const Options& options, std::optional<StoredFactor> stored = {})
      : Base(group, on, order, a) {
    terrace::dense::DenseRequest request = request_of(ranks.inside(), options);
    request.factor = true;
    request.room = Base::room;
    if (stored) request.stored = true, request.guard = false;
    work.emplace(ranks.inside(), on, n, request, Base::bytes_kept());
    if (matrix && stored) matrix->require_finite();
    if (matrix) work->refuse_not_finite(*matrix);
    report = work->run(Base::reads(), {}, true, std::move(stored));
    Base::keep(a);
  }
  [[nodiscard]] bool is_cholesky() const override { return false; }
  void solve_at_once(Report& now, Index columns, const Held<double, B>& b) override {
    work->solve_again(now, columns, reader(b), ranks.options().check);
  }
  void give(Report& now, const Held<double, B>& to) override { work->give(now, to); }
  void solution(Index, double* out) override {
    work->system().rows()(0, Index(destination().size()), out);
  }
  [[nodiscard]] std::span<const Index> destination() const override {
    return work->system().destination();
  }
  void write(io::Output& output, const std::string& name, const std::string& from) override {
    (void)Base::on();
    const auto& system = work->system();
    terrace::dense::write_factor(context.control, output, name, system.factor(work->found()),
                                 system.destination(), system.factor_rows().give, from);
  }
};

/// L, by Cholesky; as the band's, in tile columns.
template <class B>
struct CholeskyOn : Solves<B> {
  using Base = Solves<B>;
  using Base::context, Base::ranks, Base::report, Base::matrix, Base::n;
  std::optional<ByCholesky<B>> way;
  bool done = false;  ///< else `why`, if there is more to say
  std::string why;
  std::vector<Index> places;
  std::vector<double> x;

  CholeskyOn(const Context& group, terrace::Context<B>& on, Index order,
             const Local<const double>& a, Assume assume)
      : Base(group, on, order, a) {
    matrix->require_finite();
    way.emplace(ranks.inside(), on, n, Base::reads());
    done = way->attempt(assume, 0, {}, Base::bytes_kept(), why);
    if (done) settle(a);
  }
  /// From a file.
  CholeskyOn(const Context& group, terrace::Context<B>& on, Index order,
             const Local<const double>& a, const terrace::dense::FactorFile& file)
      : Base(group, on, order, a), done(true) {
    double largest = 0;
    if (matrix) {
      matrix->require_finite();
      const std::vector<Range> own = matrix->ranges();
      matrix->read(own, [&](Index, Index count, const double* rows) {
        for (Index i = 0; i < count * n; ++i) largest = std::max(largest, std::fabs(rows[i]));
      });
    }
    way.emplace(ranks.inside(), on, n, Base::reads());
    way->adopt(terrace::dense::columns_of_cholesky(on.control, file),
               file.number("reciprocal_condition"), largest, Base::bytes_kept());
    settle(a);
  }
  void settle(const Local<const double>& a) {
    report = way->report;
    Base::keep(a);
    for (const Range& range : way->ranges())
      for (Index i = 0; i < range.count; ++i) places.push_back(range.first + i);
  }
  [[nodiscard]] bool is_cholesky() const override { return true; }
  void solve_at_once(Report& now, Index columns, const Held<double, B>& b) override {
    x.resize(places.size() * std::size_t(columns));
    timed(now.seconds.prepare, [&] {
      b.read(way->ranges(), [&](Index position, Index count, const double* rows) {
        std::copy_n(rows, count * columns, x.begin() + position * columns);
      });
    });
    timed(now.seconds.solve, [&] { way->solve(x, columns); });
    if (context.control.reduce(Index(all_finite(x.data(), Index(x.size()))), Reduce::min) == 0)
      no_result("the solution overflowed; in the right-hand sides; scale them", -1);
    if (ranks.inside().options.check)
      timed(now.seconds.check, [&] { check(now, columns, reader(b)); });
  }
  void check(Report& now, Index columns, const RowReader& b) {
    int exponent = 0;
    (void)std::frexp(way->largest(), &exponent);
    const auto own = [&](Index first, Index count, double* out) {
      for (std::size_t i = 0; i < places.size(); ++i)
        std::copy_n(x.begin() + Index(i) * columns + first, count, out + places[i] * count);
    };
    const double ratio =
        terrace::dense::check_solution<B>(context, n, columns, way->ranges(), own, Base::reads(), b,
                                          std::ldexp(1.0, std::clamp(-exponent, -1000, 1000)));
    now.residual = std::max(now.residual, ratio);
    require_residual(ratio);
  }
  void give(Report& now, const Held<double, B>& to) override {
    const Index columns = Index(x.size()) / std::max<Index>(1, Index(places.size()));
    timed(now.seconds.give, [&] {
      to.write(places, [&](Index position, Index count, double* out) {
        std::copy_n(x.begin() + position * columns, count * columns, out);
      });
    });
  }
  void solution(Index, double* out) override { std::copy(x.begin(), x.end(), out); }
  [[nodiscard]] std::span<const Index> destination() const override { return places; }
  void write(io::Output& output, const std::string& name, const std::string& from) override {
    (void)Base::on();
    terrace::dense::write_cholesky(
        output, name, n, way->ranges(),
        [this](Index position, Index count, double* out) { way->columns(position, count, out); },
        {from, report.log_abs_determinant, report.reciprocal_condition});
  }
};

/// By Cholesky where that holds, else by LU, with a warning.
std::unique_ptr<Factor::Inside> make_factor(Context& context, Index n, const Local<const double>& a,
                                            Assume assume, const Options& options) {
  require_sizes(context.inside(), n, a.columns, 0, options, assume);
  if (options.emulated)
    fail_together(Exit::usage, "a factor has FP64 only; Options::emulated; leave it out");
  const There there(a);
  std::string why;
  if (assume != Assume::general && n > 0) {
    auto made =
        with_backend(context.inside(), there, hint(n), [&]<class B>(terrace::Context<B>& on) {
          auto factor = std::make_unique<CholeskyOn<B>>(context, on, n, a, assume);
          why = factor->why;
          return factor->done ? std::unique_ptr<Factor::Inside>(std::move(factor)) : nullptr;
        });
    if (made) return made;
  }
  auto made = factor_on<LuOn>(context, there, hint(n), n, a, options);
  if (!why.empty()) made->report.warnings.insert(made->report.warnings.begin(), why);
  return made;
}

}  // namespace

std::unique_ptr<Factor::Inside> read_factor(Context& context, const std::string& location,
                                            const Local<const double>& a) {
  const Context::Inside& ranks = context.inside();
  const Control& control = ranks.control;
  ranks.require_alike({{"the location", location}, {"Local::columns of a", a.columns}});
  const terrace::dense::FactorFile file =
      terrace::dense::open_factor(control, io::parse_location(location));
  const Index n = file.factor.rows();
  if (a.columns != 0) require_sizes(ranks, n, a.columns, 0, {});
  const There there(a);
  if (!file.pivots) return factor_on<CholeskyOn>(context, there, hint(n), n, a, file);
  return factor_on<LuOn>(context, there, hint(n), n, a, Options(),
                         std::optional(terrace::dense::stored_factor(control, file)));
}

Factor::Factor(Context& context, std::int64_t n, Local<const double> a, const Options& options)
    : Factor(context, n, a, Assume::general, options) {}
Factor::Factor(Context& context, std::int64_t n, Local<const double> a, Assume assume,
               const Options& options)
    : inside_(at_border([&] { return make_factor(context, n, a, assume, options); })) {}
Factor::Factor(std::unique_ptr<Inside> inside) : inside_(std::move(inside)) {}
Factor::~Factor() = default;
Factor::Factor(Factor&&) noexcept = default;
Factor& Factor::operator=(Factor&&) noexcept = default;
Report Factor::solve(Local<double> b) const {
  return at_border([&] { return inside_->solve(b); });
}
const Report& Factor::report() const { return inside_->report; }
std::string Factor::method() const { return inside_->is_cholesky() ? "cholesky" : "lu"; }
Factor::Inside& Factor::inside() const { return *inside_; }

}  // namespace terrace::api::dense
