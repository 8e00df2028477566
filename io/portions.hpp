// A rank's ranges cut into portions of bounded size, and what fills and takes them.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "distrib/layout.hpp"

namespace terrace::io {

/// Consecutive items of the concatenated ranges.
struct Portion {
  Index position = 0;         ///< of its first item in the concatenation
  std::vector<Range> ranges;  ///< global items, none empty
  std::vector<Index> starts;  ///< item of the portion with which each range begins
  Index items = 0;

  void add(Range r) {
    if (r.count <= 0) return;
    if (!ranges.empty() && ranges.back().end() == r.first) {
      ranges.back().count += r.count;
    } else {
      ranges.push_back(r);
      starts.push_back(items);
    }
    items += r.count;
  }
  /// The range in which `item` lies.
  [[nodiscard]] std::size_t range_of(Index item) const {
    return std::size_t(std::upper_bound(starts.begin(), starts.end(), item) - starts.begin()) - 1;
  }
  [[nodiscard]] Index global(Index item) const {
    const std::size_t k = range_of(item);
    return ranges[k].first + item - starts[k];
  }
};

/// Portions of at most `most` items (at least one).
std::vector<Portion> cut(std::span<const Range> ranges, Index most);

using Stage = std::function<void(Index k, char* buffer)>;

/// load(k, buffer) for k = 0 .. count - 1 by `ahead` threads beside use(k, buffer), which runs in the
/// calling thread and in order; buffers by turns, page-locked where a GPU is in use. Of several
/// threads each works alone. What load throws comes out before use(k); all stop then. One after the
/// other for count 1, or with no thread ahead. `from`: what the timeline calls where it comes from.
void overlap(Index count, Index buffer_bytes, int ahead, const Stage& load, const Stage& use,
             const char* from = "file");
/// The same with fill(k, buffer) in the calling thread, and drain(k, buffer) behind it by `behind`
/// threads, at least one.
void overlap_behind(Index count, Index buffer_bytes, int behind, const Stage& fill,
                    const Stage& drain, const char* to = "file");

}  // namespace terrace::io
