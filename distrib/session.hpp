// RAII over MPI, and the last resort when one rank fails alone.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "distrib/control.hpp"
#include "distrib/heartbeat.hpp"
#include "distrib/watched.hpp"

namespace terrace {

/// Whether mpirun or srun started this process: its standard streams are the launcher's then.
bool launched();
/// This process's rank as its launcher says it, known before MPI is started; 0 without a launcher.
int launched_rank();

/// Exactly one per process, first in main().
class Session {
 public:
  Session(int* argc, char*** argv);  ///< MPI with MPI_THREAD_MULTIPLE
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  [[nodiscard]] const Control& control() const { return *control_; }
  /// This process's exit code is known, and all is done and told: a crash while MPI ends changes
  /// nothing.
  void ends_with(int code) { code_ = code; }

 private:
  std::unique_ptr<Control> control_;
  std::optional<int> code_;
  std::unique_ptr<Heartbeat> heartbeat_;
  std::optional<Watched> unwinding_;  ///< an error whose clean-up waits for a device
};

/// Runs body() on every rank and returns the process's exit code. An agreed Error (thrown by every
/// rank) is printed once, by rank 0, as "terrace: message". Any other exception is a lonely
/// failure: the rank prints itself and the cause and ends the whole job, so nobody waits for it.
/// `on_agreed_error` runs on every rank before its exit code is returned.
int guarded(const Control& control, const std::function<int()>& body,
            const std::function<void(int code, const std::string& message)>& on_agreed_error = {});

/// Ends the job on all ranks at once: they are told over the heartbeat and by MPI; where MPI cannot
/// end the job, this rank ends alone two seconds later.
[[noreturn]] void end_job(int exit_code, const std::string& message);

/// Host name of this rank, MPI library version (one line).
std::string host_name();
std::string mpi_version();

}  // namespace terrace
