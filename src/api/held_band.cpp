#include "src/api/held_band.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "distrib/agree.hpp"
#include "io/offender.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::api {

namespace {

constexpr Index tile = 64;  // columns that are turned together

/// to[j * height + d] = from[d * ld + j].
void turn(const double* from, Index ld, Index height, Index columns, double* to) {
  parallel_for(ceil_div(columns, tile), [&](Index t) {
    const Index first = t * tile, end = std::min(columns, first + tile);
    for (Index d = 0; d < height; ++d)
      for (Index j = first; j < end; ++j) to[j * height + d] = from[d * ld + j];
  });
}

/// f(number) for each number outside the matrix of lower columns from `first` on.
template <class F>
void each_outside(Index n, Index height, Index first, Index count, const F& f) {
  for (Index j = std::max<Index>(0, n - height + 1 - first); j < count; ++j)
    for (Index d = std::max<Index>(0, n - first - j); d < height; ++d) f(j * height + d);
}

}  // namespace

template <class B>
HeldBand<B>::HeldBand(terrace::Context<B>& context, Index n, const band::Matrix& a)
    : n_(n), height_(a.half_bandwidth + 1), columns_{a.columns.first, a.columns.count} {
  const Control& control = context.control;
  const bool diagonals = a.layout == band::Matrix::diagonals;
  const Index ld = a.ld != 0 ? a.ld : diagonals ? columns_.count : height_;
  collectively(control, [&] {
    const auto refuse = [](const std::string& what, const char* where) {
      throw terrace::Error(Exit::usage, what + "; in the band matrix; " + where);
    };
    if (n < 0 || a.half_bandwidth < 0)
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
  const bool upper = a.uplo == band::Uplo::upper, on_host = a.where == Where::host;
  for (const Index same : {a.half_bandwidth, Index(upper)})
    if (control.reduce(same, Reduce::min) != control.reduce(same, Reduce::max))
      fail_together(Exit::usage,
                    "the ranks differ in half-bandwidth or uplo; in the band matrix; give "
                    "the same on all");
  const Index count = columns_.count;
  bool direct = !diagonals && !upper && on_host && ld == height_;
  if (direct)
    each_outside(n_, height_, columns_.first, count, [&](Index at) { direct &= a.data[at] == 0; });
  if (!direct) copy(context, a, ld);
  if (upper) from_upper(context);
  if (!direct)
    each_outside(n_, height_, columns_.first, count, [&](Index at) { own_[std::size_t(at)] = 0; });
  hold(context, direct ? a.data : own_.data());
}

/// own_ := the caller's numbers, by columns. Not collective.
template <class B>
void HeldBand<B>::copy(terrace::Context<B>& context, const band::Matrix& a, Index ld) {
  const bool diagonals = a.layout == band::Matrix::diagonals, on_host = a.where == Where::host;
  const Index count = columns_.count;
  own_.resize(std::size_t(count * height_));
  if (count == 0) return;
  std::vector<double> staged;
  const double* data = a.data;
  if (!on_host) {
    const Index rows = diagonals ? height_ : count, width = diagonals ? count : height_;
    staged.resize(std::size_t(rows * width));
    copy_rows<double>(context.ahead, staged.data(), width, a.data, ld, width, rows);
    context.ahead.synchronize();
    data = staged.data(), ld = width;
  }
  if (diagonals) return turn(data, ld, height_, count, own_.data());
  parallel_ranges(count, tile, [&](Index first, Index end) {
    for (Index j = first; j < end; ++j)
      std::copy_n(data + j * ld, height_, own_.data() + j * height_);
  });
}

/// own_ from upper to lower: number d of the lower column j is number m - d of the upper column
/// j + d. Collective.
template <class B>
void HeldBand<B>::from_upper(terrace::Context<B>& context) {
  const Index count = columns_.count;
  const Held<const double, B> columns(
      context, n_,
      Local<const double>{own_.data(), Rows::range(columns_.first, count), height_, height_},
      height_, "ab");
  const Index reach = std::min(n_, columns_.end() + height_ - 1);
  const Range wanted{columns_.first, count > 0 ? reach - columns_.first : 0};
  std::vector<double> upper;
  collectively(context.control, [&] { upper.resize(std::size_t(wanted.count * height_)); });
  columns.read({&wanted, 1}, [&](Index position, Index got, const double* from) {
    std::copy_n(from, got * height_, upper.data() + position * height_);
  });
  parallel_ranges(count, tile, [&](Index first, Index end) {
    for (Index j = first; j < end; ++j)
      for (Index d = 0; d < std::min(height_, wanted.count - j); ++d)
        own_[std::size_t(j * height_ + d)] = upper[std::size_t((j + d + 1) * height_ - 1 - d)];
  });
}

template <class B>
void HeldBand<B>::hold(terrace::Context<B>& context, const double* data) {
  data_ = data;
  held_.emplace(
      context, n_,
      Local<const double>{data, Rows::range(columns_.first, columns_.count), height_, height_},
      height_, "ab");
  require_finite(context.control, data);
}

template <class B>
void HeldBand<B>::keep(terrace::Context<B>& context) {
  if (data_ == own_.data()) return;
  collectively(context.control, [&] { own_.assign(data_, data_ + columns_.count * height_); });
  hold(context, own_.data());
}

template <class B>
void HeldBand<B>::require_finite(const Control& control, const double* data) const {
  io::Offender wrong;
  std::mutex mutex;
  parallel_for(ceil_div(columns_.count, tile), [&](Index t) {
    for (Index j = t * tile; j < std::min(columns_.count, (t + 1) * tile); ++j) {
      const Index column = columns_.first + j, height = std::min(height_, n_ - column);
      for (Index d = 0; d < height; ++d)
        if (const double value = data[j * height_ + d]; !std::isfinite(value)) {
          const std::lock_guard lock(mutex);
          wrong.note(column + d, column, value);
        }
    }
  });
  io::refuse_not_finite(control, wrong, "'ab'");
}

#define TERRACE_HELD_BAND(B) template class HeldBand<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_HELD_BAND)
#undef TERRACE_HELD_BAND

}  // namespace terrace::api
