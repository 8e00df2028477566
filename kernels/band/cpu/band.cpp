// Substitution with tile columns, products with columns of a band, and the problem, on the CPU.
// Roofline: the substitution reads each tile column once, so it runs at memory rate.
// Every BLAS call works on one fixed global tile: bits depend on the width w alone.
#include "kernels/band/band.hpp"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <vector>

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

namespace {

/// band_times(); sums += |a| 1, unless null.
void lower_times(BandColumns<Cpu> a, double alpha, Index nrhs, const double* x, double* y,
                 double* sums) {
  if (a.count == 0) return;
  parallel_ranges(a.count + a.height - 1, kRows, [&](Index from, Index to) {
    for (Index j = std::max<Index>(0, from - a.height + 1); j < std::min(a.count, to); ++j) {
      const double* column = a.data + j * a.ld - j;  // column[i] is row i
      const Index first = std::max(from, j), last = std::min(to, j + a.height);
      const double* in = x + j * nrhs;
      if (sums)
        for (Index i = first; i < last; ++i) sums[i] += std::abs(column[i]);
      if (nrhs == 1) {
        const double scale = alpha * in[0];
        for (Index i = first; i < last; ++i) y[i] += column[i] * scale;
        continue;
      }
      for (Index i = first; i < last; ++i) {
        const double entry = alpha * column[i];
        double* out = y + i * nrhs;
        for (Index v = 0; v < nrhs; ++v) out[v] += entry * in[v];
      }
    }
  });
}
/// band_transposed_times() of the entries `from` and further down; likewise.
void upper_times(BandColumns<Cpu> a, Index from, double alpha, Index nrhs, const double* x,
                 double* y, double* sums) {
  parallel_ranges(a.count, 32, [&](Index first, Index last) {
    for (Index j = first; j < last; ++j) {
      const double* column = a.data + j * a.ld;
      const double* in = x + j * nrhs;
      double* out = y + j * nrhs;
      const int entries = as_int(std::max<Index>(a.height - from, 0));
      if (sums) sums[j] += cblas_dasum(entries, column + from, 1);
      if (nrhs == 1) {
        out[0] += alpha * cblas_ddot(entries, column + from, 1, in + from, 1);
        continue;
      }
      for (Index d = from; d < a.height; ++d) {
        const double entry = alpha * column[d];
        for (Index v = 0; v < nrhs; ++v) out[v] += entry * in[d * nrhs + v];
      }
    }
  });
}
/// Maximum that does not lose a NaN.
void raise(double& maximum, double value) {
  if (!(std::abs(value) <= maximum))
    maximum = std::isfinite(value) ? std::abs(value) : std::numeric_limits<double>::infinity();
}

}  // namespace

void band_times(const Stream<Cpu>& stream, BandColumns<Cpu> a, double alpha, Index nrhs,
                View<const double, Cpu> x, View<double, Cpu> y) {
  stream.run([=] { lower_times(a, alpha, nrhs, x.data, y.data, nullptr); });
}
void band_transposed_times(const Stream<Cpu>& stream, BandColumns<Cpu> a, double alpha, Index nrhs,
                           View<const double, Cpu> x, View<double, Cpu> y) {
  stream.run([=] { upper_times(a, 0, alpha, nrhs, x.data, y.data, nullptr); });
}
void band_symmetric_times(const Stream<Cpu>& stream, BandColumns<Cpu> a, Index nrhs,
                          View<const double, Cpu> x, View<double, Cpu> y, View<double, Cpu> sums) {
  stream.run([=] {
    lower_times(a, 1.0, nrhs, x.data, y.data, sums.data);
    upper_times(a, 1, 1.0, nrhs, x.data, y.data, sums.data);
  });
}

void band_raise(const Stream<Cpu>& stream, const BandResidual<Cpu>& r) {
  stream.run([r] {
    std::mutex mutex;
    parallel_ranges(r.rows.count * r.rows.length, kRows, [&](Index from, Index to) {
      std::vector<double> most(std::size_t(3 * r.nrhs), 0.0);
      for (Index i = from; i < to; ++i) {
        const Index row = i / r.rows.length * r.rows.distance + i % r.rows.length;
        if (row >= r.rows.end) break;
        for (Index v = 0; v < r.nrhs; ++v) {
          const double b = r.b ? r.b[i * r.nrhs + v] : 0.0;
          raise(most[std::size_t(v)], b - r.y[row * r.nrhs + v]);
          raise(most[std::size_t(r.nrhs + v)], r.x[row * r.nrhs + v]);
          raise(most[std::size_t(2 * r.nrhs + v)], b);
        }
      }
      const std::lock_guard lock(mutex);
      for (std::size_t k = 0; k < most.size(); ++k) raise(r.out[k], most[k]);
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
