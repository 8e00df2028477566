// One part of a band matrix with its arrow, and a textbook elimination of it in long double.
#pragma once
#include <cmath>
#include <vector>

#include "kernels/band/parts.hpp"
#include "kernels/base/random.hpp"
#include "tests/support/oracle.hpp"

namespace terrace::test {

/// All entries of the part in the layouts of kernels/band/parts.hpp. Memory that belongs to no
/// entry of the part is NaN: nobody may use it.
struct HostPart {
  band::BandShape s;
  Index tiles = 0, window = 0, arrow = 0;
  std::vector<double> band, inverse, spike, block, coupling;
  Index failed = 0;  ///< one-based column of the first bad pivot

  HostPart(Index m, Index w, Index tiles_, bool with_window, Index arrow_, Word seed)
      : s(band::band_shape(1 << 20, m, w)),
        tiles(tiles_),
        window(with_window ? band_reach_tiles(s) : 0),
        arrow(arrow_),
        band(std::size_t(band_part_doubles(s, tiles + window)), NAN),
        inverse(std::size_t((tiles + window) * w * w), NAN),
        spike(std::size_t(arrow * own())),
        block(std::size_t(arrow * arrow)),
        coupling(std::size_t(rows_of_window() * arrow)) {
    for (Index j = 0; j < rows(); ++j)
      for (Index i = j; i < rows() && i - j <= s.reach; ++i)
        at(i, j) = i == j ? 2.0 * double(s.reach) + double(arrow) + 2.0 + random_uniform(seed, i, j)
                          : random_uniform(seed, i, j);
    const auto fill = [](std::vector<double>& v, Word key) {
      for (std::size_t i = 0; i < v.size(); ++i) v[i] = random_uniform(key, Index(i), 0);
    };
    fill(spike, seed + 1);
    std::fill(spike.begin() + arrow * begin_of_rest(), spike.end(), 0.0);
    fill(block, seed + 2);
    fill(coupling, seed + 3);
  }

  [[nodiscard]] Index own() const { return tiles * s.width; }
  /// Columns of the spike in which a matrix may have numbers.
  [[nodiscard]] Index begin_of_rest() const {
    return std::min(tiles, band_reach_tiles(s)) * s.width;
  }
  [[nodiscard]] Index rows_of_window() const { return window * s.width; }
  [[nodiscard]] Index rows() const { return own() + rows_of_window(); }
  [[nodiscard]] double& at(Index i, Index j) { return band[std::size_t(j * s.column() + i - j)]; }
  [[nodiscard]] double at(Index i, Index j) const {
    return band[std::size_t(j * s.column() + i - j)];
  }
  [[nodiscard]] double& spike_at(Index r, Index j) { return spike[std::size_t(j * arrow + r)]; }
  [[nodiscard]] double spike_at(Index r, Index j) const {
    return spike[std::size_t(j * arrow + r)];
  }

  /// Every `step`-th number.
  struct Strided {
    const double* first;
    Index step;
  };
  [[nodiscard]] Strided row(Index i) const { return {band.data() + i, s.column() - 1}; }
  [[nodiscard]] Strided spike_row(Index r) const { return {spike.data() + r, arrow}; }
  TERRACE_ORACLE static long double minus_dot(long double start, Index from, Index to, Strided left,
                                              Strided right) {
    const double *a = left.first, *b = right.first;
    for (Index k = from; k < to; ++k) start -= (long double)(a[k * left.step]) * b[k * right.step];
    return start;
  }

  /// Eliminates in place, one column after the other, by dot products; stops at a bad pivot.
  void eliminate() {
    const Index n = rows(), m = s.reach;
    const auto first = [&](Index i) { return std::max<Index>(0, i - m); };
    for (Index j = 0; j < n; ++j) {
      const Index to = std::min(j, own());
      for (Index i = j; i < n && i - j <= m; ++i) {
        const long double rest = minus_dot(at(i, j), first(i), to, row(i), row(j));
        if (j >= own())
          at(i, j) = double(rest);
        else if (i > j)
          at(i, j) = double(rest / at(j, j));
        else if (rest > 0 && std::isfinite(double(rest)))
          at(j, j) = double(std::sqrt(rest));
        else {
          failed = j + 1;
          return;
        }
      }
      for (Index r = 0; r < arrow; ++r) {
        if (j < own()) {
          const long double rest = minus_dot(spike_at(r, j), first(j), j, spike_row(r), row(j));
          spike_at(r, j) = double(rest / at(j, j));
        } else {
          double& c = coupling[std::size_t(r * rows_of_window() + j - own())];
          c = double(minus_dot(c, first(j), to, spike_row(r), row(j)));
        }
      }
    }
    for (Index q = 0; q < arrow; ++q)
      for (Index r = q; r < arrow; ++r) {
        double& c = block[std::size_t(q * arrow + r)];
        c = double(minus_dot(c, 0, own(), spike_row(r), spike_row(q)));
      }
    invert();
  }
  /// Inverses of the diagonal blocks of the tile columns to eliminate.
  void invert() {
    const Index w = s.width;
    for (Index k = 0; k < tiles; ++k)
      for (Index j = 0; j < w; ++j) {
        std::vector<long double> x(static_cast<std::size_t>(w));
        for (Index i = 0; i < w; ++i) {
          long double sum = i == j;
          for (Index q = j; q < i; ++q)
            sum -= (long double)(at(k * w + i, k * w + q)) * x[std::size_t(q)];
          x[std::size_t(i)] = i < j ? 0.0L : sum / at(k * w + i, k * w + i);
          inverse[std::size_t((k * w + j) * w + i)] = double(x[std::size_t(i)]);
        }
      }
  }

  /// With the factor: y := L^-1 y; window rows -= R y; arrow rows -= W y.
  void forward(Index nrhs, std::vector<double>& x, std::vector<double>& above) const {
    for (Index v = 0; v < nrhs; ++v) {
      for (Index i = 0; i < rows(); ++i) {
        long double sum = x[std::size_t(i * nrhs + v)];
        for (Index k = std::max<Index>(0, i - s.reach); k < std::min(i, own()); ++k)
          sum -= (long double)(at(i, k)) * x[std::size_t(k * nrhs + v)];
        x[std::size_t(i * nrhs + v)] = double(i < own() ? sum / at(i, i) : sum);
      }
      for (Index r = 0; r < arrow; ++r) {
        long double sum = above[std::size_t(r * nrhs + v)];
        for (Index k = 0; k < own(); ++k)
          sum -= (long double)(spike_at(r, k)) * x[std::size_t(k * nrhs + v)];
        above[std::size_t(r * nrhs + v)] = double(sum);
      }
    }
  }
  /// With the factor: x := L^-T (x - R^T window rows - W^T arrow rows).
  void backward(Index nrhs, std::vector<double>& x, const std::vector<double>& above) const {
    for (Index v = 0; v < nrhs; ++v)
      for (Index j = own() - 1; j >= 0; --j) {
        long double sum = x[std::size_t(j * nrhs + v)];
        for (Index i = j + 1; i < std::min(rows(), j + s.reach + 1); ++i)
          sum -= (long double)(at(i, j)) * x[std::size_t(i * nrhs + v)];
        for (Index r = 0; r < arrow; ++r)
          sum -= (long double)(spike_at(r, j)) * above[std::size_t(r * nrhs + v)];
        x[std::size_t(j * nrhs + v)] = double(sum / at(j, j));
      }
  }
};

}  // namespace terrace::test
