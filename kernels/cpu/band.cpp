// Roofline: the update does rows^2 w flops on C tiles that stay in L2/L3 (w / 4 flops a byte), so
// it runs at OpenBLAS's DGEMM rate; the substitution reads each tile column once, so at memory
// rate.
//
// Every BLAS call works on one fixed global tile: bits depend on the width w alone.
#include "kernels/band.hpp"

#include <cblas.h>
#include <lapacke.h>

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

void band_factor_diagonal(const Stream<Cpu>& stream, BandShape s, Index k, View<double, Cpu> tile,
                          View<double, Cpu> status) {
  stream.run([=] {
    const int info =
        LAPACKE_dpotrf_work(LAPACK_COL_MAJOR, 'L', as_int(s.width), tile.data, as_int(s.reach));
    Index order = info;
    for (Index j = 0; order == 0 && j < s.width; ++j)
      if (!(std::isfinite(tile.data[j * s.column()]) && tile.data[j * s.column()] > 0))
        order = j + 1;
    status.data[0] = order > 0 ? double(k * s.width + order) : 0.0;
  });
}

void band_solve_panel(const Stream<Cpu>& stream, BandShape s, Index rows, View<double, Cpu> tile,
                      View<double, Cpu> panel) {
  stream.run([=] {
    const Index chunk = std::max<Index>(s.width, 32);
    parallel_for(ceil_div(rows, chunk), [&](Index piece) {
      const Index first = piece * chunk, count = std::min(chunk, rows - first);
      const auto inside = [&](Index j) {  // rows of column j that are in the band
        return std::clamp<Index>(s.reach - s.width + j + 1 - first, 0, count);
      };
      double* in = tile.data + s.width + first;
      double* out = panel.data + first;
      for (Index j = 0; j < s.width; ++j) {
        std::copy_n(in + j * s.reach, inside(j), out + j * s.reach);
        std::fill(out + j * s.reach + inside(j), out + j * s.reach + count, 0.0);
      }
      cblas_dtrsm(CblasColMajor, CblasRight, CblasLower, CblasTrans, CblasNonUnit, as_int(count),
                  as_int(s.width), 1.0, tile.data, as_int(s.reach), out, as_int(s.reach));
      for (Index j = 0; j < s.width; ++j)
        std::copy_n(out + j * s.reach, inside(j), in + j * s.reach);
    });
  });
}

void band_update(const Stream<Cpu>& stream, BandShape s, Index rows, View<const double, Cpu> panel,
                 Index first, Index step, Index count, View<double, Cpu> tiles) {
  stream.run([=] {
    const Index w = s.width, chunk = round_up(384, w);
    const Index chunks = ceil_div(rows, chunk) + 1;  // piece 0 of a tile column: its diagonal block
    parallel_for(count * chunks, [&](Index task) {
      const Index number = task / chunks, piece = task % chunks;
      const Index top = (first + number * step - 1) * w;  // its first row in the panel
      double* tile = tiles.data + number * s.tile();
      const double* right = panel.data + top;
      if (top >= rows) return;
      if (piece == 0) {
        cblas_dsyrk(CblasColMajor, CblasLower, CblasNoTrans, as_int(std::min(w, rows - top)),
                    as_int(w), -1.0, right, as_int(s.reach), 1.0, tile, as_int(s.reach));
        return;
      }
      const Index from = top + w + (piece - 1) * chunk, to = std::min(rows, from + chunk);
      if (from >= to) return;
      cblas_dgemm(CblasColMajor, CblasNoTrans, CblasTrans, as_int(to - from), as_int(w), as_int(w),
                  -1.0, panel.data + from, as_int(s.reach), right, as_int(s.reach), 1.0,
                  tile + (from - top), as_int(s.reach));
    });
  });
}

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
