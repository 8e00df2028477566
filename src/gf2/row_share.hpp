// Bring rows of a distributed bit matrix, named by global number, to all ranks: one grouped
// broadcast.
#pragma once
#include <vector>

#include "src/gf2/matrix.hpp"

namespace terrace::gf2 {

template <class B>
class RowShare {
 public:
  /// Room for `rows` rows of `words` words.
  RowShare(const Context<B>& context, Index rows, Index words)
      : context_(context),
        received_(rows * words),
        plan_(4 * rows),
        plan_host_(4 * rows),
        capacity_(rows) {}

  /// Words [first_word, first_word + width) of rows `global`, in their order (through a list), on
  /// every rank. Owners read them from `data` on `lane`. own_*() then name this rank's among them;
  /// `position` maps a slot to what own_positions() shall hold. The lane must have run what the
  /// last bring() enqueued, on every lane that reads own_*().
  template <class Position>
  BitRows<const Word, B> bring(const Stream<B>& lane, const BlockCyclic& layout,
                               const std::vector<Index>& global, const Word* data, Index stride,
                               Index first_word, Index width, Position&& position) {
    const auto ranks = std::size_t(context_.size());
    std::vector<Index>& first = first_;
    first.assign(ranks + 1, 0);
    for (const Index row : global) ++first[std::size_t(layout.owner(row)) + 1];
    for (std::size_t p = 0; p < ranks; ++p) first[p + 1] += first[p];
    own_count_ = 0;
    next_.assign(first.begin(), first.end());
    for (std::size_t q = 0; q < global.size(); ++q) {
      const int owner = layout.owner(global[q]);
      plan_host_[Index(q)] = next_[std::size_t(owner)]++;
      if (owner != context_.rank()) continue;
      const Index slot = layout.slot(global[q]);
      plan_host_[capacity_ + own_count_] = slot;
      plan_host_[2 * capacity_ + own_count_] = position(slot);
      plan_host_[3 * capacity_ + own_count_] = Index(q);
      ++own_count_;
    }
    upload(lane, plan_.view(), plan_host_.data());
    const Index mine = first[std::size_t(context_.rank())];
    copy_bits(lane, BitRows<Word, B>{received_.data() + mine * width, width, own_count_, nullptr},
              BitRows<const Word, B>{data, stride, own_count_, own_slots()}, first_word, width);
    if (ranks > 1) {
      pieces_.clear();
      for (std::size_t p = 0; p < ranks; ++p)
        if (first[p + 1] > first[p])
          pieces_.push_back({int(p), received_.data() + first[p] * width,
                             (first[p + 1] - first[p]) * width * Index(sizeof(Word))});
      context_.comm.broadcast_group(lane, pieces_);
    }
    return {received_.data(), width, Index(global.size()), plan_.data()};
  }

  [[nodiscard]] Index own_count() const { return own_count_; }
  [[nodiscard]] const Index* own_slots() const { return plan_.data() + capacity_; }
  [[nodiscard]] const Index* own_positions() const { return plan_.data() + 2 * capacity_; }
  [[nodiscard]] const Index* own_pivots() const { return plan_.data() + 3 * capacity_; }

 private:
  const Context<B>& context_;
  Buffer<Word, B> received_;
  Buffer<Index, B> plan_;
  PinnedBuffer<Index> plan_host_;
  std::vector<Index> first_, next_;
  std::vector<Piece> pieces_;
  Index capacity_, own_count_ = 0;
};

}  // namespace terrace::gf2
