#include "io/transpose.hpp"

#include <algorithm>
#include <bit>

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

void turn(double* to, Index to_ld, const double* from, Index from_ld, Index rows, Index columns) {
  constexpr Index side = 8;
  for (Index c0 = 0; c0 < columns; c0 += side) {
    const Index c1 = std::min(columns, c0 + side);
    for (Index r0 = 0; r0 < rows; r0 += side) {
      const Index r1 = std::min(rows, r0 + side);
      if (c1 - c0 == side && r1 - r0 == side) {
        for (Index c = 0; c < side; ++c)
          for (Index r = 0; r < side; ++r)
            to[(c0 + c) * to_ld + r0 + r] = from[(r0 + r) * from_ld + c0 + c];
        continue;
      }
      for (Index c = c0; c < c1; ++c)
        for (Index r = r0; r < r1; ++r) to[c * to_ld + r] = from[r * from_ld + c];
    }
  }
}

Index not_finite(const double* data, Index size) {
  // All bits of the exponent set: one more of its last bit reaches the sign's place.
  constexpr Word unsigned_part = ~Word(0) >> 1, one = Word(1) << 52;
  Word reached = 0;
  for (Index i = 0; i < size; ++i) reached |= (std::bit_cast<Word>(data[i]) & unsigned_part) + one;
  if (reached >> 63 == 0) return -1;
  Index i = 0;
  while (((std::bit_cast<Word>(data[i]) & unsigned_part) + one) >> 63 == 0) ++i;
  return i;
}

}  // namespace terrace::io
