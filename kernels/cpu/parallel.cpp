#include "kernels/parallel.hpp"

#include <cblas.h>
#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace terrace {
namespace {

thread_local bool inside_a_piece = false;

/// Workers that sleep between jobs; the calling thread works too.
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
      busy_ = int(workers_.size());
      ++job_;
    }
    wake_.notify_all();
    work();
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return busy_ == 0; });
    piece_ = nullptr;
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }
  std::mutex in_use;  ///< held by the thread whose job is running

 private:
  void serve() {
    std::uint64_t seen = 0;
    while (true) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return closing_ || job_ != seen; });
        if (closing_) return;
        seen = job_;
      }
      work();
      const std::lock_guard lock(mutex_);
      if (--busy_ == 0) done_.notify_one();
    }
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
  int busy_ = 0;
  std::uint64_t job_ = 0;
  bool closing_ = false;
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

int thread_count() {
  if (wanted == 0) {
    const char* text = std::getenv("TERRACE_THREADS");
    const int named = text ? std::atoi(text) : 0;
    set_thread_count(named > 0 ? named : cores());
  }
  return wanted;
}

void set_thread_count(int count) {
  openblas_set_num_threads(1);
  wanted = std::max(1, count);
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

void parallel_ranges(Index count, Index grain, const std::function<void(Index, Index)>& piece) {
  parallel_for(ceil_div(count, grain),
               [&](Index i) { piece(i * grain, std::min(count, (i + 1) * grain)); });
}

}  // namespace terrace
