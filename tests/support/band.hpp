// Band problems from a formula, and a textbook dense Cholesky as oracle.
#pragma once
#include <cmath>
#include <vector>

#include "kernels/base/problems.hpp"
#include "src/band/tile_columns.hpp"
#include "tests/support/oracle.hpp"

namespace terrace::test {

using Entry = std::function<double(Index i, Index j)>;  // A[i, j], i >= j

/// The positive definite matrix of `generate band-spd`, times `scale`.
inline Entry spd(Index n, Index m, double scale = 1.0) {
  return [=](Index i, Index j) { return scale * band_spd_entry(7, n, std::min(m, n - 1), i, j); };
}
template <class T, class B>
std::vector<T> on_host(const Stream<B>& lane, View<T, B> view) {
  std::vector<T> host(std::size_t(view.size));
  download(lane, host.data(), view);
  lane.synchronize();
  return host;
}

/// A problem whose source computes entries on the host.
template <class B>
band::BandProblem<B> band_problem(Index n, Index m, Entry entry) {
  const Index clipped = std::clamp<Index>(m, 0, std::max<Index>(n - 1, 0));
  return {
      n, clipped, [=](Context<B>& c, Range columns, Index height, Index ld, View<double, B> to) {
        std::vector<double> host(std::size_t(columns.count * height), 0.0);
        for (Index j = 0; j < columns.count; ++j)
          for (Index d = 0; d < height && columns.first + j + d < n; ++d)
            host[std::size_t(j * height + d)] = entry(columns.first + j + d, columns.first + j);
        if (columns.count > 0)
          copy_rows<double, B>(c.ahead, to.data, ld, host.data(), height, height, columns.count);
        c.ahead.synchronize();
      }};
}

/// Columns of a formula, as a caller has them in memory.
inline band::BandReader band_reader(Index n, Index m, Entry entry) {
  return {n, m, [=](std::span<const Range> ranges, const io::Sink<double>& sink) {
            Index position = 0;
            for (const Range& range : ranges) {
              std::vector<double> data(std::size_t(range.count * (m + 1)), 0.0);
              for (Index j = 0; j < range.count; ++j)
                for (Index d = 0; d <= m && range.first + j + d < n; ++d)
                  data[std::size_t(j * (m + 1) + d)] = entry(range.first + j + d, range.first + j);
              sink(position, range.count, data.data());
              position += range.count;
            }
          }};
}
/// Rows of right-hand sides that every rank has whole.
inline band::ReadRanges row_reader(std::vector<double> whole, Index nrhs) {
  return [=](std::span<const Range> ranges, const io::Sink<double>& sink) {
    Index position = 0;
    for (const Range& range : ranges) {
      sink(position, range.count, whole.data() + range.first * nrhs);
      position += range.count;
    }
  };
}

/// This rank's tile columns of the problem.
template <class B>
void fill_tiles(Context<B>& c, band::BandTiles<B>& a, Index n, Index m, const Entry& entry) {
  const BlockCyclic columns{n, a.shape.width, c.size()};
  std::vector<double> column(std::size_t(a.shape.column()));
  for (const Range& range : columns.ranges(c.rank()))
    for (Index j = range.first; j < range.end(); ++j) {
      std::fill(column.begin(), column.end(), 0.0);
      for (Index d = 0; d <= m && j + d < n; ++d) column[std::size_t(d)] = entry(j + d, j);
      upload(c.ahead, a.data.view().slice(a.columns.slot(j) * a.shape.column(), a.shape.column()),
             column.data());
      c.ahead.synchronize();
    }
}

/// Textbook Cholesky (Golub, Van Loan 4.2.5, by dot products) of the dense matrix; returns the
/// order of the first minor that is not positive definite, or 0. L row-major.
TERRACE_ORACLE inline Index dense_cholesky(Index n, const Entry& entry, std::vector<double>& l) {
  l.assign(std::size_t(n * n), 0.0);
  for (Index j = 0; j < n; ++j) {
    double* const upper = l.data() + j * n;
    long double pivot = entry(j, j);
    for (Index k = 0; k < j; ++k) pivot -= (long double)upper[k] * upper[k];
    if (!(pivot > 0)) return j + 1;
    upper[j] = double(std::sqrt(pivot));
    for (Index i = j + 1; i < n; ++i) {
      double* const row = l.data() + i * n;
      long double sum = entry(i, j);
      for (Index k = 0; k < j; ++k) sum -= (long double)row[k] * upper[k];
      row[j] = double(sum / upper[j]);
    }
  }
  return 0;
}

/// b = A x by definition; x row-major n x nrhs.
inline std::vector<double> band_product(Index n, Index m, const Entry& entry,
                                        const std::vector<double>& x, Index nrhs) {
  std::vector<double> b(x.size(), 0.0);
  for (Index i = 0; i < n; ++i)
    for (Index j = std::max<Index>(0, i - m); j <= std::min(n - 1, i + m); ++j) {
      const double a = i >= j ? entry(i, j) : entry(j, i);
      for (Index v = 0; v < nrhs; ++v)
        b[std::size_t(i * nrhs + v)] += a * x[std::size_t(j * nrhs + v)];
    }
  return b;
}

/// This rank's rows of a vector known to all, in slot order, zero behind row n.
inline std::vector<double> own_rows(const BlockCyclic& rows, int rank, Index n, Index nrhs,
                                    const std::vector<double>& whole) {
  std::vector<double> mine(std::size_t(rows.slots(rank) * nrhs), 0.0);
  for (Index slot = 0; slot < rows.slots(rank); ++slot)
    for (Index v = 0; v < nrhs && rows.global(slot, rank) < n; ++v)
      mine[std::size_t(slot * nrhs + v)] = whole[std::size_t(rows.global(slot, rank) * nrhs + v)];
  return mine;
}

}  // namespace terrace::test
