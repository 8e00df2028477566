#include "src/cg/scale.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "distrib/agree.hpp"
#include "io/copies.hpp"
#include "kernels/base/matrix.hpp"
#include "kernels/base/rows.hpp"
#include "src/cg/columns.hpp"

namespace terrace::cg {

template <class B>
CgScale<B>::CgScale(const Context<B>& context, int power, const CgRows<const double>& b,
                    const CgRows<double>& x, bool given, std::vector<CgColumn>& columns)
    : context_(context), width_(columns.size()) {
  b_most_ = largest_given(b.data, b.size, b.there);
  const std::vector<double> x_most =
      given ? largest_given(x.data, x.size, x.there) : std::vector<double>(width_, 0.0);
  for (std::size_t v = 0; v < width_; ++v) {
    CgColumn& column = columns[v];
    if (b_most_[v] == 0) {  // the solution is zero
      column.finish(CgReason::rtol);
    } else if (!cg_finite(b_most_[v]) || !cg_finite(x_most[v])) {
      column.finish(CgReason::nan_or_inf);
    } else {
      column.shift = std::ilogb(b_most_[v]);
      if (x_most[v] > 0) x_is_zero_ = false;
      if (!cg_finite(std::ldexp(x_most[v], power - column.shift))) {
        column.finish(CgReason::nan_or_inf);  // A x0 is that much larger than b
        column.result.true_residual = column.result.initial_residual =
            std::numeric_limits<double>::infinity();
      }
    }
    b_down_.push_back(-column.shift);
    x_down_.push_back(power - column.shift);
    x_up_.push_back(-x_down_.back());
    open_.push_back(!column.done);
    told_.push_back(!column.done || b_most_[v] == 0);
  }
}

template <class B>
std::vector<double> CgScale<B>::largest_given(const double* rows, Index size, bool there) const {
  return there ? largest({rows, size})
               : largest_of_columns(context_.control, {rows, std::size_t(size)}, Index(width_));
}

/// Whether what goes up and down goes as it is, and is scaled on the backend: one column, and on a
/// GPU any number of columns, all of them chosen.
template <class B>
bool CgScale<B>::scaled_there(const std::vector<int>& power,
                              const std::vector<bool>& chosen) const {
  if (width_ == 1) return open_[0] && std::abs(power[0]) <= 1000;
  return !std::is_same_v<B, Cpu> &&
         std::all_of(chosen.begin(), chosen.end(), [](bool taken) { return taken; });
}
template <class B>
void CgScale<B>::scale_there(View<double, B> block, const std::vector<int>& power) const {
  if (width_ == 1) return multiply_by_power<B>(context_, block, power[0]);
  const Index width = Index(width_);
  if (std::all_of(power.begin(), power.end(), [](int p) { return p == 0; })) return;
  const std::vector<Index> powers(power.begin(), power.end());
  const Buffer<Index, B> of_columns(width);
  upload(context_.ahead, of_columns.view(), powers.data());
  terrace::scale_columns<B>(context_.ahead, block.size / width, of_columns, block, width);
  context_.ahead.synchronize();
}

template <class B>
void CgScale<B>::load(const CgRows<const double>& from, const std::vector<int>& power,
                      const std::vector<bool>& chosen, View<double, B> to) {
  const bool there = scaled_there(power, chosen);
  if (!there) {
    std::vector<double> down;
    if (from.there) {
      down.resize(std::size_t(from.size));
      download(context_.ahead, down.data(), View<const double, B>{from.data, from.size});
      context_.ahead.synchronize();
    }
    host_.assign(std::size_t(from.size), 0.0);
    scale_columns(from.there ? std::span<const double>(down) : from.on_host(), power, open_, host_);
  }
  const io::Copies how = from.there ? io::Copies() : io::Copies::of<B>(8 * to.size);
  collectively(context_.control, [&] {
    io::upload_plain<double, B>(context_.ahead, to, there ? from.data : host_.data(), how);
  });
  if (there) scale_there(to, power);
}

template <class B>
void CgScale<B>::store(View<double, B> from, const CgRows<double>& x) {
  const bool there = scaled_there(x_up_, told_);
  if (there) scale_there(from, x_up_);
  if (!there) host_.resize(std::size_t(x.size));
  const io::Copies how = x.there ? io::Copies() : io::Copies::of<B>(8 * from.size);
  collectively(context_.control, [&] {
    io::download_plain<double, B>(context_.ahead, there ? x.data : host_.data(), from, how);
  });
  if (there) return;
  if (!x.there) return scale_columns(host_, x_up_, told_, x.on_host());
  const View<double, B> result{x.data, x.size};
  std::vector<double> told(static_cast<std::size_t>(x.size));
  download(context_.ahead, told.data(), View<const double, B>(result));
  context_.ahead.synchronize();
  scale_columns(host_, x_up_, told_, told);
  upload(context_.ahead, result, static_cast<const double*>(told.data()));
  context_.ahead.synchronize();
}

template <class B>
void CgScale<B>::store_zeros(const CgRows<double>& x) const {
  const Index width = Index(width_);
  const Stream<Cpu> host;
  for (Index v = 0; v < width; ++v) {
    if (b_most_[std::size_t(v)] != 0) continue;
    if (x.there)
      clear_columns(context_.ahead, x.size / width, 1, x.data + v, width);
    else
      clear_columns(host, x.size / width, 1, x.data + v, width);
  }
  context_.ahead.synchronize();
  host.synchronize();
}

template <class B>
std::vector<double> CgScale<B>::largest(View<const double, B> block) const {
  const Stream<B>& lane = context_.ahead;
  if (width_ == 1)
    return {context_.control.reduce(
        max_abs<B>(lane, 1, block.size, block, std::max<Index>(1, block.size)), Reduce::max)};
  const Index width = Index(width_);
  std::vector<double> most =
      terrace::largest_of_columns<B>(lane, block.size / width, width, block, width);
  context_.control.reduce(most, Reduce::max);
  return most;
}

template <class B>
bool CgScale<B>::near_an_end(const std::vector<double>& x_most) const {
  for (std::size_t v = 0; v < width_; ++v)
    if (open_[v] && x_most[v] > 0 && cg_finite(x_most[v])) {
      const int top = std::ilogb(x_most[v]) + x_up_[v];
      if (top < -500 || top > 1000) return true;
    }
  return false;
}

template <class B>
typename CgScale<B>::Rounded CgScale<B>::rounded(const std::vector<double>& x) const {
  std::vector<double> there(x.size(), 0.0);
  Rounded result{std::vector<double>(x.size(), 0.0), std::vector<double>(width_, 0.0)};
  scale_columns(x, x_up_, open_, there);
  scale_columns(there, x_down_, open_, result.x);
  for (std::size_t i = 0; i < x.size(); ++i)
    if (open_[i % width_] && result.x[i] != x[i]) {
      double& how = result.lost[i % width_];
      how = std::max(how, cg_finite(there[i]) ? 1.0 : 2.0);
      if (!cg_finite(there[i])) result.x[i] = 0;
    }
  context_.control.reduce(result.lost, Reduce::max);
  return result;
}

template <class B>
bool CgScale<B>::Rounded::any() const {
  return *std::max_element(lost.begin(), lost.end()) > 0;
}

#define TERRACE_INSTANTIATE(B) template class CgScale<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::cg
