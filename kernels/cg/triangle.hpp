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
#include <cstdint>

#include "kernels/base/sums.hpp"
#include "kernels/cg/heads.hpp"

namespace terrace::cg {

namespace triangle {
constexpr Index height = 256, width = 64, tile = height * width;
constexpr Index across = height / width;  ///< tiles that each tile row has more than the one above
constexpr Index padded(Index n) { return round_up(n, height); }
constexpr Index tiles_of(Index tile_row) { return across * (tile_row + 1); }

/// How a product takes the entries: doubles; two planes (the same bits); the heads alone.
enum class Read { whole, both, head };

/// A head and the lower 32 bits.
constexpr Word joined(std::uint32_t head, std::uint32_t tail) {
  return Word(head - (tail >> 31)) << 32 | tail;
}

// Products sweep *units* of 2^unit_bits tiles. Their size depends on the number of tiles alone, and
// so do the bits of the result.
constexpr int unit_bits(Index tiles) {
  return tiles >= 131072 ? 6 : tiles >= 32768 ? 4 : tiles >= 8448 ? 3 : tiles >= 264 ? 2 : 1;
}
}  // namespace triangle

/// The tile rows of one rank.
template <class B>
struct TriangleTiles {
  View<const double, B> a;  ///< tiles, triangle::tile numbers each
  Index n = 0;
  View<const Index, B> row;                     ///< global numbers of the tile rows, ascending
  View<const Index, B> start;                   ///< row.size + 1: first tile of each, in tiles
  triangle::Read read = triangle::Read::whole;  ///< both, head: the tiles are stored in planes
  [[nodiscard]] Index tiles() const { return a.size / triangle::tile; }
};

/// q[0..padded(n)) = this rank's share of A p (|A| p with `absolute`), as far as q.size goes; p has
/// padded(n) entries. Reads each tile once. sums = { p.q, p.p } of this share, unless sums.result
/// is empty. scratch: triangle_scratch() doubles, zero before the first product. Where skip is
/// given and *skip != 0 nothing is done.
void multiply(const Stream<Cpu>&, const TriangleTiles<Cpu>&, View<const double, Cpu> p,
              View<double, Cpu> q, View<double, Cpu> scratch, const SumTarget<Cpu>& sums,
              const double* skip = nullptr, bool absolute = false);
void multiply(const Stream<Cuda>&, const TriangleTiles<Cuda>&, View<const double, Cuda> p,
              View<double, Cuda> q, View<double, Cuda> scratch, const SumTarget<Cuda>& sums,
              const double* skip = nullptr, bool absolute = false);
Index triangle_scratch(Cpu, Index tiles, Index tile_rows);
Index triangle_scratch(Cuda, Index tiles, Index tile_rows);

/// sums = { p.q, p.p } over p.size entries. 16 p.size bytes.
void sum_products(const Stream<Cpu>&, View<const double, Cpu> p, View<const double, Cpu> q,
                  const SumTarget<Cpu>& sums, const double* skip = nullptr);
void sum_products(const Stream<Cuda>&, View<const double, Cuda> p, View<const double, Cuda> q,
                  const SumTarget<Cuda>& sums, const double* skip = nullptr);

/// All tiles of a tile row from the row-major slab (rows x n) of its whole rows. tiles:
/// tiles_of(tile_row) of them.
void pack_rows(const Stream<Cpu>&, View<const double, Cpu> slab, Index n, Index tile_row,
               View<double, Cpu> tiles);
void pack_rows(const Stream<Cuda>&, View<const double, Cuda> slab, Index n, Index tile_row,
               View<double, Cuda> tiles);

/// Entries of the slab of tile row I at and right of the diagonal, against the tiles of rows >= I
/// (whole). worst[0] = min(worst[0], i n + j) over the pairs i <= j that are not symmetric_pair().
void compare_upper(const Stream<Cpu>&, View<const double, Cpu> slab, Index tile_row,
                   const TriangleTiles<Cpu>&, View<Index, Cpu> worst);
void compare_upper(const Stream<Cuda>&, View<const double, Cuda> slab, Index tile_row,
                   const TriangleTiles<Cuda>&, View<Index, Cuda> worst);

/// a = tiles of dense_cg_entry(seed, 1 / sqrt(n), i, j, diagonal); t.a is not read.
void fill_triangle(const Stream<Cpu>&, Word seed, const TriangleTiles<Cpu>& t, View<double, Cpu> a,
                   double diagonal = 2);
void fill_triangle(const Stream<Cuda>&, Word seed, const TriangleTiles<Cuda>& t,
                   View<double, Cuda> a, double diagonal = 2);

/// d[0..n) = a_ii of the rows held, zero elsewhere.
void triangle_diagonal(const Stream<Cpu>&, const TriangleTiles<Cpu>&, View<double, Cpu> d);
void triangle_diagonal(const Stream<Cuda>&, const TriangleTiles<Cuda>&, View<double, Cuda> d);

/// Tiles of doubles to two planes, in place.
void split_planes(const Stream<Cpu>&, View<double, Cpu> tiles);
void split_planes(const Stream<Cuda>&, View<double, Cuda> tiles);

}  // namespace terrace::cg
