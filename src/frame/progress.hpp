// How far a run is, for people, and the checkpoints on its way.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "kernels/base/backend.hpp"
#include "kernels/base/clock.hpp"

namespace terrace {

class Checkpoints;

/// Where progress is shown, and how often: as a bar that is drawn again and again on a terminal, or
/// as lines.
struct Screen {
  int file = -1;       ///< descriptor; -1: nothing is shown
  bool bar = false;    ///< else lines on standard error
  double every = 0.2;  ///< seconds from one to the next
  bool grows = false;  ///< from 5 to 30 s: lines under a launcher
  double first = 1;    ///< seconds of the run before the first one
};
/// For `progress`, "auto", "always" or "never". Standard error, if it is a terminal; under a
/// launcher, which makes it a pipe, the terminal that controls the process, if the launcher is in
/// its foreground. TERRACE_PROGRESS_SECONDS sets `every`, and then nothing waits.
Screen find_screen(const std::string& progress);

/// Percent and time left of each phase of a run. A thread of its own
/// draws, so that long steps and reading show as well. On one rank only; the others have no screen,
/// but tick() tells every rank's current_place(), where the step is `done` unless it is given.
class Progress {
 public:
  explicit Progress(const Screen& screen);
  Progress(bool enabled, bool bar)
      : Progress(enabled ? Screen{2, bar, bar ? 0.2 : 30.0} : Screen()) {}
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// A phase of the run: "reading", .. Without a total only its time is known. `bytes` is asked how
  /// many of `total` bytes are done; from any thread.
  void enter(const std::string& what, double total = 0, std::function<double()> bytes = {});
  void leave();
  /// A loop within it; total in units of tick().
  void begin(const std::string& what, double total);
  void tick(double done, Index step = -1);  ///< cheap; step: where `done` does not count steps
  void end();
  /// The bar makes room for a line of text, until it is drawn next.
  void clear();

  Checkpoints* checkpoints = nullptr;  ///< of the running command; src/frame/checkpoints.hpp
  /// Told of each tick() which part of the loop is done; what it throws ends the run.
  std::function<void(double part)> asked;

 private:
  struct Stretch {
    std::string what;
    double total = 0;
    std::function<double()> bytes;
    Clock::time_point start;
  };
  void watch();
  void draw();
  [[nodiscard]] std::string text_of(const Stretch& now, double part) const;

  const Screen screen_;
  const Clock::time_point born_;
  std::mutex mutex_;  // of all below but done_
  std::condition_variable changed_;
  Stretch phase_, loop_;
  bool over_ = false, drawn_ = false;
  Clock::time_point last_;
  std::atomic<double> done_{0};
  double total_ = 0;
  std::thread thread_;
};

}  // namespace terrace
