// Products of the packed triangle on the CPU. Floor: 4 n (n + 1) bytes at the read rate of memory
// (heads alone: half); two partial results a tile add 1 %.
#include "kernels/cg/triangle.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/base/cpu/dense_simd.hpp"
#include "kernels/base/cpu/sums.hpp"
#include "kernels/base/problems.hpp"
#include "kernels/cg/products.hpp"

namespace terrace::cg {
namespace {

using simd::fma_level;
using triangle::across, triangle::height, triangle::Read, triangle::tile, triangle::width;

struct TileWork {
  const double* a;          // the tile
  const double *p, *p_row;  // entries of its columns and of its rows
  double *columns, *rows;   // sums: set, added to
  Read read;
  bool absolute;
};

constexpr int together = 4;         // rows
constexpr Index prefetched = 4096;  // bytes ahead: the hardware does not see through rows of 512

[[gnu::always_inline]] inline void prefetch_lines(const void* at, Index bytes) {
  for (Index b = 0; b < bytes; b += 64)
    __builtin_prefetch(static_cast<const char*>(at) + prefetched + b);
}

/// Rows [r, r + together) of a tile in planes as doubles.
[[gnu::always_inline]] inline void join_rows(const double* a, Index r, bool head_only, Word* to) {
  const auto* const head = reinterpret_cast<const std::uint32_t*>(a) + r * width;
  const auto* const tail = head + tile;
  if (head_only) prefetch_lines(head, together * width * 4);
  if (head_only)
    for (Index k = 0; k < together * width; ++k) to[k] = Word(head[k]) << 32;
  else
    for (Index k = 0; k < together * width; ++k) to[k] = triangle::joined(head[k], tail[k]);
}

template <int L>
[[gnu::always_inline]] inline void tile_body(const TileWork& w) {
  using Reals = typename simd::Lanes<L>::Reals;
  using Numbers = typename simd::Lanes<L>::Numbers;
  const Index mask = w.absolute ? std::numeric_limits<Index>::max() : Index(-1);
  alignas(64) Word unpacked[together * width];
  alignas(64) double column[width] = {};
  for (Index r = 0; r < height; r += together) {
    const double* a = w.a + r * width;
    if (w.read != Read::whole) {
      join_rows(w.a, r, w.read == Read::head, unpacked);
      a = reinterpret_cast<const double*>(unpacked);
    } else {
      prefetch_lines(a, together * width * 8);
    }
    Reals sum[together] = {}, p_row[together];
    for (int k = 0; k < together; ++k)
      for (int l = 0; l < L; ++l) p_row[k][l] = w.p_row[r + k];
    for (Index c = 0; c < width; c += L) {
      const Reals p = *reinterpret_cast<const Reals*>(w.p + c);
      Reals down = *reinterpret_cast<const Reals*>(column + c);
      for (int k = 0; k < together; ++k) {
        const Numbers bits = *reinterpret_cast<const Numbers*>(a + k * width + c) & mask;
        const Reals v = reinterpret_cast<const Reals&>(bits);
        down += v * p_row[k];
        sum[k] += v * p;
      }
      *reinterpret_cast<Reals*>(column + c) = down;
    }
    for (int k = 0; k < together; ++k) {
      double total = 0;
      for (int l = 0; l < L; ++l) total += sum[k][l];
      w.rows[r + k] += total;
    }
  }
  std::copy(column, column + width, w.columns);
}
TERRACE_LANES(multiply_tile, tile_body, TileWork)

/// Unit k of the sweep; kernels/cg/cuda/triangle.cuh has the places of the partial sums.
void sweep(const TriangleTiles<Cpu>& t, const double* p, double* columns, double* rows, Index unit,
           int bits, bool absolute) {
  const Index* const start = t.start.data;
  const Index from = unit << bits, to = std::min(t.tiles(), (unit + 1) << bits);
  Index slot = std::upper_bound(start, start + t.start.size, from) - start - 1;
  alignas(64) double sum[height] = {};
  for (Index k = from; k < to; ++k) {
    multiply_tile({t.a.data + k * tile, p + (k - start[slot]) * width,
                   p + t.row.data[slot] * height, columns + k * width, sum, t.read, absolute});
    if (k + 1 == to || k + 1 == start[slot + 1]) {
      std::copy(sum, sum + height, rows + (unit + slot) * height);
      std::fill(sum, sum + height, 0.0);
      ++slot;
    }
  }
}

/// q of tile row J.
void gather(const TriangleTiles<Cpu>& t, const double* columns, const double* rows, int bits,
            Index J, double* q) {
  const Index* const start = t.start.data;
  Index slot = std::lower_bound(t.row.data, t.row.data + t.row.size, J) - t.row.data;
  const bool held = slot < t.row.size && t.row.data[slot] == J;
  std::fill(q, q + height, 0.0);
  if (held)
    for (Index k = (start[slot] >> bits); k <= (start[slot + 1] - 1) >> bits; ++k)
      for (Index i = 0; i < height; ++i) q[i] += rows[(k + slot) * height + i];
  for (; slot < t.row.size; ++slot) {
    const double* const from = columns + (start[slot] + across * J) * width;
    for (Index i = 0; i < height; ++i) q[i] += from[i];
  }
}

Pair dots(const double* p, const double* q, Index count) {
  double a[4] = {}, b[4] = {};
  for (Index i = 0; i < count; ++i) {
    a[i & 3] += p[i] * q[i];
    b[i & 3] += p[i] * p[i];
  }
  return {(a[0] + a[1]) + (a[2] + a[3]), (b[0] + b[1]) + (b[2] + b[3])};
}

/// work(slot, position in the tile row) for all tiles.
template <class F>
void for_tiles(const TriangleTiles<Cpu>& t, const F& work) {
  parallel_for(t.tiles(), [&](Index k) {
    const Index* const start = t.start.data;
    const Index slot = std::upper_bound(start, start + t.start.size, k) - start - 1;
    work(slot, k - start[slot]);
  });
}

}  // namespace

Index triangle_scratch(Cpu, Index tiles, Index tile_rows) {
  const Index units = ceil_div(tiles, Index(1) << triangle::unit_bits(tiles));
  return tiles * width + (units + tile_rows) * height;
}

void multiply(const Stream<Cpu>& stream, const TriangleTiles<Cpu>& t, View<const double, Cpu> p,
              View<double, Cpu> q, View<double, Cpu> scratch, const SumTarget<Cpu>& sums,
              const double* skip, bool absolute) {
  stream.run([=] {
    if (skip && *skip != 0) return;
    const int bits = triangle::unit_bits(t.tiles());
    double *const columns = scratch.data, *const rows = columns + t.tiles() * width;
    parallel_for(ceil_div(t.tiles(), Index(1) << bits),
                 [&](Index unit) { sweep(t, p.data, columns, rows, unit, bits, absolute); });
    const Index blocks = ceil_div(t.n, height);
    const auto block = [&](Index J) {
      alignas(64) double sum[height];
      gather(t, columns, rows, bits, J, sum);
      const Index first = J * height, count = std::clamp<Index>(q.size - first, 0, height);
      std::copy(sum, sum + count, q.data + first);
      return dots(p.data + first, sum, height);
    };
    if (!sums.result.data) {
      parallel_for(blocks, block);
    } else {
      sum_pieces(blocks, piece_grain(blocks, 1), sums, [&](Index from, Index to) {
        Pair pair;
        for (Index J = from; J < to; ++J) {
          const Pair one = block(J);
          pair = {pair.a + one.a, pair.b + one.b};
        }
        return pair;
      });
    }
  });
}

void sum_products(const Stream<Cpu>& stream, View<const double, Cpu> p, View<const double, Cpu> q,
                  const SumTarget<Cpu>& sums, const double* skip) {
  stream.run([=] {
    if (skip && *skip != 0) return;
    sum_pieces(p.size, piece_grain(p.size, 4096), sums,
               [&](Index from, Index to) { return dots(p.data + from, q.data + from, to - from); });
  });
}

void pack_rows(const Stream<Cpu>& stream, View<const double, Cpu> slab, Index n, Index tile_row,
               View<double, Cpu> tiles) {
  stream.run([=] {
    const Index rows = slab.size / n;
    parallel_for(triangle::tiles_of(tile_row), [&](Index J) {
      double* const to = tiles.data + J * tile;
      for (Index r = 0; r < height; ++r) {
        const Index i = tile_row * height + r, j0 = J * width;
        const Index count = r < rows ? std::clamp<Index>(i + 1 - j0, 0, width) : 0;
        std::copy_n(slab.data + r * n + j0, count, to + r * width);
        std::fill(to + r * width + count, to + (r + 1) * width, 0.0);
        if (r < rows && i / width == J) to[r * width + i % width] *= 0.5;
      }
    });
  });
}

void compare_upper(const Stream<Cpu>& stream, View<const double, Cpu> slab, Index tile_row,
                   const TriangleTiles<Cpu>& t, View<Index, Cpu> worst) {
  stream.run([=] {
    const Index n = t.n, rows = slab.size / n, i0 = tile_row * height;
    std::vector<Index> found(std::size_t(t.row.size), worst.data[0]);
    parallel_for(t.row.size, [&](Index slot) {
      const Index j0 = t.row.data[slot] * height, columns = std::min(height, n - j0);
      if (j0 < i0) return;
      const double* const tiles = t.a.data + t.start.data[slot] * tile;
      double root[height];  // of |a_jj|
      for (Index c = 0; c < columns; ++c) {
        const Index j = j0 + c;
        root[c] = std::sqrt(std::fabs(2 * tiles[j / width * tile + c * width + j % width]));
      }
      for (Index r = 0; r < rows; ++r) {  // the first of the lowest row is enough
        const Index i = i0 + r;
        const double* const row = slab.data + r * n;
        const double* const column = tiles + i / width * tile + i % width;
        const double own = std::sqrt(std::fabs(row[i]));
        for (Index c = std::max<Index>(0, i - j0); c < columns; ++c) {
          const double other = i == j0 + c ? row[i] : column[c * width];
          if (symmetric_pair(row[j0 + c], other, own * root[c])) continue;
          Index& place = found[std::size_t(slot)];
          place = std::min(place, i * n + j0 + c);
          return;
        }
      }
    });
    for (const Index place : found) worst.data[0] = std::min(worst.data[0], place);
  });
}

void fill_triangle(const Stream<Cpu>& stream, Word seed, const TriangleTiles<Cpu>& t,
                   View<double, Cpu> a, double diagonal) {
  stream.run([=] {
    const double scale = 1.0 / std::sqrt(double(t.n));
    for_tiles(t, [&](Index slot, Index J) {
      double* to = a.data + (t.start.data[slot] + J) * tile;
      const Index i0 = t.row.data[slot] * height, j0 = J * width;
      for (Index i = i0; i < i0 + height; ++i)
        for (Index j = j0; j < j0 + width; ++j, ++to) {
          *to = i >= t.n || j > i
                    ? 0.0
                    : dense_cg_entry(seed, scale, i, j, diagonal) * (i == j ? 0.5 : 1.0);
        }
    });
  });
}

void triangle_diagonal(const Stream<Cpu>& stream, const TriangleTiles<Cpu>& t,
                       View<double, Cpu> d) {
  stream.run([=] {
    std::fill(d.data, d.data + t.n, 0.0);
    for (Index slot = 0; slot < t.row.size; ++slot) {
      const Index i0 = t.row.data[slot] * height;
      for (Index i = i0; i < std::min(t.n, i0 + height); ++i) {
        const double* const at = t.a.data + (t.start.data[slot] + i / width) * tile;
        const Index k = (i - i0) * width + i % width;
        const auto* const head = reinterpret_cast<const std::uint32_t*>(at);
        const double v = t.read == Read::whole
                             ? at[k]
                             : std::bit_cast<double>(triangle::joined(head[k], head[tile + k]));
        d.data[i] = 2 * v;
      }
    }
  });
}

void split_planes(const Stream<Cpu>& stream, View<double, Cpu> tiles) {
  stream.run([=] {
    parallel_ranges(tiles.size / tile, 16, [&](Index from, Index to) {
      std::vector<Word> bits(std::size_t(tile), 0);
      for (Index t = from; t < to; ++t) {
        double* const at = tiles.data + t * tile;
        auto* const head = reinterpret_cast<std::uint32_t*>(at);
        std::memcpy(bits.data(), at, std::size_t(tile) * sizeof(Word));
        for (Index k = 0; k < tile; ++k) {
          head[k] = head_of(bits[std::size_t(k)]);
          head[tile + k] = std::uint32_t(bits[std::size_t(k)]);
        }
      }
    });
  });
}

}  // namespace terrace::cg
