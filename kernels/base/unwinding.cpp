#include "kernels/base/unwinding.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>

#include "kernels/base/clock.hpp"

namespace terrace {

namespace {
std::atomic<Clock::rep> waiting_since{0};
std::mutex text_guard;
char text[512];  // no memory is asked for while an error is made
std::atomic<bool> all_know{false};
}  // namespace

MayWait::MayWait() noexcept {
  if (std::uncaught_exceptions() == 0 || all_know) return;
  Clock::rep none = 0;  // the first of several threads
  marked_ = waiting_since.compare_exchange_strong(none, Clock::now().time_since_epoch().count());
}
MayWait::~MayWait() {
  if (marked_) waiting_since = 0;
}

double unwinding_seconds() {
  const Clock::rep start = waiting_since;
  if (start == 0) return 0;
  return since(Clock::time_point(Clock::duration(start)));
}

void note_error(const std::string& message, bool agreed) noexcept {
  all_know = agreed;
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
