// Runs that an error ends on the way, at each of their steps, while lanes are at work.
#pragma once
#include <algorithm>
#include <stdexcept>

#include "src/frame/progress.hpp"

namespace terrace::test {

struct Stopped : std::runtime_error {
  Stopped() : std::runtime_error("stopped by the test") {}
};

/// run(progress, attempt) again and again, stopped in its first tick, its second, .. until it comes
/// through. attempt(f) catches the error that leaves f(), so that what `run` has freed or uses
/// then lay outside f. At most `most` stops, spread over the ticks; returns the number of ticks.
template <class Run>
Index stopped_at_each_tick(const Run& run, Index most = 12) {
  Index ticks = 0;
  {
    Progress whole(false, false);
    whole.asked = [&](double) { ++ticks; };
    run(whole, [](const auto& f) { f(); });
  }
  const Index stops = std::min(most, ticks);
  for (Index i = 0; i < stops; ++i) {
    Progress progress(false, false);
    progress.asked = [&, left = i * ticks / stops](double) mutable {
      if (left-- == 0) throw Stopped();
    };
    run(progress, [](const auto& f) {
      try {
        f();
      } catch (const Stopped&) {
      }
    });
  }
  return ticks;
}

}  // namespace terrace::test
