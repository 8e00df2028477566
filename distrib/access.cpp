#include "distrib/access.hpp"

#include <unistd.h>

#include <atomic>
#include <csignal>

#include "distrib/place.hpp"

namespace terrace {
namespace {

constexpr int watched[] = {SIGSEGV, SIGBUS};
struct sigaction before[2];

struct Watch {
  bool (*broken)(void*) = nullptr;
  void* what = nullptr;
  std::string message;
  int code = 0;
} watch;
std::atomic<int> asked = 0;

void at_access(int) {
  if (asked.fetch_add(1) == 0) {
    if (watch.broken(watch.what)) {
      [[maybe_unused]] const auto written =
          write(STDERR_FILENO, watch.message.data(), watch.message.size());
      sudden_exit(watch.code);
    }
    for (int k = 0; k < 2; ++k) sigaction(watched[k], &before[k], nullptr);
    asked = -(1 << 20);  // whoever waits comes back to the access
    return;
  }
  while (asked > 0) usleep(1000);  // another thread is asking
}

}  // namespace

AccessWatch::AccessWatch(bool (*broken)(void*), void* what, std::string message, int code) {
  watch = {broken, what, std::move(message), code};
  asked = 0;
  struct sigaction action {};
  action.sa_handler = at_access;
  sigemptyset(&action.sa_mask);
  for (int k = 0; k < 2; ++k) sigaction(watched[k], &action, &before[k]);
}

AccessWatch::~AccessWatch() {
  for (int k = 0; k < 2; ++k) sigaction(watched[k], &before[k], nullptr);
}

}  // namespace terrace
