// Items that belong to other ranks, sent to their owners.
#pragma once
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "distrib/control.hpp"
#include "kernels/base/large_vector.hpp"

namespace terrace {

/// The rank r of item i: first[r] <= i < first[r + 1].
inline int owner_of(const std::vector<Index>& first, Index i) {
  return int(std::upper_bound(first.begin(), first.end(), i) - first.begin()) - 1;
}

/// to[r] goes to rank r; from[r] is what rank r sent here. Collective. Cost: one message to and
/// from each rank that has something, and 8 bytes per pair of ranks.
std::vector<LargeVector<char>> deal_bytes(const Control& control,
                                          std::vector<LargeVector<char>> to);

/// The same for items that may be copied byte by byte.
template <class T>
std::vector<std::vector<T>> deal(const Control& control, std::vector<std::vector<T>> to) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (control.size() == 1) return to;
  std::vector<LargeVector<char>> bytes(to.size());
  for (std::size_t r = 0; r < to.size(); ++r) {
    bytes[r].resize(to[r].size() * sizeof(T));
    if (!to[r].empty()) std::memcpy(bytes[r].data(), to[r].data(), bytes[r].size());
    to[r] = {};
  }
  bytes = deal_bytes(control, std::move(bytes));
  for (std::size_t r = 0; r < to.size(); ++r) {
    to[r].resize(bytes[r].size() / sizeof(T));
    if (!to[r].empty()) std::memcpy(to[r].data(), bytes[r].data(), bytes[r].size());
    bytes[r] = {};
  }
  return to;
}

}  // namespace terrace
