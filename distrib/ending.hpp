// How a process ends when the job cannot be ended in good order.
#pragma once
#include <functional>

namespace terrace {

/// Looks `seconds` from now, in a process of its own, whether the launcher that started this rank
/// (mpirun, orterun, prterun or their daemons) still lives, and kills it then: Open MPI waits for
/// ever for a host that it cannot reach, and ignores SIGTERM. Nothing happens under other
/// launchers.
void end_launcher_later(double seconds);

/// Calls sudden_exit(code) from a thread of its own after `seconds`.
void sudden_exit_later(int code, double seconds);

/// While one exists, a crash of any thread (SIGSEGV, SIGBUS, SIGABRT) stops that thread alone: `last`
/// runs in another, and the process ends with `code`. For MPI_Finalize, when all work is done and
/// told. One at a time.
class CrashIsLate {
 public:
  CrashIsLate(int code, std::function<void()> last);
  ~CrashIsLate();
  CrashIsLate(const CrashIsLate&) = delete;
  CrashIsLate& operator=(const CrashIsLate&) = delete;
};

}  // namespace terrace
