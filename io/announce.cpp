#include "io/announce.hpp"

#include <fcntl.h>

#include <algorithm>

#include "io/stored.hpp"
#include "kernels/base/buffer.hpp"

namespace terrace::io {

namespace {
constexpr Index piece = Index(128) << 10;  // the kernel shortens longer ones without a word
constexpr Index page = 4096;
}  // namespace

void announce_run(int descriptor, Index at, Index bytes) {
  constexpr Index parts = 4;
  if (bytes < (Index(1) << 16)) return;
  bool here = true;
  for (Index k = 0; here && k <= parts; ++k)
    here = is_cached(descriptor, at + (bytes - 1) / parts * k);
  if (!here) posix_fadvise(descriptor, at, bytes, POSIX_FADV_WILLNEED);
}

Index window_items(Index items, Index item_bytes, Index element, int ranks) {
  const Index room = available_host_bytes() / 8 / std::max(1, ranks);
  const Index wish = std::max(ceil_div(items, 8), ceil_div(piece, element));
  const Index count = std::min(wish, room / std::max<Index>(1, item_bytes));
  return count * element < page ? 0 : count;
}

Announcer::Announcer(Columns file, std::vector<Window> windows)
    : file_(std::move(file)), windows_(std::move(windows)) {
  thread_ = std::thread([this] {
    for (std::size_t k = 0; k < windows_.size(); ++k) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stopped_ || k <= wanted_ + 1; });
        if (stopped_) return;
      }
      if (!cached(windows_[k])) tell(windows_[k]);
      const std::lock_guard lock(mutex_);
      told_ = k + 1;
      changed_.notify_all();
    }
  });
}

Announcer::~Announcer() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Announcer::wait(Index position) {
  std::unique_lock lock(mutex_);
  while (wanted_ + 1 < windows_.size() && position >= windows_[wanted_].end) ++wanted_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return told_ > wanted_ || windows_.empty(); });
}

/// Whether the page cache has some samples.
bool Announcer::cached(const Window& window) const {
  constexpr std::size_t samples = 16;
  const std::size_t step = std::max<std::size_t>(1, window.parts.size() / samples);
  for (std::size_t k = 0; k < window.parts.size(); k += step) {
    const Part& part = window.parts[k];
    for (std::size_t r = 0; r < part.items.size();
         r += std::max<std::size_t>(1, part.items.size() / 4)) {
      const Range& items = part.items[r];
      for (const Index row :
           {part.rows.first, part.rows.first + part.rows.count / 2, part.rows.end() - 1}) {
        const Index at = file_.offset(items.first + items.count / 2, row);
        if (!is_cached(file_.descriptor, at)) return false;
      }
    }
  }
  return true;
}

void Announcer::tell(const Window& window) {
  for (const Part& part : window.parts)
    for (Index row = part.rows.first; row < part.rows.end(); ++row) {
      {
        const std::lock_guard lock(mutex_);
        if (stopped_) return;
      }
      for (const Range& items : part.items) {
        const Index from = file_.offset(items.first, row), bytes = items.count * file_.element;
        for (Index done = 0; done < bytes; done += piece)
          posix_fadvise(file_.descriptor, from + done, std::min(piece, bytes - done),
                        POSIX_FADV_WILLNEED);
      }
    }
}

}  // namespace terrace::io
