// Roofline: 8 bytes an entry of the lower band, read once from memory (twice from the cache), for 4
// flops and right-hand side: memory bounds it up to a handful of right-hand sides.
// Every BLAS call works on one fixed piece of a tile column: bits do not depend on threads.
#include "kernels/band/symmetric.hpp"

#include <cblas.h>

#include <algorithm>
#include <cmath>

#include "kernels/base/cpu/columns.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::band {
namespace {

static_assert(band_symmetric_group == 4);
constexpr Index kWidth = band_symmetric_width;
constexpr Index kRows = 192;     // rows of a tile column at a time: 96 KiB stay in the cache
constexpr Index kSummed = 1024;  // rows of y in one task

int as_int(Index i) { return static_cast<int>(i); }

/// One tile column's strip: row r of it belongs to row k w + r of y.
class Strip {
 public:
  Strip(const BandShape& s, Index k, const double* a, bool absolute, Index nrhs, Index group,
        const double* x, double* strip)
      : s_(s),
        rows_(std::min(s.reach + kWidth, s.padded() - k * kWidth)),
        tile_(a + k * s.tile()),
        absolute_(absolute),
        nrhs_(nrhs),
        group_(group),
        x_(x + k * kWidth * nrhs),
        strip_(strip) {}

  void run() const {
    std::fill_n(strip_, (s_.reach + kWidth) * group_, 0.0);
    // Two right-hand sides are too few for BLAS.
    if (absolute_ || group_ == 2) return edge(0, rows_);
    edge(0, kWidth);
    const Index end = std::min(rows_, s_.reach);
    for (Index r = kWidth; r < end; r += kRows) full(r, std::min(end, r + kRows));
    edge(std::min(rows_, s_.reach), rows_);
  }

 private:
  /// Rows from .. to - 1, entries one by one: the corners, where not all of them belong to the
  /// band.
  void edge(Index from, Index to) const {
    if (group_ == 1) return absolute_ ? entries<1, true>(from, to) : entries<1, false>(from, to);
    if (group_ == 2) return absolute_ ? entries<2, true>(from, to) : entries<2, false>(from, to);
    if (group_ == 3) return absolute_ ? entries<3, true>(from, to) : entries<3, false>(from, to);
    return absolute_ ? entries<4, true>(from, to) : entries<4, false>(from, to);
  }
  template <int V, bool absolute>
  void entries(Index from, Index to) const {
    const auto value = [](double entry) { return absolute ? std::abs(entry) : entry; };
    for (Index c = 0; c < kWidth; ++c) {
      const double* column = tile_ + c * s_.reach;
      const Index end = std::min(to, s_.reach + c + 1);
      double mine[V], sum[V] = {};
      for (int v = 0; v < V; ++v) mine[v] = x_[c * nrhs_ + v];
      if (from <= c)
        for (int v = 0; v < V; ++v) sum[v] = value(column[c]) * mine[v];
      for (Index r = std::max(from, c + 1); r < end; ++r) {
        const double entry = value(column[r]);
        for (int v = 0; v < V; ++v) {
          strip_[r * V + v] += entry * mine[v];
          sum[v] += entry * x_[r * nrhs_ + v];
        }
      }
      for (int v = 0; v < V; ++v) strip_[c * V + v] += sum[v];
    }
  }
  void full(Index from, Index to) const {
    const int rows = as_int(to - from), w = int(kWidth), ld = as_int(s_.reach);
    const int v = as_int(group_), ldx = as_int(nrhs_);
    const double *a = tile_ + from, *x = x_ + from * nrhs_;
    double* y = strip_ + from * group_;
    if (nrhs_ == 1) {
      add_columns(rows, w, 1.0, a, ld, x_, y);
      add_dots(rows, w, 1.0, a, ld, x, strip_);
    } else {
      cblas_dgemm(CblasColMajor, CblasNoTrans, CblasTrans, v, rows, w, 1.0, x_, ldx, a, ld, 1.0, y,
                  v);
      cblas_dgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, v, w, rows, 1.0, x, ldx, a, ld, 1.0,
                  strip_, v);
    }
  }

  const BandShape& s_;
  const Index rows_;
  const double* tile_;
  const bool absolute_;
  const Index nrhs_, group_;
  const double* x_;
  double* strip_;
};

}  // namespace

void band_symmetric_times(const Stream<Cpu>& stream, BandShape s, View<const double, Cpu> a,
                          bool absolute, Index nrhs, View<const double, Cpu> x, View<double, Cpu> y,
                          View<double, Cpu> scratch) {
  stream.run([=] {
    const Index length = s.reach + kWidth;
    for (Index v = 0; v < nrhs; v += band_symmetric_group) {
      const Index group = std::min(nrhs - v, band_symmetric_group), size = length * group;
      parallel_for(s.tiles(), [&](Index k) {
        Strip(s, k, a.data, absolute, nrhs, group, x.data + v, scratch.data + k * size).run();
      });
      parallel_ranges(s.padded(), kSummed, [&](Index from, Index to) {
        for (Index i = from; i < to; ++i) {
          double sum[band_symmetric_group] = {};
          for (Index k = std::max<Index>(0, ceil_div(i + 1 - length, kWidth)); k <= i / kWidth; ++k)
            for (Index e = 0; e < group; ++e)
              sum[e] += scratch.data[k * size + (i - k * kWidth) * group + e];
          std::copy_n(sum, group, y.data + i * nrhs + v);
        }
      });
    }
  });
}

}  // namespace terrace::band
