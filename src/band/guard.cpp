#include "src/band/guard.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/base/matrix.hpp"
#include "src/frame/guard.hpp"

namespace terrace::band {
namespace {

/// Own tile columns of a launch: on the CPU each is weighed while it lies in the cache.
template <class B>
constexpr Index at_once = std::is_same_v<B, Cuda> ? 8 : 1;

}  // namespace

template <class B>
BandGuard<B>::BandGuard(Context<B>& context, const BandShape& shape)
    : c_(context),
      s_(shape),
      length_(shape.padded() + shape.reach),
      interval_(std::clamp<Index>(shape.tiles() / 32, 4, 64)),
      w_(length_),
      given_(length_),
      sum_(length_),
      t_(length_),
      size_(length_),
      t_size_(length_),
      bad_(1),
      bad_host_(1),
      lane_(context.bulk) {}

template <class B>
Index BandGuard<B>::bytes(const BandShape& s) {
  return 6 * (s.padded() + s.reach) * Index(sizeof(double)) + 8;
}

template <class B>
GuardTiles<B> BandGuard<B>::tiles(const BandTiles<B>& a, Index first, Index count) const {
  BandShape all = s_;  // substitution reads what is stored beyond the band, too
  all.half_bandwidth = s_.reach;
  return {all, a.data.data() + first * s_.tile(), first * c_.size() + c_.rank(), c_.size(), count};
}

template <class B>
void BandGuard<B>::begin(const BandTiles<B>& a) {
  const Index own = a.columns.slots(c_.rank());
  lane_.wait(c_.ahead.record());
  fill_zero(lane_, w_.view());
  draw_weights(lane_, tiles(a, 0, own / s_.width), w_.data());
  if (c_.size() > 1) {
    c_.ahead.wait(lane_.record());
    c_.comm.all_reduce(c_.ahead, Reduce::sum, w_.view());
    lane_.wait(c_.ahead.record());
  }
  const double most = max_abs<B>(lane_, 1, length_, w_.view(), length_);
  const double m = double(s_.half_bandwidth) + 2;
  least_ = std::ldexp(2 * m * m * most, -1074);  // what underflow may lose
  fill_zero(lane_, given_.view());
  const double* const weights = w_.data();
  weigh_band(lane_, tiles(a, 0, own / s_.width), 1, 1.0,
             {weights, given_.data(), nullptr, weights, nullptr, given_.data(), nullptr});
  copy<double, B>(lane_, sum_, given_);
  fill_zero(lane_, t_.view());
  lane_.synchronize();
  waiting_ = from_ = last_ = end_ = checked_ = seen_ = due_ = 0;
  pending_ = sizes_ = false;
}

template <class B>
void BandGuard<B>::flush(const BandTiles<B>& a) {
  if (waiting_ > 0)
    weigh_band(lane_, tiles(a, from_ - waiting_, waiting_), 0, -1.0,
               {w_.data(), t_.data(), sizes_ ? t_size_.data() : nullptr, t_.data(), t_size_.data(),
                sum_.data(), sizes_ ? size_.data() : nullptr});
  waiting_ = 0;
}

template <class B>
void BandGuard<B>::resume(const BandTiles<B>& a, Index k) {
  waiting_ = from_ = a.columns.slots_before(k * s_.width, c_.rank()) / s_.width;
  checked_ = seen_ = k;
  flush(a);
}

template <class B>
void BandGuard<B>::take(const BandTiles<B>& a, Index k) {
  from_ = a.columns.slot(k * s_.width) / s_.width + 1;
  ++waiting_;
}

template <class B>
void BandGuard<B>::step(const BandTiles<B>& a, Index k, Index good) {
  if (waiting_ >= at_once<B>) flush(a);
  flip_for_tests(c_.bulk, c_.rank(), k + 1, a.data.data(), 8 * a.data.size());
  if (k + 1 - checked_ < interval_ || k + 1 == s_.tiles()) return;
  look();
  check(a, std::max(last_, good * s_.width - s_.reach), k + 1);
}

template <class B>
void BandGuard<B>::check(const BandTiles<B>& a, Index to, Index steps) {
  checked_ = due_ = steps;
  lane_.wait(c_.ahead.record());
  flush(a);
  if (to <= last_) return;
  if (c_.size() > 1) {
    c_.ahead.wait(lane_.record());
    c_.comm.all_reduce(c_.ahead, Reduce::sum, sum_.view().slice(last_, to - last_));
    if (sizes_) c_.comm.all_reduce(c_.ahead, Reduce::sum, size_.view().slice(last_, to - last_));
    lane_.wait(c_.ahead.record());
  }
  const double m = double(s_.half_bandwidth + 16), unit = 0x1.0p-53;
  judge_band_rows(lane_, last_, to, w_.data(), sum_.data(), sizes_ ? size_.data() : nullptr,
                  unit * (sizes_ ? 8 * m : 16 * m * std::sqrt(m)), least_, bad_.data());
  download(lane_, bad_host_.data(), View<const Index, B>(bad_));
  known_ = lane_.record();
  pending_ = true;
  last_ = end_ = to;
}

template <class B>
void BandGuard<B>::look() {
  if (!pending_) return;
  known_.synchronize();
  pending_ = false;
  if (bad_host_[0] < end_) {
    // A wrong entry's column is the first row that it changes.
    const int owner = int(bad_host_[0] / s_.width % c_.size());
    if (owner == c_.rank()) memory_error(owner, seen_, due_);
    c_.control.barrier();  // until that rank has ended the job
  }
  seen_ = due_;
}

template <class B>
void BandGuard<B>::finish(const BandTiles<B>& a) {
  look();
  check(a, s_.padded(), s_.tiles());
  look();
}

template <class B>
void BandGuard<B>::verify(const BandTiles<B>& l) {
  lane_.wait(c_.ahead.record());
  copy<double, B>(lane_, sum_, given_);
  fill_zero(lane_, size_.view());  // of L L^T; |A| is at most that
  fill_zero(lane_, t_.view());
  fill_zero(lane_, t_size_.view());
  sizes_ = true;
  resume(l, s_.tiles());
  last_ = seen_ = 0;
  finish(l);
  sizes_ = false;
}

template <class B>
void BandGuard<B>::flip_after(const BandTiles<B>& l) const {
  flip_for_tests(c_.ahead, c_.rank(), s_.tiles() + 1, l.data.data(), 8 * l.data.size());
}

#define TERRACE_INSTANTIATE(B) template class BandGuard<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::band
