// Row-major operations on host memory. multiply: 2 m n k flops on tiles of 128 x 512, bound by
// DGEMM of the cores; the others read (and write) every element once, bound by memory.
#include "kernels/base/matrix.hpp"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/base/parallel.hpp"

namespace terrace {

namespace {
constexpr Index grain = 16384;  // elements of one piece
constexpr Index row_tile = 128, column_tile = 512;
}  // namespace

template <>
void multiply(const Stream<Cpu>& stream, Index m, Index n, Index k, double alpha,
              View<const double, Cpu> a, Index lda, View<const double, Cpu> b, Index ldb,
              double beta, View<double, Cpu> c, Index ldc) {
  if (m == 0 || n == 0) return;
  stream.run([=] {
    const Index across = ceil_div(n, column_tile), down = ceil_div(m, row_tile);
    parallel_for(across * down, [&](Index piece) {
      const Index i = piece / across * row_tile, j = piece % across * column_tile;
      if (n == 1)  // DGEMM would pack A
        return cblas_dgemv(CblasRowMajor, CblasNoTrans, int(std::min(row_tile, m - i)), int(k),
                           alpha, a.data + i * lda, int(std::max<Index>(1, lda)), b.data,
                           int(std::max<Index>(1, ldb)), beta, c.data + i * ldc, int(ldc));
      cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, int(std::min(row_tile, m - i)),
                  int(std::min(column_tile, n - j)), int(k), alpha, a.data + i * lda,
                  int(std::max<Index>(1, lda)), b.data + j, int(std::max<Index>(1, ldb)), beta,
                  c.data + i * ldc + j, int(ldc));
    });
  });
}

template <>
void add(const Stream<Cpu>& stream, double alpha, View<const double, Cpu> x, double beta,
         View<const double, Cpu> y, View<double, Cpu> out) {
  stream.run([=] {
    parallel_ranges(out.size, grain, [&](Index from, Index to) {
      if (beta == 0) {
        for (Index i = from; i < to; ++i) out.data[i] = alpha * x.data[i];
      } else {
        for (Index i = from; i < to; ++i) out.data[i] = alpha * x.data[i] + beta * y.data[i];
      }
    });
  });
}

template <>
void subtract_identity(const Stream<Cpu>& stream, View<const Index, Cpu> column,
                       View<double, Cpu> a, Index ld) {
  stream.run([=] {
    for (Index r = 0; r < column.size; ++r) a.data[r * ld + column.data[r]] -= 1;
  });
}

template <>
void row_products(const Stream<Cpu>& stream, Index rows, Index columns, double scale,
                  View<const double, Cpu> x, Index ldx, View<const double, Cpu> y, Index ldy,
                  View<double, Cpu> out) {
  stream.run([=] {
    const Index pieces = std::max<Index>(1, ceil_div(columns, grain));
    std::vector<double> part(static_cast<std::size_t>(rows * pieces));
    parallel_for(rows * pieces, [&](Index piece) {
      const Index r = piece / pieces, from = piece % pieces * grain;
      const double *const u = x.data + r * ldx, *const v = y.data + r * ldy;
      double sum = 0;
      for (Index j = from; j < std::min(columns, from + grain); ++j)
        sum += (scale * u[j]) * (scale * v[j]);
      part[std::size_t(piece)] = sum;
    });
    for (Index r = 0; r < rows; ++r) {
      double sum = 0;
      for (Index p = 0; p < pieces; ++p) sum += part[std::size_t(r * pieces + p)];
      out.data[r] = sum;
    }
  });
}

template <>
void column_sums(const Stream<Cpu>& stream, Index rows, Index columns, double scale,
                 View<const double, Cpu> a, Index ld, View<double, Cpu> out) {
  stream.run([=] {
    parallel_ranges(columns, 256, [&](Index from, Index to) {
      std::fill(out.data + from, out.data + to, 0.0);
      for (Index r = 0; r < rows; ++r)
        for (Index j = from; j < to; ++j) out.data[j] += std::fabs(scale * a.data[r * ld + j]);
    });
  });
}

template <>
void row_sums(const Stream<Cpu>& stream, Index rows, Index columns, double scale,
              View<const double, Cpu> a, Index ld, View<double, Cpu> out) {
  stream.run([=] {
    parallel_ranges(rows, 16, [&](Index from, Index to) {
      for (Index r = from; r < to; ++r) {
        double sum = 0;
        for (Index j = 0; j < columns; ++j) sum += std::fabs(scale * a.data[r * ld + j]);
        out.data[r] = sum;
      }
    });
  });
}

template <>
void scale_columns(const Stream<Cpu>& stream, Index rows, View<const Index, Cpu> power,
                   View<double, Cpu> a, Index ld) {
  stream.run([=] {
    parallel_ranges(rows, 16, [&](Index from, Index to) {
      for (Index r = from; r < to; ++r)
        for (Index j = 0; j < power.size; ++j)
          a.data[r * ld + j] = std::ldexp(a.data[r * ld + j], int(power.data[j]));
    });
  });
}

template <>
void transpose(const Stream<Cpu>& stream, Index rows, Index columns, View<const double, Cpu> from,
               Index ld_from, View<double, Cpu> to, Index ld_to) {
  constexpr Index edge = 32;
  stream.run([=] {
    parallel_ranges(rows, edge, [&](Index i0, Index i1) {
      for (Index j0 = 0; j0 < columns; j0 += edge)
        for (Index i = i0; i < i1; ++i)
          for (Index j = j0; j < std::min(j0 + edge, columns); ++j)
            to.data[j * ld_to + i] = from.data[i * ld_from + j];
    });
  });
}

template <>
Sizes sizes_of(const Stream<Cpu>& stream, Index rows, Index columns, View<const double, Cpu> a,
               Index ld) {
  const Index pieces = columns == 0 ? 0 : rows * ceil_div(columns, grain);
  std::vector<Sizes> found(static_cast<std::size_t>(pieces));
  stream.run([=, &found] {
    const Index across = ceil_div(columns, grain);
    parallel_for(pieces, [&](Index piece) {
      const double* const row = a.data + piece / across * ld;
      const Index from = piece % across * grain;
      Sizes here;
      bool finite = true;
      for (Index j = from; j < std::min(columns, from + grain); ++j) {
        const double size = std::fabs(row[j]);
        const double low = size > 0 ? size : std::numeric_limits<double>::infinity();
        finite = finite && size <= std::numeric_limits<double>::max();
        here.largest = size > here.largest ? size : here.largest;
        here.least = low < here.least ? low : here.least;
      }
      if (!finite) here.largest = std::numeric_limits<double>::infinity();
      found[std::size_t(piece)] = here;
    });
  });
  stream.synchronize();
  Sizes sizes;
  for (const Sizes& here : found) {
    sizes.largest = std::max(sizes.largest, here.largest);
    sizes.least = std::min(sizes.least, here.least);
  }
  return sizes;
}

template <>
std::vector<double> largest_of_columns(const Stream<Cpu>& stream, Index rows, Index columns,
                                       View<const double, Cpu> a, Index ld) {
  std::vector<double> parts(std::size_t(ceil_div(rows, grain) * columns), 0.0);
  stream.run([=, &parts] {
    parallel_ranges(rows, grain, [&](Index from, Index to) {
      double* const most = parts.data() + from / grain * columns;
      for (Index i = from; i < to; ++i)
        for (Index j = 0; j < columns; ++j) {
          const double size = std::fabs(a.data[i * ld + j]);
          most[j] = size <= most[j] ? most[j] : size;  // a NaN is kept below
          if (std::isnan(size)) most[j] = std::numeric_limits<double>::infinity();
        }
    });
  });
  stream.synchronize();
  std::vector<double> most(std::size_t(columns), 0.0);
  for (std::size_t i = 0; i < parts.size(); ++i)
    most[i % std::size_t(columns)] = std::max(most[i % std::size_t(columns)], parts[i]);
  return most;
}

}  // namespace terrace
