#include "kernels/base/parallel.hpp"

#include <cblas.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/callers.hpp"
#include "kernels/base/clock.hpp"
#include "kernels/base/threads.hpp"

namespace terrace {
namespace {

thread_local bool inside_a_piece = false;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// True once `ready()` holds; false after 50 us, what waking a thread costs.
template <class Ready>
bool spin_until(const Ready& ready) {
  const auto end = Clock::now() + std::chrono::microseconds(50);
  do {
    for (int i = 0; i < 16; ++i) {
      if (ready()) return true;
      pause_briefly();
    }
  } while (Clock::now() < end);
  return false;
}

/// Workers that sleep when no job comes for a while; the calling thread works too, and waits for no
/// worker that has not begun: where all is done before a sleeping worker wakes, it is not missed.
class Pool {
 public:
  explicit Pool(int threads) {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { serve(); });
  }
  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  void run(Index count, const std::function<void(Index)>& piece) {
    {
      const std::lock_guard lock(mutex_);
      piece_ = &piece;
      count_ = count;
      next_ = 0;
      inside_.store(0, std::memory_order_release);
      ++job_;
    }
    wake_.notify_all();
    work();
    inside_ -= closed;
    const auto done = [this] { return inside_.load(std::memory_order_acquire) == -closed; };
    if (!spin_until(done)) {
      std::unique_lock lock(mutex_);
      done_.wait(lock, done);
    }
    piece_ = nullptr;
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }
  [[nodiscard]] Index size() const { return Index(workers_.size()) + 1; }
  std::mutex in_use;  ///< held by the thread whose job is running

 private:
  void serve() {
    std::uint64_t seen = 0;
    const auto called = [&] { return closing_.load() || job_.load() != seen; };
    while (true) {
      if (!spin_until(called)) {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, called);
      }
      if (closing_) return;
      seen = job_;
      if (!enter()) continue;
      work();
      if (inside_.fetch_sub(1, std::memory_order_acq_rel) != 1 - closed) continue;
      const std::lock_guard lock(mutex_);
      done_.notify_one();
    }
  }
  /// False: the job is done. It may be one job later than the one that was seen.
  bool enter() {
    int count = inside_.load(std::memory_order_relaxed);
    while (count >= 0)
      if (inside_.compare_exchange_weak(count, count + 1, std::memory_order_acquire)) return true;
    return false;
  }
  void work() {
    inside_a_piece = true;
    try {
      for (Index i = next_++; i < count_; i = next_++) (*piece_)(i);
    } catch (...) {
      next_ = count_;
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
    inside_a_piece = false;
  }

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const std::function<void(Index)>* piece_ = nullptr;
  Index count_ = 0;
  std::atomic<Index> next_ = 0;
  static constexpr int closed = 1 << 30;
  std::atomic<int> inside_ = -closed;  ///< workers in the job; minus `closed`: no more may begin
  std::atomic<std::uint64_t> job_ = 0;
  std::atomic<bool> closing_ = false;
  std::exception_ptr failure_;
};

int cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

std::atomic<int> wanted = 0;

Pool& pool() {
  static Pool instance(thread_count());
  return instance;
}

}  // namespace

std::string threads_named_by() {
  for (const char* name : thread_variables)
    if (const char* const text = std::getenv(name); text && std::atoi(text) > 0) return name;
  return "cores";
}

int named_threads() {
  const char* const text = std::getenv(threads_named_by().c_str());
  return text ? std::atoi(text) : 0;
}

int thread_count() {
  if (wanted == 0) {
    const int named = named_threads();
    set_thread_count(named > 0 ? named : cores());
  }
  return wanted;
}

void set_thread_count(int count) {
  openblas_set_num_threads(1);
  wanted = std::max(1, count);
}

int blas_threads() { return openblas_get_num_threads(); }
void set_blas_threads(int count) { openblas_set_num_threads(count); }

std::string blas_version() {
  std::string header = OPENBLAS_VERSION;  // " OpenBLAS 0.3.21 "
  std::erase(header, ' ');
  std::string built = openblas_get_config();
  built.erase(built.find_last_not_of(' ') + 1);
  return built + " (header " + header.substr(std::min(header.size(), std::size_t(8))) + ")";
}

void parallel_for(Index count, const std::function<void(Index)>& piece) {
  const bool alone = count <= 1 || inside_a_piece || thread_count() == 1;
  if (!alone) {
    Pool& workers = pool();
    const std::unique_lock lock(workers.in_use, std::try_to_lock);
    if (lock) return workers.run(count, piece);
  }
  for (Index i = 0; i < count; ++i) piece(i);
}

void work_alone() { inside_a_piece = true; }

bool Team::await(const std::atomic<Index>& flag, Index value) {
  const auto ready = [&] { return flag.load(std::memory_order_acquire) == value; };
  if (spin_until(ready)) return false;
  do sched_yield();
  while (!ready());
  return true;
}

void Team::barrier() const {
  const Index round = shared_.round.load(std::memory_order_relaxed);
  if (shared_.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 < size) {
    await(shared_.round, round + 1);
    return;
  }
  shared_.arrived.store(0, std::memory_order_relaxed);
  shared_.round.store(round + 1, std::memory_order_release);
}

void parallel_team(Index most, const std::function<void(const Team&)>& work) {
  Team::Shared shared;
  if (std::min<Index>(most, thread_count()) > 1 && !inside_a_piece) {
    Pool& workers = pool();
    const Index size = std::min({most, Index(thread_count()), workers.size()});
    const std::unique_lock lock(workers.in_use, std::try_to_lock);
    // A thread waits inside its piece for the others, so no thread takes two.
    if (lock) return workers.run(size, [&](Index rank) { work({rank, size, shared}); });
  }
  work({0, 1, shared});
}

void parallel_ranges(Index count, Index grain, const std::function<void(Index, Index)>& piece) {
  parallel_for(ceil_div(count, grain),
               [&](Index i) { piece(i * grain, std::min(count, (i + 1) * grain)); });
}

}  // namespace terrace
