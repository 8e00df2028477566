#include "distrib/place.hpp"

#include <unistd.h>

#include <atomic>
#include <mutex>

namespace terrace {

namespace {
std::mutex guard;
std::string phase = "start";
std::atomic<Index> step{-1};
std::atomic<void (*)()> hook{nullptr};
}  // namespace

void enter_phase(const std::string& name) {
  const std::lock_guard<std::mutex> lock(guard);
  phase = name;
  step = -1;
}
void reach_step(Index done) { step = done; }

Place current_place() {
  const std::lock_guard<std::mutex> lock(guard);
  return {phase, step};
}
std::string to_string(const Place& place) {
  return "phase " + place.phase +
         (place.step < 0 ? std::string() : ", step " + std::to_string(place.step));
}

void before_sudden_exit(void (*work)()) { hook = work; }
void before_the_end() {
  if (auto* const work = hook.load()) work();
}
void sudden_exit(int code) {
  before_the_end();
  _exit(code);
}

}  // namespace terrace
