#include "io/transpose.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <limits>

#include "kernels/parallel.hpp"

namespace terrace::io {

void transpose(double* to, const double* from, Index rows, Index columns) {
  constexpr Index tile = 32;
  parallel_for(ceil_div(columns, tile), [=](Index k) {
    const Index c0 = k * tile, c1 = std::min(columns, c0 + tile);
    for (Index r0 = 0; r0 < rows; r0 += tile) {
      const Index r1 = std::min(rows, r0 + tile);
      for (Index c = c0; c < c1; ++c)
        for (Index r = r0; r < r1; ++r) to[c * rows + r] = from[r * columns + c];
    }
  });
}

Index first_not_finite(const double* data, Index size) {
  constexpr Word exponent = 0x7ff0000000000000ull;
  std::atomic<Index> first{std::numeric_limits<Index>::max()};
  parallel_ranges(size, Index(1) << 18, [&](Index from, Index to) {
    bool found = false;
    for (Index i = from; i < to; ++i)
      found |= (std::bit_cast<Word>(data[i]) & exponent) == exponent;
    if (!found) return;
    Index i = from;
    while ((std::bit_cast<Word>(data[i]) & exponent) != exponent) ++i;
    for (Index seen = first; i < seen && !first.compare_exchange_weak(seen, i);) {
    }
  });
  const Index found = first;
  return found == std::numeric_limits<Index>::max() ? -1 : found;
}

}  // namespace terrace::io
