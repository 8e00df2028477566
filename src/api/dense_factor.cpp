#include "src/api/dense_factor.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "kernels/base/matrix.hpp"
#include "src/api/dense_work.hpp"
#include "src/dense/factor_file.hpp"

namespace terrace::api::dense {

namespace {

using terrace::dense::RowReader;
using terrace::dense::StoredFactor;

constexpr Index room = 64;  // right-hand sides at once; a check takes as many

/// L and U where the elimination worked, and, for the check, the matrix where the caller had it.
template <class B>
struct FactorOn : Factor::Inside {
  Context ranks;
  terrace::Context<B>& context;
  Index n;
  std::optional<Held<const double, B>> matrix;
  Buffer<double, Cpu> kept;
  Buffer<double, B> kept_there;
  std::optional<Work<B>> work;

  /// `a` of no columns: none. With `stored` factors nothing is eliminated.
  FactorOn(const Context& group, terrace::Context<B>& on, Index order, const Local<const double>& a,
           const Options& options, std::optional<StoredFactor> stored = {})
      : ranks(group), context(on), n(order) {
    const bool given = a.columns > 0 || n == 0, checked = ranks.options().check && given;
    if (given) {
      matrix.emplace(on, n, a, n, "a");
      matrix->require_finite();
    }
    terrace::dense::DenseRequest request = request_of(ranks.inside(), options);
    if (request.emulated)
      fail_together(Exit::usage, "a factor has FP64 only; Options::emulated; leave it out");
    request.factor = true;
    request.room = room;
    if (stored) request.stored = true, request.guard = false;
    const Index most = on.control.reduce(given ? matrix->rows() : 0, Reduce::max);
    work.emplace(ranks.inside(), on, n, request, checked ? 8 * n * most : 0);
    const auto read = [this](bool there) {
      return [this, there](std::span<const Range> ranges, const io::Sink<double>& sink) {
        matrix->read(ranges, sink, there);
      };
    };
    report = work->run(RowReader(read(false), read(true)), {}, true, std::move(stored));
    if (checked)
      keep(a);
    else
      matrix.reset();
  }

  /// Copies the matrix, so that the caller's memory may go.
  void keep(const Local<const double>& a) {
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
    Context::Inside& inside = ranks.inside();
    (void)inside.on<B>();  // the device is ours again
    inside.wait_for_caller(b.where == Where::device);
    const Index columns = inside.control.reduce(b.columns, Reduce::max);
    if (inside.control.reduce(b.columns, Reduce::min) != columns || columns < 0)
      fail_together(Exit::usage,
                    "the ranks have different numbers of right-hand sides; "
                    "Local::columns of b; give the same on all");
    if (inside.options.check && !matrix)
      fail_together(Exit::usage,
                    "the factor does not remember its matrix, to check a solution with; "
                    "Options::check; set it before the factor is made, give the matrix where the "
                    "factor is read, or leave the check out");
    Report now = report;
    now.residual = 0;
    now.seconds = {};
    Held<double, B> all(context, n, b, columns, "b");
    timed(now.seconds.prepare, [&] { all.require_finite(); });
    if (columns > room) {
      solve_in_parts(now, b, all);
    } else if (columns > 0) {
      work->solve_again(now, columns, reader(all), inside.options.check);
      work->give(now, all);
    }
    return now;
  }

  /// b is as it was until all is solved.
  void solve_in_parts(Report& now, const Local<double>& b, const Held<double, B>& all) {
    const Index columns = b.columns, slots = Index(work->system().destination().size());
    std::vector<double> x(std::size_t(slots * columns)), some(std::size_t(slots * room));
    for (Index first = 0; first < columns; first += room) {
      const Index count = std::min(room, columns - first);
      const Local<double> these{b.data ? b.data + first : nullptr, b.rows, count, all.ld(),
                                b.where};
      const Held<double, B> part(context, n, these, count, "b");
      work->solve_again(now, count, reader(part), ranks.options().check);
      work->system().rows()(0, slots, some.data());
      for (Index s = 0; s < slots; ++s)
        std::copy_n(some.begin() + s * count, count, x.begin() + s * columns + first);
    }
    timed(now.seconds.give, [&] {
      all.write(work->system().destination(), [&](Index position, Index count, double* out) {
        std::copy_n(x.begin() + position * columns, count * columns, out);
      });
    });
  }

  void write(io::Output& output, const std::string& name, const std::string& from) override {
    (void)ranks.inside().template on<B>();
    const auto& system = work->system();
    terrace::dense::write_factor(context.control, output, name, system.factor(work->found()),
                                 system.destination(), system.factor_rows().give, from);
  }
};

}  // namespace

std::unique_ptr<Factor::Inside> read_factor(Context& context, const std::string& location,
                                            const Local<const double>& a) {
  const Control& control = context.inside().control;
  const terrace::dense::FactorFile file =
      terrace::dense::open_factor(control, io::parse_location(location));
  if (!file.pivots)
    fail_together(Exit::input, "the factor is Cholesky's; " + location +
                                   "; solve with it by terrace dense solve --factor, or read a "
                                   "factor of LU's");
  const Index n = file.factor.rows();
  const Index most = control.reduce(a.columns, Reduce::max);
  const Index least = control.reduce(a.columns, Reduce::min);
  if (most != 0 || least != 0) require_sizes(n, most == n ? least : most, 0);
  return with_backend(
      context.inside(), a.where == Where::device, hint(n), [&]<class B>(terrace::Context<B>& on) {
        return std::unique_ptr<Factor::Inside>(std::make_unique<FactorOn<B>>(
            context, on, n, a, Options(), terrace::dense::stored_factor(on.control, file)));
      });
}

Factor::Factor(Context& context, std::int64_t n, Local<const double> a, const Options& options)
    : inside_(at_border([&] {
        require_sizes(n, a.columns, 0);
        return with_backend(context.inside(), a.where == Where::device, hint(n),
                            [&]<class B>(terrace::Context<B>& on) {
                              return std::unique_ptr<Inside>(
                                  std::make_unique<FactorOn<B>>(context, on, n, a, options));
                            });
      })) {}
Factor::Factor(std::unique_ptr<Inside> inside) : inside_(std::move(inside)) {}
Factor::~Factor() = default;
Factor::Factor(Factor&&) noexcept = default;
Factor& Factor::operator=(Factor&&) noexcept = default;
Report Factor::solve(Local<double> b) const {
  return at_border([&] { return inside_->solve(b); });
}
const Report& Factor::report() const { return inside_->report; }
Factor::Inside& Factor::inside() const { return *inside_; }

}  // namespace terrace::api::dense
