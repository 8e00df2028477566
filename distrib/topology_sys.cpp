// The topology from /sys, where hwloc is not built in.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "distrib/topology.hpp"

namespace terrace {

namespace {

std::string first_line(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

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

int node_near_pci(const std::string& bus) {
  const std::string text = first_line("/sys/bus/pci/devices/" + bus + "/numa_node");
  if (text.empty() || text[0] == '-') return -1;
  int index = 0;
  for (const auto& [number, units] : numbered_nodes()) {
    if (number == std::atoi(text.c_str())) return index;
    ++index;
  }
  return -1;
}

std::string topology_source() { return "none (/sys is read)"; }

}  // namespace terrace
