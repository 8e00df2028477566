#include "distrib/watched.hpp"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <list>
#include <mutex>
#include <utility>

namespace terrace {

namespace {

struct Watch {
  std::function<std::string()> look;
  std::function<void()> abort;
};
std::mutex watches_guard;
std::list<std::shared_ptr<Watch>> watches;

}  // namespace

std::string failure_of_watched() {
  const std::unique_lock<std::mutex> lock(watches_guard, std::try_to_lock);
  if (!lock.owns_lock()) return {};
  for (const auto& w : watches)
    if (std::string failure = w->look(); !failure.empty()) return failure;
  return {};
}

void abort_watched() {
  static std::atomic<bool> done;
  done = false;
  const auto body = [](void*) -> void* {
    const std::lock_guard<std::mutex> lock(watches_guard);
    for (const auto& w : watches) w->abort();
    done = true;
    return nullptr;
  };
  {
    const std::unique_lock<std::mutex> lock(watches_guard, std::try_to_lock);
    if (lock.owns_lock() && watches.empty()) return;
  }
  pthread_t helper{};
  if (pthread_create(&helper, nullptr, body, nullptr) != 0) return;
  pthread_detach(helper);
  for (int k = 0; k < 100 && !done; ++k) usleep(10'000);
}

Watched::Watched(std::function<std::string()> look, std::function<void()> abort)
    : entry_(std::make_shared<Watch>(Watch{std::move(look), std::move(abort)})) {
  const std::lock_guard<std::mutex> lock(watches_guard);
  watches.push_back(std::static_pointer_cast<Watch>(entry_));
}
Watched::~Watched() {
  const std::lock_guard<std::mutex> lock(watches_guard);
  watches.remove(std::static_pointer_cast<Watch>(entry_));
}

}  // namespace terrace
