// Parts of a band matrix: Cholesky factorization and substitution of whole runs of tile columns.
//
// A part is `tiles` tile columns that are eliminated one after the other, then `window` tile
// columns that only take what the elimination leaves (the Schur complement). Rows before the part
// that touch it (a separator to the left) are its arrow, a dense strip above the band:
//
//              tiles             window
//        +---------------------+-------+
//  arrow | spike W (fills up)  |       |     W := E L^-T, E the arrow's entries
//        +---------------------+       |
//        |\                    |       |     L: the band's factor
//        |  \      band         |       |
//        |\   \                |       |     window       -= R R^T  (lower part)
//        |  \   \              |       |     arrow_block  -= W W^T  (lower part)
//        |    \   \            |       |     coupling     -= R W^T
//        |      \   \          |       |
//        |        \   \--------+-------+     R: rows of L in the window
//        |          \ R        |S      |
//        +------------\--------+-------+
//
// Tile columns lie one after the other as kernels/band/band.hpp draws them, each width * (reach +
// 1) doubles. A part may be kept in a ring: tile column k in slot k % ring; a ring of at least
// tiles + window slots never turns over. Blocks are column-major. After the last slot of `band`
// width * (width + 1) more doubles are readable.
//
// Sources: Khimich, Baranov 2013 (tile columns); Golub, Van Loan, Matrix Computations, 4th ed.,
// 4.3; Polizzi, Sameh, Parallel Computing 32, 2006 (spikes); twisted factorization: van der Vorst,
// Parallel Computing 5, 1987.
#pragma once
#include <span>

#include "kernels/band/band.hpp"
#include "kernels/band/forms.hpp"

namespace terrace::band {

template <class B>
struct BandPart {
  Index tiles = 0;   ///< tile columns to eliminate
  Index window = 0;  ///< tile columns behind them: 0, or ceil_div(reach, width)
  Index from = 0;    ///< tile columns already eliminated (their factor is in place)
  Index to = -1;     ///< eliminate up to here only (-1: all, and the window and the blocks)
  Index ring = 0;    ///< slots of `band` and `inverse`
  double* band = nullptr;
  double* inverse = nullptr;  ///< width x width a slot: inverse of the diagonal block's factor
  Index arrow = 0;            ///< rows of the arrow, a multiple of the width; 0: none
  /// arrow x (tiles width): E, then W. E ends with tile column band_reach_tiles(); what stands behind is
  /// not read.
  double* spike = nullptr;
  double* arrow_block = nullptr;  ///< arrow x arrow
  double* coupling = nullptr;     ///< (window width) x arrow
  /// Of band_prepare(), for substitutions with up to 8 right-hand sides; null: each prepares itself.
  double* prepared = nullptr;

  [[nodiscard]] Index end() const { return to < 0 ? tiles : to; }
  [[nodiscard]] bool complete() const { return end() == tiles; }
  [[nodiscard]] double* tile(const BandShape& s, Index k) const {
    return band + k % ring * s.tile();
  }
  [[nodiscard]] double* diagonal_inverse(const BandShape& s, Index k) const {
    return inverse + k % ring * s.width * s.width;
  }
};

/// Tile columns that a tile column reaches below itself: its last one is partly outside the band.
constexpr Index band_reach_tiles(const BandShape& s) { return ceil_div(s.reach, s.width); }
/// Doubles that `slots` tile columns of a part take.
constexpr Index band_part_doubles(const BandShape& s, Index slots) {
  return slots > 0 ? slots * s.tile() + s.width * (s.width + 1) : 0;
}

/// Width of the tile columns of parts; `shape.n` is not used by the functions below.
constexpr Index band_part_width(Cpu, Index half_bandwidth) {
  return half_bandwidth >= 384 ? 96 : half_bandwidth >= 128 ? 64 : half_bandwidth >= 32 ? 32 : 16;
}
constexpr Index band_part_width(Cuda, Index) { return 64; }

/// True where the functions below run: on GPUs of compute capability 9.0 and more with their shared
/// memory.
constexpr bool band_parts_available(Cpu) { return true; }
bool band_parts_available(Cuda);

/// 64-bit words of scratch that band_factor_parts needs.
Index band_factor_scratch(Cpu, BandShape, std::span<const BandPart<Cpu>> parts);
Index band_factor_scratch(Cuda, BandShape, std::span<const BandPart<Cuda>> parts);

/// Eliminates tile columns [from, end()) of each part, all parts at once. status[p] = 0, or the
/// one-based column within part p of the first pivot that is not positive and finite; the part is
/// then undefined from there on. n (m^2 + 2 m arrow + arrow^2) flops; reads and writes each tile
/// column once from memory that the part of the band in flight (m^2 numbers) does not fit in.
void band_factor_parts(const Stream<Cpu>&, BandShape, std::span<const BandPart<Cpu>> parts,
                       View<Index, Cpu> status, View<Word, Cpu> scratch);
void band_factor_parts(const Stream<Cuda>&, BandShape, std::span<const BandPart<Cuda>> parts,
                       View<Index, Cuda> status, View<Word, Cuda> scratch);

/// inverse := inverses of the diagonal blocks of a factor that is already in `band`, [from, end()).
void band_invert_diagonals(const Stream<Cpu>&, BandShape, const BandPart<Cpu>& part);
void band_invert_diagonals(const Stream<Cuda>&, BandShape, const BandPart<Cuda>& part);

/// Right-hand sides of a part, row-major, nrhs numbers per row.
template <class B>
struct BandPartVectors {
  double* rows = nullptr;   ///< (tiles + window) width rows
  double* arrow = nullptr;  ///< arrow rows
};

/// 64-bit words of scratch of the two substitutions.
Index band_substitute_scratch(Cpu, BandShape, std::span<const BandPart<Cpu>> parts, Index nrhs);
Index band_substitute_scratch(Cuda, BandShape, std::span<const BandPart<Cuda>> parts, Index nrhs);

/// prepared := products of tiles with the inverses before them, for both directions;
/// band_prepared_doubles() numbers of each part, 0 where they would not help. About a third of a
/// substitution with one right-hand side.
Index band_prepared_doubles(Cpu, BandShape, const BandPart<Cpu>& part);
Index band_prepared_doubles(Cuda, BandShape, const BandPart<Cuda>& part);
void band_prepare(const Stream<Cpu>&, BandShape, std::span<const BandPart<Cpu>> parts);
void band_prepare(const Stream<Cuda>&, BandShape, std::span<const BandPart<Cuda>> parts);

/// For each part: its own rows y := L^-1 y; then window rows -= R y, arrow rows -= W y.
/// 2 (m + arrow) nrhs flops per row; reads the factor once.
void band_forward_parts(const Stream<Cpu>&, BandShape, std::span<const BandPart<Cpu>> parts,
                        std::span<const BandPartVectors<Cpu>> x, Index nrhs,
                        View<Word, Cpu> scratch);
void band_forward_parts(const Stream<Cuda>&, BandShape, std::span<const BandPart<Cuda>> parts,
                        std::span<const BandPartVectors<Cuda>> x, Index nrhs,
                        View<Word, Cuda> scratch);
/// For each part: its own rows x := L^-T (x - R^T window rows - W^T arrow rows).
void band_backward_parts(const Stream<Cpu>&, BandShape, std::span<const BandPart<Cpu>> parts,
                         std::span<const BandPartVectors<Cpu>> x, Index nrhs,
                         View<Word, Cpu> scratch);
void band_backward_parts(const Stream<Cuda>&, BandShape, std::span<const BandPart<Cuda>> parts,
                         std::span<const BandPartVectors<Cuda>> x, Index nrhs,
                         View<Word, Cuda> scratch);

/// Entries of a band in reversed order of rows and columns: natural columns first .. first +
/// count - 1 of a band of `n` columns, `height` entries each, which are the first columns of `from`,
/// to their places in the reversed band: (d, n - 1 - j - d) := (d, j); leading dimension to_ld.
/// Entries outside the matrix, and those of rows before `top`, are left alone. `not_finite`: as
/// lower_columns().
void band_reverse(const Stream<Cpu>&, Index n, Index first, Index count, Index height,
                  const BandForm& from, double* to, Index to_ld, Index top = 0,
                  Index* not_finite = nullptr);
void band_reverse(const Stream<Cuda>&, Index n, Index first, Index count, Index height,
                  const BandForm& from, double* to, Index to_ld, Index top = 0,
                  Index* not_finite = nullptr);
/// From columns, one every from_ld numbers.
template <class B>
void band_reverse(const Stream<B>& lane, Index n, Index first, Index count, Index height,
                  const double* from, Index from_ld, double* to, Index to_ld, Index top = 0) {
  band_reverse(lane, n, first, count, height, BandForm{from, from_ld, 1}, to, to_ld, top);
}

/// `count` numbers of memory of the backend, `ld` apart.
struct BandDiagonal {
  const double* first;
  Index ld, count;
};
/// Numbers that band_products() multiplies at a time: mantissas of so many stay in range.
constexpr Index band_product_group = 256;
/// out[2 k], out[2 k + 1] := mantissa and exponent of the product of the k-th band_product_group of
/// a diagonal's absolute values, those of the next diagonal behind them: |x y ...| = mantissa
/// 2^exponent.
void band_products(const Stream<Cuda>&, std::span<const BandDiagonal> diagonals, double* out);

/// Entries of `count` columns of a left separator, the first ones of `from`, that lie in the part
/// behind it: spike[r0 + c + (c + d - gap) * arrow] := entry d of column c, for 0 <= c < count,
/// gap <= c + d, d < height; column c of them is row r0 + c of the arrow and the part begins `gap`
/// rows below the diagonal of column 0. Rows of the part at `end` and beyond are left out.
struct BandSpike {
  BandForm from;
  Index count, gap, end, r0;
  double* spike;
};
/// All of them at once. `not_finite`: as lower_columns().
void band_spikes(const Stream<Cpu>&, std::span<const BandSpike> spikes, Index height, Index arrow,
                 Index* not_finite = nullptr);
void band_spikes(const Stream<Cuda>&, std::span<const BandSpike> spikes, Index height, Index arrow,
                 Index* not_finite = nullptr);

}  // namespace terrace::band
