// update: 2 slots b (c1 - c0) flops in FP32 on 16 slots (c1 - c0) bytes, b / 8 flop a byte: twice as
// near to the memory's bound as in FP64. N and Y are read from their FP64 slivers once a panel.
#include "kernels/dense/low.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/base/parallel.hpp"
#include "kernels/dense/cpu/layout.hpp"

namespace terrace::dense {
namespace {

/// 2 L floats, and L of them.
template <int L>
struct Floats;
template <>
struct Floats<4> {
  typedef float Reals __attribute__((vector_size(32), aligned(4), may_alias));
  typedef float Half __attribute__((vector_size(16), aligned(4), may_alias));
};
template <>
struct Floats<8> {
  typedef float Reals __attribute__((vector_size(64), aligned(4), may_alias));
  typedef float Half __attribute__((vector_size(32), aligned(4), may_alias));
};

constexpr int vectors = 3;  // of a row of a tile: 24 sums of 16 floats, or 12 of 8
constexpr Index piece_rows_low = 192, piece_columns_low = 480;
inline Index low_columns() { return Index(vectors) * 2 * lanes(); }

/// The workspace: N in slivers of lanes() rows, Y in slivers of low_columns(), filled up with zeros,
/// and the powers of two that rows and columns are to be multiplied by.
struct LowParts {
  float *n, *y;
  double *row_scale, *column_scale;
  Index stride;  // of N's slivers
  Index bytes = 0;
  /// At `at`; null: their size alone.
  LowParts(Index slots, Index columns, Index block, std::byte* at) {
    const auto take = [&](Index count) {
      std::byte* const here = at ? at + bytes : nullptr;
      bytes += round_up(count, 64);
      return here;
    };
    const Index wide = round_up(columns, low_columns());
    stride = block * lanes() + 16;
    row_scale = reinterpret_cast<double*>(take(8 * round_up(slots, lanes())));
    column_scale = reinterpret_cast<double*>(take(8 * wide));
    n = reinterpret_cast<float*>(take(4 * slivers(slots) * stride));
    y = reinterpret_cast<float*>(take(4 * wide * block));
  }
};
LowParts parts_of(const Rows<Cpu>& rows, const Panel<Cpu>& panel, View<std::byte, Cpu> workspace) {
  return {rows.slots, rows.columns, panel.block, workspace.data};
}

/// 2^-e x is below one, and the least such e; 1 where x is no number or zero.
double power_above(double x) {
  if (!(x > 0) || !std::isfinite(x)) return 1;
  int e = 0;
  (void)std::frexp(x, &e);
  return std::ldexp(1.0, std::clamp(e, -1000, 1000));
}

/// A tile of lanes() rows: rows of N in slivers, `depth` rows of Y's sliver, to rows of `a`.
struct LowTile {
  const float *n = nullptr, *y = nullptr;
  const double *row_scale = nullptr, *column_scale = nullptr;
  double* a = nullptr;  ///< entry of the tile's first row and the sliver's first column
  Index ld = 0, depth = 0, rows = 0;
  Index from = 0, to = 0;  ///< columns of the sliver
};

template <int L>
TERRACE_INLINE void low_tile(const LowTile& p) {
  using Reals = typename Floats<L>::Reals;
  using Half = typename Floats<L>::Half;
  using Doubles = typename Lanes<L>::Reals;
  constexpr int W = vectors * 2 * L;
  Reals sum[L][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < L; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < vectors; ++v) sum[r][v] = Reals{};
    if (r < p.rows)
      for (int c = 0; c < W; c += 8) __builtin_prefetch(p.a + r * p.ld + c, 1);
  }
#pragma GCC unroll 4
  for (Index k = 0; k < p.depth; ++k) {
    Reals row[vectors];
#pragma GCC unroll 3
    for (int v = 0; v < vectors; ++v)
      row[v] = *reinterpret_cast<const Reals*>(p.y + k * W + v * 2 * L);
#pragma GCC unroll 8
    for (int r = 0; r < L; ++r) {
#pragma GCC unroll 3
      for (int v = 0; v < vectors; ++v) sum[r][v] += p.n[k * L + r] * row[v];
    }
  }
  float out[L * W];
#pragma GCC unroll 8
  for (int r = 0; r < L; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < vectors; ++v)
      *reinterpret_cast<Reals*>(out + r * W + v * 2 * L) = sum[r][v];
  }
  if (p.rows == L && p.from == 0 && p.to == W) {
    for (int r = 0; r < L; ++r) {
#pragma GCC unroll 6
      for (int v = 0; v < W; v += L) {
        const Doubles product =
            __builtin_convertvector(*reinterpret_cast<const Half*>(out + r * W + v), Doubles);
        const Doubles scale =
            p.row_scale[r] * *reinterpret_cast<const Doubles*>(p.column_scale + v);
        *reinterpret_cast<Doubles*>(p.a + r * p.ld + v) -= product * scale;
      }
    }
    return;
  }
  for (Index r = 0; r < p.rows; ++r)
    for (Index c = p.from; c < p.to; ++c)
      p.a[r * p.ld + c] -= double(out[r * W + c]) * (p.row_scale[r] * p.column_scale[c]);
}

/// Rows [row, row_end), slivers of Y that meet columns [c0, c1).
struct LowProduct {
  LowParts parts;
  Index depth = 0, row = 0, row_end = 0, c0 = 0, c1 = 0, ld = 0;
  double* a = nullptr;  ///< entry of row 0 and Y's column 0
};

template <int L>
TERRACE_INLINE void low_body(const LowProduct& p) {
  constexpr Index W = Index(vectors) * 2 * L;
  for (Index first = p.c0 / W * W; first < p.c1; first += W)
    for (Index i = p.row; i < p.row_end; i += L) {
      LowTile tile;
      tile.n = p.parts.n + i / L * p.parts.stride;
      tile.y = p.parts.y + first * p.depth;
      tile.row_scale = p.parts.row_scale + i;
      tile.column_scale = p.parts.column_scale + first;
      tile.a = p.a + i * p.ld + first;
      tile.ld = p.ld;
      tile.depth = p.depth;
      tile.rows = std::min<Index>(L, p.row_end - i);
      tile.from = std::max<Index>(0, p.c0 - first);
      tile.to = std::min(W, p.c1 - first);
      low_tile<L>(tile);
    }
}

/// Slivers [begin, end) of N, L rows each, to FP32.
struct RoundRows {
  Slivers from;
  LowParts parts;
  Index depth = 0, begin = 0, end = 0;
};
template <int L>
TERRACE_INLINE void rows_body(const RoundRows& p) {
  using Doubles = typename Lanes<L>::Reals;
  using Half = typename Floats<L>::Half;
  for (Index s = p.begin; s < p.end; ++s) {
    const double* const in = p.from.x + s * p.from.stride;
    float* const out = p.parts.n + s * p.parts.stride;
    Doubles most = Doubles{};
    for (Index k = 0; k < p.depth; ++k) {
      const Doubles x = *reinterpret_cast<const Doubles*>(in + k * L);
      const Doubles size = x < 0 ? -x : x;
      most = size <= most ? most : size;  // what is no number stays
    }
    Doubles inverse;
    for (int r = 0; r < L; ++r) {
      const double scale = power_above(most[r]);
      p.parts.row_scale[s * L + r] = scale;
      inverse[r] = 1 / scale;
    }
    for (Index k = 0; k < p.depth; ++k)
      *reinterpret_cast<Half*>(out + k * L) =
          __builtin_convertvector(*reinterpret_cast<const Doubles*>(in + k * L) * inverse, Half);
  }
}

/// Slivers [begin, end) of Y, low_columns() columns each, to FP32.
struct RoundColumns {
  PackedRows from;
  LowParts parts;
  Index begin = 0, end = 0;
};
template <int L>
TERRACE_INLINE void columns_body(const RoundColumns& p) {
  constexpr Index W = Index(vectors) * 2 * L, S = 3 * L;  // of FP64's slivers
  const Index depth = p.from.depth;
  for (Index q = p.begin; q < p.end; ++q)
    for (Index half = 0; half < 2; ++half) {
      const Index first = q * W + half * S, width = std::min(S, p.from.length - first);
      float* const out = p.parts.y + q * W * depth + half * S;
      const double* const in = p.from.y + first * depth;
      double* const scale = p.parts.column_scale + first;
      double most[S], inverse[S];
      std::fill_n(most, S, 0.0);
      std::fill_n(scale, S, 1.0);
      for (Index t = 0; t < depth; ++t)
        for (Index c = 0; c < width; ++c) {
          const double size = std::fabs(in[t * width + c]);
          most[c] = size <= most[c] ? most[c] : size;
        }
      for (Index c = 0; c < width; ++c) scale[c] = power_above(most[c]);
      for (Index c = 0; c < width; ++c) inverse[c] = 1 / scale[c];
      for (Index t = 0; t < depth; ++t) {
        for (Index c = 0; c < width; ++c) out[t * W + c] = float(in[t * width + c] * inverse[c]);
        for (Index c = std::max<Index>(0, width); c < S; ++c) out[t * W + c] = 0;
      }
    }
}

TERRACE_LANES(multiply_low, low_body, LowProduct)
TERRACE_LANES(round_rows, rows_body, RoundRows)
TERRACE_LANES(round_columns, columns_body, RoundColumns)

}  // namespace

Index low_bytes(Cpu, Index slots, Index columns, Index block) {
  return LowParts(slots, columns, block, nullptr).bytes;
}

template <>
void begin_low(const Stream<Cpu>& stream, const Rows<Cpu>& rows, const Panel<Cpu>& panel,
               View<const double, Cpu> y, Index from, View<std::byte, Cpu> workspace) {
  const Index length = rows.columns - from;
  if (rows.slots <= panel.skip || length <= 0) return;
  stream.run([=] {
    const LowParts parts = parts_of(rows, panel, workspace);
    const Index first = panel.skip / lanes();
    parallel_ranges(slivers(rows.slots) - first, 8, [&](Index begin, Index end) {
      round_rows({slivers_of(panel), parts, panel.width, first + begin, first + end});
    });
    const PackedRows packed = packed_rows(panel, length, from, false, const_cast<double*>(y.data));
    parallel_ranges(ceil_div(length, low_columns()), 4, [&](Index begin, Index end) {
      round_columns({packed, parts, begin, end});
    });
  });
}

template <>
void update_low(const Stream<Cpu>& stream, const Rows<Cpu>& rows, const Panel<Cpu>& panel,
                View<const double, Cpu>, Index from, Index c0, Index c1,
                View<std::byte, Cpu> workspace) {
  if (c1 <= c0 || rows.slots <= panel.skip) return;
  stream.run([=] {
    const LowParts parts = parts_of(rows, panel, workspace);
    const Index all = rows.slots - panel.skip, threads = thread_count();
    Index height = piece_rows_low, width = piece_columns_low;
    const auto across = [&] { return ceil_div(c1 - from, width) - (c0 - from) / width; };
    const auto pieces = [&] { return ceil_div(all, height) * across(); };
    const double flops = 2 * double(all) * double((c1 - c0) * panel.width);
    while (threads > 1 && double(pieces()) < std::min(4.0 * double(threads), flops / 2e6)) {
      if (width > 96) {
        width -= 96;
      } else if (height > 64) {
        height = std::max<Index>(64, round_up(height / 2, 8));
      } else {
        break;
      }
    }
    const Index down = ceil_div(all, height);
    parallel_for(pieces(), [&](Index piece) {
      LowProduct product{parts, panel.width, 0, 0, 0, 0, rows.ld, rows.a.data + from};
      product.row = panel.skip + piece % down * height;
      product.row_end = std::min(rows.slots, product.row + height);
      const Index at = ((c0 - from) / width + piece / down) * width;
      product.c0 = std::max(c0 - from, at);
      product.c1 = std::min(c1 - from, at + width);
      multiply_low(product);
    });
  });
}

}  // namespace terrace::dense
