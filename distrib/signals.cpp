#include "distrib/signals.hpp"

#include <atomic>
#include <csignal>

#include "distrib/place.hpp"

namespace terrace {

namespace {

static_assert(std::atomic<int>::is_always_lock_free);
std::atomic<int> checkpoints{0}, stops{0}, last_stop{0};
struct sigaction before_watching[3];
constexpr int watched[] = {SIGUSR1, SIGUSR2, SIGTERM};
int watching = 0;

void on_signal(int number) {
  if (number == SIGUSR1) {
    checkpoints = 1;
    return;
  }
  if (last_stop.exchange(number) != 0) sudden_exit(128 + number);
  stops = 1;
}

}  // namespace

void watch_signals() {
  if (watching++ > 0) return;
  struct sigaction action {};
  action.sa_handler = &on_signal;
  action.sa_flags = SA_RESTART;
  for (int k = 0; k < 3; ++k) {
    sigaction(watched[k], nullptr, &before_watching[k]);
    if (before_watching[k].sa_handler != SIG_IGN) sigaction(watched[k], &action, nullptr);
  }
}

void ignore_signals() {
  if (watching == 0 || --watching > 0) return;
  for (int k = 0; k < 3; ++k) sigaction(watched[k], &before_watching[k], nullptr);
  checkpoints = stops = last_stop = 0;
}

SignalRequest take_signal_request() {
  return {checkpoints.exchange(0) != 0, stops.exchange(0) != 0};
}

std::string stopping_signal() {
  switch (last_stop) {
    case SIGUSR2:
      return "SIGUSR2";
    case SIGTERM:
      return "SIGTERM";
    default:
      return {};
  }
}

}  // namespace terrace
