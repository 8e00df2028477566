#include "distrib/context.hpp"

namespace terrace {

template <>
Context<Cpu> make_context(const Control& control, int /*wish*/) {
  return {control, Communicator<Cpu>(control)};
}

}  // namespace terrace
