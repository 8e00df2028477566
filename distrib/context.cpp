#include "distrib/context.hpp"

#include <cstdlib>
#include <string>

#include "kernels/base/peer_messages.hpp"

namespace terrace {

bool may_use_peer_memory(const Control& control) {
  const char* const wanted = std::getenv("TERRACE_PEER_MEMORY");
  return !(wanted && std::string(wanted) == "0") && control.size() <= most_peers &&
         control.local_size() == control.size();
}

template <>
Context<Cpu> make_context(const Control& control, const DeviceWish& /*wish*/) {
  return {control, Communicator<Cpu>(control)};
}

}  // namespace terrace
