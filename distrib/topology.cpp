#include "distrib/topology.hpp"

#include <sched.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace terrace {

namespace fs = std::filesystem;

int node_of(const Topology& topology, const std::vector<int>& units) {
  int found = -1;
  for (const int unit : units)
    for (std::size_t n = 0; n < topology.nodes.size(); ++n)
      if (std::find(topology.nodes[n].begin(), topology.nodes[n].end(), unit) !=
          topology.nodes[n].end()) {
        if (found >= 0 && found != int(n)) return -1;
        found = int(n);
      }
  return found;
}

std::string first_line(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

int node_near_pci(const std::string& bus) {
  std::string name = bus;
  for (char& c : name) c = char(std::tolower(static_cast<unsigned char>(c)));
  return node_of(read_topology(),
                 from_list(first_line("/sys/bus/pci/devices/" + name + "/local_cpulist")));
}

std::vector<NetworkCard> network_cards() {
  std::vector<NetworkCard> cards;
  for (const char* kind : {"infiniband", "net"}) {
    std::error_code failed;
    for (fs::directory_iterator at(fs::path("/sys/class") / kind, failed), end;
         !failed && at != end; at.increment(failed)) {
      std::error_code none;
      const fs::path device = fs::canonical(at->path() / "device", none);
      if (none) continue;  // lo, bridges, the ends of containers
      fs::path card = device;
      while (card.has_filename() && card.filename().string().find(':') == std::string::npos)
        card = card.parent_path();  // virtio and USB cards hang below their PCI device
      cards.push_back({at->path().filename().string(), node_near_pci(card.filename().string())});
    }
  }
  std::sort(cards.begin(), cards.end(),
            [](const NetworkCard& a, const NetworkCard& b) { return a.name < b.name; });
  return cards;
}

std::vector<int> allowed_units() {
  std::vector<int> units;
  // As many bits as the kernel wants: hosts of more than 1,024 units exist.
  for (int most = 1024; most <= 1 << 20; most *= 2) {
    cpu_set_t* set = CPU_ALLOC(std::size_t(most));
    const std::size_t bytes = CPU_ALLOC_SIZE(std::size_t(most));
    const bool got = sched_getaffinity(0, bytes, set) == 0;
    for (int i = 0; got && i < most; ++i)
      if (CPU_ISSET_S(std::size_t(i), bytes, set)) units.push_back(i);
    CPU_FREE(set);
    if (got) break;
  }
  return units;
}

void bind_process(const std::vector<int>& units) {
  if (units.empty()) return;
  const int most = *std::max_element(units.begin(), units.end()) + 1;
  cpu_set_t* set = CPU_ALLOC(std::size_t(most));
  const std::size_t bytes = CPU_ALLOC_SIZE(std::size_t(most));
  CPU_ZERO_S(bytes, set);
  for (const int unit : units) CPU_SET_S(std::size_t(unit), bytes, set);
  std::error_code failed;
  for (fs::directory_iterator at("/proc/self/task", failed), end; !failed && at != end;
       at.increment(failed))
    sched_setaffinity(std::atoi(at->path().filename().c_str()), bytes, set);
  CPU_FREE(set);
}

std::string to_list(const std::vector<int>& given) {
  std::vector<int> units = given;
  std::sort(units.begin(), units.end());
  std::string text;
  for (std::size_t i = 0; i < units.size();) {
    std::size_t last = i;
    while (last + 1 < units.size() && units[last + 1] == units[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(units[i]);
    if (last > i) text.append("-").append(std::to_string(units[last]));
    i = last + 1;
  }
  return text;
}

std::vector<int> from_list(const std::string& text) {
  std::vector<int> units;
  const char* at = text.c_str();
  while (*at >= '0' && *at <= '9') {
    char* next = nullptr;
    const long first = std::strtol(at, &next, 10);
    long last = first;
    if (*next == '-') last = std::strtol(next + 1, &next, 10);
    for (long i = first; i <= last; ++i) units.push_back(int(i));
    if (*next != ',') break;
    at = next + 1;
  }
  return units;
}

}  // namespace terrace
