// The clock of all that is timed: it never steps back.
#pragma once
#include <chrono>

namespace terrace {

using Clock = std::chrono::steady_clock;

/// Seconds from a start of the clock's own; differences count.
inline double clock_seconds() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}
/// Seconds since `start`.
inline double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}
/// Seconds that `work` takes.
template <class Work>
double seconds_of(Work&& work) {
  const auto start = Clock::now();
  work();
  return since(start);
}

}  // namespace terrace
