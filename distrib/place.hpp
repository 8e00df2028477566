// Where this rank is in its work: for messages, the heartbeat and the faults that tests inject.
#pragma once
#include <string>

#include "kernels/base/backend.hpp"

namespace terrace {

struct Place {
  std::string phase;  ///< "read", "solve", "check", "write", or "start"
  Index step = -1;    ///< steps of the phase's loop that are done; -1 outside a loop
};
/// A phase begins on this rank. Not collective; one thread of the process calls it.
void enter_phase(const std::string& name);
/// `step` steps of the phase's loop are done.
void reach_step(Index step);
/// May be called by any thread.
Place current_place();
std::string to_string(const Place& place);  ///< "phase solve, step 17"

/// `hook` runs before this process ends without unwinding; it may call only what a signal handler
/// may. One at a time; null takes it away.
void before_sudden_exit(void (*hook)());
/// Runs the hook and ends this process at once. May be called in a signal handler.
[[noreturn]] void sudden_exit(int code);
/// Runs the hook: the end is sure, but not at once. As above.
void before_the_end();

}  // namespace terrace
