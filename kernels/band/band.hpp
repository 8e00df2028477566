// Tiles of a symmetric band matrix: Cholesky steps, substitution, products.
//
// A tile column is `width` columns of the lower band, LAPACK's layout: entry (j + d, j) is element
// d of column j, reach + 1 doubles per column. Seen with leading dimension `reach` the same memory is
// a dense matrix whose lower part is the band (as in LAPACK's dpbtrf); its upper part belongs to
// other entries and is never touched.
//
//      w                 row i of a tile column counts from its first diagonal entry
//    +---+ 0
//    |\  |               diagonal block: rows 0 .. w-1, lower triangle
//    | \ | w-1
//    +---+ w
//    |   |               below: rows w .. reach-1, full
//    |   | reach-1
//    +---+ reach
//     \  |               corner: rows reach .. reach+w-1, upper triangle
//      \ | reach+w-1
//
// "Below" and corner together are the panel: `reach` rows, counted from 0 again.
// Entries outside the half-bandwidth are zero, and stay so.
// Right-hand sides are row-major, `nrhs` numbers per row.
#pragma once
#include <algorithm>

#include "kernels/base/buffer.hpp"

namespace terrace::band {

/// Sizes of a band matrix cut into tile columns; order and reach are padded.
struct BandShape {
  Index n = 0;               ///< order
  Index half_bandwidth = 0;  ///< at most n - 1
  Index width = 1;           ///< w, columns of a tile column
  Index reach = 1;  ///< stored half-bandwidth: >= max(half_bandwidth, width), multiple of 16

  [[nodiscard]] constexpr Index tiles() const { return ceil_div(n, width); }
  [[nodiscard]] constexpr Index padded() const { return tiles() * width; }
  [[nodiscard]] constexpr Index column() const { return reach + 1; }  ///< doubles per column
  [[nodiscard]] constexpr Index tile() const { return width * (reach + 1); }  ///< doubles a tile
  /// Rows of the panel below diagonal block k.
  [[nodiscard]] constexpr Index rows_below(Index k) const {
    return std::clamp<Index>(padded() - (k + 1) * width, 0, reach);
  }
  /// Tile columns that panel k updates.
  [[nodiscard]] constexpr Index tiles_below(Index k) const {
    return ceil_div(rows_below(k), width);
  }
};
constexpr BandShape band_shape(Index n, Index half_bandwidth, Index width) {
  const Index m = std::clamp<Index>(half_bandwidth, 0, std::max<Index>(n - 1, 0));
  return {n, m, width, round_up(std::max(m, width), 16)};
}
/// Widths that the kernels take: any on the CPU; multiples of 16 up to 256 on CUDA.
constexpr Index band_width_limit(Cpu) { return 1024; }
constexpr Index band_width_limit(Cuda) { return 256; }
/// A tile column as two side by side, of the same reach: where it is wider than 128, the first
/// about half of it, a multiple of 32; else the first is all of it, and the second has width 0.
struct BandHalves {
  BandShape first, second;
};
constexpr BandHalves band_halves(const BandShape& s) {
  BandHalves h{s, s};
  if (s.width > 128) h.first.width = round_up(ceil_div(s.width, 2), 32);
  h.second.width = s.width - h.first.width;
  return h;
}

/// Diagonal block of tile column k := its Cholesky factor L. status[0] = 0, or the one-based global
/// order of the first leading minor that is not positive definite (NaN counts as such).
/// w^3 / 3 flops. Golub, Van Loan, Matrix Computations, 4th ed., 4.3.5.
void band_factor_diagonal(const Stream<Cpu>&, BandShape, Index k, View<double, Cpu> tile,
                          View<double, Cpu> status);
void band_factor_diagonal(const Stream<Cuda>&, BandShape, Index k, View<double, Cuda> tile,
                          View<double, Cuda> status);

/// Where entry (row, column) of a panel is: packed in strips of eight rows on the CPU, column-major
/// with leading dimension reach on CUDA.
constexpr Index band_panel_strip = 8;
constexpr Index band_panel_at(Cpu, const BandShape& s, Index row, Index column) {
  return (row / band_panel_strip * s.width + column) * band_panel_strip + row % band_panel_strip;
}
constexpr Index band_panel_at(Cuda, const BandShape& s, Index row, Index column) {
  return row + column * s.reach;
}

/// The rows below diagonal block k of a tile column := those rows times L^-T; and a dense copy of
/// them, panel (rows x w, order as above), with zeros below the corner. rows w^2 flops.
void band_solve_panel(const Stream<Cpu>&, BandShape, Index rows, View<double, Cpu> tile,
                      View<double, Cpu> panel);
void band_solve_panel(const Stream<Cuda>&, BandShape, Index rows, View<double, Cuda> tile,
                      View<double, Cuda> panel);

/// Trailing update: for s in [0, count), with t = first + s * step: tile column number t after the
/// panel's (stored at tiles[s]) -= panel P_t^T, P_t being rows (t-1) w .. t w - 1 of the panel.
/// Lower part only. rows^2 w flops when all tile columns are given.
void band_update(const Stream<Cpu>&, BandShape, Index rows, View<const double, Cpu> panel,
                 Index first, Index step, Index count, View<double, Cpu> tiles);
void band_update(const Stream<Cuda>&, BandShape, Index rows, View<const double, Cuda> panel,
                 Index first, Index step, Index count, View<double, Cuda> tiles);

/// One step of L Y = B: y (w x nrhs) := L^-1 (y + arrived) with the diagonal block, then
/// below (rows x nrhs) -= panel y. 2 (reach + w/2) w nrhs flops; reads the tile column once.
void band_forward(const Stream<Cpu>&, BandShape, Index rows, View<const double, Cpu> tile,
                  Index nrhs, View<const double, Cpu> arrived, View<double, Cpu> y,
                  View<double, Cpu> below);
void band_forward(const Stream<Cuda>&, BandShape, Index rows, View<const double, Cuda> tile,
                  Index nrhs, View<const double, Cuda> arrived, View<double, Cuda> y,
                  View<double, Cuda> below);

/// One step of L^T X = Y: x (w x nrhs) := L^-T (x - panel^T below).
void band_backward(const Stream<Cpu>&, BandShape, Index rows, View<const double, Cpu> tile,
                   Index nrhs, View<double, Cpu> x, View<const double, Cpu> below);
void band_backward(const Stream<Cuda>&, BandShape, Index rows, View<const double, Cuda> tile,
                   Index nrhs, View<double, Cuda> x, View<const double, Cuda> below);

/// `count` columns of a lower band with entries d in [0, height), `ld` doubles per column.
template <class B>
struct BandColumns {
  const double* data = nullptr;
  Index count = 0, height = 1, ld = 1;
};

/// y[i] += alpha sum_j a[i - j, j] x[j]: rows 0 .. count + height - 2 of y (nrhs numbers each) take
/// the columns as a lower triangular matrix.
void band_times(const Stream<Cpu>&, BandColumns<Cpu>, double alpha, Index nrhs,
                View<const double, Cpu> x, View<double, Cpu> y);
void band_times(const Stream<Cuda>&, BandColumns<Cuda>, double alpha, Index nrhs,
                View<const double, Cuda> x, View<double, Cuda> y);
/// y[j] += alpha sum_d a[d, j] x[j + d] for the `count` columns.
void band_transposed_times(const Stream<Cpu>&, BandColumns<Cpu>, double alpha, Index nrhs,
                           View<const double, Cpu> x, View<double, Cpu> y);
void band_transposed_times(const Stream<Cuda>&, BandColumns<Cuda>, double alpha, Index nrhs,
                           View<const double, Cuda> x, View<double, Cuda> y);
/// y += A x and sums += |A| 1, one number per row, of the symmetric A whose lower part the columns
/// are. Reads them twice.
void band_symmetric_times(const Stream<Cpu>&, BandColumns<Cpu>, Index nrhs,
                          View<const double, Cpu> x, View<double, Cpu> y, View<double, Cpu> sums);
void band_symmetric_times(const Stream<Cuda>&, BandColumns<Cuda>, Index nrhs,
                          View<const double, Cuda> x, View<double, Cuda> y,
                          View<double, Cuda> sums);

/// Rows of vectors, nrhs numbers each: block k, of `length` rows, begins at row k `distance`; those
/// from `end` on do not count.
struct BandRows {
  Index count = 0, length = 1, distance = 1, end = 0;
};
/// out[v], out[nrhs + v], out[2 nrhs + v] := at least the largest of |b - y|, |x|, |b| in column v.
/// What is not finite counts as infinite. b holds the rows without gaps; null: zeros.
template <class B>
struct BandResidual {
  BandRows rows;
  Index nrhs = 1;
  const double *b = nullptr, *y = nullptr, *x = nullptr;
  double* out = nullptr;
};
void band_raise(const Stream<Cpu>&, const BandResidual<Cpu>&);
void band_raise(const Stream<Cuda>&, const BandResidual<Cuda>&);

/// Columns first .. first + count - 1 of the problem band_spd_entry(seed, n, m), `height` entries
/// each, `ld` doubles per column.
void band_generate_spd(const Stream<Cpu>&, Word seed, Index n, Index m, Index first, Index count,
                       Index height, Index ld, View<double, Cpu> data);
void band_generate_spd(const Stream<Cuda>&, Word seed, Index n, Index m, Index first, Index count,
                       Index height, Index ld, View<double, Cuda> data);

}  // namespace terrace::band
