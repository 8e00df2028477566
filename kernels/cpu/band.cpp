// Substitution with tile columns, products with columns of a band, and the problem, on the CPU.
//
// Roofline: the substitution reads each tile column once, so it runs at memory rate.
//
// Every BLAS call works on one fixed global tile: bits depend on the width w alone.
#include "kernels/band.hpp"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/parallel.hpp"
#include "kernels/problems.hpp"

namespace terrace {
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
    cblas_dgemv(CblasColMajor, CblasNoTrans, as_int(rows), as_int(columns), -1.0, block, as_int(ld),
                in, 1, 1.0, out, 1);
  else
    cblas_dgemm(CblasColMajor, CblasNoTrans, CblasTrans, as_int(nrhs), as_int(rows),
                as_int(columns), -1.0, in, as_int(nrhs), block, as_int(ld), 1.0, out, as_int(nrhs));
}

// out (columns x nrhs) -= block^T in (rows x nrhs).
void subtract_transposed_product(const double* block, Index ld, Index rows, Index columns,
                                 Index nrhs, const double* in, double* out) {
  if (rows <= 0 || columns <= 0) return;
  if (nrhs == 1)
    cblas_dgemv(CblasColMajor, CblasTrans, as_int(rows), as_int(columns), -1.0, block, as_int(ld),
                in, 1, 1.0, out, 1);
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

void band_forward(const Stream<Cpu>& stream, BandShape s, Index rows, View<const double, Cpu> tile,
                  Index nrhs, View<const double, Cpu> arrived, View<double, Cpu> y,
                  View<double, Cpu> below) {
  stream.run([=] {
    const Index w = s.width, ld = s.reach;
    for (Index i = 0; i < w * nrhs; ++i) y.data[i] += arrived.data[i];
    if (nrhs == 1)
      cblas_dtrsv(CblasColMajor, CblasLower, CblasNoTrans, CblasNonUnit, as_int(w), tile.data,
                  as_int(ld), y.data, 1);
    else
      parallel_ranges(nrhs, 64, [&](Index from, Index to) {
        cblas_dtrsm(CblasColMajor, CblasRight, CblasLower, CblasTrans, CblasNonUnit,
                    as_int(to - from), as_int(w), 1.0, tile.data, as_int(ld), y.data + from,
                    as_int(nrhs));
      });
    // Full rows in pieces of kRows, then the corner in pieces of kCorner.
    const Index full = std::min(rows, s.reach - w), pieces = ceil_div(full, kRows);
    parallel_for(pieces + ceil_div(rows - full, kCorner), [&](Index piece) {
      if (piece < pieces) {
        const Index first = piece * kRows, count = std::min(kRows, full - first);
        subtract_product(panel_at(s, tile.data, first, 0), ld, count, w, nrhs, y.data,
                         below.data + first * nrhs);
        return;
      }
      const Index first = (piece - pieces) * kCorner, side = std::min(kCorner, w - first);
      const Index count = std::min(side, rows - full - first), next = first + side;
      double* out = below.data + (full + first) * nrhs;
      const CornerBlock block(panel_at(s, tile.data, full + first, first), ld, side, count);
      subtract_product(block.entries, kCorner, count, side, nrhs, y.data + first * nrhs, out);
      subtract_product(panel_at(s, tile.data, full + first, next), ld, count, w - next, nrhs,
                       y.data + next * nrhs, out);
    });
  });
}

void band_backward(const Stream<Cpu>& stream, BandShape s, Index rows, View<const double, Cpu> tile,
                   Index nrhs, View<double, Cpu> x, View<const double, Cpu> below) {
  stream.run([=] {
    const Index w = s.width, ld = s.reach;
    const Index full = std::min(rows, s.reach - w), corner = rows - full;
    parallel_for(ceil_div(w, kCorner), [&](Index piece) {
      const Index first = piece * kCorner, side = std::min(kCorner, w - first);
      const Index above = std::min(corner, first),
                  count = std::clamp<Index>(corner - first, 0, side);
      double* out = x.data + first * nrhs;
      const double* in = below.data;
      subtract_transposed_product(panel_at(s, tile.data, 0, first), ld, full, side, nrhs, in, out);
      in += full * nrhs;
      subtract_transposed_product(panel_at(s, tile.data, full, first), ld, above, side, nrhs, in,
                                  out);
      in += above * nrhs;
      if (count == 0) return;
      const CornerBlock block(panel_at(s, tile.data, full + first, first), ld, side, count);
      subtract_transposed_product(block.entries, kCorner, count, side, nrhs, in, out);
    });
    if (nrhs == 1)
      cblas_dtrsv(CblasColMajor, CblasLower, CblasTrans, CblasNonUnit, as_int(w), tile.data,
                  as_int(ld), x.data, 1);
    else
      parallel_ranges(nrhs, 64, [&](Index from, Index to) {
        cblas_dtrsm(CblasColMajor, CblasRight, CblasLower, CblasNoTrans, CblasNonUnit,
                    as_int(to - from), as_int(w), 1.0, tile.data, as_int(ld), x.data + from,
                    as_int(nrhs));
      });
  });
}

void band_times(const Stream<Cpu>& stream, BandColumns<Cpu> a, double alpha, bool absolute,
                Index nrhs, View<const double, Cpu> x, View<double, Cpu> y) {
  stream.run([=] {
    if (a.count == 0) return;
    parallel_ranges(a.count + a.height - 1, kRows, [&](Index from, Index to) {
      for (Index j = std::max<Index>(0, from - a.height + 1); j < std::min(a.count, to); ++j) {
        const double* column = a.data + j * a.ld - j;  // column[i] is row i
        const Index first = std::max(from, j), last = std::min(to, j + a.height);
        const double* in = x.data + j * nrhs;
        if (nrhs == 1) {
          const double scale = alpha * in[0];
          if (absolute)
            for (Index i = first; i < last; ++i) y.data[i] += std::abs(column[i]) * scale;
          else
            for (Index i = first; i < last; ++i) y.data[i] += column[i] * scale;
        } else {
          for (Index i = first; i < last; ++i) {
            const double entry = alpha * (absolute ? std::abs(column[i]) : column[i]);
            double* out = y.data + i * nrhs;
            for (Index v = 0; v < nrhs; ++v) out[v] += entry * in[v];
          }
        }
      }
    });
  });
}

void band_transposed_times(const Stream<Cpu>& stream, BandColumns<Cpu> a, Index from, double alpha,
                           bool absolute, Index nrhs, View<const double, Cpu> x,
                           View<double, Cpu> y) {
  stream.run([=] {
    parallel_ranges(a.count, 32, [&](Index first, Index last) {
      for (Index j = first; j < last; ++j) {
        const double* column = a.data + j * a.ld;
        const double* in = x.data + j * nrhs;
        double* out = y.data + j * nrhs;
        if (nrhs == 1 && !absolute && a.height > from) {
          out[0] += alpha * cblas_ddot(as_int(a.height - from), column + from, 1, in + from, 1);
          continue;
        }
        for (Index d = from; d < a.height; ++d) {
          const double entry = alpha * (absolute ? std::abs(column[d]) : column[d]);
          for (Index v = 0; v < nrhs; ++v) out[v] += entry * in[d * nrhs + v];
        }
      }
    });
  });
}

void band_generate_spd(const Stream<Cpu>& stream, Word seed, Index n, Index m, Index first,
                       Index count, Index height, Index ld, View<double, Cpu> data) {
  stream.run([=] {
    parallel_ranges(count, 16, [&](Index from, Index to) {
      for (Index j = from; j < to; ++j)
        for (Index d = 0; d < height; ++d)
          data.data[j * ld + d] = band_spd_entry(seed, n, m, first + j + d, first + j);
    });
  });
}

}  // namespace terrace
