// The choices of distrib/binding.hpp: plain functions, so that any host can be tried.
#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "distrib/binding.hpp"

namespace terrace {

std::vector<int> choose_devices(const std::vector<DeviceSeeker>& ranks) {
  std::vector<std::vector<int>> wishes;  // ordinals, the best first
  for (const DeviceSeeker& rank : ranks) {
    if (rank.wish.must) {
      wishes.push_back({rank.wish.ordinal});
      continue;
    }
    std::vector<int> order(rank.uuids.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      const auto far = [&](int i) {
        if (i == rank.wish.ordinal) return 0;
        return rank.node >= 0 && rank.nodes[std::size_t(i)] != rank.node ? 2 : 1;
      };
      return far(a) < far(b);
    });
    wishes.push_back(order);
  }
  std::vector<int> chosen(ranks.size(), -1);
  std::map<std::string, std::size_t> owner;
  // Kuhn's augmenting paths: a rank takes a free device, or one whose owner finds another.
  std::function<bool(std::size_t, std::set<std::string>&)> seek = [&](std::size_t r,
                                                                      std::set<std::string>& seen) {
    for (const bool free_only : {true, false})
      for (const int ordinal : wishes[r]) {
        const std::string& uuid = ranks[r].uuids[std::size_t(ordinal)];
        if (free_only == owner.contains(uuid) || (!free_only && !seen.insert(uuid).second))
          continue;
        if (!free_only && !seek(owner[uuid], seen)) continue;
        owner[uuid] = r;
        chosen[r] = ordinal;
        return true;
      }
    return false;
  };
  std::map<std::string, int> load;
  for (const bool must : {true, false})
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      std::set<std::string> seen;
      if (ranks[r].wish.must == must) seek(r, seen);
    }
  for (const auto& [uuid, r] : owner) load[uuid] = 1;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (chosen[r] >= 0 || wishes[r].empty()) continue;
    chosen[r] = *std::min_element(wishes[r].begin(), wishes[r].end(), [&](int a, int b) {
      return load[ranks[r].uuids[std::size_t(a)]] < load[ranks[r].uuids[std::size_t(b)]];
    });
    ++load[ranks[r].uuids[std::size_t(chosen[r])]];
  }
  return chosen;
}

namespace {
/// Part number `part` of `parts` contiguous ones; all of them where there are fewer units.
std::vector<int> share_of(const std::vector<int>& units, std::size_t part, std::size_t parts) {
  if (units.size() < parts) return units;
  const auto at = [&](std::size_t p) { return units.begin() + long(units.size() * p / parts); };
  return {at(part), at(part + 1)};
}
}  // namespace

std::vector<std::vector<int>> choose_units(const std::vector<std::vector<int>>& nodes,
                                           const std::vector<int>& allowed,
                                           const std::vector<int>& near) {
  const std::set<int> may(allowed.begin(), allowed.end());
  std::vector<std::vector<int>> usable;  // units of a node that may be used
  std::vector<int> all;
  std::size_t nodes_in_use = 0;
  for (const auto& node : nodes) {
    usable.emplace_back();
    for (const int unit : node)
      if (may.contains(unit)) usable.back().push_back(unit), all.push_back(unit);
    nodes_in_use += !usable.back().empty();
  }
  std::vector<std::vector<int>> shares(near.size());
  if (nodes_in_use < 2) return shares;
  const bool nobody = std::all_of(near.begin(), near.end(), [](int n) { return n < 0; });
  std::map<int, std::size_t> wanted, given;
  for (const int node : near) ++wanted[node];
  for (std::size_t r = 0; r < near.size(); ++r) {
    if (nobody)
      shares[r] = share_of(all, r, near.size());
    else if (near[r] >= 0)
      shares[r] = share_of(usable[std::size_t(near[r])], given[near[r]]++, wanted[near[r]]);
  }
  return shares;
}

}  // namespace terrace
