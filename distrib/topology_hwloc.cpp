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
#if HWLOC_API_VERSION >= 0x00020100
    if (made)  // they start the devices: distrib/session.cpp
      for (const char* name : {"opencl", "gl", "cuda", "nvml", "rsmi", "levelzero"})
        hwloc_topology_set_components(made, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, name);
#endif
    if (made && (hwloc_topology_set_io_types_filter(made, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) != 0 ||
                 hwloc_topology_load(made) != 0))
      owned.reset();
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

int node_near_pci(const std::string& bus) {
  const hwloc_topology_t all = handle();
  const hwloc_obj_t device = all ? hwloc_get_pcidev_by_busidstring(all, bus.c_str()) : nullptr;
  const hwloc_obj_t near = device ? hwloc_get_non_io_ancestor_obj(all, device) : nullptr;
  if (!near || !near->cpuset) return -1;
  int found = -1;
  const auto nodes = nodes_with_units(all);
  for (std::size_t n = 0; n < nodes.size(); ++n)
    if (hwloc_bitmap_intersects(nodes[n]->cpuset, near->cpuset)) {
      if (found >= 0) return -1;
      found = int(n);
    }
  return found;
}

std::string topology_source() {
  return "hwloc " + version_text(hwloc_get_api_version()) + " (header " +
         version_text(HWLOC_API_VERSION) + ")";
}

}  // namespace terrace
