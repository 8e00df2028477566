// Packed tiles times up to 16 vectors on the CPU. A core does 2 to 4 vectors at the rate at which
// the memory gives it the matrix, more at 4 columns flops an entry in its vector units.
//
// A thread takes units (kernels/cg/triangle_block.hpp); row sums of a unit and its strip of column
// sums stay in the caches. Vectors are stored k = 4, 8 or 16 wide.
#include "kernels/cg/triangle_block.hpp"

#include "kernels/base/cpu/dense_simd.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::cg {
namespace {

using simd::fma_level;
using triangle::UnitShape;

struct OneTile {
  const double* a;
  const double *of_rows, *of_columns;  // P: 256 x k, 64 x k
  double *row_sums, *column_sums;
  Index k;
};

/// `count` vectors of L columns from `at` on; `rows` rows at a time, their sums and their P in
/// registers through the columns.
template <int L, int count, int rows>
TERRACE_INLINE void tile_times(const OneTile& w, Index at) {
  using V = typename simd::Lanes<L>::Reals;
  for (Index r = 0; r < triangle::height; r += rows) {
    const double* a = w.a + r * triangle::width;
    V mine[rows][count], sums[rows][count];
    for (int i = 0; i < rows; ++i)
      for (int c = 0; c < count; ++c) {
        mine[i][c] = *(reinterpret_cast<const V*>(w.of_rows + (r + i) * w.k + at) + c);
        sums[i][c] = *(reinterpret_cast<const V*>(w.row_sums + (r + i) * w.k + at) + c);
      }
    for (Index j = 0; j < triangle::width; ++j) {
      const V* theirs = reinterpret_cast<const V*>(w.of_columns + j * w.k + at);
      V* down = reinterpret_cast<V*>(w.column_sums + j * w.k + at);
      for (int c = 0; c < count; ++c) {
        const V p = theirs[c];
        V sum = down[c];
        for (int i = 0; i < rows; ++i) {
          const double entry = a[i * triangle::width + j];
          sums[i][c] += entry * p;
          sum += entry * mine[i][c];
        }
        down[c] = sum;
      }
    }
    for (int i = 0; i < rows; ++i)
      for (int c = 0; c < count; ++c)
        *(reinterpret_cast<V*>(w.row_sums + (r + i) * w.k + at) + c) = sums[i][c];
  }
}
template <int L>
TERRACE_INLINE void tile_of_any(const OneTile& w) {
  if (w.k == 4) return tile_times<4, 1, 4>(w, 0);
  if (L == 4)  // 16 registers
    for (Index at = 0; at < w.k; at += 8) tile_times<4, 2, 2>(w, at);
  else
    w.k == 8 ? tile_times<L, 1, 4>(w, 0) : tile_times<L, 2, 4>(w, 0);
}
TERRACE_LANES(multiply_tile, tile_of_any, OneTile)

}  // namespace

UnitShape triangle::unit_shape(Cpu, Index n, Index tile_rows) {
  const Index tiles = tile_rows * UnitShape::across_all(n);
  return tiles >= 65536 ? UnitShape{16, 32} : tiles >= 4096 ? UnitShape{4, 32} : UnitShape{1, 16};
}

void multiply_block(const Stream<Cpu>& stream, const TriangleTiles<Cpu>& t,
                    View<const double, Cpu> p, View<double, Cpu> q, Index columns,
                    View<double, Cpu> scratch, const double* skip) {
  stream.run([=] {
    if (skip && *skip != 0) return;
    using triangle::height;
    using triangle::tiles_of;
    using triangle::width;
    const Index padded = triangle::padded(t.n), rows = t.row.size;
    const Index k = triangle::stored_columns(Cpu{}, columns);
    const UnitShape shape = triangle::unit_shape(Cpu{}, t.n, rows);
    const Index groups = shape.groups(rows), chunks = shape.chunks(t.n);
    double* const vectors = scratch.data;
    double* const row_sums = vectors + padded * k;
    double* const column_sums = row_sums + rows * chunks * height * k;

    parallel_ranges(padded, 1024, [&](Index from, Index to) {
      for (Index i = from; i < to; ++i)
        for (Index c = 0; c < k; ++c)
          vectors[i * k + c] = c < columns ? p.data[i * columns + c] : 0.0;
    });
    // From the last group on: the smaller units at the diagonal come last.
    parallel_for(groups * chunks, [&](Index unit) {
      const Index group = groups - 1 - unit % groups, chunk = unit / groups;
      const Index first = group * shape.down, last = std::min(rows, first + shape.down) - 1;
      const Index j0 = chunk * shape.across;
      const auto end = [&](Index row) {
        return std::min(j0 + shape.across, tiles_of(t.row.data[row]));
      };
      if (j0 >= end(last)) return;
      double* strip = column_sums + group * padded * k;
      std::fill(strip + j0 * width * k, strip + end(last) * width * k, 0.0);
      for (Index row = first; row <= last; ++row) {
        if (j0 >= end(row)) continue;
        double* sums = row_sums + (row * chunks + chunk) * height * k;
        std::fill(sums, sums + height * k, 0.0);
        for (Index j = j0; j < end(row); ++j) {
          multiply_tile({t.a.data + (t.start.data[row] + j) * triangle::tile,
                         vectors + t.row.data[row] * height * k, vectors + j * width * k, sums,
                         strip + j * width * k, k});
        }
      }
    });
    parallel_for(padded / width, [&](Index tile_column) {
      const Index tile_row = tile_column / triangle::across;
      const Index* const found = std::lower_bound(t.row.data, t.row.data + rows, tile_row);
      const Index row = found - t.row.data;
      double sum[width * triangle_block_most] = {};
      const auto add = [&](const double* part) {
        for (Index e = 0; e < width * k; ++e) sum[e] += part[e];
      };
      if (row < rows && *found == tile_row)
        for (Index chunk = 0; chunk * shape.across < tiles_of(tile_row); ++chunk)
          add(row_sums +
              ((row * chunks + chunk) * height + tile_column % triangle::across * width) * k);
      if (row < rows)
        for (Index group = row / shape.down; group < groups; ++group)
          add(column_sums + (group * padded + tile_column * width) * k);
      for (Index i = 0; i < width; ++i)
        for (Index c = 0; c < columns; ++c)
          q.data[(tile_column * width + i) * columns + c] = sum[i * k + c];
    });
  });
}

}  // namespace terrace::cg
