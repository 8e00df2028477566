#include "src/cg/constant_guard.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "distrib/session.hpp"
#include "kernels/base/error.hpp"
#include "src/frame/guard.hpp"

namespace terrace::cg {
namespace {

template <class B>
std::vector<double> on_host(const Context<B>& context, View<const double, B> vector) {
  std::vector<double> here(std::size_t(vector.size));
  download(context.ahead, here.data(), vector);
  context.ahead.synchronize();
  return here;
}

}  // namespace

template <class B>
ConstantGuard<B>::ConstantGuard(const Context<B>& context)
    : context_(context),
      parts_(guard_height * fold_words),
      total_(fold_words),
      seen_(fold_words),
      right_(std::size_t(fold_words)),
      now_(std::size_t(fold_words)) {}

/// In a signal handler: whether the sums are not what they were. The arrays are host memory.
template <class B>
bool ConstantGuard<B>::broken(void* guard) {
  auto& g = *static_cast<ConstantGuard*>(guard);
  std::fill(g.now_.begin(), g.now_.end(), Word(0));
  for (const View<Word, B>& array : g.arrays_)
    for (Index i = 0; i < array.size; ++i) g.now_[std::size_t(i % fold_words)] ^= array.data[i];
  return g.now_ != g.right_;
}

template <class B>
void ConstantGuard<B>::sum(std::size_t first) {
  const Stream<B>& lane = context_.bulk;
  const auto rows = [](Word* data, Index count) { return WordRows{data, fold_words, count}; };
  Word* const groups = parts_.data() + fold_words;
  const auto add = [&](Index count, Index words) {  // parts to the total
    xor_groups(lane, rows(total_.data(), 1), rows(parts_.data(), 1 + count), words);
    copy(lane, parts_.view().slice(0, words), View<const Word, B>{total_.data(), words});
  };
  fill_zero(lane, parts_.view().slice(0, fold_words));
  for (std::size_t i = first; i < arrays_.size(); ++i) {
    const View<Word, B>& array = arrays_[i];
    const Index whole = array.size / fold_words, tail = array.size % fold_words;
    constexpr Index most = (guard_height - 1) * guard_height;
    for (Index at = 0; at < whole; at += most) {
      const Index count = std::min(most, whole - at), parts = ceil_div(count, guard_height);
      xor_groups(lane, rows(groups, parts), rows(array.data + at * fold_words, count), fold_words);
      add(parts, fold_words);
    }
    if (tail == 0) continue;
    xor_groups(lane, rows(groups, 1), rows(array.data + whole * fold_words, 1), tail);
    add(1, tail);
  }
  download(lane, seen_.data(), View<const Word, B>{parts_.data(), fold_words});
}

template <class B>
void ConstantGuard<B>::begin() {
  context_.bulk.wait(context_.ahead.record());
  sum(begun_);
  context_.bulk.synchronize();
  for (std::size_t w = 0; w < right_.size(); ++w) right_[w] ^= seen_[w];
  begun_ = arrays_.size();
  if constexpr (std::is_same_v<B, Cpu>)
    access_.emplace(
        &ConstantGuard::broken, this,
        fmt::format(
            "terrace: rank {} on {} failed: memory error: an access outside "
            "memory, and the check sum of the matrix is broken; on rank {}, host {}; start again, "
            "from the last checkpoint if there is one, and test the memory of this host\n",
            context_.rank(), host_name(), context_.rank(), host_name()),
        int(Exit::fault));
}

template <class B>
void ConstantGuard<B>::look() {
  if (!pending_) return;
  known_.synchronize();
  pending_ = false;
  if (!std::equal(right_.begin(), right_.end(), seen_.data()))
    memory_error(context_.rank(), checked_, due_);
  checked_ = due_;
}

template <class B>
void ConstantGuard<B>::step(Index k) {
  flip_for_tests(k);
  if (k < last_) last_ = 0;  // the next right-hand sides
  if (k - last_ < interval) return;
  look();
  last_ = due_ = k;
  sum();
  known_ = context_.bulk.record();
  pending_ = true;
}

template <class B>
void ConstantGuard<B>::finish(Index k) {
  flip_for_tests(k);
  look();
  due_ = k;
  sum();
  known_ = context_.bulk.record();
  pending_ = true;
  look();
  context_.control.barrier();  // no rank goes on while another one ends the job
}

/// As of the eliminations; bytes count through the arrays.
template <class B>
void ConstantGuard<B>::flip_for_tests(Index k) {
  TestFlip& flip = next_test_flip();
  if (flip.rank != context_.rank() || k < flip.step) return;
  Index byte = std::max<Index>(0, flip.byte);
  const int bit = flip.bit >= 0 ? flip.bit : int(byte % 8);
  flip = {};
  for (const View<Word, B>& array : arrays_) {
    if (byte < 8 * array.size) return toggle_bit(context_.bulk, array.data, byte, bit);
    byte -= 8 * array.size;
  }
}

template <class B>
void VectorGuard<B>::begin(const Context<B>& context,
                           const std::vector<View<const double, B>>& vectors) {
  vectors_ = vectors;
  for (const View<const double, B>& vector : vectors_) right_.push_back(on_host(context, vector));
}

template <class B>
void VectorGuard<B>::finish(const Context<B>& context) const {
  bool same = true;
  for (std::size_t i = 0; i < right_.size(); ++i) {
    const std::vector<double> now = on_host(context, vectors_[i]);
    same &= now.empty() || std::memcmp(now.data(), right_[i].data(), 8 * now.size()) == 0;
  }
  if (context.control.reduce(Index(!same), Reduce::max) != 0)
    confirmed_fault(context.control,
                    "the right-hand sides, or the diagonal of the preconditioner, changed");
}

#define TERRACE_INSTANTIATE(B)     \
  template class ConstantGuard<B>; \
  template class VectorGuard<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::cg
