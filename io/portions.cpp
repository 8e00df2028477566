#include "io/portions.hpp"

#include <sys/mman.h>

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>

#include "kernels/buffer.hpp"

namespace terrace::io {

std::vector<Portion> cut(std::span<const Range> ranges, Index most) {
  most = std::max<Index>(1, most);
  std::vector<Portion> portions;
  Index position = 0;
  for (const Range& r : ranges)
    for (Index done = 0; done < r.count;) {
      if (portions.empty() || portions.back().items == most)
        portions.push_back({position, {}, {}, 0});
      const Index take = std::min(most - portions.back().items, r.count - done);
      portions.back().add({r.first + done, take});
      position += take;
      done += take;
    }
  return portions;
}

namespace {

/// Two buffers between a thread that fills them and one that takes what is in them.
class Belt {
 public:
  void filled() { step(full_, 1); }
  void emptied() { step(full_, -1); }
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
  }
  /// False when there is nothing to do any more.
  bool wait_for_space() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopped_ || full_ < 2; });
    return !stopped_;
  }
  bool wait_for_data() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopped_ || full_ > 0; });
    return full_ > 0;
  }

 private:
  void step(int& value, int by) {
    {
      const std::lock_guard lock(mutex_);
      value += by;
    }
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  int full_ = 0;
  bool stopped_ = false;
};

}  // namespace

void overlap(Index count, Index buffer_bytes, bool ahead,
             const std::function<void(Index, char*)>& load,
             const std::function<void(Index, char*)>& use) {
  if (count <= 0) return;
  if (count == 1 || !ahead) {
    const Buffer<char, Cpu> buffer(buffer_bytes);
    for (Index k = 0; k < count; ++k) {
      load(k, buffer.data());
      use(k, buffer.data());
    }
    return;
  }
  // Pages of 2 MiB where there are some: a portion is touched page by page.
  const auto large_pages = [&](char* data) {
    constexpr std::uintptr_t page = std::uintptr_t(2) << 20;
    const auto from = (reinterpret_cast<std::uintptr_t>(data) + page - 1) / page * page;
    const auto to = reinterpret_cast<std::uintptr_t>(data) + std::uintptr_t(buffer_bytes);
    if (to > from + page) madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);
  };
  const PinnedBuffer<char> buffers[2] = {PinnedBuffer<char>(buffer_bytes),
                                         PinnedBuffer<char>(buffer_bytes)};
  for (const auto& buffer : buffers)
    if (buffer.size() > 0) large_pages(buffer.data());
  Belt belt;
  std::exception_ptr failure;
  std::thread reader([&] {
    try {
      for (Index k = 0; k < count && belt.wait_for_space(); ++k) {
        load(k, buffers[k % 2].data());
        belt.filled();
      }
    } catch (...) {
      failure = std::current_exception();
      belt.stop();
    }
  });
  try {
    for (Index k = 0; k < count && belt.wait_for_data(); ++k) {
      use(k, buffers[k % 2].data());
      belt.emptied();
    }
  } catch (...) {
    belt.stop();
    reader.join();
    throw;
  }
  reader.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace terrace::io
