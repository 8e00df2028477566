#include "src/gf2/active_rows.hpp"

namespace terrace::gf2 {

template <class B>
ActiveRows<B>::ActiveRows(BlockCyclic layout, int rank)
    : layout_(layout),
      rank_(rank),
      list_(layout.slots(rank)),
      position_(std::size_t(layout.slots(rank))) {
  for (auto& copy : copies_) copy = Buffer<Index, B>(list_.size());
  for (int r = 0; r < layout.ranks; ++r) counts_.push_back(layout.slots(r));
  reset(list_.size());
}

template <class B>
void ActiveRows<B>::reset(Index count) {
  count_ = count;
  for (Index slot = 0; slot < count; ++slot) list_[slot] = position_[std::size_t(slot)] = slot;
}

template <class B>
const Index* ActiveRows<B>::upload(const Stream<B>& lane, Index k) {
  auto& copy = copies_[k % 2];
  terrace::upload(lane, copy.view().slice(0, count_), list_.data());
  return copy.data();
}

template <class B>
void ActiveRows<B>::remove(Index slot) {
  const Index at = position_[std::size_t(slot)], last = list_[--count_];
  list_[at] = last;
  position_[std::size_t(last)] = at;
}

template <class B>
void ActiveRows<B>::remove_global(Index row) {
  const auto [owner, slot] = layout_.seat(row);
  --counts_[std::size_t(owner)];
  if (owner == rank_) remove(slot);
}

#define TERRACE_INSTANTIATE(B) template class ActiveRows<B>;
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::gf2
