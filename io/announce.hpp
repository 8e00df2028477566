// What will be read soon, told to the disk in long pieces: a portion of columns is a short run of
// every row of the file, and a disk that is asked for those alone does many small reads.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "io/portions.hpp"

namespace terrace::io {

/// Runs of items, in rows of the file, that this rank will read next.
///
///   file   row d:  |....[items]....|    window: what some portions read; told row by row, by a
///        row d+1:  |....[items]....|    thread of its own, one window ahead of the reader
class Announcer {
 public:
  struct Columns {
    int descriptor = -1;
    Index element = 8;                          ///< bytes
    std::function<Index(Index, Index)> offset;  ///< of (item, row)
  };
  struct Part {
    Range rows;
    std::vector<Range> items;
  };
  struct Window {
    std::vector<Part> parts;
    Index end = 0;  ///< the reader's position or round behind it
  };
  Announcer(Columns file, std::vector<Window> windows);
  ~Announcer();
  Announcer(const Announcer&) = delete;
  Announcer& operator=(const Announcer&) = delete;
  /// Returns when the window of `position` has been told.
  void wait(Index position);

 private:
  [[nodiscard]] bool cached(const Window& window) const;
  void tell(const Window& window);

  Columns file_;
  std::vector<Window> windows_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t told_ = 0, wanted_ = 0;  ///< windows
  bool stopped_ = false;
  std::thread thread_;
};

/// Tells the kernel of one long run that is read next, unless some bytes of it say that it is here.
void announce_run(int descriptor, Index at, Index bytes);

/// Items of a window, of `items` in all with `item_bytes` in the file's rows that this rank tells:
/// an eighth, but pieces of 128 KiB, where the memory that is free holds two; 0 where the pieces
/// would be shorter than a page. `ranks` share the host.
Index window_items(Index items, Index item_bytes, Index element, int ranks);

}  // namespace terrace::io
