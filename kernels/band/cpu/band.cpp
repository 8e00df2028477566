// Substitution with tile columns, products with columns of a band, and the problem, on the CPU.
// Roofline: the substitution reads each tile column once, so it runs at memory rate.
// Every BLAS call works on one fixed global tile: bits depend on the width w alone.
#include "kernels/band/band.hpp"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/band/cpu/steps.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/base/problems.hpp"

namespace terrace::band {
namespace {

constexpr Index kRows = 256;  // rows of a product in one task

int as_int(Index i) { return static_cast<int>(i); }

}  // namespace

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

}  // namespace terrace::band
