// Products of a symmetric matrix, held as the tiles of its lower triangle, with several vectors at
// once: each tile is read once and used for its rows and for its columns.
#pragma once
#include <algorithm>

#include "kernels/cg/triangle.hpp"

namespace terrace::cg {

constexpr Index triangle_block_most = 16;  ///< vectors at once

namespace triangle {
/// Products are cut into units of `across` tile columns of `down` tile rows of the rank; the shape
/// depends on the sizes alone, and with it every bit of the result.
struct UnitShape {
  Index down = 0, across = 0;
  [[nodiscard]] Index groups(Index tile_rows) const { return ceil_div(tile_rows, down); }
  [[nodiscard]] Index chunks(Index n) const { return ceil_div(across_all(n), across); }
  static Index across_all(Index n) { return padded(n) / width; }
};
/// Vectors are stored in eights (in fours on the CPU).
constexpr Index stored_columns(Cpu, Index columns) {
  return columns <= 4 ? 4 : columns <= 8 ? 8 : 16;
}
constexpr Index stored_columns(Cuda, Index columns) { return columns <= 8 ? 8 : 16; }
UnitShape unit_shape(Cpu, Index n, Index tile_rows);
UnitShape unit_shape(Cuda, Index n, Index tile_rows);
}  // namespace triangle

/// Q = this rank's share of A P: what its tile rows contribute to all rows; the shares of all ranks
/// add up to A P. P and Q are padded(n) x columns, row-major, columns <= 16, P zero from row n on
/// (and then Q too). 8 bytes an entry of the triangle, 4 columns flops for it.
/// Where `skip` is not null and *skip != 0 when the kernels run, nothing is touched.
void multiply_block(const Stream<Cpu>&, const TriangleTiles<Cpu>&, View<const double, Cpu> p,
                    View<double, Cpu> q, Index columns, View<double, Cpu> scratch,
                    const double* skip = nullptr);
void multiply_block(const Stream<Cuda>&, const TriangleTiles<Cuda>&, View<const double, Cuda> p,
                    View<double, Cuda> q, Index columns, View<double, Cuda> scratch,
                    const double* skip = nullptr);
/// Doubles of scratch for a rank with `tile_rows` tile rows.
template <class B>
Index triangle_block_scratch(B backend, Index n, Index tile_rows, Index columns) {
  const Index k = triangle::stored_columns(backend, columns), padded = triangle::padded(n);
  const triangle::UnitShape shape = triangle::unit_shape(backend, n, tile_rows);
  return padded * k + tile_rows * shape.chunks(n) * triangle::height * k +
         shape.groups(tile_rows) * padded * k + 2;
}

}  // namespace terrace::cg
