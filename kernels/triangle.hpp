// A symmetric matrix as the tiles of its lower triangle: conjugate gradients read each entry once
// and use it for its row and for its column.
//
//   tile row I = rows [256 I, 256 (I + 1))          I = 0   | t t t t
//   tile (I, J), J < 4 (I + 1), is 256 x 64,            1   | t t t t t t t t
//   row-major, one after the other from J = 0           2   | t t t t t t t t t t t t
//
// Entries above the diagonal and beyond n are zero; those on the diagonal are stored as a_ii / 2,
// so that every entry may count for its row and its column alike. Vectors are padded with zeros to
// padded(n) entries. A rank holds any set of tile rows.
#pragma once
#include "kernels/sums.hpp"

namespace terrace {

namespace triangle {
constexpr Index height = 256, width = 64, tile = height * width;
constexpr Index across = height / width;  ///< tiles that each tile row has more than the one above
constexpr Index padded(Index n) { return round_up(n, height); }
constexpr Index tiles_of(Index tile_row) { return across * (tile_row + 1); }
}  // namespace triangle

/// The tile rows of one rank.
template <class B>
struct TriangleTiles {
  View<const double, B> a;  ///< tiles, triangle::tile numbers each
  Index n = 0;
  View<const Index, B> row;    ///< global numbers of the tile rows, ascending
  View<const Index, B> start;  ///< row.size + 1: first tile of each, in tiles
};

}  // namespace terrace
