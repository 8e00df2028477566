// The one exception type: a message and the exit code it leads to.
#pragma once
#include <stdexcept>
#include <string>

#include "kernels/base/unwinding.hpp"

namespace terrace {

/// Process exit codes; the contract of the command line.
enum class Exit : int {
  done = 0,
  usage = 2,      ///< wrong options, an output that exists
  input = 3,      ///< missing, malformed, wrong shape, NaN or Inf, not symmetric
  outcome = 4,    ///< singular, not positive definite, inconsistent, not converged, check failed
  resources = 5,  ///< memory, devices, disk full
  fault = 6,      ///< a rank, a device or the network failed
  internal = 70,
  requeue = 75  ///< stopped on a signal with a valid checkpoint
};

/// Message form: "what is wrong; where; what to do".
class Error : public std::runtime_error {
 public:
  Error(Exit code, const std::string& message) : std::runtime_error(message), code_(code) {
    note_error(message, false);
  }
  [[nodiscard]] Exit code() const { return code_; }
  /// True when every rank throws the same error at the same point (see distrib/agree.hpp).
  [[nodiscard]] bool agreed() const { return agreed_; }
  [[nodiscard]] Error as_agreed() const {
    Error e = *this;
    e.agreed_ = true;
    note_error(what(), true);
    return e;
  }

 private:
  Exit code_;
  bool agreed_ = false;
};

}  // namespace terrace
