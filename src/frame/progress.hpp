// How far a loop is, for people, and the checkpoints on its way.
#pragma once
#include <string>

#include "kernels/base/backend.hpp"
#include "kernels/base/clock.hpp"

namespace terrace {

class Checkpoints;

/// Percent, rate and time left on stderr; rank 0 only. tick() is cheap and may be called often; it
/// tells every rank's current_place(), where the step is `done` unless it is given.
class Progress {
 public:
  Progress(bool enabled, bool terminal);
  void begin(const std::string& what, double total);  ///< total in units of tick()
  void tick(double done, Index step = -1);            ///< step: where `done` does not count steps
  void end();

  Checkpoints* checkpoints = nullptr;  ///< of the running command; src/frame/checkpoints.hpp

 private:
  bool enabled_, terminal_;
  double every_;  // seconds; TERRACE_PROGRESS_SECONDS
  std::string what_;
  double total_ = 0;
  Clock::time_point start_, last_;
};

}  // namespace terrace
