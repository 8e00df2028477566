// How a rank's ranges become pieces of bounded size, and the collective rounds that move them.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "distrib/layout.hpp"
#include "io/hdf5.hpp"
#include "io/input.hpp"

namespace terrace::io {

/// `count` blocks of `block` items, `stride` apart, from global item `first`: one hyperslab.
///
///   first              first + stride
///   |== block ==|......|== block ==|......   count = 2
struct Piece {
  Index first = 0, stride = 1, count = 0, block = 0;
  Index position = 0;  ///< of its first item in the concatenation of the ranges
  [[nodiscard]] Index items() const { return count * block; }
};

/// Cuts `ranges` into pieces of at most `max_items` (at least one); adjacent and regularly spaced
/// ranges become one piece. Empty ranges vanish.
std::vector<Piece> plan_pieces(std::span<const Range> ranges, Index max_items);

/// Rounds that all ranks make, and whether they move data collectively. MPI-IO's two-phase exchange
/// pays where ranks interleave short runs; long runs go straight to the file.
struct Rounds {
  Index count = 0;
  bool collective = false;
};
/// Collective. `run_bytes`: bytes of one contiguous run of an item times its block; `can_collect`:
/// false for chunked or converted datasets.
Rounds agree_rounds(const Control& control, const std::vector<Piece>& pieces, Index item_run_bytes,
                    bool can_collect);

/// Selects in `space` (1-D or 2-D, of a file) piece `p` along dimension `axis`, all of the other
/// one; nothing for nullptr. Returns the memory space that goes with it, row-major.
Handle select(hid_t space, const Piece* p, int axis);

}  // namespace terrace::io
