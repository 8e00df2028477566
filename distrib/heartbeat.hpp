// Every rank knows that the others live: a thread on each rank, over TCP connections of our own.
//
// MPI alone waits for ever for a rank that is stopped or behind a cut link. Here each rank tells
// rank 0 twenty times within the limit that it lives, and rank 0 answers. A connection that closes
// without goodbye, or silence for six tenths of the limit, ends the job: one line names the lost
// rank, its host and where the work was, and every rank that can be reached, or that reaches rank 0
// no more, ends with exit code 6.
#pragma once
#include <memory>
#include <string>

#include "distrib/control.hpp"

namespace terrace {

/// Seconds from a fault to the end of the job: TERRACE_HEARTBEAT_SECONDS, 10 by default; 0: no
/// heartbeat. TERRACE_STALL_SECONDS (default 0: never): a job whose ranks all stay at one place of
/// their work for so long ends too.
class Heartbeat {
 public:
  /// Collective. Does nothing for one rank. Where rank 0 cannot be reached over TCP, rank 0 says so
  /// in one line and the job goes on without.
  explicit Heartbeat(const Control& control);
  /// Says goodbye and waits until everybody did.
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  std::shared_ptr<void> state_;
};

/// Tells every rank that the job ends with `code` because of `cause` (which the caller prints);
/// returns when that is under way. They end at once.
void tell_fault(int code, const std::string& cause);

}  // namespace terrace
