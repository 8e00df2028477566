// Who holds which rows: pure index arithmetic.
//
//   extent = 10, block = 2, ranks = 3        global  0 1 | 2 3 | 4 5 | 6 7 | 8 9
//                                            owner    0     1     2     0     1
//                                            slot    0 1   0 1   0 1   2 3   2 3
#pragma once
#include <algorithm>
#include <vector>

#include "kernels/base/backend.hpp"

namespace terrace {

/// Global items [first, first + count).
struct Range {
  Index first = 0, count = 0;
  [[nodiscard]] constexpr Index end() const { return first + count; }
};

/// `extent` items in blocks of `block`, dealt to the ranks like cards. A slot is the local number
/// of an item on its owner. One block per rank, block = ceil_div(extent, ranks), is the contiguous
/// layout.
struct BlockCyclic {
  Index extent = 0;
  Index block = 1;
  int ranks = 1;

  [[nodiscard]] constexpr Index blocks() const { return ceil_div(extent, block); }
  [[nodiscard]] constexpr int block_owner(Index k) const { return int(k % ranks); }
  [[nodiscard]] constexpr int owner(Index i) const { return block_owner(i / block); }
  [[nodiscard]] constexpr Index slot(Index i) const {
    return (i / block / ranks) * block + i % block;
  }
  struct Seat {
    int owner;
    Index slot;
  };
  /// Both, with two divisions.
  [[nodiscard]] constexpr Seat seat(Index i) const {
    const Index k = i / block, round = k / ranks;
    return {int(k - round * ranks), round * block + i - k * block};
  }
  [[nodiscard]] constexpr Index global(Index slot, int rank) const {
    return ((slot / block) * ranks + rank) * block + slot % block;
  }
  /// Number of items with global number below i that `rank` holds; i is clamped to [0, extent].
  [[nodiscard]] constexpr Index slots_before(Index i, int rank) const {
    i = std::clamp<Index>(i, 0, extent);
    const Index k = i / block;
    const Index full = k > rank ? ceil_div(k - rank, ranks) : 0;
    return full * block + (block_owner(k) == rank ? i % block : 0);
  }
  [[nodiscard]] constexpr Index slots(int rank) const { return slots_before(extent, rank); }
  /// Blocks of `rank` in slot order, as global ranges.
  [[nodiscard]] std::vector<Range> ranges(int rank) const {
    std::vector<Range> result;
    for (Index k = rank; k < blocks(); k += ranks)
      result.push_back({k * block, std::min(block, extent - k * block)});
    return result;
  }
};

/// One contiguous block per rank (the last ones may be empty).
inline BlockCyclic contiguous(Index extent, int ranks) {
  return {extent, std::max<Index>(1, ceil_div(extent, ranks)), ranks};
}

}  // namespace terrace
