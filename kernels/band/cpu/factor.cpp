// Cholesky steps of a tile column on the CPU.
//
// Roofline: the update does rows^2 w flops from packed strips that stay in L1 and L2; it subtracts
// from tiles in L2/L3 at w / 8 flops a byte. One Zen 3 core: 45 GFLOP/s at m = 1,000 (DGEMM: 44),
// 19 at m = 100.
//
// A panel, and a diagonal block while it is factored, is packed in strips of eight rows: in a strip
// the eight numbers of column 0, then those of column 1, ... Registers hold L columns by 3 L rows
// of a product (L lanes a register). Every entry is one sum over the columns in rising order, so
// its bits depend on the width w and the instruction set alone.
#include <algorithm>
#include <cmath>

#include "kernels/band/band.hpp"
#include "kernels/base/cpu/simd.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::band {
namespace {

constexpr Index kStrip = band_panel_strip;
constexpr int kMost = 3;            // registers of rows in a product
constexpr Index kSolveRows = 96;    // rows of a panel in one task
constexpr Index kUpdateRows = 192;  // rows of a tile column in one task
constexpr double kAlone = 1e6;      // flops below which waking other threads does not pay

template <int L>
struct Lanes;
template <>
struct Lanes<4> {
  typedef double Vector __attribute__((vector_size(32), aligned(8), may_alias));
};
template <>
struct Lanes<8> {
  typedef double Vector __attribute__((vector_size(64), aligned(8), may_alias));
};
template <int L>
using Vector = typename Lanes<L>::Vector;

/// Rows in strips of eight, `width` columns.
struct Strips {
  double* data;
  Index width;
  /// Row `row` of column 0; the next column is kStrip further on.
  [[nodiscard]] TERRACE_INLINE double* at(Index row) const {
    return data + row / kStrip * kStrip * width + row % kStrip;
  }
};

template <int L>
TERRACE_INLINE Vector<L>& vector_at(double* p) {
  return *reinterpret_cast<Vector<L>*>(p);
}

/// sum[c][r] := sum over p in [first, last) of rows a[r] times entry (c, p) of b.
template <int L, int R>
TERRACE_INLINE void multiply(double* const (&a)[R], const double* b, Index first, Index last,
                             Vector<L> (&sum)[L][R]) {
#pragma GCC unroll 8
  for (int c = 0; c < L; ++c)
#pragma GCC unroll 3
    for (int r = 0; r < R; ++r) sum[c][r] = Vector<L>{};
  for (Index p = first; p < last; ++p) {
    Vector<L> x[R];
#pragma GCC unroll 3
    for (int r = 0; r < R; ++r) x[r] = vector_at<L>(a[r] + p * kStrip);
#pragma GCC unroll 8
    for (int c = 0; c < L; ++c) {
      const double y = b[p * kStrip + c];
#pragma GCC unroll 3
      for (int r = 0; r < R; ++r) sum[c][r] += x[r] * y;
    }
  }
}

/// Rows row .. row + R L of `x`, columns j0 .. j0 + count: := (x - x[first, j0) l^T) times the
/// inverse transpose of l's triangle at j0; `l` strips too, `inverse` the reciprocals of its
/// diagonal.
template <int L, int R>
TERRACE_INLINE void solve_columns(const Strips& x, const Strips& l, const double* inverse,
                                  Index row, Index first, Index j0, Index count) {
  double* a[R];

  for (int r = 0; r < R; ++r) a[r] = x.at(row + r * L);
  const double* b = l.at(j0);
  Vector<L> sum[L][R];
  multiply<L, R>(a, b, first, j0, sum);
#pragma GCC unroll 8
  for (int c = 0; c < L; ++c) {
    if (c >= count) continue;
#pragma GCC unroll 3
    for (int r = 0; r < R; ++r) sum[c][r] = vector_at<L>(a[r] + (j0 + c) * kStrip) - sum[c][r];
#pragma GCC unroll 8
    for (int q = 0; q < c; ++q) {
      const double y = b[(j0 + q) * kStrip + c];
#pragma GCC unroll 3
      for (int r = 0; r < R; ++r) sum[c][r] -= sum[q][r] * y;
    }
#pragma GCC unroll 3
    for (int r = 0; r < R; ++r) {
      sum[c][r] *= inverse[j0 + c];
      vector_at<L>(a[r] + (j0 + c) * kStrip) = sum[c][r];
    }
  }
}

/// Rows [from, to) of `x`, multiples of L, columns j0 .. j0 + count, as solve_columns().
template <int L>
TERRACE_INLINE void solve_rows(const Strips& x, const Strips& l, const double* inverse, Index from,
                               Index to, Index first, Index j0, Index count) {
  Index row = from;
  for (; row + kMost * L <= to; row += kMost * L)
    solve_columns<L, kMost>(x, l, inverse, row, first, j0, count);
  for (; row < to; row += L) solve_columns<L, 1>(x, l, inverse, row, first, j0, count);
}

/// A diagonal block in strips, and the reciprocals of the diagonal of its factor.
struct Factor {
  Strips block;
  double* inverse;
  Index bad;  ///< one-based first column whose pivot is not positive and finite, or 0
};

/// Triangle at columns j0 .. j0 + count of a block whose columns before them are finished.
template <int L>
TERRACE_INLINE void factor_triangle(Factor& f, Index j0, Index count) {
  Vector<L> sum[L][1];
  double t[L][L];  // t[c][i]: column c, row i
  double* place = f.block.at(j0);
  multiply<L, 1>({place}, place, 0, j0, sum);
#pragma GCC unroll 8
  for (int c = 0; c < L; ++c)
    if (c < count) vector_at<L>(t[c]) = vector_at<L>(place + (j0 + c) * kStrip) - sum[c][0];
  for (int c = 0; c < count; ++c) {
    const double pivot = t[c][c];
    if (!(pivot > 0 && std::isfinite(pivot)) && f.bad == 0) f.bad = j0 + c + 1;
    t[c][c] = std::sqrt(pivot);
    const double inverse = 1 / t[c][c];
    f.inverse[j0 + c] = inverse;
    for (int i = c + 1; i < L; ++i) t[c][i] *= inverse;
    for (int q = c + 1; q < count; ++q)
      for (int i = q; i < L; ++i) t[q][i] -= t[c][i] * t[c][q];
  }
  for (int c = 0; c < count; ++c) vector_at<L>(place + (j0 + c) * kStrip) = vector_at<L>(t[c]);
}

template <int L>
TERRACE_INLINE void factor_body(Factor& f) {
  const Index w = f.block.width, rows = round_up(w, kStrip);
  for (Index j = 0; j < w; j += L) {
    const Index count = std::min<Index>(L, w - j);
    factor_triangle<L>(f, j, count);
    solve_rows<L>(f.block, f.block, f.inverse, j + L, rows, 0, j, count);
  }
}

/// Rows [from, to) of a panel in strips := those rows times L^-T.
struct Solve {
  Strips panel, factor;
  const double* inverse;
  Index from, to;  ///< multiples of kStrip
  Index full;      ///< row `full` + i of the panel has zeros left of column i
};

template <int L>
TERRACE_INLINE void solve_body(const Solve& p) {
  const Index w = p.panel.width;
  for (Index row = p.from; row < p.to; row += kMost * kStrip) {
    const Index to = std::min(p.to, row + kMost * kStrip);
    const Index first = std::max<Index>(0, row - p.full) / L * L;
    for (Index j = first; j < w; j += L)
      solve_rows<L>(p.panel, p.factor, p.inverse, row, to, first, j, std::min<Index>(L, w - j));
  }
}

/// Rows [from, to) of the tile column whose columns are the panel's rows [left, right): minus the
/// panel's product with its transpose, lower part.
struct Update {
  Strips panel;
  double* tile;  ///< entry (left, left); leading dimension `ld`
  Index ld, left, right, from, to;
  Index full;  ///< as in Solve
};

/// Rows row .. row + R L, columns [column, column + L) where they are the tile's; the first L rows
/// are the diagonal's when row = column.
template <int L, int R>
TERRACE_INLINE void update_block(const Update& u, Index row, Index column) {
  double* place = u.tile + (row - u.left) + (column - u.left) * u.ld;
  const bool whole = column >= u.left && column + L <= u.right && row > column;
  if (whole)
#pragma GCC unroll 8
    for (int c = 0; c < L; ++c) {
      __builtin_prefetch(place + c * u.ld, 1);
      __builtin_prefetch(place + c * u.ld + R * L - 1, 1);
    }
  Vector<L> sum[L][R];
  double* a[R];
  for (int r = 0; r < R; ++r) a[r] = u.panel.at(row + r * L);
  multiply<L, R>(a, u.panel.at(column), std::max<Index>(0, row - u.full), u.panel.width, sum);
  if (whole) {
#pragma GCC unroll 8
    for (int c = 0; c < L; ++c)
#pragma GCC unroll 3
      for (int r = 0; r < R; ++r) vector_at<L>(place + r * L + c * u.ld) -= sum[c][r];
    return;
  }
  double part[L][R * L];
#pragma GCC unroll 8
  for (int c = 0; c < L; ++c)
#pragma GCC unroll 3
    for (int r = 0; r < R; ++r) vector_at<L>(part[c] + r * L) = sum[c][r];
  for (Index c = std::max<Index>(0, u.left - column); c < std::min<Index>(L, u.right - column); ++c)
    for (Index i = std::max<Index>(0, column + c - row); i < R * L; ++i)
      place[i + c * u.ld] -= part[c][i];
}

template <int L>
TERRACE_INLINE void update_body(const Update& u) {
  for (Index row = u.from / L * L; row < u.to; row += kMost * L) {
    const Index registers = std::min<Index>(kMost, ceil_div(u.to - row, L));
    for (Index column = u.left / L * L; column < std::min(u.right, row + registers * L);
         column += L) {
      const Index skipped = std::max<Index>(0, (column - row) / L);  // above the diagonal
      switch (registers - skipped) {
        case 3:
          update_block<L, 3>(u, row + skipped * L, column);
          break;
        case 2:
          update_block<L, 2>(u, row + skipped * L, column);
          break;
        default:
          update_block<L, 1>(u, row + skipped * L, column);
      }
    }
  }
}

#if defined(__x86_64__)
#define TERRACE_BAND_STEP(name, body, Parameter)                                               \
  __attribute__((target("avx512f,avx2,fma"))) void name##_avx512(Parameter& p) { body<8>(p); } \
  __attribute__((target("avx2,fma"))) void name##_avx2(Parameter& p) { body<4>(p); }           \
  void name(Parameter& p) {                                                                    \
    if (simd::level() == simd::Level::avx512) return name##_avx512(p);                         \
    if (simd::level() == simd::Level::avx2 && __builtin_cpu_supports("fma"))                   \
      return name##_avx2(p);                                                                   \
    body<4>(p);                                                                                \
  }
#else
#define TERRACE_BAND_STEP(name, body, Parameter) \
  void name(Parameter& p) { body<4>(p); }
#endif
TERRACE_BAND_STEP(factor, factor_body, Factor)
TERRACE_BAND_STEP(solve, solve_body, const Solve)
TERRACE_BAND_STEP(update, update_body, const Update)

/// The lower triangle of the diagonal block of `tile` in strips, zeros around it. Memory of the
/// calling thread, kept for its next tile column.
Factor packed_diagonal(const BandShape& s, const double* tile) {
  static thread_local Buffer<double, Cpu> memory;
  const Index w = s.width, rows = round_up(w, kStrip);
  if (memory.size() < (rows + 1) * w) memory = Buffer<double, Cpu>((rows + 1) * w);
  const Factor f{{memory.data(), w}, memory.data() + rows * w, 0};
  for (Index top = 0; top < rows; top += kStrip)
    for (Index j = 0; j < w; ++j) {
      double* to = f.block.at(top) + j * kStrip;
      for (Index i = top; i < top + kStrip; ++i)
        *to++ = i >= j && i < w ? tile[i + j * s.reach] : 0.0;
    }
  return f;
}

/// Rows [from, to) of the panel between the tile column and its strips; what is below the corner
/// or behind `rows` is zero in the strips.
template <bool Pack>
void move_rows(const BandShape& s, Index rows, Index from, Index to, double* tile,
               const Strips& panel) {
  for (Index j = 0; j < s.width; ++j) {
    double* column = tile + s.width + j * s.reach;
    const Index end = std::min(rows, s.reach - s.width + j + 1);  // of the band's rows
    for (Index top = from; top < to; top += kStrip) {
      double* strip = panel.at(top) + j * kStrip;
      const Index inside = std::clamp<Index>(end - top, 0, kStrip);
      if (inside == kStrip) {
        if (Pack)
          std::copy_n(column + top, kStrip, strip);
        else
          std::copy_n(strip, kStrip, column + top);
        continue;
      }
      if (Pack) {
        std::copy_n(column + top, inside, strip);
        std::fill(strip + inside, strip + kStrip, 0.0);
      } else {
        std::copy_n(strip, inside, column + top);
      }
    }
  }
}

}  // namespace

void band_factor_diagonal(const Stream<Cpu>& stream, BandShape s, Index k, View<double, Cpu> tile,
                          View<double, Cpu> status) {
  stream.run([=] {
    Factor f = packed_diagonal(s, tile.data);
    factor(f);
    for (Index j = 0; j < s.width; ++j)
      for (Index i = j; i < s.width; ++i) tile.data[i + j * s.reach] = f.block.at(i)[j * kStrip];
    status.data[0] = f.bad > 0 ? double(k * s.width + f.bad) : 0.0;
  });
}

void band_solve_panel(const Stream<Cpu>& stream, BandShape s, Index rows, View<double, Cpu> tile,
                      View<double, Cpu> panel) {
  stream.run([=] {
    const Factor f = packed_diagonal(s, tile.data);
    for (Index j = 0; j < s.width; ++j) f.inverse[j] = 1 / tile.data[j * s.column()];
    const Strips strips{panel.data, s.width};
    const Index full = s.half_bandwidth - s.width;
    const bool alone = double(rows) * double(s.width * s.width) < kAlone;
    const Index grain = alone ? s.reach : kSolveRows;
    parallel_ranges(round_up(rows, kStrip), grain, [&](Index from, Index to) {
      move_rows<true>(s, rows, from, to, tile.data, strips);
      solve({strips, f.block, f.inverse, from, to, full});
      move_rows<false>(s, rows, from, to, tile.data, strips);
    });
  });
}

void band_update(const Stream<Cpu>& stream, BandShape s, Index below, View<const double, Cpu> panel,
                 Index first, Index step, Index count, View<double, Cpu> tiles) {
  stream.run([=] {
    const Strips strips{const_cast<double*>(panel.data), s.width};
    const Index rows = std::min(below, s.half_bandwidth), full = s.half_bandwidth - s.width;
    const Index chunks = ceil_div(rows, kUpdateRows);
    const auto piece = [&](Index task) {
      const Index number = task / chunks, left = (first + number * step - 1) * s.width;
      const Index from = std::max(left, task % chunks * kUpdateRows);
      const Index to = std::min(rows, (task % chunks + 1) * kUpdateRows);
      if (from < to)
        update({strips, tiles.data + number * s.tile(), s.reach, left,
                std::min(rows, left + s.width), from, to, full});
    };
    const Index top = (first - 1) * s.width;
    if (double(count * s.width) * double(rows - top) * double(s.width) < kAlone)
      for (Index task = 0; task < count * chunks; ++task) piece(task);
    else
      parallel_for(count * chunks, piece);
  });
}

}  // namespace terrace::band
