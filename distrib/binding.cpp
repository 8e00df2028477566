#include "distrib/binding.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string_view>

#include "distrib/agree.hpp"
#include "distrib/imagined.hpp"
#include "distrib/session.hpp"
#include "distrib/topology.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/base/stream.hpp"
#include "kernels/base/threads.hpp"

namespace terrace {

namespace {

bool oversubscription = false, unbound = false;

bool named(const char* variable, std::string_view value) {
  const char* text = std::getenv(variable);
  return text && value == text;
}

/// Local ranks of this host in order, and this rank's place among them.
struct Host {
  std::vector<std::size_t> ranks;
  std::size_t mine = 0;
};
Host this_host(const Control& control) {
  const std::vector<Index> hosts = control.gather_all(Index(control.host()));
  Host host;
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    if (hosts[r] != control.host()) continue;
    if (r == std::size_t(control.rank())) host.mine = host.ranks.size();
    host.ranks.push_back(r);
  }
  return host;
}

std::string shorter(const std::string& uuid) { return "GPU-" + uuid.substr(0, 8); }

/// "rank 0 -> GPU-1b2c3d4e, rank 1 -> ...": the ranks of the first host where some share a device.
std::string sharing(const std::vector<std::string>& uuids, const std::vector<Index>& hosts,
                    const std::vector<std::string>& names) {
  constexpr int most = 16;
  for (std::size_t first = 0; first < uuids.size(); ++first) {
    if (std::count(uuids.begin(), uuids.end(), uuids[first]) < 2) continue;
    std::string list;
    int ranks = 0;
    for (std::size_t r = 0; r < uuids.size(); ++r) {
      if (hosts[r] != hosts[first]) continue;
      if (++ranks <= most)
        list += (list.empty() ? "" : ", ") + std::string("rank ") + std::to_string(r) + " -> " +
                shorter(uuids[r]);
    }
    if (ranks > most) list += ", ...";
    return std::to_string(ranks) + " ranks of host " + names[first] + " share GPUs: " + list;
  }
  return {};
}

}  // namespace

void allow_oversubscription() { oversubscription = true; }
void leave_cores_unbound() { unbound = true; }

namespace {
/// The first device here, or the assumed one, as every rank of a plan has one.
DeviceBinding device_of_plan() {
  const DeviceInfo info = select_cuda_device(0);
  DeviceBinding binding;
  binding.name = info.name;
  binding.free_bytes = info.free_bytes;
  return binding;
}
}  // namespace

DeviceBinding bind_device(const Control& control, const DeviceWish& wish) {
  if (is_imagined(control)) return device_of_plan();
  const int devices = cuda_device_count();
  if (control.reduce(Index(devices), Reduce::min) == 0)
    fail_together(Exit::resources,
                  "no CUDA device is seen by some rank; --backend cuda; check nvidia-smi and "
                  "CUDA_VISIBLE_DEVICES, or use "
                  "--backend cpu");
  // What every rank wishes and sees: its node, then a device and its node each.
  std::ostringstream mine;
  collectively(control, [&] {
    const Topology topology = read_topology();
    mine << wish.ordinal << ' ' << wish.must << ' '
         << (topology.nodes.size() > 1 ? node_of(topology, allowed_units()) : -1);
    for (int i = 0; i < devices; ++i) {
      const DeviceInfo info = describe_cuda_device(i);
      mine << ' ' << info.uuid << ' ' << node_near_pci(info.pci);
    }
  });
  const std::vector<std::string> seen = control.gather_all(mine.str());
  const Host host = this_host(control);
  std::vector<DeviceSeeker> seekers;
  for (const std::size_t r : host.ranks) {
    std::istringstream text(seen[r]);
    DeviceSeeker& seeker = seekers.emplace_back();
    text >> seeker.wish.ordinal >> seeker.wish.must >> seeker.node;
    std::string uuid;
    for (int node = -1; text >> uuid >> node;) {
      seeker.uuids.push_back(uuid);
      seeker.nodes.push_back(node);
    }
  }
  DeviceBinding binding;
  binding.ordinal = choose_devices(seekers)[host.mine];
  binding.uuid = seekers[host.mine].uuids[std::size_t(binding.ordinal)];
  const auto all = control.gather_all(binding.uuid);
  const auto on_it = [&](const std::string& uuid) {
    return std::count(all.begin(), all.end(), uuid);
  };
  binding.shared =
      std::any_of(all.begin(), all.end(), [&](const std::string& uuid) { return on_it(uuid) > 1; });
  if (binding.shared && !oversubscription && !named("TERRACE_OVERSUBSCRIBE", "1")) {
    const auto hosts = control.gather_all(Index(control.host()));
    const auto names = control.gather_all(host_name());
    fail_together(Exit::resources,
                  sharing(all, hosts, names) +
                      "; in the start of the ranks; start one rank per GPU, or add "
                      "--oversubscribe");
  }
  const DeviceInfo info =
      collectively(control, [&] { return select_cuda_device(binding.ordinal); });
  binding.name = info.name;
  binding.pci = info.pci;
  binding.free_bytes = info.free_bytes / on_it(binding.uuid);
  return binding;
}

void bind_cores(const Control& control, const std::string& pci) {
  static bool done = false;
  if (done || is_imagined(control)) return;
  done = true;
  const std::vector<int> allowed = allowed_units();
  const auto lists = control.gather_all(to_list(allowed));
  const bool wanted = !unbound && !named("TERRACE_BIND", "none");
  if (control.reduce(Index(wanted), Reduce::min) == 0) return;
  const Topology topology = read_topology();
  const auto near = control.gather_all(Index(pci.empty() ? -1 : node_near_pci(pci)));
  const Host host = this_host(control);
  std::vector<int> local_near;
  for (const std::size_t r : host.ranks) {
    if (lists[r] != lists[host.ranks.front()]) return;  // the launcher bound them
    local_near.push_back(int(near[r]));
  }
  std::size_t units = 0;
  for (const auto& node : topology.nodes) units += node.size();
  if (host.ranks.size() == 1 && (allowed.size() < units || pci.empty())) return;
  const std::vector<int> share = choose_units(topology.nodes, allowed, local_near)[host.mine];
  if (share.empty()) return;
  bind_process(share);
  if (named_threads() == 0) set_thread_count(int(share.size()));
}

int fair_threads(const Control& control) {
  const std::vector<int> allowed = allowed_units();
  const auto lists = control.gather_all(to_list(allowed));
  int alike = 0;
  for (const std::size_t r : this_host(control).ranks)
    alike += lists[r] == lists[std::size_t(control.rank())];
  return std::max(1, int(allowed.size()) / std::max(1, alike));
}

}  // namespace terrace
