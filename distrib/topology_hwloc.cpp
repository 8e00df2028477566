// The topology through hwloc.
#include <hwloc.h>

#include <memory>

#include "distrib/topology.hpp"

namespace terrace {

namespace {

struct Destroy {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
/// Read once; null where hwloc cannot.
hwloc_topology_t handle() {
  static const std::unique_ptr<hwloc_topology, Destroy> topology = [] {
    hwloc_topology_t made = nullptr;
    if (hwloc_topology_init(&made) != 0) made = nullptr;
    std::unique_ptr<hwloc_topology, Destroy> owned(made);
    if (made && hwloc_topology_load(made) != 0) owned.reset();  // without devices
    return owned;
  }();
  return topology.get();
}

std::vector<hwloc_obj_t> nodes_with_units(hwloc_topology_t topology) {
  std::vector<hwloc_obj_t> nodes;
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node));)
    if (node->cpuset && !hwloc_bitmap_iszero(node->cpuset)) nodes.push_back(node);
  return nodes;
}

std::string version_text(unsigned v) {
  return std::to_string(v >> 16) + "." + std::to_string(v >> 8 & 255) + "." +
         std::to_string(v & 255);
}

}  // namespace

Topology read_topology() {
  Topology topology;
  if (const hwloc_topology_t all = handle())
    for (const hwloc_obj_t node : nodes_with_units(all)) {
      topology.nodes.emplace_back();
      for (hwloc_obj_t unit = nullptr; (unit = hwloc_get_next_obj_inside_cpuset_by_type(
                                            all, node->cpuset, HWLOC_OBJ_PU, unit));)
        topology.nodes.back().push_back(int(unit->os_index));
    }
  if (topology.nodes.empty()) topology.nodes.push_back(allowed_units());
  return topology;
}

std::string topology_source() {
  return "hwloc " + version_text(hwloc_get_api_version()) + " (header " +
         version_text(HWLOC_API_VERSION) + ")";
}

}  // namespace terrace
