#include "src/frame/progress.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "distrib/faults.hpp"
#include "distrib/place.hpp"

namespace terrace {

namespace {
/// Where nobody can read it, it is not worth the run: fmt::print would throw.
void show(const std::string& text) { std::fputs(text.c_str(), stderr); }
}  // namespace

Progress::Progress(bool enabled, bool terminal)
    : enabled_(enabled), terminal_(terminal), every_(terminal ? 0.2 : 30.0) {
  const char* text = std::getenv("TERRACE_PROGRESS_SECONDS");
  if (text && std::atof(text) > 0) every_ = std::atof(text);
}

void Progress::begin(const std::string& what, double total) {
  what_ = what;
  total_ = total;
  start_ = last_ = Clock::now();
}

void Progress::tick(double done, Index step) {
  reach_step(step >= 0 ? step : Index(done));
  static const int held_up = [] {  // milliseconds a step; tests that must meet a loop only
    const char* text = test_setting("TERRACE_TEST_STEP_DELAY_MS");
    return text ? std::atoi(text) : 0;
  }();
  if (held_up > 0) std::this_thread::sleep_for(std::chrono::milliseconds(held_up));
  inject_fault_here();
  if (!enabled_ || total_ <= 0 || since(last_) < every_) return;
  last_ = Clock::now();
  const double spent = since(start_), part = std::min(1.0, done / total_);
  const double left = part > 0 ? spent / part - spent : 0;
  const std::string text = fmt::format("{} {:5.1f} %  {:.3g} steps/s  {:.0f} s left", what_,
                                       100 * part, done / std::max(spent, 1e-9), left);
  if (terminal_) {
    const int filled = int(part * 30);
    show(fmt::format("\r[{}{}] {}   ", std::string(filled, '#'), std::string(30 - filled, '.'),
                     text));
  } else {
    show(text + "\n");
  }
  std::fflush(stderr);
}

void Progress::end() {
  if (enabled_ && terminal_ && total_ > 0) show(fmt::format("\r{:90}\r", ""));
  total_ = 0;
}

}  // namespace terrace
