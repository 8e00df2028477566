#include "kernels/base/unwinding.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <mutex>

namespace terrace {

namespace {
using Clock = std::chrono::steady_clock;
std::atomic<Clock::rep> waiting_since{0};
std::mutex text_guard;
char text[512];  // no memory is asked for while an error is made
}  // namespace

MayWait::MayWait() noexcept {
  if (std::uncaught_exceptions() == 0) return;
  Clock::rep none = 0;  // the first of several threads
  marked_ = waiting_since.compare_exchange_strong(none, Clock::now().time_since_epoch().count());
}
MayWait::~MayWait() {
  if (marked_) waiting_since = 0;
}

double unwinding_seconds() {
  const Clock::rep since = waiting_since;
  if (since == 0) return 0;
  return std::chrono::duration<double>(Clock::now().time_since_epoch() - Clock::duration(since))
      .count();
}

void note_error(const std::string& message) noexcept {
  const std::lock_guard lock(text_guard);
  const std::size_t size = std::min(message.size(), sizeof text - 1);
  std::memcpy(text, message.data(), size);
  text[size] = 0;
}
std::string last_error() {
  const std::lock_guard lock(text_guard);
  return text;
}

}  // namespace terrace
