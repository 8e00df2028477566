#include "src/gf2/guard.hpp"

#include <algorithm>
#include <utility>

#include "distrib/agree.hpp"
#include "kernels/base/guard.hpp"
#include "kernels/base/random.hpp"
#include "src/frame/guard.hpp"

namespace terrace::gf2 {

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
    const BitRows<Word, B> rows = matrix_.rows();
    xor_groups(lane, {sums_.data(), matrix_.stride, groups_}, {rows.data, rows.stride, rows.count},
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

#define TERRACE_INSTANTIATE(B) template class BitGuard<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::gf2
