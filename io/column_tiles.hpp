// What of a portion of columns is read together.
#pragma once
#include <algorithm>
#include <vector>

#include "io/portions.hpp"

namespace terrace::io {

// Bytes. A short run is read with the gap behind it where that is narrow: the page cache gives so
// much while another call of the kernel would begin.
constexpr Index short_run = 4096, narrow_gap = 2048;

/// One run of columns, or several short ones with the narrow gaps between them.
///
///   file   |..[run]..[run]....[run]..|      `hull` columns from `first`, of which `count` are wanted
struct ColumnTile {
  Index first, hull;  ///< columns of the file
  Index item, count;  ///< of the portion
};
/// `element`: bytes in the file. Gaps of up to `gap` bytes are inside tiles.
std::vector<ColumnTile> column_tiles(const Portion& p, Index element, Index gap);
/// run(first, count) for the wanted columns among the first `hull` of a tile, ascending.
template <class F>
void each_run(const Portion& p, const ColumnTile& t, Index hull, const F& run) {
  for (std::size_t k = p.range_of(t.item); k < p.ranges.size(); ++k) {
    const Index first = std::max(t.first, p.ranges[k].first);
    const Index count = std::min(p.ranges[k].end(), t.first + hull) - first;
    if (count <= 0) return;
    run(first, count);
  }
}

/// Ascending ranges, those with at most `gap` between them in one.
std::vector<Range> joined(const std::vector<Range>& ranges, Index gap);

}  // namespace terrace::io
