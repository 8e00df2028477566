// Which GPU and which cores a rank uses.
#pragma once
#include <string>
#include <vector>

#include "distrib/control.hpp"

namespace terrace {

struct DeviceBinding {
  int ordinal = 0;
  std::string name, uuid;
  std::string pci;      ///< "0000:1b:00.0"
  bool shared = false;  ///< some device carries more than one rank: collectives go through the host
  Index free_bytes = 0;  ///< of the device, divided by the ranks on it
};
/// A device that a rank would have.
struct DeviceWish {
  int ordinal = -1;   ///< -1: any
  bool must = false;  ///< no other will do
};
/// Binds this rank to a CUDA device: as it wishes; one that no other rank has, near the cores that
/// the launcher bound the rank to, else by its number among the ranks of the host. Throws an agreed
/// Error(resources) when any rank sees no device, or when ranks would share one (equal UUIDs) and
/// that was not allowed.
DeviceBinding bind_device(const Control& control, const DeviceWish& wish = {});

/// Several ranks per GPU are allowed: --oversubscribe; or TERRACE_OVERSUBSCRIBE=1.
void allow_oversubscription();
/// Cores are left as they are: --no-bind; or TERRACE_BIND=none.
void leave_cores_unbound();

/// Binds the threads of this process, once, where the launcher left the ranks of a host on the
/// same cores and these lie in more than one NUMA node: near the GPU (`pci`, empty without), shared
/// among the ranks of that node; without GPUs every rank gets a fair contiguous share. The number
/// of threads follows unless named_threads() is one. Collective.
void bind_cores(const Control& control, const std::string& pci);
/// Threads of this rank where nobody named them: ranks that may use the same cores share them.
int fair_threads(const Control& control);

/// A rank of one host, as choose_devices() sees it.
struct DeviceSeeker {
  std::vector<std::string> uuids;  ///< of the devices that the rank sees, by ordinal
  std::vector<int> nodes;          ///< NUMA node of each; -1: unknown
  int node = -1;                   ///< of the rank's cores; -1: of several
  DeviceWish wish{};
};
/// Ordinals for the ranks of a host, by local rank: as many different devices as can be (a maximum
/// matching), wished ones first, then near ones; what is left over goes where the fewest ranks are.
std::vector<int> choose_devices(const std::vector<DeviceSeeker>& ranks);
/// Processing units for the ranks of a host, by local rank. `nodes`: units of each NUMA node;
/// `allowed`: units that all these ranks may use; `near`: the node each rank wants, -1: any. An
/// empty list leaves the rank as it is.
std::vector<std::vector<int>> choose_units(const std::vector<std::vector<int>>& nodes,
                                           const std::vector<int>& allowed,
                                           const std::vector<int>& near);

}  // namespace terrace
