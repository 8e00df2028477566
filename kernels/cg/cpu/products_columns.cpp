// Matrix times up to 16 vectors on the CPU, vectors row-major. The matrix comes from memory once;
// beside it 16 bytes per row and column of vectors.
#include <cblas.h>

#include <algorithm>

#include "kernels/cg/cpu/products.hpp"
#include "kernels/cg/products.hpp"

namespace terrace::cg {
namespace {

/// sum[c] += value p[c] over `wide` columns that stay in registers; p.q of `columns` columns onto
/// `sums`, then p.p.
template <int wide>
[[gnu::always_inline]] inline void row_columns(const std::int32_t* column, const double* value,
                                               Index count, const double* p, Index columns,
                                               const double* own, double* q, bool add,
                                               double* sums) {
  double sum[wide] = {};
  for (Index e = 0; e < count; ++e) {
    const double* const from = p + column[e] * columns;
    for (int c = 0; c < wide; ++c) sum[c] += value[e] * from[c];
  }
  for (int c = 0; c < wide; ++c) {
    q[c] = add ? q[c] + sum[c] : sum[c];
    sums[c] += own[c] * sum[c];
    if (!add) sums[columns + c] += own[c] * own[c];
  }
}

TERRACE_VECTOR_CLONES
void csr_rows(const CsrRows<Cpu>& m, const double* p, double* q, bool add, Index columns,
              Index from, Index to, double* sums) {
  for (Index k = from; k < to; ++k) {
    const Index begin = m.start.data[k], count = m.start.data[k + 1] - begin;
    const std::int32_t* const column = m.column.data + begin;
    const double* const value = m.value.data + begin;
    const Index i = (m.row.size > 0 ? m.row.data[k] : k) * columns;
    const double* const own = p + i;
    double* const row = q + i;
    Index c = 0;
    for (; c + 8 <= columns; c += 8)
      row_columns<8>(column, value, count, p + c, columns, own + c, row + c, add, sums + c);
    for (; c + 4 <= columns; c += 4)
      row_columns<4>(column, value, count, p + c, columns, own + c, row + c, add, sums + c);
    for (; c < columns; ++c)
      row_columns<1>(column, value, count, p + c, columns, own + c, row + c, add, sums + c);
  }
}

/// p.q and p.p of each column of `rows` rows onto `sums`.
TERRACE_VECTOR_CLONES
void products_of(const double* p, const double* q, Index rows, Index columns, double* sums) {
  for (Index i = 0; i < rows; ++i, p += columns, q += columns)
    for (Index c = 0; c < columns; ++c) {
      sums[c] += p[c] * q[c];
      sums[columns + c] += p[c] * p[c];
    }
}

// Columns of the band whose entries are gathered together, a cache line of each diagonal, and
// diagonals at a time.
constexpr Index together = 8, deep = 64;

/// up[c] += s[d] above[d][c], low[d][c] += s[d] p[c], for d in [0, count); low only below
/// low_count.
template <int wide>
[[gnu::always_inline]] inline void column_of(const double* s, Index count, Index low_count,
                                             const double* p, const double* above, double* up,
                                             double* low, Index columns) {
  double sum[wide], own[wide];
  for (int c = 0; c < wide; ++c) {
    own[c] = p[c];
    sum[c] = up[c];
  }
  for (Index d = 0; d < low_count; ++d)
    for (int c = 0; c < wide; ++c) {
      sum[c] += s[d] * above[d * columns + c];
      low[d * columns + c] += s[d] * own[c];
    }
  for (Index d = low_count; d < count; ++d)
    for (int c = 0; c < wide; ++c) sum[c] += s[d] * above[d * columns + c];
  for (int c = 0; c < wide; ++c) up[c] = sum[c];
}

TERRACE_VECTOR_CLONES
void band_column(const double* s, Index count, Index low_count, const double* p,
                 const double* above, double* up, double* low, Index columns) {
  Index c = 0;
  for (; c + 8 <= columns; c += 8)
    column_of<8>(s, count, low_count, p + c, above + c, up + c, low + c, columns);
  for (; c + 4 <= columns; c += 4)
    column_of<4>(s, count, low_count, p + c, above + c, up + c, low + c, columns);
  for (; c < columns; ++c)
    column_of<1>(s, count, low_count, p + c, above + c, up + c, low + c, columns);
}

/// The columns [from, to) of b: q of their own rows, `low` of rows from `from` on.
void band_columns(const BandRows<Cpu>& b, const double* p, double* q, double* low, Index columns,
                  Index from, Index to) {
  const Index m = b.half_bandwidth;
  const double* const s = b.s.data + b.lead();
  double line[together * deep];
  for (Index j = from; j < to; ++j)
    for (Index c = 0; c < columns; ++c) q[j * columns + c] = s[j] * p[j * columns + c];
  for (Index j0 = from; j0 < to; j0 += together) {
    const Index wide = std::min(together, to - j0);
    for (Index d0 = 1; d0 <= m; d0 += deep) {
      const Index count = std::min(deep, m + 1 - d0);
      for (Index d = 0; d < count; ++d)
        for (Index k = 0; k < wide; ++k) line[k * deep + d] = s[(d0 + d) * b.ld + j0 + k];
      for (Index j = j0; j < j0 + wide; ++j)
        band_column(line + (j - j0) * deep, count, std::clamp<Index>(b.rows - j - d0, 0, count),
                    p + j * columns, p + (j + d0) * columns, q + j * columns,
                    low + (j + d0 - from) * columns, columns);
    }
  }
}

}  // namespace

void multiply_columns(const Stream<Cpu>& stream, const DenseRows<Cpu>& m, const double* p,
                      View<double, Cpu> q, Index columns, const double* skip) {
  stream.run([=] {
    if (skip && *skip != 0) return;
    parallel_ranges(m.rows, 64, [&](Index from, Index to) {
      cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, int(to - from), int(columns),
                  int(m.ld), 1.0, m.a.data + from * m.ld, int(m.ld), p, int(columns), 0.0,
                  q.data + from * columns, int(columns));
    });
  });
}

void multiply_columns(const Stream<Cpu>& stream, const CsrRows<Cpu>& m, const double* p,
                      View<double, Cpu> q, const SumTarget<Cpu>& sums, Index columns,
                      const double* skip) {
  stream.run([=] {
    if (skip && *skip != 0) return;
    sum_columns(m.rows(), piece_grain(m.rows(), 256), columns, sums,
                [&](Index from, Index to, double* s) {
                  csr_rows(m, p, q.data, sums.add, columns, from, to, s);
                });
  });
}

void multiply_columns(const Stream<Cpu>& stream, const BandRows<Cpu>& b, const double* p,
                      View<double, Cpu> q, View<double, Cpu> scratch, const SumTarget<Cpu>& sums,
                      Index columns, const double* skip) {
  stream.run([=] {
    if (skip && *skip != 0) return;
    const Index m = b.half_bandwidth, rows = b.rows, w = b.lead();
    const Index tile = band_tile(rows, m), stride = columns * (tile + m);
    // A tile's columns: own rows into q, rows below into the tile's scratch.
    parallel_ranges(rows, tile, [&](Index from, Index to) {
      double* const low = scratch.data + from / tile * stride;
      std::fill(low, low + stride, 0.0);
      band_columns(b, p, q.data, low, columns, from, to);
    });
    sum_columns(rows, piece_grain(rows, 1024), columns, sums, [&](Index from, Index to, double* s) {
      for (Index t = std::max<Index>(0, (from - m) / tile - 1); t * tile < to; ++t) {
        const double* const low = scratch.data + t * stride;
        const Index begin = std::max(from, t * tile),
                    end = std::min({to, t * tile + tile + m, rows});
        for (Index i = begin * columns; i < end * columns; ++i)
          q.data[i] += low[i - t * tile * columns];
      }
      for (Index d = from + 1; d <= m; ++d) {  // columns of earlier slices
        const double* const entries = b.s.data + d * b.ld + w - std::min(d, w);
        for (Index i = from; i < std::min({to, d, rows}); ++i)
          for (Index c = 0; c < columns; ++c)
            q.data[i * columns + c] += entries[i] * p[(i - d) * columns + c];
      }
      products_of(p + from * columns, q.data + from * columns, to - from, columns, s);
    });
  });
}

}  // namespace terrace::cg
