#include "distrib/context.hpp"

namespace terrace {

template <>
Context<Cpu> make_context(const Control& control) {
  return {control, Communicator<Cpu>(control)};
}

}  // namespace terrace
