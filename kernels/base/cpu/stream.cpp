#include "kernels/base/stream.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/unwinding.hpp"

namespace terrace {

namespace {
thread_local bool on_a_lane = false;
}

struct Event<Cpu>::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
};

/// A thread that runs a queue in order, with random delays when TERRACE_CPU_DELAY_US is set.
struct Stream<Cpu>::Lane {
  Lane() {
    const char* text = std::getenv("TERRACE_CPU_DELAY_US");
    delay = text ? std::atoi(text) : 0;
    thread = std::thread([this] { serve(); });
  }
  ~Lane() {
    push({});
    thread.join();
  }
  void push(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex);
      queue.push_back(std::move(work));
      ++pending;
      if (!on_a_lane) giver = std::this_thread::get_id();
    }
    changed.notify_all();
  }
  void drain() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return pending == 0; });
    if (failure) std::rethrow_exception(std::exchange(failure, nullptr));
  }
  /// Waits for what this thread gave.
  void settle() {
    std::unique_lock lock(mutex);
    if (giver != std::this_thread::get_id()) return;
    changed.wait(lock, [this] { return pending == 0; });
    failure = nullptr;
  }
  void serve() {
    on_a_lane = true;
    std::minstd_rand random(std::random_device{}());
    while (true) {
      std::function<void()> work;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return !queue.empty(); });
        work = std::move(queue.front());
        queue.pop_front();
      }
      if (!work) return;
      if (delay > 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % delay));
      std::exception_ptr thrown;
      try {
        work();
      } catch (...) {
        thrown = std::current_exception();
      }
      work = nullptr;
      {
        const std::lock_guard lock(mutex);
        if (thrown && !failure) failure = thrown;
        --pending;
      }
      changed.notify_all();
    }
  }
  std::thread thread;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  int pending = 0, delay = 0;
  std::thread::id giver;  ///< of the last work
  std::exception_ptr failure;
};

struct Stream<Cpu>::Lanes {
  std::mutex mutex;
  std::vector<std::weak_ptr<Lane>> all;
  void add(const std::shared_ptr<Lane>& lane) {
    const std::lock_guard lock(mutex);
    std::erase_if(all, [](const auto& one) { return one.expired(); });
    all.push_back(lane);
  }
  void settle() {
    std::vector<std::weak_ptr<Lane>> now;
    {
      const std::lock_guard lock(mutex);
      now = all;
    }
    for (const auto& one : now)
      if (const std::shared_ptr<Lane> lane = one.lock()) lane->settle();
  }
  static Lanes& instance() {
    static auto* const lanes = new Lanes;  // buffers of static objects outlive everything else
    return *lanes;
  }
};

Stream<Cpu>::Stream(Priority) {
  const char* lanes = std::getenv("TERRACE_CPU_LANES");
  if (!lanes || std::strcmp(lanes, "threads") != 0) return;
  lane_ = std::make_shared<Lane>();
  Lanes::instance().add(lane_);
}

void Stream<Cpu>::run(std::function<void()> work) const {
  if (lane_) {
    lane_->push(std::move(work));
  } else {
    work();
  }
}

Event<Cpu> Stream<Cpu>::record() const {
  Event<Cpu> event;
  if (!lane_) return event;
  event.state_ = std::make_shared<Event<Cpu>::State>();
  lane_->push([state = event.state_] {
    const std::lock_guard lock(state->mutex);
    state->done = true;
    state->changed.notify_all();
  });
  return event;
}

void Stream<Cpu>::wait(const Event<Cpu>& event) const {
  if (!event.state_) return;
  run([state = event.state_] {
    std::unique_lock lock(state->mutex);
    state->changed.wait(lock, [&] { return state->done; });
  });
}

void Event<Cpu>::synchronize() const {
  if (!state_) return;
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->done; });
}

void Stream<Cpu>::synchronize() const {
  detail::count_synchronization();
  if (lane_) lane_->drain();
}

void settle_cpu_lanes() noexcept {
  if (on_a_lane) return;
  const MayWait mark;
  Stream<Cpu>::Lanes::instance().settle();
}
SettlesLanes::SettlesLanes() noexcept : errors_(std::uncaught_exceptions()) {}
SettlesLanes::~SettlesLanes() {
  if (std::uncaught_exceptions() <= errors_) return;
  settle_cpu_lanes();
  settle_device();
}

namespace {
std::atomic<Index> synchronizations{0};
}
Index host_synchronizations() { return synchronizations.load(std::memory_order_relaxed); }
void detail::count_synchronization() { synchronizations.fetch_add(1, std::memory_order_relaxed); }

}  // namespace terrace
