#include "src/frame/progress.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "distrib/faults.hpp"
#include "distrib/place.hpp"
#include "distrib/session.hpp"
#include "kernels/base/stream.hpp"

namespace terrace {

namespace {

/// The terminal that the launcher was started from, if it is still its foreground; -1: none.
int terminal_of_launcher() {
  const int file = open("/dev/tty", O_WRONLY | O_NOCTTY | O_CLOEXEC);
  if (file < 0) return -1;
  const pid_t front = tcgetpgrp(file);
  if (front > 0 && (front == getpgrp() || front == getpgid(getppid()))) return file;
  close(file);
  return -1;
}

int width_of(int file) {
  winsize size{};
  if (ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* const text = std::getenv("COLUMNS");
  const int width = text ? std::atoi(text) : 0;
  return width > 0 ? width : 80;
}

/// "9 s", "1 min 20 s", "3 h 5 min".
std::string duration(double seconds) {
  const auto whole = Index(std::llround(std::min(std::max(seconds, 0.0), 1e9)));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

/// "3.4 of 12 GB", in the unit of the total.
std::string amount(double done, double total) {
  const char* const units[] = {"bytes", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  while (unit < 4 && total >= 1000) {
    total /= 1000;
    done /= 1000;
    ++unit;
  }
  return fmt::format("{:.3g} of {:.3g} {}", done, total, units[unit]);
}

}  // namespace

Screen find_screen(const std::string& progress) {
  if (progress == "never") return {};
  Screen screen{STDERR_FILENO, isatty(STDERR_FILENO) != 0, 30.0, launched()};
  const char* const kind = std::getenv("TERM");
  if (kind && std::strcmp(kind, "dumb") == 0) screen.bar = false;
  if (!screen.bar && launched())
    if (const int file = terminal_of_launcher(); file >= 0) screen.file = file, screen.bar = true;
  if (progress == "always") screen.bar = true;
  if (screen.bar) screen.every = 0.2;
  const char* const text = std::getenv("TERRACE_PROGRESS_SECONDS");
  if (text && std::atof(text) > 0) {
    screen.every = std::atof(text);
    screen.first = 0;
    screen.grows = false;
  }
  return screen;
}

Progress::Progress(const Screen& screen)
    : screen_(screen), born_(Clock::now()), last_(Clock::now()) {
  if (screen_.file >= 0) thread_ = std::thread([this] { watch(); });
}

Progress::~Progress() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
  clear();
  if (screen_.file > STDERR_FILENO) close(screen_.file);
}

void Progress::enter(const std::string& what, double total, std::function<double()> bytes) {
  if (screen_.file < 0) return;
  const std::lock_guard lock(mutex_);
  phase_ = {what, total, std::move(bytes), Clock::now()};
}

void Progress::leave() {
  if (screen_.file < 0) return;
  const std::lock_guard lock(mutex_);
  phase_ = {};
}

void Progress::begin(const std::string& what, double total) {
  done_ = 0;
  reach_step(0);  // who tells of a lost rank says where the work was, before its own first step too
  total_ = total;
  if (screen_.file < 0) return;
  const std::lock_guard lock(mutex_);
  loop_ = {what, total, {}, Clock::now()};
}

void Progress::tick(double done, Index step) {
  reach_step(step >= 0 ? step : Index(done));
  static const int held_up = [] {  // milliseconds per step; tests that must meet a loop only
    const char* text = test_setting("TERRACE_TEST_STEP_DELAY_MS");
    return text ? std::atoi(text) : 0;
  }();
  if (held_up > 0) std::this_thread::sleep_for(std::chrono::milliseconds(held_up));
  const SettlesLanes settles;  // who asks may end the run
  inject_fault_here();
  done_ = done;
  if (asked) asked(total_ > 0 ? std::min(done / total_, 1.0) : 0.0);
}

void Progress::end() {
  if (screen_.file < 0) return;
  const std::lock_guard lock(mutex_);
  loop_ = {};
}

void Progress::clear() {
  if (screen_.file < 0) return;
  const std::lock_guard lock(mutex_);
  if (!std::exchange(drawn_, false)) return;
  const std::string blank = fmt::format("\r{:{}}\r", "", std::max(width_of(screen_.file) - 1, 8));
  [[maybe_unused]] const auto ignored = write(screen_.file, blank.data(), blank.size());
}

void Progress::watch() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);  // they are the main thread's
  std::unique_lock lock(mutex_);
  const double pause = std::clamp(screen_.every, 0.001, 0.2);
  while (!over_) {
    changed_.wait_for(lock, std::chrono::duration<double>(pause));
    if (!over_) draw();
  }
}

std::string Progress::text_of(const Stretch& now, double part) const {
  const double spent = since(now.start);
  if (now.total <= 0) return fmt::format("{}  {}", now.what, duration(spent));
  std::string text = fmt::format("{} {:5.1f} %", now.what, 100 * part);
  if (now.bytes) text += "  " + amount(part * now.total, now.total);
  if (part > 0) text += fmt::format("  {} left", duration(spent / part - spent));
  return text;
}

void Progress::draw() {
  const Stretch& now = loop_.total > 0 ? loop_ : phase_;
  if (now.what.empty()) return;
  const double age = since(born_), waited = since(last_);
  const double every =
      screen_.grows && !screen_.bar ? std::clamp(age / 10, 5.0, 30.0) : screen_.every;
  if (waited < every || age < screen_.first) return;
  last_ = Clock::now();
  const double done = now.bytes ? now.bytes() : done_.load();
  const double part = now.total > 0 ? std::clamp(done / now.total, 0.0, 1.0) : 0.0;
  std::string text = text_of(now, part);
  if (screen_.bar) {
    const auto width = std::size_t(std::max(width_of(screen_.file) - 1, 8));
    if (now.total > 0 && text.size() + 8 <= width) {
      const std::size_t length = std::min<std::size_t>(30, width - text.size() - 3);
      const auto filled = std::size_t(part * double(length));
      text = fmt::format("[{:#<{}}{:.<{}}] {}", "", filled, "", length - filled, text);
    }
    text.resize(width, ' ');
    text.insert(0, 1, '\r');
    drawn_ = true;
  } else {
    text += "\n";
  }
  [[maybe_unused]] const auto ignored = write(screen_.file, text.data(), text.size());
}

}  // namespace terrace
