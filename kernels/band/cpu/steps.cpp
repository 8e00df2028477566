// One tile column of the substitutions. It reads the tile column once, so at memory rate; every
// BLAS call works on one fixed global tile, so bits do not depend on threads.
#include "kernels/band/cpu/steps.hpp"

#include <cblas.h>

#include <algorithm>

#include "kernels/base/cpu/columns.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::band {
namespace {

constexpr Index kRows = 256;   // rows of the panel in one task of a product
constexpr Index kCorner = 64;  // side of the corner's sub-blocks

int as_int(Index i) { return static_cast<int>(i); }

// Rows [row, row + rows) and columns [column, column + columns) of a tile column's panel: where
// they start, to be read with leading dimension reach.
const double* panel_at(const BandShape& s, const double* tile, Index row, Index column) {
  return tile + s.width + row + column * s.reach;
}

// out (rows x nrhs) -= block (rows x columns, column-major) in (columns x nrhs).
void subtract_product(const double* block, Index ld, Index rows, Index columns, Index nrhs,
                      const double* in, double* out) {
  if (rows <= 0 || columns <= 0) return;
  if (nrhs == 1)
    add_columns(rows, columns, -1.0, block, ld, in, out);
  else
    cblas_dgemm(CblasColMajor, CblasNoTrans, CblasTrans, as_int(nrhs), as_int(rows),
                as_int(columns), -1.0, in, as_int(nrhs), block, as_int(ld), 1.0, out, as_int(nrhs));
}

// out (columns x nrhs) -= block^T in (rows x nrhs).
void subtract_transposed_product(const double* block, Index ld, Index rows, Index columns,
                                 Index nrhs, const double* in, double* out) {
  if (rows <= 0 || columns <= 0) return;
  if (nrhs == 1)
    add_dots(rows, columns, -1.0, block, ld, in, out);
  else
    cblas_dgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, as_int(nrhs), as_int(columns),
                as_int(rows), -1.0, in, as_int(nrhs), block, as_int(ld), 1.0, out, as_int(nrhs));
}

// Square sub-block of the corner's diagonal, expanded with zeros; rows may be cut at the end.
struct CornerBlock {
  double entries[kCorner * kCorner];
  CornerBlock(const double* from, Index ld, Index side, Index rows) {
    for (Index j = 0; j < side; ++j)
      for (Index i = 0; i < rows; ++i) entries[i + j * kCorner] = i <= j ? from[i + j * ld] : 0.0;
  }
};

}  // namespace

void band_forward_step(const BandShape& s, Index rows, const double* tile, Index nrhs, double* y,
                       double* below) {
  const Index w = s.width, ld = s.reach;
  if (nrhs == 1)
    solve_lower(w, tile, ld, y);
  else
    parallel_ranges(nrhs, 64, [&](Index from, Index to) {
      cblas_dtrsm(CblasColMajor, CblasRight, CblasLower, CblasTrans, CblasNonUnit,
                  as_int(to - from), as_int(w), 1.0, tile, as_int(ld), y + from, as_int(nrhs));
    });
  // Full rows in pieces of kRows, then the corner in pieces of kCorner.
  const Index full = std::min(rows, s.reach - w), pieces = ceil_div(full, kRows);
  parallel_for(pieces + ceil_div(rows - full, kCorner), [&](Index piece) {
    if (piece < pieces) {
      const Index first = piece * kRows, count = std::min(kRows, full - first);
      subtract_product(panel_at(s, tile, first, 0), ld, count, w, nrhs, y, below + first * nrhs);
      return;
    }
    const Index first = (piece - pieces) * kCorner, side = std::min(kCorner, w - first);
    const Index count = std::min(side, rows - full - first), next = first + side;
    double* out = below + (full + first) * nrhs;
    const CornerBlock block(panel_at(s, tile, full + first, first), ld, side, count);
    subtract_product(block.entries, kCorner, count, side, nrhs, y + first * nrhs, out);
    subtract_product(panel_at(s, tile, full + first, next), ld, count, w - next, nrhs,
                     y + next * nrhs, out);
  });
}

void band_backward_step(const BandShape& s, Index rows, const double* tile, Index nrhs, double* x,
                        const double* below) {
  const Index w = s.width, ld = s.reach;
  const Index full = std::min(rows, s.reach - w), corner = rows - full;
  parallel_for(ceil_div(w, kCorner), [&](Index piece) {
    const Index first = piece * kCorner, side = std::min(kCorner, w - first);
    const Index above = std::min(corner, first), count = std::clamp<Index>(corner - first, 0, side);
    double* out = x + first * nrhs;
    const double* in = below;
    subtract_transposed_product(panel_at(s, tile, 0, first), ld, full, side, nrhs, in, out);
    in += full * nrhs;
    subtract_transposed_product(panel_at(s, tile, full, first), ld, above, side, nrhs, in, out);
    in += above * nrhs;
    if (count == 0) return;
    const CornerBlock block(panel_at(s, tile, full + first, first), ld, side, count);
    subtract_transposed_product(block.entries, kCorner, count, side, nrhs, in, out);
  });
  if (nrhs == 1)
    solve_lower_transposed(w, tile, ld, x);
  else
    parallel_ranges(nrhs, 64, [&](Index from, Index to) {
      cblas_dtrsm(CblasColMajor, CblasRight, CblasLower, CblasNoTrans, CblasNonUnit,
                  as_int(to - from), as_int(w), 1.0, tile, as_int(ld), x + from, as_int(nrhs));
    });
}

}  // namespace terrace::band
