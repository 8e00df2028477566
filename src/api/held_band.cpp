#include "src/api/held_band.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <utility>

#include "distrib/agree.hpp"
#include "io/offender.hpp"
#include "kernels/base/matrix.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::api {

namespace {

constexpr Index tile = 64;  // columns that are turned together

/// f(number) for each number outside the matrix of lower columns from `first` on.
template <class F>
void each_outside(Index n, Index height, Index first, Index count, const F& f) {
  for (Index j = std::max<Index>(0, n - height + 1 - first); j < count; ++j)
    for (Index d = std::max<Index>(0, n - first - j); d < height; ++d) f(j * height + d);
}

/// Where the lower columns stand; of an upper form where they have no more than this rank's columns.
terrace::band::BandForm form_of(const band::Matrix& a, Index ld) {
  const Index m = a.half_bandwidth;
  const bool diagonals = a.layout == band::Matrix::diagonals;
  if (a.uplo == band::Uplo::lower) return {a.data, diagonals ? 1 : ld, diagonals ? ld : 1};
  return diagonals ? terrace::band::BandForm{a.data + m * ld, 1, 1 - ld}
                   : terrace::band::BandForm{a.data + m, ld, ld - 1};
}

}  // namespace

void require_alike(const Context::Inside& ranks, Index n, const band::Matrix& a,
                   std::vector<Alike> others) {
  others.insert(others.end(), {{"n", n}, {"half_bandwidth", a.half_bandwidth}, {"uplo", a.uplo}});
  ranks.require_alike(std::move(others));
}

template <class B>
void HeldBand<B>::require_fitting(const Control& control, const band::Matrix& a, Index ld) const {
  const bool diagonals = a.layout == band::Matrix::diagonals;
  collectively(control, [&] {
    const auto refuse = [](const std::string& what, const char* where) {
      throw terrace::Error(Exit::usage, what + "; in the band matrix; " + where);
    };
    if (n_ < 0 || a.half_bandwidth < 0)
      refuse("a negative size", "give n and half_bandwidth from 0 on");
    if (a.columns.block != 0) refuse("columns dealt in blocks", "give a range of columns");
    if (ld < (diagonals ? columns_.count : height_))
      refuse(fmt::format("the leading dimension {} is too small", ld),
             "give at least as much as lies "
             "side by side");
    if (!a.data && columns_.count > 0) refuse("a null pointer", "give the columns' memory");
    if (std::is_same_v<B, Cpu> && a.where == Where::device && columns_.count > 0)
      refuse("it lies on a device, and the CPU backend works", "leave Options::backend automatic");
  });
  (void)Holders(control, n_, a.columns, "ab");
}

template <class B>
HeldBand<B>::HeldBand(terrace::Context<B>& context, Index n, const band::Matrix& a, bool lent)
    : context_(&context),
      n_(n),
      height_(a.half_bandwidth + 1),
      given_(a),
      columns_{a.columns.first, a.columns.count} {
  if (given_.ld == 0) given_.ld = a.layout == band::Matrix::diagonals ? columns_.count : height_;
  require_fitting(context.control, a, given_.ld);
  lent_ = lent && context.size() == 1 && (a.where == Where::host) == std::is_same_v<B, Cpu>;
  if (!lent_) {
    take(a.uplo == band::Uplo::upper && context.size() > 1);
    return;
  }
  not_finite_ = Buffer<Index, B>(1);
  fill_zero(context.ahead, not_finite_.view());
}

template <class B>
terrace::band::BandHere HeldBand<B>::here() const {
  if (!lent_) return {};
  return {form_of(given_, given_.ld), not_finite_.data()};
}

template <class B>
bool HeldBand<B>::require_placed_finite() {
  if (not_finite_.size() == 0) return true;
  Index seen = 0;
  download(context_->ahead, &seen, not_finite_.view());
  context_->ahead.synchronize();
  if (seen != 0) own();
  return seen == 0;
}

template <class B>
void HeldBand<B>::own() {
  if (std::exchange(lent_, false)) take(false);
}

/// `across`: columns of the next ranks' are needed.
template <class B>
void HeldBand<B>::take(bool across) {
  const bool on_host = given_.where == Where::host;
  bool direct = given_.layout == band::Matrix::by_columns && given_.uplo == band::Uplo::lower &&
                on_host && given_.ld == height_;
  if (direct)
    each_outside(n_, height_, columns_.first, columns_.count,
                 [&](Index at) { direct &= given_.data[at] == 0; });
  const bool there = !on_host && !across && columns_.count > 0;
  collectively(context_->control, [&] {
    if (there)
      copy_on_device();
    else if (!direct)
      copy(across);
  });
  if (across) from_upper();
  const double* const own = there ? own_there_.data() : own_.data();
  hold(direct ? given_.data : own, there ? Where::device : Where::host);
}

/// own_there_ := the caller's numbers, by columns.
template <class B>
void HeldBand<B>::copy_on_device() {
  own_there_ = Buffer<double, B>(columns_.count * height_);
  const terrace::band::BandRun run{form_of(given_, given_.ld), n_ - columns_.first, columns_.count,
                                   own_there_.data()};
  terrace::band::lower_columns(context_->ahead, {&run, 1}, height_, height_);
  context_->ahead.synchronize();
}

/// own_ := the caller's numbers, by columns. `as_it_is`: an upper form stays one.
template <class B>
void HeldBand<B>::copy(bool as_it_is) {
  const Index count = columns_.count;
  const bool diagonals = given_.layout == band::Matrix::diagonals;
  own_ = Buffer<double, Cpu>(count * height_);
  band::Matrix from = given_;
  std::vector<double> staged;
  if (from.where == Where::device && count > 0) {
    const Index rows = diagonals ? height_ : count, width = diagonals ? count : height_;
    staged.resize(std::size_t(rows * width));
    note_staged(8 * rows * width);
    copy_rows<double>(context_->ahead, staged.data(), width, from.data, from.ld, width, rows);
    context_->ahead.synchronize();
    from.data = staged.data(), from.ld = width;
  }
  if (as_it_is) from.uplo = band::Uplo::lower;
  // Nothing of a form as it is is outside.
  const Index rows = as_it_is ? count + height_ : n_ - columns_.first;
  const terrace::band::BandRun run{form_of(from, from.ld), rows, count, own_.data()};
  const Stream<Cpu> lane;
  terrace::band::lower_columns(lane, {&run, 1}, height_, height_);
  lane.synchronize();
}

/// own_ from upper to lower: number d of the lower column j is number m - d of the upper column
/// j + d. Collective.
template <class B>
void HeldBand<B>::from_upper() {
  const Index count = columns_.count;
  const Held<const double, B> columns(
      *context_, n_,
      Local<const double>{own_.data(), Rows::range(columns_.first, count), height_, height_},
      height_, "ab");
  const Index reach = std::min(n_, columns_.end() + height_ - 1);
  const Range wanted{columns_.first, count > 0 ? reach - columns_.first : 0};
  std::vector<double> upper;
  collectively(context_->control, [&] { upper.resize(std::size_t(wanted.count * height_)); });
  columns.read({&wanted, 1}, [&](Index position, Index got, const double* from) {
    std::copy_n(from, got * height_, upper.data() + position * height_);
  });
  parallel_ranges(count, tile, [&](Index first, Index end) {
    for (Index j = first; j < end; ++j)
      for (Index d = 0; d < height_; ++d)
        own_.data()[j * height_ + d] =
            d < wanted.count - j ? upper[std::size_t((j + d + 1) * height_ - 1 - d)] : 0.0;
  });
}

template <class B>
void HeldBand<B>::hold(const double* data, Where where) {
  data_ = data;
  held_.emplace(*context_, n_,
                Local<const double>{data, Rows::range(columns_.first, columns_.count), height_,
                                    height_, where},
                height_, "ab");
  require_finite();
}

template <class B>
void HeldBand<B>::keep() {
  own();
  // Some ranks may have given an array that is used where it lies, and others not.
  const bool copies = !on_device() && data_ != own_.data();
  const Control& control = context_->control;
  if (control.reduce(Index(copies), Reduce::max) == 0) return;
  collectively(control, [&] {
    if (!copies) return;
    const Index size = columns_.count * height_;
    own_ = Buffer<double, Cpu>(size);
    std::copy_n(data_, size, own_.data());
    data_ = own_.data();
  });
  hold(data_, on_device() ? Where::device : Where::host);
}

template <class B>
void HeldBand<B>::forget() {
  lent_ = false;
  held_.reset();
  own_ = Buffer<double, Cpu>();
  own_there_ = Buffer<double, B>();
}

template <class B>
void HeldBand<B>::require_finite() const {
  io::Offender wrong;
  std::mutex mutex;
  const double* data = data_;
  std::vector<double> down;
  Index count = columns_.count;
  if (on_device()) {  // what is outside the matrix is zero
    const View<const double, B> all{data_, count * height_};
    if (std::isfinite(max_abs<B>(context_->ahead, count, height_, all, height_))) {
      count = 0;
    } else {
      down.resize(std::size_t(count * height_));
      download(context_->ahead, down.data(), all);
      context_->ahead.synchronize();
      data = down.data();
    }
  }
  parallel_for(ceil_div(count, tile), [&](Index t) {
    for (Index j = t * tile; j < std::min(count, (t + 1) * tile); ++j) {
      const Index column = columns_.first + j, height = std::min(height_, n_ - column);
      if (all_finite(data + j * height_, height)) continue;
      for (Index d = 0; d < height; ++d)
        if (const double value = data[j * height_ + d]; !std::isfinite(value)) {
          const std::lock_guard lock(mutex);
          wrong.note(column + d, column, value);
        }
    }
  });
  io::refuse_not_finite(context_->control, wrong, "'ab'");
}

#define TERRACE_HELD_BAND(B) template class HeldBand<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_HELD_BAND)
#undef TERRACE_HELD_BAND

}  // namespace terrace::api
