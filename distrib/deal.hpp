// Items that belong to other ranks, sent to their owners.
#pragma once
#include <algorithm>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "distrib/control.hpp"

namespace terrace {

/// The rank r of item i: first[r] <= i < first[r + 1].
inline int owner_of(const std::vector<Index>& first, Index i) {
  return int(std::upper_bound(first.begin(), first.end(), i) - first.begin()) - 1;
}

/// Bytes for or from a rank.
struct Parcel {
  void* data = nullptr;  // only read where it is sent
  Index bytes = 0;
};
/// to[r] goes to rank r; room(r, bytes) says where what rank r sends goes, each r but this rank once.
/// Collective. Cost: one message to and from each rank that has something, and 8 bytes per pair of ranks.
void deal_parcels(const Control& control, const std::vector<Parcel>& to,
                  const std::function<void*(int rank, Index bytes)>& room);

/// to[r] goes to rank r; from[r] is what rank r sent here. Vectors of what may be copied byte by byte.
/// Collective; costs as deal_parcels().
template <class List>
std::vector<List> deal(const Control& control, std::vector<List> to) {
  using T = typename List::value_type;
  static_assert(std::is_trivially_copyable_v<T>);
  if (control.size() == 1) return to;
  std::vector<Parcel> parcels;
  parcels.reserve(to.size());
  for (List& part : to) parcels.push_back({part.data(), Index(part.size() * sizeof(T))});
  std::vector<List> from(to.size());
  deal_parcels(control, parcels, [&](int r, Index bytes) {
    List& part = from[std::size_t(r)];
    part.resize(std::size_t(bytes) / sizeof(T));
    return part.data();
  });
  const auto own = std::size_t(control.rank());
  from[own] = std::move(to[own]);
  return from;
}

}  // namespace terrace
