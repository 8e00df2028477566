// This host's processing units, memory (NUMA) nodes and network cards. Local: no rank is asked.
// topology_hwloc.cpp reads the nodes through hwloc, topology_sys.cpp without hwloc from /sys. What is
// near a device is always read from /sys: hwloc would read the configuration of every PCI device,
// 0.02 s of each start on a virtual machine.
#pragma once
#include <string>
#include <vector>

namespace terrace {

struct Topology {
  /// Processing units of each node that has some, by their numbers in Linux; threads of one core
  /// are neighbours.
  std::vector<std::vector<int>> nodes;
};
Topology read_topology();
/// The first line of a file of /sys; empty where there is none.
std::string first_line(const std::string& file);
/// The index in Topology::nodes near a PCI device ("0000:1b:00.0"); -1: unknown, or near several.
int node_near_pci(const std::string& bus);
/// The node of these processing units; -1: of several, or none.
int node_of(const Topology& topology, const std::vector<int>& units);
/// "hwloc 2.9.0 (header 2.9.0)", or what is used instead.
std::string topology_source();

struct NetworkCard {
  std::string name;
  int node = -1;  ///< as node_near_pci()
};
/// InfiniBand adapters, and Ethernet cards that are hardware.
std::vector<NetworkCard> network_cards();

/// Processing units that the calling thread may run on, and binding all threads of this process.
std::vector<int> allowed_units();
void bind_process(const std::vector<int>& units);
/// "0-3,8" and back; what cannot be read ends the list.
std::string to_list(const std::vector<int>& units);
std::vector<int> from_list(const std::string& text);

}  // namespace terrace
