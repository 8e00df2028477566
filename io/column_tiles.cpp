#include "io/column_tiles.hpp"

namespace terrace::io {

std::vector<ColumnTile> column_tiles(const Portion& p, Index element, Index gap) {
  constexpr Index longest = 8192;
  std::vector<ColumnTile> tiles;
  for (std::size_t k = 0; k < p.ranges.size(); ++k) {
    const Range& r = p.ranges[k];
    if (!tiles.empty() && r.count * element < short_run) {
      ColumnTile& last = tiles.back();
      const Index between = r.first - last.first - last.hull, hull = r.end() - last.first;
      if (between >= 0 && between * element <= gap && hull <= longest) {
        last.hull = hull;
        last.count += r.count;
        continue;
      }
    }
    for (Index at = 0; at < r.count; at += longest) {
      const Index count = std::min(longest, r.count - at);
      tiles.push_back({r.first + at, count, p.starts[k] + at, count});
    }
  }
  return tiles;
}

std::vector<Range> joined(const std::vector<Range>& ranges, Index gap) {
  std::vector<Range> result;
  for (const Range& r : ranges)
    if (!result.empty() && r.first >= result.back().end() && r.first - result.back().end() <= gap)
      result.back().count = r.end() - result.back().first;
    else
      result.push_back(r);
  return result;
}

}  // namespace terrace::io
