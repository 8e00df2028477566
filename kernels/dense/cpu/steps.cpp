// column_step: 2 multiply-adds on 24 bytes of the first or second cache; block_step: 12 registers
// of sums, 2 rows j 16 flops on the strip's first j columns, which come from the second cache once.
#include "kernels/dense/cpu/steps.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace terrace::dense {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Best of each lane so far: the first of equal keys, and whether there were others.
template <int L>
struct Found {
  typename Lanes<L>::Reals key;
  typename Lanes<L>::Numbers sliver, tie;
};

template <int L>
TERRACE_INLINE void look_at(const double* column, const Index* column_of, Index sliver,
                            Found<L>& found) {
  using Reals = typename Lanes<L>::Reals;
  using Numbers = typename Lanes<L>::Numbers;
  const Reals value = *reinterpret_cast<const Reals*>(column);
  const Reals size = value < 0 ? -value : value;
  const Reals finite = size < infinity ? size : Reals{} + infinity;  // not a number: infinity
  const Numbers used = *reinterpret_cast<const Numbers*>(column_of) >= 0;
  const Reals key = used ? Reals{} - 1.0 : finite;
  const Numbers better = key > found.key, equal = key == found.key;
  found.tie = better ? Numbers{} : found.tie | equal;
  found.key = better ? key : found.key;
  found.sliver = better ? Numbers{} + sliver : found.sliver;
}

template <int L>
TERRACE_INLINE Found<L> nothing() {
  Found<L> found;
  found.key = typename Lanes<L>::Reals{} - 1.0;
  found.sliver = found.tie = typename Lanes<L>::Numbers{};
  return found;
}

template <int L>
TERRACE_INLINE void look_at_sliver(const Strip& strip, Index s, Index j, Found<L>& found) {
  const double* const column = strip.x.x + s * strip.x.stride + j * L;
  if ((s + 1) * L <= strip.rows) return look_at<L>(column, strip.column_of + s * L, s, found);
  Index column_of[L] = {};
  for (Index r = 0; r < L; ++r)
    column_of[r] = s * L + r < strip.rows ? strip.column_of[s * L + r] : 0;
  look_at<L>(column, column_of, s, found);
}

/// Of rows with equal keys in column j of slivers [begin, end) the one with the lowest number: rows
/// may lie in any order.
inline Best lowest_row(const Strip& strip, Index j, Index begin, Index end, double key) {
  Best best;
  const Index step = lanes();
  for (Index slot = begin * step; slot < std::min(strip.rows, end * step); ++slot) {
    const double size = std::fabs(strip.x.row(slot)[j * step]);
    if (strip.column_of[slot] >= 0 || (size < infinity ? size : infinity) != key) continue;
    if (best.slot < 0 || strip.id[slot] < best.row) best = {key, strip.id[slot], slot};
  }
  return best;
}

/// What was found in column j of slivers [begin, end).
template <int L>
TERRACE_INLINE Best best_lane(const Strip& strip, Index j, Index begin, Index end,
                              const Found<L>& found) {
  Best best;
  int equal = 0;
  for (int r = 0; r < L; ++r) {
    if (found.key[r] < 0 || found.key[r] < best.key) continue;
    const Index slot = found.sliver[r] * L + r;
    if (found.key[r] > best.key) best = {found.key[r], strip.id[slot], slot}, equal = 0;
    equal += found.tie[r] != 0 ? 2 : 1;
  }
  return equal > 1 ? lowest_row(strip, j, begin, end, best.key) : best;
}

template <int L>
TERRACE_INLINE void load_body(const SliverLoad& p) {
  using Reals = typename Lanes<L>::Reals;
  for (Index s = p.begin; s < p.end; ++s) {
    Reals* const x = reinterpret_cast<Reals*>(p.x.x + s * p.x.stride);
    const double* const top = p.a + s * L * p.ld;
    for (Index k = 0; k < p.width; ++k) {
      if (k % 8 == 0)  // the next sliver's: rows are too short for the hardware to see them coming
        for (int r = 0; r < L; ++r) __builtin_prefetch(top + (L + r) * p.ld + k);
      Reals column;
#pragma GCC unroll 8
      for (int r = 0; r < L; ++r) column[r] = top[r * p.ld + k];
      x[k] = column;
    }
  }
}

template <int L>
TERRACE_INLINE void column_body(const ColumnStep& p) {
  using Reals = typename Lanes<L>::Reals;
  Found<L> found = nothing<L>();
  for (Index s = p.begin; s < p.end; ++s) {
    if (p.pivot != 0) {
      Reals* const x = reinterpret_cast<Reals*>(p.strip.x.x + s * p.strip.x.stride + p.j * L);
      const Reals l = *x / p.pivot;
      *x = l;
      for (Index c = 1; c < p.j1 - p.j; ++c) x[c] -= l * p.u[c];
    }
    if (p.next >= 0) look_at_sliver<L>(p.strip, s, p.next, found);
  }
  if (p.best) *p.best = best_lane<L>(p.strip, p.next, p.begin, p.end, found);
}

template <int L>
TERRACE_INLINE void narrow_body(const NarrowStep& p) {
  using Reals = typename Lanes<L>::Reals;
  constexpr int N = int(narrow_width);
  Found<L> found = nothing<L>();
  for (Index s = p.begin; s < p.end; ++s) {
    Reals* const x = reinterpret_cast<Reals*>(p.strip.x.x + s * p.strip.x.stride + p.j * L);
    Reals l[N];
#pragma GCC unroll 4
    for (int k = 0; k < N; ++k) l[k] = x[k];
    for (Index c = N; c < p.j1 - p.j; ++c) {
      Reals rest = x[c];
#pragma GCC unroll 4
      for (int k = 0; k < N; ++k) rest -= l[k] * p.u[k * inner_width + c];
      x[c] = rest;
    }
    look_at_sliver<L>(p.strip, s, p.j + N, found);
  }
  *p.best = best_lane<L>(p.strip, p.j + N, p.begin, p.end, found);
}

template <int L>
TERRACE_INLINE void narrow_upper_body(const NarrowUpper& p) {
  for (Index r = 1; r < narrow_width; ++r)
    for (Index k = 0; k < r; ++k)
      for (Index c = narrow_width; c < p.columns; ++c)
        p.rows[r * inner_width + c] -= p.rows[r * inner_width + k] * p.rows[k * inner_width + c];
}

/// S slivers at once.
template <int L, int S>
TERRACE_INLINE void block_tile(double* x, Index stride, Index j, const double* u) {
  using Reals = typename Lanes<L>::Reals;
  constexpr int C = 4;
  for (Index c = 0; c < inner_width; c += C) {
    Reals sum[S][C];
#pragma GCC unroll 3
    for (int s = 0; s < S; ++s) {
#pragma GCC unroll 4
      for (int i = 0; i < C; ++i) sum[s][i] = Reals{};
    }
    for (Index k = 0; k < j; ++k) {
      Reals n[S];
#pragma GCC unroll 3
      for (int s = 0; s < S; ++s) n[s] = *reinterpret_cast<const Reals*>(x + s * stride + k * L);
#pragma GCC unroll 4
      for (int i = 0; i < C; ++i) {
#pragma GCC unroll 3
        for (int s = 0; s < S; ++s) sum[s][i] += n[s] * u[k * inner_width + c + i];
      }
    }
#pragma GCC unroll 3
    for (int s = 0; s < S; ++s) {
#pragma GCC unroll 4
      for (int i = 0; i < C; ++i)
        *reinterpret_cast<Reals*>(x + s * stride + (j + c + i) * L) -= sum[s][i];
    }
  }
}

template <int L>
TERRACE_INLINE void block_body(const BlockStep& p) {
  Index s = p.begin;
  for (; s + 3 <= p.end; s += 3) block_tile<L, 3>(p.x.x + s * p.x.stride, p.x.stride, p.j, p.u);
  for (; s < p.end; ++s) block_tile<L, 1>(p.x.x + s * p.x.stride, p.x.stride, p.j, p.u);
}

/// T rows of x: row t -= L[t, 0 ... k) x[0 ... k).
template <int L, int T>
TERRACE_INLINE void upper_tile(const double* l, Index ld, Index depth, const double* x,
                               double* out) {
  using Reals = typename Lanes<L>::Reals;
  constexpr int V = int(inner_width) / L;
  Reals sum[T][V];
#pragma GCC unroll 4
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[t][v] = Reals{};
  }
  for (Index k = 0; k < depth; ++k) {
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v)
        sum[t][v] += l[t * ld + k] * *reinterpret_cast<const Reals*>(x + k * inner_width + v * L);
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v)
      *reinterpret_cast<Reals*>(out + t * inner_width + v * L) -= sum[t][v];
  }
}

/// p.rows is a multiple of 16.
template <int L>
TERRACE_INLINE void upper_body(const UpperBlock& p) {
  constexpr int T = L == 8 ? 4 : 2;
  for (Index t = 0; t < p.rows; t += T) {
    upper_tile<L, T>(p.l + t * p.ld, p.ld, t, p.x, p.x + t * inner_width);
    for (Index r = t + 1; r < t + T; ++r)
      for (Index k = t; k < r; ++k)
        for (Index c = 0; c < inner_width; ++c)
          p.x[r * inner_width + c] -= p.l[r * p.ld + k] * p.x[k * inner_width + c];
  }
}

}  // namespace

TERRACE_LANES(load_slivers, load_body, SliverLoad)
TERRACE_LANES(column_step, column_body, ColumnStep)
TERRACE_LANES(narrow_step, narrow_body, NarrowStep)
TERRACE_LANES(narrow_upper, narrow_upper_body, NarrowUpper)
TERRACE_LANES(block_step, block_body, BlockStep)
TERRACE_LANES(upper_block, upper_body, UpperBlock)

}  // namespace terrace::dense
