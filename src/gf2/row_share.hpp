// Bring rows of a distributed bit matrix, named by global number, to all ranks, whole or in strips of
// columns.
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
  /// last call enqueued, on every lane that reads own_*().
  template <class Position>
  BitRows<const Word, B> bring(const Stream<B>& lane, const BlockCyclic& layout,
                               const std::vector<Index>& global, const Word* data, Index stride,
                               Index first_word, Index width, Position&& position) {
    plan(lane, layout, global, position);
    const Index mine = first_[std::size_t(context_.rank())];
    copy_bits(lane, BitRows<Word, B>{received_.data() + mine * width, width, own_count_, nullptr},
              BitRows<const Word, B>{data, stride, own_count_, own_slots()}, first_word, width);
    sends_.clear();
    for (int p = 0; p < context_.size(); ++p)
      if (count_of(p) > 0)
        sends_.push_back({p, received_.data() + first_[std::size_t(p)] * width,
                          count_of(p) * width * Index(sizeof(Word))});
    context_.comm.broadcast_group(lane, sends_);
    return {received_.data(), width, Index(global.size()), plan_.data()};
  }

  /// The same of strips: to rank p words [cuts[p], cuts[p + 1]) behind `first_word`.
  template <class Position>
  BitRows<const Word, B> deal(const Stream<B>& lane, const BlockCyclic& layout,
                              const std::vector<Index>& global, const Word* data, Index stride,
                              Index first_word, const std::vector<Index>& cuts,
                              Position&& position) {
    plan(lane, layout, global, position);
    const auto width_of = [&](int p) { return cuts[std::size_t(p) + 1] - cuts[std::size_t(p)]; };
    const int me = context_.rank();
    const Index mine = width_of(me), rows = Index(global.size());
    Word* sent = received_.data() + rows * mine;  // behind what comes
    sends_.clear(), receives_.clear();
    for (int p = 0; p < context_.size(); ++p) {
      const Index width = width_of(p);
      Word* const kept = received_.data() + first_[std::size_t(p)] * mine;
      copy_bits(lane, BitRows<Word, B>{p == me ? kept : sent, width, own_count_, nullptr},
                BitRows<const Word, B>{data, stride, own_count_, own_slots()},
                first_word + cuts[std::size_t(p)], width);
      if (p == me) continue;
      if (own_count_ * width > 0)
        sends_.push_back({p, sent, own_count_ * width * Index(sizeof(Word))});
      if (count_of(p) * mine > 0)
        receives_.push_back({p, kept, count_of(p) * mine * Index(sizeof(Word))});
      sent += own_count_ * width;
    }
    context_.comm.exchange(lane, sends_, receives_);
    return {received_.data(), mine, rows, plan_.data()};
  }

  [[nodiscard]] Index own_count() const { return own_count_; }
  [[nodiscard]] const Index* own_slots() const { return plan_.data() + capacity_; }
  [[nodiscard]] const Index* own_positions() const { return plan_.data() + 2 * capacity_; }
  [[nodiscard]] const Index* own_pivots() const { return plan_.data() + 3 * capacity_; }

 private:
  /// Whose rows these are: received_ holds them by owner.
  template <class Position>
  void plan(const Stream<B>& lane, const BlockCyclic& layout, const std::vector<Index>& global,
            Position&& position) {
    const auto ranks = std::size_t(context_.size());
    first_.assign(ranks + 1, 0);
    seats_.clear();
    for (const Index row : global) {
      seats_.push_back(layout.seat(row));
      ++first_[std::size_t(seats_.back().owner) + 1];
    }
    for (std::size_t p = 0; p < ranks; ++p) first_[p + 1] += first_[p];
    own_count_ = 0;
    next_.assign(first_.begin(), first_.end());
    for (std::size_t q = 0; q < global.size(); ++q) {
      const auto [owner, slot] = seats_[q];
      plan_host_[Index(q)] = next_[std::size_t(owner)]++;
      if (owner != context_.rank()) continue;
      plan_host_[capacity_ + own_count_] = slot;
      plan_host_[2 * capacity_ + own_count_] = position(slot);
      plan_host_[3 * capacity_ + own_count_] = Index(q);
      ++own_count_;
    }
    upload(lane, plan_.view(), plan_host_.data());
  }
  [[nodiscard]] Index count_of(int p) const {
    return first_[std::size_t(p) + 1] - first_[std::size_t(p)];
  }

  const Context<B>& context_;
  Buffer<Word, B> received_;
  Buffer<Index, B> plan_;
  PinnedBuffer<Index> plan_host_;
  std::vector<Index> first_, next_;
  std::vector<BlockCyclic::Seat> seats_;
  std::vector<Piece> sends_, receives_;
  Index capacity_, own_count_ = 0;
};

}  // namespace terrace::gf2
