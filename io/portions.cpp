#include "io/portions.hpp"

#include <sys/mman.h>

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "kernels/base/buffer.hpp"
#include "kernels/base/parallel.hpp"
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

/// Buffers by turns between the calling thread, which goes through the numbers in order, and
/// helpers, each of which does the number that is next. Helpers fill and the caller empties, or the
/// other way round.
class Ring {
 public:
  Ring(Index count, Index buffers, bool helpers_fill)
      : count_(count),
        lead_(helpers_fill ? buffers : 0),
        awaited_(helpers_fill ? 0 : -buffers),
        done_(std::size_t(buffers)) {
    for (Index k = 0; k < buffers; ++k) done_[std::size_t(k)] = k - buffers;
  }
  /// What a helper does next; `count` when there is nothing any more.
  Index claim() {
    std::unique_lock lock(mutex_);
    for_helpers_.wait(lock, [this] { return over() || next_ < callers_ + lead_; });
    if (over()) return count_;
    if (next_ + 1 == count_) for_helpers_.notify_all();
    return next_++;
  }
  void done(Index k) {
    {
      const std::lock_guard lock(mutex_);
      done_[slot(k)] = k;
    }
    for_caller_.notify_one();
  }
  /// The buffer of k is the caller's; false where a helper has failed.
  bool await(Index k) {
    const auto ready = [&] { return done_[slot(k)] == k + awaited_; };
    std::unique_lock lock(mutex_);
    for_caller_.wait(lock, [&] { return stopped_ || ready(); });
    return ready();
  }
  /// It is a helper's again.
  void pass() {
    {
      const std::lock_guard lock(mutex_);
      ++callers_;
    }
    for_helpers_.notify_one();
  }
  void stop(std::exception_ptr failure = nullptr) {
    {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::move(failure);
      stopped_ = true;
    }
    for_helpers_.notify_all();
    for_caller_.notify_all();
  }
  /// Of the helpers, once they have ended.
  [[nodiscard]] const std::exception_ptr& failure() const { return failure_; }

 private:
  [[nodiscard]] std::size_t slot(Index k) const { return std::size_t(k) % done_.size(); }
  [[nodiscard]] bool over() const { return stopped_ || next_ == count_; }

  const Index count_, lead_, awaited_;
  std::mutex mutex_;
  std::condition_variable for_helpers_, for_caller_;
  std::vector<Index> done_;       ///< of each buffer, the last number that a helper has done
  Index next_ = 0, callers_ = 0;  ///< the helpers' next number, and the caller's
  bool stopped_ = false;
  std::exception_ptr failure_;
};

/// The buffers, kept for the next call where they are page-locked: that takes milliseconds.
class Buffers {
 public:
  Buffers(Index count, Index bytes) : count_(count), distance_(round_up(bytes, 4096)) {
    if (memory_is_pinned()) {
      const std::lock_guard lock(kept().mutex);
      std::swap(memory_, kept().memory);
    }
    const Index wanted = count * distance_;
    if (memory_.size() >= wanted) return;
    memory_ = PinnedBuffer<char>();
    memory_ = PinnedBuffer<char>(memory_is_pinned() && wanted > usual / 2 ? std::max(wanted, usual)
                                                                          : wanted);
    large_pages(memory_);
  }
  ~Buffers() {
    if (!memory_is_pinned() || memory_.size() > most) return;
    const std::lock_guard lock(kept().mutex);
    if (kept().memory.size() < memory_.size()) std::swap(memory_, kept().memory);
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  [[nodiscard]] char* operator[](Index k) const { return memory_.data() + k % count_ * distance_; }

 private:
  static constexpr Index most = Index(128) << 20;
  /// What copies of vectors ask for: whoever needs half of it takes it at once, for those that follow.
  static constexpr Index usual = Index(32) << 20;
  struct Kept {
    std::mutex mutex;
    PinnedBuffer<char> memory;
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

  const Index count_, distance_;
  PinnedBuffer<char> memory_;
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

/// Threads that end before what they use.
struct Helpers {
  Ring& ring;
  std::vector<std::thread> threads = {};
  ~Helpers() { end(); }
  void end() {
    for (std::thread& thread : threads) thread.join();
    threads.clear();
  }
};

/// theirs(k, buffer) by `helpers` threads beside mine(k, buffer) in this one, for k = 0 .. count - 1;
/// by fewer where their buffers would take more than 48 MiB. What either throws stops both.
void side_by_side(Index count, Index buffer_bytes, int helpers, bool helpers_fill,
                  const Named& theirs, const Named& mine) {
  constexpr Index room = Index(48) << 20;
  const Index most = std::min(count - 1, room / std::max<Index>(1, buffer_bytes) - 2);
  helpers = int(std::clamp<Index>(most, 1, std::max(1, helpers)));
  const Index turns = helpers == 1 ? 2 : helpers + 2;
  const Buffers buffers(turns, buffer_bytes);
  const SettlesLanes settles;  // before another call gets the buffers
  Ring ring(count, turns, helpers_fill);
  const auto help = [&] {
    if (helpers > 1) work_alone();
    try {
      for (Index k = ring.claim(); k < count; k = ring.claim()) {
        theirs(k, buffers[k]);
        ring.done(k);
      }
    } catch (...) {
      ring.stop(std::current_exception());
    }
  };
  Helpers all{ring};
  try {
    for (int h = 0; h < helpers; ++h) all.threads.emplace_back(help);
    for (Index k = 0; k < count && ring.await(k); ++k) {
      mine(k, buffers[k]);
      ring.pass();
    }
  } catch (...) {
    ring.stop();
    throw;
  }
  all.end();
  if (ring.failure()) std::rethrow_exception(ring.failure());
}

/// One after the other.
void by_turns(Index count, Index buffer_bytes, const Named& first, const Named& second) {
  const Buffer<char, Cpu> buffer(buffer_bytes);
  for (Index k = 0; k < count; ++k) {
    first(k, buffer.data());
    second(k, buffer.data());
  }
}

}  // namespace

void overlap(Index count, Index buffer_bytes, int ahead, const Stage& load, const Stage& use,
             const char* from) {
  const Named read{load, from, "read"}, take{use, "host", "take"};
  if (count > 1 && ahead > 0) return side_by_side(count, buffer_bytes, ahead, true, read, take);
  by_turns(count, buffer_bytes, read, take);
}

void overlap_behind(Index count, Index buffer_bytes, int behind, const Stage& fill,
                    const Stage& drain, const char* to) {
  const Named fetch{fill, "host", "fetch"}, write{drain, to, "write"};
  if (count > 1) return side_by_side(count, buffer_bytes, behind, false, write, fetch);
  by_turns(count, buffer_bytes, fetch, write);
}

}  // namespace terrace::io
