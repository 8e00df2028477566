#include "io/slices.hpp"

#include <limits>

namespace terrace::io {

std::vector<Piece> plan_pieces(std::span<const Range> ranges, Index max_items) {
  max_items = std::max<Index>(1, max_items);
  std::vector<Range> merged;
  for (const Range& r : ranges) {
    if (r.count <= 0) continue;
    if (!merged.empty() && merged.back().end() == r.first)
      merged.back().count += r.count;
    else
      merged.push_back(r);
  }
  std::vector<Piece> pieces;
  Index position = 0;
  for (std::size_t k = 0; k < merged.size();) {
    const Range r = merged[k];
    if (r.count > max_items / 2 || k + 1 == merged.size()) {
      for (Index done = 0; done < r.count; done += max_items) {
        const Index items = std::min(max_items, r.count - done);
        pieces.push_back({r.first + done, items, 1, items, position + done});
      }
      position += r.count;
      ++k;
      continue;
    }
    const Index stride = merged[k + 1].first - r.first;
    Index count = 1;
    while (stride >= r.count && k + std::size_t(count) < merged.size() &&
           (count + 1) * r.count <= max_items && merged[k + std::size_t(count)].count == r.count &&
           merged[k + std::size_t(count)].first == r.first + count * stride)
      ++count;
    pieces.push_back({r.first, count > 1 ? stride : r.count, count, r.count, position});
    position += count * r.count;
    k += std::size_t(count);
  }
  return pieces;
}

Rounds agree_rounds(const Control& control, const std::vector<Piece>& pieces, Index item_run_bytes,
                    bool can_collect) {
  constexpr Index long_run = Index(1) << 18;
  Index shortest = std::numeric_limits<Index>::max();
  for (const Piece& p : pieces) shortest = std::min(shortest, p.block * item_run_bytes);
  std::vector<Index> values{-Index(pieces.size()), shortest};
  control.reduce(values, Reduce::min);
  return {-values[0], control.size() > 1 && can_collect && values[1] < long_run};
}

Handle select(hid_t space, const Piece* p, int axis) {
  const int rank = H5Sget_simple_extent_ndims(space);
  hsize_t dims[2] = {1, 1};
  H5Sget_simple_extent_dims(space, dims, nullptr);
  if (p == nullptr || p->items() == 0 || dims[0] == 0 || (rank == 2 && dims[1] == 0)) {
    H5Sselect_none(space);
    const hsize_t one[2] = {1, 1};
    Handle memory(H5Screate_simple(rank, one, nullptr), &H5Sclose);
    H5Sselect_none(memory);
    return memory;
  }
  hsize_t start[2] = {0, 0}, stride[2] = {1, 1}, count[2] = {1, 1}, block[2] = {dims[0], dims[1]};
  start[axis] = hsize_t(p->first);
  stride[axis] = hsize_t(p->count > 1 ? p->stride : p->block);
  count[axis] = hsize_t(p->count);
  block[axis] = hsize_t(p->block);
  const int other = 1 - axis;
  stride[other] = block[other];
  H5Sselect_hyperslab(space, H5S_SELECT_SET, start, stride, count, block);
  hsize_t extent[2] = {dims[0], dims[1]};
  extent[axis] = hsize_t(p->items());
  return {H5Screate_simple(rank, extent, nullptr), &H5Sclose};
}

}  // namespace terrace::io
