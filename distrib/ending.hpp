// How a process ends when the job cannot be ended in good order.
#pragma once

namespace terrace {

/// Looks `seconds` from now, in a process of its own, whether the launcher that started this rank
/// (mpirun, orterun, prterun or their daemons) still lives, and kills it then: Open MPI waits for
/// ever for a host that it cannot reach, and ignores SIGTERM. Nothing happens under other
/// launchers.
void end_launcher_later(double seconds);

/// Calls sudden_exit(code) from a thread of its own after `seconds`.
void sudden_exit_later(int code, double seconds);

}  // namespace terrace
