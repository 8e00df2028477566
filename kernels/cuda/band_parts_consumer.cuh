// What the kernel of kernels/cuda/band_parts.cu is made of, 4: the warps that multiply.
#pragma once
#include "kernels/cuda/band_parts_tasks.cuh"

namespace terrace::device::band_parts {

/// Where a block of 64 x 64 results lies: entry (r, c) at data[r + c * ld], and exists if
/// 0 <= offset + r - c <= limit.
struct Place {
  double* data;
  Index ld;
  int offset, limit;
  __device__ bool has(int r, int c) const { return unsigned(offset + r - c) <= unsigned(limit); }
};
__device__ inline Place place(const Launch& l, const Part& p, int kind, Index i, Index j) {
  constexpr int all = 1 << 30, inside = 1 << 20;
  switch (kind) {
    case spike:
      return {p.spike + i * kW + j * kW * p.arrow * kW, p.arrow * kW, inside, all};
    case arrow:
      return {p.arrow_block + i * kW + j * kW * p.arrow * kW, p.arrow * kW, int(i - j) * kW, all};
    case coupling:
      return {p.coupling + (i - p.tiles) * kW + j * kW * p.window * kW, p.window * kW, inside, all};
    default:
      return {p.tile(l, j) + (i - j) * kW, l.reach, int(i - j) * kW, int(l.reach)};
  }
}

/// One consumer warp's view of the pipeline.
template <int NC, int S>
struct Consumer {
  const Launch& l;
  const int lane, warp;
  unsigned turn = 0;

  __device__ double* stage(unsigned t) const {
    return dynamic_shared() + t % S * stage_doubles<NC>;
  }
  __device__ void arrived(unsigned t) const { wait_for(&full[t % S], t / S % 2); }
  __device__ void release(unsigned t) const {
    __syncwarp();
    if (lane == 0) arrive(&empty[t % S]);
  }
  /// What this warp (and whoever met it at a barrier) has written may be read by all.
  __device__ void publish(unsigned* flag, unsigned by) const {
    __syncwarp();
    if (lane == 0) add_release(flag, by);
  }

  /// A of the four stages from `turn` on := (r, c) -> value.
  template <int MT, class Value>
  __device__ void to_stages(int row, Value&& value) const {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      double* const to = stage(turn + n / 2);
#pragma unroll
      for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int r = row + 16 * m + lane / 4 + e / 2 * 8, c = 8 * (n % 2) + lane % 4 * 2 + e % 2;
          to[c * kLDA + r] = value(m, n, e);
        }
    }
  }
  /// x (minus the products) := (C + x) times the transposed inverse in row `b` of B of the four
  /// stages from `turn` on. Rows `a` + row of their A hold C, unless x does, and are used on the
  /// way.
  template <int MT, bool add>
  __device__ void times_inverse(double (&x)[MT][8][4], const Place& at, int row, int a,
                                int b) const {
    if constexpr (add) {
      const bool cut = at.offset + kW - 1 > at.limit;  // partly outside the band
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const double* const c = stage(turn + n / 2) + a + row;
#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int r = 16 * m + lane / 4 + e / 2 * 8, q = 8 * n + lane % 4 * 2 + e % 2;
            if (!cut || at.has(row + r, q)) x[m][n][e] += c[q % kDepth * kLDA + r];
          }
      }
      __syncwarp();
    }
    to_stages<MT>(a + row, [&](int m, int n, int e) { return -x[m][n][e]; });
    __syncwarp();
    clear<MT>(x);
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const double* const from = stage(turn + chunk);
      multiply<MT, kLDA, kLDB<NC>, false>(x, from + a, from + kB + b, row, 0, 0, 2 * chunk, 8);
    }
  }
  /// The tile rows [row, row + 32) := x, by way of rows `a` + row of A of those stages, where it
  /// stays.
  __device__ void write_by_stages(const double (&x)[2][8][4], const Place& at, int row,
                                  int a) const {
    __syncwarp();
    to_stages<2>(a + row, [&](int m, int n, int e) { return x[m][n][e]; });
    __syncwarp();
    const int r = row + lane % 16 * 2;
#pragma unroll 4
    for (int c = lane / 16; c < kW; c += 2) {
      const double* const from = stage(turn + c / kDepth) + c % kDepth * kLDA + a + r;
      put(at, r, c, from[0], from[1]);
    }
  }
  /// Entries (r, c) and (r + 1, c), as far as they exist.
  __device__ static void put(const Place& at, int r, int c, double first, double second) {
    double* const to = at.data + r + c * at.ld;
    if (at.has(r, c) && at.has(r + 1, c)) {
      *reinterpret_cast<double2*>(to) = {first, second};
    } else {
      if (at.has(r, c)) to[0] = first;
      if (at.has(r + 1, c)) to[1] = second;
    }
  }
  template <int MT>
  __device__ void write(const double (&x)[MT][8][4], const Place& at, int row) const {
    each<MT>(at, row, [&](int m, int n, int e, bool has, double* to) {
      if (has) *to = x[m][n][e];
    });
  }
  template <int MT>
  __device__ static void clear(double (&x)[MT][8][4]) {
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) x[m][n][e] = 0.0;
  }
  template <int MT, class Body>
  __device__ void each(const Place& at, int row, Body&& body) const {
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int r = row + 16 * m + lane / 4 + e / 2 * 8, c = 8 * n + lane % 4 * 2 + e % 2;
          body(m, n, e, at.has(r, c), at.data + r + c * at.ld);
        }
  }
  /// x += C.
  template <int MT>
  __device__ void add_to(double (&x)[MT][8][4], const Place& at, int row) const {
    each<MT>(at, row, [&](int m, int n, int e, bool has, const double* from) {
      if (has) x[m][n][e] += *from;
    });
  }
  /// C += x.
  template <int MT>
  __device__ void add(const double (&x)[MT][8][4], const Place& at, int row) const {
    each<MT>(at, row, [&](int m, int n, int e, bool has, double* to) {
      if (has) *to += x[m][n][e];
    });
  }

  /// x -= A B^T for one stage; a_limit, b_limit: entry (r, c) counts if r - c <= limit.
  template <int MT, int LDA, int LDB, bool masked>
  __device__ void multiply(double (&x)[MT][8][4], const double* a, const double* b, int row,
                           int a_limit, int b_limit, int from, int blocks) const {
    double left[MT][8];
#pragma unroll
    for (int m = 0; m < MT; ++m) {
      load_negated_a(left[m], a, LDA, row + 16 * m, lane);
      if constexpr (masked) {
#pragma unroll
        for (int q = 0; q < 4; ++q)
#pragma unroll
          for (int h = 0; h < 2; ++h)
            if (row + 16 * m + lane / 4 + 8 * h - (4 * q + lane % 4) > a_limit)
              left[m][2 * q + h] = 0.0;
      }
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      if (n < from || n >= blocks) continue;
      double right[4];
      load_b(right, b, LDB, 8 * n, lane);
      if constexpr (masked) {
#pragma unroll
        for (int q = 0; q < 4; ++q)
          if (8 * n + lane / 4 - (4 * q + lane % 4) > b_limit) right[q] = 0.0;
      }
#pragma unroll
      for (int m = 0; m < MT; ++m) dmma(x[m][n], left[m], right);
    }
  }
  /// The same for a chunk; offsets are those of the tiles (64 (i - k)), or negative for dense ones.
  template <int MT, int LDB, bool masked>
  __device__ void step(double (&x)[MT][8][4], const double* a, const double* b, int row,
                       int a_offset, int b_offset, int chunk, int blocks = 8) const {
    if constexpr (masked) {
      const int a_limit = int(l.reach) - a_offset + chunk * kDepth;
      if (row - (kDepth - 1) > a_limit) return;  // all of it outside the band
      multiply<MT, kLDA, LDB, true>(x, a, b, row, a_limit, int(l.reach) - b_offset + chunk * kDepth,
                                    0, blocks);
    } else {
      multiply<MT, kLDA, LDB, false>(x, a, b, row, 0, 0, 0, blocks);
    }
  }
  /// Only the first tile columns of a sum can lie partly outside the band.
  static constexpr Index kMasked = 3;

  template <bool masked>
  __device__ void pair_products(double (&x)[2][8][4], const Task& t, bool active, Index i, Index j,
                                int ia, int jb, int row, Index from, Index to) {
    const bool a_band = t.kind == pair || t.kind == window || t.kind == coupling;
    const bool b_band = t.kind != arrow && t.kind != coupling;
#pragma unroll 1
    for (Index k = from; k < to; ++k) {
      const bool works =
          active && (!a_band || i - k <= l.reach_tiles) && (!b_band || j - k <= l.reach_tiles);
      const int a_offset = a_band ? int(i - k) * kW : -kFar;
      const int b_offset = b_band ? int(j - k) * kW : -kFar;
#pragma unroll 1
      for (int chunk = 0; chunk < kChunks; ++chunk, ++turn) {
        arrived(turn);
        const double* const at = stage(turn);
        if (works)
          step<2, kLDB<NC>, masked>(x, at + ia * kW, at + kB + jb * kW, row, a_offset, b_offset,
                                    chunk);
        release(turn);
      }
    }
  }
  template <bool masked>
  __device__ void diagonal_products(double (&x)[1][8][4], double (&d)[1][8][4], Index j, bool below,
                                    bool block, Index from, Index to) {
    const int row = warp * 16;
#pragma unroll 1
    for (Index k = from; k < to; ++k) {
      const int offset = int(j - k) * kW;
#pragma unroll 1
      for (int chunk = 0; chunk < kChunks; ++chunk, ++turn) {
        arrived(turn);
        const double* const at = stage(turn);
        if (warp < 4) {
          if (below) step<1, kLDA, masked>(x, at + kW, at, row, offset, offset - kW, chunk);
          if (block)
            step<1, kLDA, masked>(d, at + kW, at + kW, row, offset, offset, chunk, 2 * warp + 2);
        }
        release(turn);
      }
    }
  }

  __device__ void pair_task(const Task& t) {
    const Part& p = l.parts[t.part];
    const int jb = warp / 4, ia = warp / 2 % 2, row = warp % 2 * 32;
    const Index i = t.row + ia, j = t.column + jb;
    const bool band = t.kind == pair;
    const bool active = ia < t.rows && jb < t.columns &&
                        (!band || (i - j >= 2 && i - j <= l.reach_tiles)) &&
                        (t.kind != window ||
                         (i >= j && i - j <= l.reach_tiles && !(i == p.tiles && j == p.tiles))) &&
                        (t.kind != arrow || i >= j);
    double x[2][8][4];
    const Place at = place(l, p, t.kind, i, j);
    clear<2>(x);
    const Index cut = min(t.k1, t.k0 + kMasked);
    pair_products<true>(x, t, active, i, j, ia, jb, row, t.k0, cut);
    pair_products<false>(x, t, active, i, j, ia, jb, row, cut, t.k1);
    if (t.kind != pair && t.kind != spike) {
      if (active) add<2>(x, at, row);
      return;
    }
    unsigned* const flag =
        p.flags + (j - p.from) * l.stride + (band ? i - j : Index(l.reach_tiles) + 1 + i);
    for (int chunk = 0; chunk < kChunks; ++chunk) arrived(turn + chunk);
    if (NC == 1 || jb == 0) {
      if (active) {
        times_inverse<2, true>(x, at, row, ia * kW, 0);
        write_by_stages(x, at, row, ia * kW);
        publish(flag, 2);
      }
    }
    if constexpr (NC == 2) {
      if (t.columns == 2) {
        meet(1, 256);  // the first tile column's blocks are in the stages
        const bool before = !band || i - t.column <= l.reach_tiles;
        if (jb == 1 && active && before) {
          const int a_offset = band ? int(i - t.column) * kW : -kFar;
          for (int chunk = 0; chunk < kChunks; ++chunk) {
            const double* const from = stage(turn + chunk);
            step<2, kLDB<NC>, true>(x, from + ia * kW, from + kB + kW, row, a_offset, kW, chunk);
          }
        }
        for (int chunk = 0; chunk < kChunks; ++chunk) release(turn + chunk);
        turn += kChunks;
        for (int chunk = 0; chunk < kChunks; ++chunk) arrived(turn + chunk);
        if (jb == 1 && active) {
          times_inverse<2, true>(x, at, row, ia * kW, kW);
          write_by_stages(x, at, row, ia * kW);
          publish(flag, 2);
        }
      }
    }
    for (int chunk = 0; chunk < kChunks; ++chunk) release(turn + chunk);
    turn += kChunks;
  }

  __device__ __noinline__ void diagonal_task(const Task& t) {
    const Part& p = l.parts[t.part];
    const Index j = t.row;
    const bool below = j > p.from;               // tile (j, j-1) is ours
    const bool block = j < p.end || p.complete;  // tile (j, j) too
    const int row = warp * 16;
    double x[1][8][4], d[1][8][4];
    const Place at_x = place(l, p, pair, j, below ? j - 1 : j), at_d = place(l, p, pair, j, j);
    clear<1>(x);
    clear<1>(d);
    if (warp < 4) {  // early: the chain shall not wait for them
      if (below) add_to<1>(x, at_x, row);
      if (block) add_to<1>(d, at_d, row);
    }
    const Index cut = min(t.k1, t.k0 + kMasked);
    diagonal_products<true>(x, d, j, below, block, t.k0, cut);
    diagonal_products<false>(x, d, j, below, block, cut, t.k1);
    for (int chunk = 0; chunk < S; ++chunk) arrived(turn + chunk);
    if (warp < 4) finish_diagonal(p, j, below, block, x, d, at_x, at_d);
    for (int chunk = 0; chunk < S; ++chunk) release(turn + chunk);
    turn += S;
  }

  /// x := the finished tile (j, j-1), d takes its product, is factored and inverted. Four warps.
  __device__ void finish_diagonal(const Part& p, Index j, bool below, bool block,
                                  double (&x)[1][8][4], double (&d)[1][8][4], const Place& at_x,
                                  const Place& at_d) {
    const int row = warp * 16;
    unsigned* const flags = p.flags + (j - p.from) * l.stride;  // of tile column j
    unsigned* const below_flag = flags - l.stride + 1;
    double* const s = dynamic_shared();
    const bool factors = j < p.end;
    const auto each_entry = [&](auto&& body) {
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          body(n, e, (8 * n + lane % 4 * 2 + e % 2) * kLD + row + lane / 4 + e / 2 * 8);
    };
    if (below) times_inverse<1, false>(x, at_x, row, 0, 0);
    meet(2, 128);  // the stages are free
    if (below) {
      each_entry([&](int n, int e, int at) { s[kBeside + at] = x[0][n][e]; });
      meet(2, 128);
      if (block)
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) {
          const double* const from = s + kBeside + chunk * kDepth * kLD;
          multiply<1, kLD, kLD, false>(d, from, from, row, 0, 0, 0, 2 * warp + 2);
        }
    }
    if (!factors) {
      if (below) {
        write<1>(x, at_x, row);
        publish(below_flag, 1);
      }
      if (block) write<1>(d, at_d, row);
      return;
    }
    each_entry([&](int n, int e, int at) { s[at] = d[0][n][e]; });
    meet(2, 128);
    const int failed = factor_and_invert<double>(warp, lane, [&] {
      if (!below) return;
      store(at_x, 0, 1, [&](int r, int c) { return s[kBeside + c * kLD + r]; });
      publish(below_flag, 4);
    });
    if (failed != 0 && warp == 0 && lane == 0)
      atomicMin(p.failed, (unsigned long long)(j * kW + failed));
    store(Place{p.inverse_of(j), kW, 1 << 20, 1 << 30}, warp, 4,
          [&](int r, int c) { return r >= c ? s[kInverse + c * kLD + r] * s[kRoots + r] : 0.0; });
    publish(flags, 1);
    store(at_d, warp, 4, [&](int r, int c) { return s[c * kLD + r] * s[kRoots + c]; });
  }

  /// Columns first, first + step, ... of a tile := value(row, column).
  template <class Value>
  __device__ void store(const Place& at, int first, int step, Value&& value) const {
#pragma unroll 4
    for (int c = first; c < kW; c += step) {
      const int r = 2 * lane;
      put(at, r, c, value(r, c), value(r + 1, c));
    }
  }

  __device__ void run() {
    for (unsigned number = 0;; ++number) {
      const int slot = number % 2;
      wait_for(&task_full[slot], number / 2 % 2);
      const Task t = tasks[slot];
      __syncwarp();
      if (lane == 0) arrive(&task_empty[slot]);
      if (t.kind == stop) return;
      if (t.kind == diagonal)
        diagonal_task(t);
      else
        pair_task(t);
    }
  }
};
}  // namespace terrace::device::band_parts
