#include "src/dense/guard.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "distrib/agree.hpp"
#include "kernels/base/error.hpp"
#include "kernels/base/random.hpp"
#include "src/frame/guard.hpp"

namespace terrace::dense {

namespace {
double random_size(Word seed, Index i) {  // 0.5 to 1, either sign
  const double u = random_uniform(seed, i, 5);
  return u < 0 ? -0.5 + 0.5 * u : 0.5 + 0.5 * u;
}
}  // namespace

template <class B>
DenseGuard<B>::DenseGuard(Context<B>& context, BlockCyclic rows, Index n, Index columns,
                          bool inverse, bool lu, Index interval)
    : context_(context),
      rows_(rows),
      n_(n),
      columns_(columns),
      slots_(rows.slots(context.rank())),
      interval_(std::max<Index>(1, interval)),
      inverse_(inverse),
      lu_(lu),
      // Rounding of c and of the rows: a few units a panel's product, and the sum's.
      tolerance_(32 * 2.22e-16 * double(std::max<Index>(n, 16))),
      w_(columns),
      v_(slots_),
      weight_(columns),
      more_(slots_),
      sum_(slots_),
      size_(slots_),
      largest_(slots_),
      worst_(1),
      worst_host_(1),
      weight_host_(columns) {}

template <class B>
void DenseGuard<B>::begin(const GuardedRows<B>& a, const Index* column_of,
                          const std::vector<Index>& pivot_row, Index columns_done, Index done) {
  const Stream<B>& lane = context_.bulk;
  pending_ = false;
  std::vector<double> w(static_cast<std::size_t>(columns_));
  fill_zero(lane, weight_.view());
  column_sizes(lane, a, columns_, weight_.data());
  download(lane, w.data(), View<const double, B>(weight_));
  lane.synchronize();
  context_.control.reduce(w, Reduce::max);
  for (Index j = 0; j < columns_; ++j) {
    int exponent = 0;
    double& size = w[std::size_t(j)];
    (void)std::frexp(size, &exponent);
    if (!(size > 0) || !std::isfinite(size)) exponent = 0;
    size = std::ldexp(random_size(0x9a11, j), -exponent);
  }
  upload(lane, w_.view(), w.data());
  upload(lane, weight_.view(), w.data());
  std::copy(w.begin(), w.end(), weight_host_.data());
  fill_zero(lane, v_.view());
  fill_zero(lane, largest_.view());
  lane.synchronize();
  all_v_.clear();
  std::vector<double> own(static_cast<std::size_t>(slots_));
  if (inverse_) {  // of the size of the rows
    sum(a, nullptr, pivot_row, 0, {});
    download(lane, own.data(), View<const double, B>(size_));
    lane.synchronize();
    all_v_.assign(std::size_t(n_), 0.0);
    for (Index slot = 0; slot < slots_; ++slot) {
      const Index row = rows_.global(slot, context_.rank());
      double& v = own[std::size_t(slot)];
      v = (v > 0 && std::isfinite(v) ? v : 1.0) / std::sqrt(double(std::max<Index>(1, n_))) *
          random_size(0x7e11, row);
      all_v_[std::size_t(row)] = v;
    }
    context_.control.reduce(all_v_, Reduce::sum);
    upload(lane, v_.view(), own.data());
    lane.synchronize();
  }
  sum(a, column_of, pivot_row, columns_done, {});
  std::vector<double> more(own.size());
  download(lane, own.data(), View<const double, B>(sum_));
  download(lane, more.data(), View<const double, B>(more_));
  lane.synchronize();
  for (std::size_t i = 0; i < own.size(); ++i) own[i] += more[i];
  copy_rows<double, B>(lane, a.data + columns_, a.ld, own.data(), 1, 1, slots_);
  lane.synchronize();
  last_ = seen_ = done;
}

template <class B>
void DenseGuard<B>::sum_lu(const GuardedRows<B>& a, const Index* column_of, Index columns_done,
                           const GuardPanel<B>& apart) {
  const Stream<B>&ahead = context_.ahead, &bulk = context_.bulk;
  const Index done = a.resting;
  weigh_rows(bulk, {a.data, done, a.ld}, 0, columns_, w_.data(), sum_.data(), size_.data(),
             column_of);
  Index from = columns_done;
  if (apart.data) {
    weigh_columns(ahead, apart.data + (done - apart.slot), apart.ld, slots_ - done,
                  apart.columns.count, w_.data() + apart.columns.first, sum_.data() + done,
                  size_.data() + done);
    bulk.wait(ahead.record());
    from = apart.columns.end();
  }
  weigh_rows(bulk, {a.data + done * a.ld, slots_ - done, a.ld}, from, columns_, w_.data(),
             sum_.data() + done, size_.data() + done);
}

template <class B>
void DenseGuard<B>::sum(const GuardedRows<B>& a, const Index* column_of,
                        const std::vector<Index>& pivot_row, Index columns_done,
                        const GuardPanel<B>& apart) {
  const Stream<B>&ahead = context_.ahead, &bulk = context_.bulk;
  ahead.wait(bulk.record());
  fill_zero(ahead, sum_.view());
  fill_zero(ahead, size_.view());
  fill_zero(ahead, more_.view());
  if (lu_) {
    bulk.wait(ahead.record());
    return sum_lu(a, column_of, columns_done, apart);
  }
  if (context_.size() > 1 && columns_done > 0) {  // pivots of other ranks
    for (Index j = 0; j < columns_done; ++j)
      weight_host_[j] = inverse_ ? all_v_[std::size_t(pivot_row[std::size_t(j)])] : 0;
    upload(ahead, weight_.view(), weight_host_.data());
  }
  if (column_of)
    assign_weights(ahead, slots_, column_of, w_.data(), v_.data(), weight_.data(), more_.data());
  if (apart.data)
    weigh_columns(ahead, apart.data, apart.ld, slots_, apart.columns.count,
                  weight_.data() + apart.columns.first, sum_.data(), size_.data());
  bulk.wait(ahead.record());
  const Index first = apart.data ? apart.columns.first : columns_;
  const Index end = apart.data ? apart.columns.end() : columns_;
  weigh_rows(bulk, a, 0, first, weight_.data(), sum_.data(), size_.data());
  weigh_rows(bulk, a, end, columns_, weight_.data(), sum_.data(), size_.data());
}

template <class B>
void DenseGuard<B>::check(GuardRows<B> a, Index steps) {
  const Stream<B>& lane = context_.bulk;
  judge_rows(lane, a, columns_, sum_.data(), more_.data(), size_.data(), largest_.data(),
             tolerance_, worst_.data());
  download(lane, worst_host_.data(), View<const double, B>(worst_));
  known_ = lane.record();
  pending_ = true;
  due_ = steps;
}

template <class B>
void DenseGuard<B>::look() {
  if (!pending_) return;
  known_.synchronize();
  pending_ = false;
  const Control& control = context_.control;
  const double mine = worst_host_[0], worst = control.reduce(mine, Reduce::max);
  if (due_ == tried_.to) {  // done again: rounding comes back, whatever its size
    constexpr double alike = 16;
    confirmed_ = worst * alike < tried_.worst;
    allowed_ = std::max(allowed_, alike * worst);
  } else if (worst > allowed_) {
    const Index rank =
        control.reduce(Index(mine == worst ? control.rank() : control.size()), Reduce::min);
    suspicion_ = {seen_, due_, worst, int(rank)};
  }
  seen_ = due_;
}

template <class B>
void DenseGuard<B>::try_again() {
  tried_ = std::exchange(suspicion_, {});
}

template <class B>
void DenseGuard<B>::accuse() const {
  const std::vector<std::string> hosts = context_.control.gather_all(host_name());
  fail_together(
      Exit::fault,
      fmt::format(
          "memory error: a check sum of the matrix broke between steps {} and {}, and holds "
          "with the matrix read again; on rank {}, host {}; start again, from the last checkpoint "
          "if there is one, and test the memory of this host",
          tried_.from, tried_.to, tried_.rank, hosts[std::size_t(tried_.rank)]));
}

template <class B>
void DenseGuard<B>::step(const GuardedRows<B>& a, const Index* column_of,
                         const std::vector<Index>& pivot_row, Index columns_done, Index k,
                         const GuardPanel<B>& apart) {
  follow_column(context_.bulk, a, columns_, largest_.data());
  if (k + 1 - last_ < interval_ && k + 1 != tried_.to) return;
  look();
  last_ = k + 1;
  if (stops()) return;
  sum(a, column_of, pivot_row, columns_done, apart);
  check(a, k + 1);
}

template <class B>
void DenseGuard<B>::finish(const GuardedRows<B>& a, const Index* column_of,
                           const std::vector<Index>& pivot_row, Index columns_done, Index steps) {
  look();
  if (last_ < steps && !stops()) {
    sum(a, column_of, pivot_row, columns_done, {});
    check(a, steps);
    look();
  }
}

#define TERRACE_INSTANTIATE(B) template class DenseGuard<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::dense
