#include "src/api/terrace/band.hpp"

#include <fmt/core.h>

#include <cmath>
#include <limits>

#include "kernels/base/random.hpp"
#include "src/api/band_work.hpp"
#include "src/api/factor_head.hpp"
#include "src/api/held_band.hpp"

namespace terrace::api::band {

namespace {

using terrace::band::BandSystem;

// Work from which a GPU gains, as n m^2 flops; below it CUDA's start alone takes longer.
constexpr double least_flops = 1e9;

BackendHint hint(Index n, Index half_bandwidth) {
  return {std::cbrt(double(n) * double(half_bandwidth + 1) * double(half_bandwidth + 1)),
          std::cbrt(least_flops)};
}

/// `right`: looked at once the matrix is read, where both are noted in one word.
template <class B>
BandSystem system_of(HeldBand<B>& a, const Context::Inside& ranks, Reading& how,
                     Held<double, B>* right = nullptr) {
  BandSystem system;
  system.matrix = {a.n(), a.height() - 1,
                   [&a, &how](std::span<const Range> ranges, const io::Sink<double>& sink) {
                     a.read(ranges, sink, how.there);
                   }};
  system.matrix.here = [&a, &how] { return how.there ? a.here() : terrace::band::BandHere{}; };
  how.done = [&a, right] {
    if (!a.require_placed_finite() && right) right->require_finite();
  };
  system.folder = std::string(1, '.');
  system.guard = ranks.options.guard;
  return system;
}

template <class B>
terrace::band::ReadRanges reader(const Held<double, B>& b) {
  return
      [&b](std::span<const Range> ranges, const io::Sink<double>& sink) { b.read(ranges, sink); };
}

void require_rhs(Index columns) {
  if (columns < 1)
    fail_together(Exit::usage, "no right-hand side; Local::columns of b; give at least one");
}

}  // namespace

Report solve(Context& context, std::int64_t n, const Matrix& a, Local<double> b,
             const Options& options) {
  return at_border([&] {
    Context::Inside& ranks = context.inside();
    require_alike(ranks, n, a,
                  {{"Local::columns of b", b.columns},
                   {"band::Options::method", options.method},
                   {"band::Options::mixed", options.mixed}});
    require_rhs(b.columns);
    return with_backend(
        ranks, There(a, b), hint(n, a.half_bandwidth), [&]<class B>(terrace::Context<B>& on) {
          double prepare = 0;
          HeldBand<B> matrix = timed(prepare, [&] { return HeldBand<B>(on, n, a, true); });
          Held<double, B> right(on, n, b, b.columns, "b");
          if (!right.note_not_finite(matrix.not_finite())) right.require_finite();
          Reading how;
          BandSystem system = system_of(matrix, ranks, how, &right);
          system.rhs = reader(right);
          system.rhs_at = right.whole();
          Work<B> work(ranks, on, std::move(system), how, b.columns, options, false);
          work.report.seconds.prepare = prepare;
          work.solve();
          work.check();
          work.give(right, b.columns);
          return work.report;
        });
  });
}

/// Made for one backend, which its solves use too.
struct Factor::Inside {
  virtual ~Inside() = default;
  virtual Report solve(Local<double> b) = 0;
  [[nodiscard]] virtual Matrix view() const = 0;
  Report report;
};

namespace {

/// LAPACK's factor of this rank's columns, m + 1 numbers each, in host memory or on the device.
template <class B>
struct LapackFactor {
  std::vector<double> l;
  Buffer<double, B> there;

  [[nodiscard]] const double* data() const { return there.size() > 0 ? there.data() : l.data(); }
  [[nodiscard]] Where where() const { return there.size() > 0 ? Where::device : Where::host; }
  /// What `work` has found.
  void take(const HeldBand<B>& matrix, Work<B>& work, bool on_device) {
    const Index height = matrix.height(), size = matrix.columns().count * height;
    collectively(work.context.control, [&] {
      if (on_device)
        there = Buffer<double, B>(size);
      else
        l.resize(std::size_t(size));
    });
    std::vector<Index> places;
    for (const Range& range : work.done->ranges)
      for (Index i = 0; i < range.count; ++i) places.push_back(range.first + i);
    const auto columns = [&](Index position, Index count, double* out) {
      if (on_device)
        fill_zero(work.context.ahead, View<double, B>{out, count * height});
      else
        std::fill_n(out, count * height, 0.0);
      work.done->copy_factor(position, count, height, out);
    };
    held(work.context, matrix, on_device ? there.data() : l.data())
        .write(places, columns, on_device);
  }
  template <class T>
  [[nodiscard]] Held<T, B> held(terrace::Context<B>& context, const HeldBand<B>& matrix,
                                T* data) const {
    const Index height = matrix.height();
    const Range own = matrix.columns();
    return {context, matrix.n(),
            Local<T>{data, Rows::range(own.first, own.count), height, height, where()}, height,
            "factor"};
  }
  void download_all(const Stream<B>& lane) {
    if (!l.empty() || there.size() == 0) return;
    l.resize(std::size_t(there.size()));
    download(lane, l.data(), there.view());
    lane.synchronize();
  }
};

/// The factor stays where it was made, in parts, say, if memory has room for it and for the matrix,
/// of which view() makes LAPACK's factor. Otherwise the latter is kept, and each solve reads it
/// again: on the device where the matrix is there and in its memory, else on the host.
template <class B>
struct FactorOn : FactorHead<Factor::Inside, B> {
  using Outside = Factor::Inside;
  using Head = FactorHead<Factor::Inside, B>;
  using Head::context, Head::ranks, Head::report;
  mutable HeldBand<B> matrix;
  mutable Reading how;
  std::unique_ptr<Work<B>> stays;
  mutable LapackFactor<B> lapack;
  mutable bool seen = false;  // of a factor that stays
  bool checked;

  FactorOn(const Context& group, terrace::Context<B>& on, Index n, const Matrix& a,
           const Options& wanted)
      : Head(group, on), matrix(on, n, a, true), checked(group.inside().options.check) {
    auto work = for_factor(wanted);
    work->stays = true;
    const Index given = a.where == Where::device ? matrix.columns().count * matrix.height() : 0;
    work->keeps = on.control.reduce(8 * given, Reduce::max);
    work->solve();
    if (work->stays) {
      matrix.keep();
      stays = std::move(work);
      report = stays->report;
      if (checked) check();
      return;
    }
    work->check();
    report = work->report;
    lapack.take(matrix, *work,
                a.where == Where::device && how.there && matrix.columns().count > 0 &&
                    (context.size() == 1 || matrix.on_device()));
    if (checked)
      matrix.keep();
    else
      matrix.forget();
  }
  [[nodiscard]] std::unique_ptr<Work<B>> for_factor(const Options& wanted) const {
    Context::Inside& inside = ranks.inside();
    return std::make_unique<Work<B>>(inside, context, system_of(matrix, inside, how), how, 0,
                                     wanted, false);
  }
  /// Of a factor that stays.
  void check() {
    stays->solve_again(probe, nullptr, 1);
    stays->check();
    const Report& found = stays->report;
    report.residual = found.residual;
    report.reciprocal_condition = found.reciprocal_condition;
    report.seconds.check = found.seconds.solve + found.seconds.check;
    report.warnings.insert(report.warnings.end(), found.warnings.begin(), found.warnings.end());
  }
  static void probe(std::span<const Range> ranges, const io::Sink<double>& sink) {
    Index at = 0;
    for (const Range& range : ranges) {
      std::vector<double> b(std::size_t(range.count));
      for (Index i = 0; i < range.count; ++i)
        b[std::size_t(i)] = random_uniform(1, range.first + i, 0);
      sink(at, range.count, b.data());
      at += range.count;
    }
  }
  Report solve(Local<double> b) override {
    Context::Inside& inside = Head::begin(b, checked);
    require_rhs(b.columns);
    Held<double, B> right(context, matrix.n(), b, b.columns, "b");
    right.require_finite();
    if (stays) {
      stays->solve_again(reader(right), right.whole(), b.columns);
      stays->check();
      stays->give(right, b.columns);
      return stays->report;
    }
    const Held<const double, B> factor = lapack.held(context, matrix, lapack.data());
    Reading again;
    BandSystem system = system_of(matrix, inside, again);
    system.rhs = reader(right);
    system.rhs_at = right.whole();
    system.factor = {matrix.n(), matrix.height() - 1,
                     [&](std::span<const Range> ranges, const io::Sink<double>& sink) {
                       factor.read(ranges, sink, again.there);
                     }};
    Work<B> work(inside, context, std::move(system), again, b.columns, {}, true);
    work.solve();
    work.check();
    work.give(right, b.columns);
    return work.report;
  }
  [[nodiscard]] Matrix view() const override {
    (void)Head::on();
    if (stays && !seen) {
      const bool is_lapack = stays->done->plan.method == terrace::band::BandMethod::tile_columns;
      const auto work = is_lapack ? nullptr : for_factor({});
      if (work) work->solve();
      lapack.take(matrix, work ? *work : *stays, false);
      seen = true;
    }
    lapack.download_all(context.ahead);
    const Range own = matrix.columns();
    return {lapack.l.data(),    matrix.height() - 1, Rows::range(own.first, own.count),
            Matrix::by_columns, Uplo::lower,         matrix.height(),
            Where::host};
  }
};

}  // namespace

Factor::Factor(Context& context, std::int64_t n, const Matrix& a, const Options& options)
    : inside_(at_border([&] {
        require_alike(
            context.inside(), n, a,
            {{"band::Options::method", options.method}, {"band::Options::mixed", options.mixed}});
        return factor_on<FactorOn>(context, There(a), hint(n, a.half_bandwidth), n, a, options);
      })) {}
Factor::~Factor() = default;
Factor::Factor(Factor&&) noexcept = default;
Factor& Factor::operator=(Factor&&) noexcept = default;
Report Factor::solve(Local<double> b) const {
  return at_border([&] { return inside_->solve(b); });
}
const Report& Factor::report() const { return inside_->report; }
Matrix Factor::view() const {
  return at_border([&] { return inside_->view(); });
}

}  // namespace terrace::api::band
