#include "src/band_guard.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/random.hpp"
#include "src/guard.hpp"

namespace terrace {
namespace {

/// Own tile columns of a launch: on the CPU each is weighed while it lies in the cache.
constexpr Index at_once(Cpu) { return 1; }
constexpr Index at_once(Cuda) { return 8; }

/// About 1 / sqrt(diagonal), with a random sign.
double weight(double diagonal, Index j) {
  int exponent = 0;
  if (diagonal > 0 && std::isfinite(diagonal)) (void)std::frexp(diagonal, &exponent);
  const double u = random_uniform(0xba9d, j, 5);
  return std::ldexp(u < 0 ? -0.5 + 0.5 * u : 0.5 + 0.5 * u, -(exponent / 2));
}

}  // namespace

template <class B>
BandGuard<B>::BandGuard(Context<B>& context, const BandShape& shape)
    : c_(context),
      s_(shape),
      length_(shape.padded() + shape.reach),
      interval_(std::clamp<Index>(shape.tiles() / 32, 4, 64)),
      // Of L L^T, of A w and of L (L^T w), each at most the terms of a sum in units of rounding.
      tolerance_(2 * 2.22e-16 * double(shape.half_bandwidth + 16)),
      w_(length_),
      given_(length_),
      given_size_(length_),
      sum_(length_),
      size_(length_),
      t_(length_),
      t_size_(length_),
      bad_(2),
      bad_host_(2) {}

template <class B>
Index BandGuard<B>::bytes(const BandShape& s) {
  return 7 * (s.padded() + s.reach) * Index(sizeof(double)) + 16;
}

template <class B>
GuardTiles<B> BandGuard<B>::tiles(const BandTiles<B>& a, Index first, Index count) const {
  return {s_, a.data.data() + first * s_.tile(), first * c_.size() + c_.rank(), c_.size(), count};
}

template <class B>
void BandGuard<B>::begin(const BandTiles<B>& a) {
  const Index own = a.columns.slots(c_.rank());
  std::vector<double> diagonal(static_cast<std::size_t>(own));
  copy_rows<double, B>(c_.ahead, diagonal.data(), 1, a.data.data(), s_.column(), 1, own);
  c_.ahead.synchronize();
  std::vector<double> w(static_cast<std::size_t>(length_), 0.0);
  for (Index slot = 0; slot < own; ++slot)
    if (const Index j = a.columns.global(slot, c_.rank()); j < s_.n)
      w[std::size_t(j)] = weight(diagonal[std::size_t(slot)], j);
  c_.control.reduce(w, Reduce::sum);
  double most = 0;
  for (const double x : w) most = std::max(most, std::fabs(x));
  const double m = double(s_.half_bandwidth) + 2;
  least_ = std::ldexp(2 * m * m * most, -1074);  // what underflow may lose
  upload(lane_, w_.view(), w.data());
  fill_zero(lane_, given_.view());
  fill_zero(lane_, given_size_.view());
  const GuardTiles<B> all = tiles(a, 0, own / s_.width);
  weigh_band_rows(lane_, all, 1.0, w_.data(), w_.data(), given_.data(), given_size_.data());
  weigh_band_columns(lane_, all, 1, w_.data(), given_.data(), given_size_.data());
  copy<double, B>(lane_, sum_, given_);
  copy<double, B>(lane_, size_, given_size_);
  fill_zero(lane_, t_.view());
  fill_zero(lane_, t_size_.view());
  lane_.synchronize();
  waiting_ = from_ = last_ = seen_ = due_ = 0;
  pending_ = lost_ = false;
}

template <class B>
void BandGuard<B>::weigh(const BandTiles<B>& a, Index first, Index count) {
  const GuardTiles<B> part = tiles(a, first, count);
  weigh_band_columns(lane_, part, 0, w_.data(), t_.data(), t_size_.data());
  weigh_band_rows(lane_, part, -1.0, t_.data(), t_size_.data(), sum_.data(), size_.data());
}

template <class B>
void BandGuard<B>::flush(const BandTiles<B>& a) {
  if (waiting_ > 0) weigh(a, from_ - waiting_, waiting_);
  waiting_ = 0;
}

template <class B>
void BandGuard<B>::resume(const BandTiles<B>& a, Index k) {
  from_ = a.columns.slots_before(k * s_.width, c_.rank()) / s_.width;
  waiting_ = from_;
  flush(a);
}

template <class B>
void BandGuard<B>::take(const Stream<B>& lane, const BandTiles<B>& a, Index k) {
  from_ = a.columns.slot(k * s_.width) / s_.width + 1;
  if (++waiting_ < at_once(B{})) return;
  lane_.wait(lane.record());
  flush(a);
}

template <class B>
void BandGuard<B>::step(const BandTiles<B>& a, Index k) {
  flip_for_tests(c_.bulk, c_.rank(), k + 1, a.data.data(), 8 * a.data.size());
  if (k + 1 - last_ / s_.width < interval_ || k + 1 == s_.tiles()) return;
  look();
  check(a, k + 1);
}

template <class B>
void BandGuard<B>::check(const BandTiles<B>& a, Index steps) {
  const Index from = last_, to = steps * s_.width;
  lane_.wait(c_.ahead.record());
  flush(a);
  if (c_.size() > 1 && from < to) {
    c_.ahead.wait(lane_.record());
    for (const Buffer<double, B>* sums : {&sum_, &size_})
      c_.comm.all_reduce(c_.ahead, Reduce::sum, sums->view().slice(from, to - from));
    lane_.wait(c_.ahead.record());
  }
  judge_band_rows(lane_, from, to, sum_.data(), size_.data(), tolerance_, least_, bad_.data());
  download(lane_, bad_host_.data(), View<const Index, B>(bad_));
  known_ = lane_.record();
  pending_ = true;
  last_ = to;
  due_ = steps;
}

template <class B>
void BandGuard<B>::look() {
  if (!pending_) return;
  known_.synchronize();
  pending_ = false;
  const Index end = due_ * s_.width;
  Index bad = bad_host_[0];
  // Numbers that are not finite may be the matrix's own until its pivots are known to be good.
  lost_ = lost_ || bad_host_[1] < end;
  if (lost_ && due_ == s_.tiles()) bad = std::min(bad, bad_host_[1]);
  if (bad < end || (lost_ && due_ == s_.tiles())) {
    // A wrong entry's column is the first row that it changes.
    const int owner = int(std::min(bad, end - 1) / s_.width % c_.size());
    if (owner == c_.rank()) memory_error(owner, seen_, due_);
    c_.control.barrier();  // until that rank has ended the job
  }
  seen_ = due_;
}

template <class B>
void BandGuard<B>::finish(const BandTiles<B>& a) {
  look();
  check(a, s_.tiles());
  look();
}

template <class B>
void BandGuard<B>::verify(const BandTiles<B>& l) {
  lane_.wait(c_.ahead.record());
  copy<double, B>(lane_, sum_, given_);
  copy<double, B>(lane_, size_, given_size_);
  fill_zero(lane_, t_.view());
  fill_zero(lane_, t_size_.view());
  last_ = seen_ = 0;
  resume(l, s_.tiles());
  finish(l);
}

template <class B>
void BandGuard<B>::flip_after(const BandTiles<B>& l) const {
  flip_for_tests(c_.ahead, c_.rank(), s_.tiles() + 1, l.data.data(), 8 * l.data.size());
}

#define TERRACE_INSTANTIATE(B) template class BandGuard<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)

}  // namespace terrace
