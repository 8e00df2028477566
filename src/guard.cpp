#include "src/guard.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "distrib/agree.hpp"
#include "distrib/faults.hpp"
#include "distrib/session.hpp"
#include "kernels/error.hpp"
#include "kernels/guard.hpp"
#include "kernels/random.hpp"

namespace terrace {

template <class B>
void toggle_bit(const Stream<B>& lane, void* data, Index at, int bit) {
  PinnedBuffer<unsigned char> byte(1);
  const View<unsigned char, B> there{static_cast<unsigned char*>(data) + at, 1};
  download(lane, byte.data(), View<const unsigned char, B>{there.data, 1});
  lane.synchronize();
  byte[0] ^= static_cast<unsigned char>(1U << bit);
  upload(lane, there, byte.data());
  lane.synchronize();
}

TestFlip& next_test_flip() {
  static TestFlip flip = [] {
    TestFlip from;
    const char* const text = test_setting("TERRACE_TEST_FLIP");
    if (!text) return from;
    char* end = nullptr;
    from.rank = std::strtoll(text, &end, 10);
    if (*end == ':') from.step = std::strtoll(end + 1, &end, 10);
    if (*end == ':') from.byte = std::strtoll(end + 1, nullptr, 10);
    return from;
  }();
  return flip;
}

template <class B>
void flip_for_tests(const Stream<B>& lane, int rank, Index step, void* data, Index bytes) {
  TestFlip& flip = next_test_flip();
  if (flip.rank != rank || flip.step != step || bytes <= 0) return;
  const Index at = (flip.byte >= 0 ? flip.byte : Index(random_word(7, step, 0) >> 2)) % bytes;
  toggle_bit(lane, data, at, flip.bit >= 0 ? flip.bit : int(at % 8));
  flip = {};
}

void memory_error(int rank, Index from, Index to) {
  throw Error(Exit::fault,
              fmt::format("memory error: a check sum of the matrix broke between steps {} and {}; "
                          "on rank {}, host {}; start again, from the last checkpoint if there is "
                          "one, and have the memory of this host tested",
                          from, to, rank, host_name()));
}

void confirmed_fault(const Control& control, const std::string& what) {
  std::vector<std::string> hosts = control.gather_all(host_name());
  std::sort(hosts.begin(), hosts.end());
  hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
  fail_together(Exit::fault,
                fmt::format("memory error: {}; on host {}; start again, from the last checkpoint "
                            "if there is one, and have the memory of {} tested",
                            what, fmt::join(hosts, ", "), hosts.size() > 1 ? "them" : "it"));
}

namespace {
Index rows_of_a_group(Index slots) { return std::clamp<Index>(slots / 64, 1, guard_height); }
}  // namespace

template <class B>
BitGuard<B>::BitGuard(Context<B>& context, BitMatrix<B>& matrix, bool inverse, Word witness_seed,
                      Index interval)
    : context_(context),
      matrix_(matrix),
      inverse_(inverse),
      seed_(witness_seed),
      interval_(std::max<Index>(1, interval)),
      height_(rows_of_a_group(matrix.slots())),
      groups_(ceil_div(matrix.slots(), height_)),
      sums_(std::max<Index>(1, groups_) * matrix.stride),
      products_(std::max(matrix.slots(), std::max<Index>(1, groups_))),
      z_(64 * matrix.words),
      sliced_(64 * matrix.words),
      bad_(1),
      bad_host_(1),
      x_(std::size_t(64 * matrix.words)),
      corrections_(std::size_t(groups_), 0) {
  const Index own = 64 * (matrix.words - (inverse ? 2 : 1));
  for (Index j = 0; j < Index(x_.size()); ++j)
    x_[std::size_t(j)] = j < own ? random_word(0x6a9d, j, 3) : Word(1) << (j % 64);
  if (inverse)
    for (Index slot = 0; slot < matrix.slots(); ++slot)
      corrections_[std::size_t(slot / height_)] ^= witness(matrix.layout.global(slot, matrix.rank));
}

template <class B>
Index BitGuard<B>::bytes(BlockCyclic layout, Index stride) {
  const Index slots = layout.slots(0);
  return 8 * (ceil_div(slots, rows_of_a_group(slots)) * stride + slots + 128 * stride);
}

template <class B>
Word BitGuard<B>::witness(Index row) const {
  return random_word(seed_, row, 0);  // as put_witness()
}

template <class B>
void BitGuard<B>::set_vectors(const Stream<B>& lane) {
  if (!changed_) return;
  uploaded_ = x_;  // stays as it is until the next check
  upload(lane, z_.view(), uploaded_.data());
  slice_words(lane, z_.view(), sliced_.view());
  changed_ = false;
}

template <class B>
void BitGuard<B>::begin() {
  const Stream<B>& lane = context_.bulk;
  const Index slots = matrix_.slots(), word = matrix_.words - 1;
  set_vectors(lane);
  fill_zero(lane, products_.view());
  multiply_words(lane, products_.data(), matrix_.rows(), 0, word - (inverse_ ? 1 : 0),
                 sliced_.data());
  copy_bits(lane, BitRows<Word, B>{matrix_.data.data() + word, matrix_.stride, slots, nullptr},
            BitRows<const Word, B>{products_.data(), 1, slots, nullptr}, 0, 1);
  lane.synchronize();
}

template <class B>
void BitGuard<B>::pivots(Index first, const std::vector<Index>& rows) {
  if (!inverse_) return;
  changed_ = true;
  for (Index q = 0; q < Index(rows.size()); ++q) {
    const Index row = rows[std::size_t(q)];
    Word& x = x_[std::size_t(first + q)];
    const Word v = witness(row);
    if (matrix_.layout.owner(row) == matrix_.rank)
      corrections_[std::size_t(matrix_.layout.slot(row) / height_)] ^= v ^ x;
    x = v;
  }
}

template <class B>
void BitGuard<B>::check(const Stream<B>& lane, Index steps) {
  look();
  if (groups_ > 0) {
    set_vectors(lane);
    xor_groups(lane, {sums_.data(), matrix_.stride, groups_, nullptr}, matrix_.rows(),
               matrix_.words, height_);
    more_ = corrections_;
    if (inverse_)
      upload(lane, products_.view().slice(0, groups_), more_.data());
    else
      fill_zero(lane, products_.view());
    multiply_words(lane, products_.data(),
                   BitRows<const Word, B>{sums_.data(), matrix_.stride, groups_, nullptr}, 0,
                   matrix_.words, sliced_.data());
    first_nonzero_word(lane, BitRows<const Word, B>{products_.data(), 1, groups_, nullptr}, 0, 1,
                       bad_.data());
    download(lane, bad_host_.data(), View<const Index, B>(bad_));
  } else {
    bad_host_[0] = 1;
  }
  known_ = lane.record();
  pending_ = true;
  due_ = steps;
}

template <class B>
void BitGuard<B>::look() {
  if (!pending_) return;
  known_.synchronize();
  pending_ = false;
  if (bad_host_[0] == 0) memory_error(context_.rank(), seen_, due_);
  seen_ = due_;
}

template <class B>
void BitGuard<B>::step(const Stream<B>& lane, Index k) {
  flip_for_tests(lane, context_.rank(), k + 1, matrix_.data.data(), 8 * matrix_.data.size());
  if (k + 1 - last_ < interval_) return;
  last_ = k + 1;
  check(lane, k + 1);
}

template <class B>
void BitGuard<B>::finish(Index steps) {
  if (last_ < steps) check(context_.bulk, steps);
  look();
  context_.control.barrier();  // no rank goes on while another one ends the job
}

// --- Gauss-Jordan --------------------------------------------------------------------------------

namespace {
double random_size(Word seed, Index i) {  // 0.5 to 1, either sign
  const double u = random_uniform(seed, i, 5);
  return u < 0 ? -0.5 + 0.5 * u : 0.5 + 0.5 * u;
}
}  // namespace

template <class B>
DenseGuard<B>::DenseGuard(Context<B>& context, BlockCyclic rows, Index n, Index columns,
                          bool inverse, Index interval)
    : context_(context),
      rows_(rows),
      n_(n),
      columns_(columns),
      slots_(rows.slots(context.rank())),
      interval_(std::max<Index>(1, interval)),
      inverse_(inverse),
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
void DenseGuard<B>::begin(GuardRows<B> a, const Index* column_of,
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
    sum(a, nullptr, pivot_row, 0, {}, nullptr, 0);
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
  sum(a, column_of, pivot_row, columns_done, {}, nullptr, 0);
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
void DenseGuard<B>::sum(GuardRows<B> a, const Index* column_of, const std::vector<Index>& pivot_row,
                        Index columns_done, Range next, const double* panel, Index panel_ld) {
  const Stream<B>&ahead = context_.ahead, &bulk = context_.bulk;
  ahead.wait(bulk.record());
  fill_zero(ahead, sum_.view());
  fill_zero(ahead, size_.view());
  fill_zero(ahead, more_.view());
  if (context_.size() > 1 && columns_done > 0) {  // pivots of other ranks
    for (Index j = 0; j < columns_done; ++j)
      weight_host_[j] = inverse_ ? all_v_[std::size_t(pivot_row[std::size_t(j)])] : 0;
    upload(ahead, weight_.view(), weight_host_.data());
  }
  if (column_of)
    assign_weights(ahead, slots_, column_of, w_.data(), v_.data(), weight_.data(), more_.data());
  if (panel)
    weigh_columns(ahead, panel, panel_ld, slots_, next.count, weight_.data() + next.first,
                  sum_.data(), size_.data());
  bulk.wait(ahead.record());
  const Index first = panel ? next.first : columns_, end = panel ? next.end() : columns_;
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
          "with the matrix read again; on rank {}, host {}; start again, from the last "
          "checkpoint if there is one, and have the memory of this host tested",
          tried_.from, tried_.to, tried_.rank, hosts[std::size_t(tried_.rank)]));
}

template <class B>
void DenseGuard<B>::step(GuardRows<B> a, const Index* column_of,
                         const std::vector<Index>& pivot_row, Index columns_done, Index k,
                         Range next, const double* panel, Index panel_ld) {
  follow_column(context_.bulk, a, columns_, largest_.data());
  if (k + 1 - last_ < interval_ && k + 1 != tried_.to) return;
  look();
  last_ = k + 1;
  if (stops()) return;
  sum(a, column_of, pivot_row, columns_done, next, panel, panel_ld);
  check(a, k + 1);
}

template <class B>
void DenseGuard<B>::finish(GuardRows<B> a, const Index* column_of,
                           const std::vector<Index>& pivot_row, Index columns_done, Index steps) {
  look();
  if (last_ < steps && !stops()) {
    sum(a, column_of, pivot_row, columns_done, {}, nullptr, 0);
    check(a, steps);
    look();
  }
}

#define TERRACE_INSTANTIATE(B)                                                 \
  template void toggle_bit<B>(const Stream<B>&, void*, Index, int);            \
  template void flip_for_tests<B>(const Stream<B>&, int, Index, void*, Index); \
  template class BitGuard<B>;                                                  \
  template class DenseGuard<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)

}  // namespace terrace
