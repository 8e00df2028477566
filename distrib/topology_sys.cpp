// The topology from /sys, where hwloc is not built in.
#include <algorithm>
#include <map>

#include "distrib/topology.hpp"

namespace terrace {

namespace {

/// Number of a node in Linux -> its processing units; nodes of memory alone are left out.
std::map<int, std::vector<int>> numbered_nodes() {
  std::map<int, std::vector<int>> nodes;
  const std::string folder = "/sys/devices/system/node";
  for (const int number : from_list(first_line(folder + "/online"))) {
    std::vector<int> units =
        from_list(first_line(folder + "/node" + std::to_string(number) + "/cpulist"));
    if (units.empty()) continue;
    std::map<int, int> core;  // the first thread of each thread's core
    for (const int unit : units) {
      const auto siblings = from_list(first_line(
          "/sys/devices/system/cpu/cpu" + std::to_string(unit) + "/topology/thread_siblings_list"));
      core[unit] = siblings.empty() ? unit : siblings.front();
    }
    std::stable_sort(units.begin(), units.end(), [&](int a, int b) { return core[a] < core[b]; });
    nodes[number] = units;
  }
  return nodes;
}

}  // namespace

Topology read_topology() {
  Topology topology;
  for (auto& [number, units] : numbered_nodes()) topology.nodes.push_back(units);
  if (topology.nodes.empty()) topology.nodes.push_back(allowed_units());
  return topology;
}

std::string topology_source() { return "none (/sys is read)"; }

}  // namespace terrace
