#include "io/portions.hpp"

#include <sys/mman.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>

#include "kernels/base/buffer.hpp"
#include "kernels/base/timeline.hpp"

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

namespace {

/// The two buffers, kept for the next call where they are page-locked: that takes 15 ms each time.
class Buffers {
 public:
  explicit Buffers(Index bytes) {
    if (memory_is_pinned()) {
      const std::lock_guard lock(kept().mutex);
      std::swap(pair_, kept().pair);
    }
    for (auto& buffer : pair_)
      if (buffer.size() < bytes) {
        buffer = PinnedBuffer<char>();
        buffer = PinnedBuffer<char>(bytes);
        large_pages(buffer);
      }
  }
  ~Buffers() {
    if (!memory_is_pinned() || pair_[0].size() > most) return;
    const std::lock_guard lock(kept().mutex);
    if (kept().pair[0].size() < pair_[0].size()) std::swap(pair_, kept().pair);
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  char* operator[](Index k) { return pair_[k % 2].data(); }

 private:
  static constexpr Index most = Index(64) << 20;
  using Pair = std::array<PinnedBuffer<char>, 2>;
  struct Kept {
    std::mutex mutex;
    Pair pair;
  };
  static Kept& kept() {
    static Kept* const all = new Kept;  // never freed: CUDA may have ended before
    return *all;
  }
  /// Pages of 2 MiB where there are some: a portion is touched page by page.
  static void large_pages(const PinnedBuffer<char>& buffer) {
    if (buffer.size() == 0) return;
    constexpr std::uintptr_t page = std::uintptr_t(2) << 20;
    const auto data = reinterpret_cast<std::uintptr_t>(buffer.data());
    const auto from = (data + page - 1) / page * page, to = data + std::uintptr_t(buffer.size());
    if (to > from + page) madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);
  }

  Pair pair_;
};

/// A stage and how the timeline calls it.
struct Named {
  const Stage& stage;
  const char *lane, *name;
  void operator()(Index k, char* buffer) const {
    const Noted noted(lane, name);
    stage(k, buffer);
  }
};

/// fill(k, buffer) and drain(k, buffer) for k = 0 .. count - 1, side by side; the one that is not
/// `mine` in a thread of its own. What either throws stops both.
void belt_of(Index count, Index buffer_bytes, bool both, bool fill_is_mine, const Named& fill,
             const Named& drain) {
  if (count <= 0) return;
  if (count == 1 || !both) {
    const Buffer<char, Cpu> buffer(buffer_bytes);
    for (Index k = 0; k < count; ++k) {
      fill(k, buffer.data());
      drain(k, buffer.data());
    }
    return;
  }
  Buffers buffers(buffer_bytes);
  const SettlesLanes settles;  // before another call gets the buffers
  Belt belt;
  const auto filling = [&] {
    for (Index k = 0; k < count && belt.wait_for_space(); ++k) {
      fill(k, buffers[k]);
      belt.filled();
    }
  };
  const auto draining = [&] {
    for (Index k = 0; k < count && belt.wait_for_data(); ++k) {
      drain(k, buffers[k]);
      belt.emptied();
    }
  };
  std::exception_ptr failure;
  std::thread other([&] {
    try {
      fill_is_mine ? draining() : filling();
    } catch (...) {
      failure = std::current_exception();
      belt.stop();
    }
  });
  try {
    fill_is_mine ? filling() : draining();
  } catch (...) {
    belt.stop();
    other.join();
    throw;
  }
  other.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

void overlap(Index count, Index buffer_bytes, bool ahead, const Stage& load, const Stage& use) {
  belt_of(count, buffer_bytes, ahead, false, {load, "file", "read"}, {use, "host", "take"});
}

void overlap_behind(Index count, Index buffer_bytes, const Stage& fill, const Stage& drain) {
  belt_of(count, buffer_bytes, true, true, {fill, "host", "fetch"}, {drain, "file", "write"});
}

}  // namespace terrace::io
