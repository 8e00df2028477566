#include "src/api/terrace/band.hpp"

#include <fmt/core.h>

#include <cmath>
#include <limits>

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

/// On the device where the matrix is there and in its memory, else on the host.
template <class B>
struct FactorOn : FactorHead<Factor::Inside, B> {
  using Outside = Factor::Inside;
  using Head = FactorHead<Factor::Inside, B>;
  using Head::context, Head::ranks, Head::report;
  HeldBand<B> matrix;
  mutable std::vector<double> l;  // this rank's columns, m + 1 numbers each
  Buffer<double, B> l_there;
  bool checked;

  FactorOn(const Context& group, terrace::Context<B>& on, Index n, const Matrix& a,
           const Options& wanted)
      : Head(group, on), matrix(on, n, a, true), checked(group.inside().options.check) {
    const Index height = matrix.height(), size = matrix.columns().count * height;
    Reading how;
    Work<B> work(ranks.inside(), on, system_of(matrix, ranks.inside(), how), how, 0, wanted, false);
    work.solve();
    work.check();
    report = work.report;
    const bool there = a.where == Where::device && how.there && matrix.columns().count > 0 &&
                       (context.size() == 1 || matrix.on_device());
    collectively(on.control, [&] {
      if (there)
        l_there = Buffer<double, B>(size);
      else
        l.resize(std::size_t(size));
    });
    std::vector<Index> places;
    for (const Range& range : work.done->ranges)
      for (Index i = 0; i < range.count; ++i) places.push_back(range.first + i);
    const auto columns = [&](Index position, Index count, double* out) {
      if (there)
        fill_zero(on.ahead, View<double, B>{out, count * height});
      else
        std::fill_n(out, count * height, 0.0);
      work.done->copy_factor(position, count, height, out);
    };
    held(there ? l_there.data() : l.data()).write(places, columns, there);
    if (checked)
      matrix.keep();
    else
      matrix.forget();
  }
  template <class T>
  [[nodiscard]] Held<T, B> held(T* data) const {
    const Index height = matrix.height();
    const Range own = matrix.columns();
    return {context, matrix.n(),
            Local<T>{data, Rows::range(own.first, own.count), height, height,
                     l_there.size() > 0 ? Where::device : Where::host},
            height, "factor"};
  }
  Report solve(Local<double> b) override {
    Context::Inside& inside = Head::begin(b, checked);
    require_rhs(b.columns);
    const Index n = matrix.n(), height = matrix.height();
    const Held<const double, B> factor =
        held<const double>(l_there.size() > 0 ? l_there.data() : l.data());
    Held<double, B> right(context, n, b, b.columns, "b");
    right.require_finite();
    Reading how;
    BandSystem system = system_of(matrix, inside, how);
    system.rhs = reader(right);
    system.rhs_at = right.whole();
    system.factor = {n, height - 1,
                     [&](std::span<const Range> ranges, const io::Sink<double>& sink) {
                       factor.read(ranges, sink, how.there);
                     }};
    Work<B> work(inside, context, std::move(system), how, b.columns, {}, true);
    work.solve();
    work.check();
    work.give(right, b.columns);
    return work.report;
  }
  [[nodiscard]] Matrix view() const override {
    if (l.empty() && l_there.size() > 0) {
      (void)Head::on();
      l.resize(std::size_t(l_there.size()));
      download(context.ahead, l.data(), l_there.view());
      context.ahead.synchronize();
    }
    const Range own = matrix.columns();
    return {l.data(),           matrix.height() - 1, Rows::range(own.first, own.count),
            Matrix::by_columns, Uplo::lower,         matrix.height(),
            Where::host};
  }
};

}  // namespace

Factor::Factor(Context& context, std::int64_t n, const Matrix& a, const Options& options)
    : inside_(at_border([&] {
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
