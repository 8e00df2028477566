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

#include "kernels/cpu/band_steps.hpp"
#include "kernels/parallel.hpp"
#include "kernels/problems.hpp"

namespace terrace {
namespace {

constexpr Index kRows = 256;  // rows of a product in one task

int as_int(Index i) { return static_cast<int>(i); }

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
    for (Index i = 0; i < s.width * nrhs; ++i) y.data[i] += arrived.data[i];
    band_forward_step(s, rows, tile.data, nrhs, y.data, below.data);
  });
}

void band_backward(const Stream<Cpu>& stream, BandShape s, Index rows, View<const double, Cpu> tile,
                   Index nrhs, View<double, Cpu> x, View<const double, Cpu> below) {
  stream.run([=] { band_backward_step(s, rows, tile.data, nrhs, x.data, below.data); });
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
