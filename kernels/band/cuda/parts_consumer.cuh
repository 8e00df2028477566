// What the kernel of kernels/band/cuda/parts.cu is made of, 4: the warps that multiply.
#pragma once
#include "kernels/band/cuda/chain.cuh"
#include "kernels/band/cuda/parts_tasks.cuh"

namespace terrace::band::parts {

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
  __device__ void wait_stages() const {
    for (int chunk = 0; chunk < kChunks; ++chunk) arrived(turn + chunk);
  }
  /// From four stages to the next four.
  __device__ void next_stages() {
    for (int chunk = 0; chunk < kChunks; ++chunk) release(turn + chunk);
    turn += kChunks;
    wait_stages();
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
  /// Neighbouring columns of x in lanes 2, 3, 6, 7, ... change places: as times_inverse wants them.
  template <int MT>
  __device__ void turn_pairs(double (&x)[MT][8][4]) const {
    const bool other = lane % 4 >= 2;
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const double even = x[m][n][2 * h], odd = x[m][n][2 * h + 1];
          x[m][n][2 * h] = other ? odd : even;
          x[m][n][2 * h + 1] = other ? even : odd;
        }
  }
  /// x, after turn_pairs, := x times the transposed inverse in row `b` of B of the four stages from
  /// `turn` on. The layout of results is that of left operands, the product index in another order;
  /// the last columns need all of x and come first, in their place.
  template <int MT>
  __device__ void times_inverse(double (&x)[MT][8][4], int b) const {
    const int t = lane % 4;
    const int even = (2 * t + t / 2) * kLDB<NC>, odd = (2 * t + 1 - t / 2) * kLDB<NC>;
#pragma unroll
    for (int c = kChunks - 1; c >= 0; --c) {
      double y[MT][2][4];
#pragma unroll
      for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int e = 0; e < 8; ++e) y[m][e / 4][e % 4] = 0.0;
#pragma unroll
      for (int chunk = 0; chunk <= c; ++chunk) {
        const double* const s = stage(turn + chunk) + kB + b + lane / 4 + 16 * c;
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const double right[4] = {s[even + 8 * n], s[odd + 8 * n], s[even + 8 * kLDB<NC> + 8 * n],
                                   s[odd + 8 * kLDB<NC> + 8 * n]};
#pragma unroll
          for (int m = 0; m < MT; ++m) {
            const double(&a0)[4] = x[m][2 * chunk], (&a1)[4] = x[m][2 * chunk + 1];
            const double left[8] = {a0[0], a0[2], a0[1], a0[3], a1[0], a1[2], a1[1], a1[3]};
            dmma(y[m][n], left, right);
          }
        }
      }
#pragma unroll
      for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int e = 0; e < 8; ++e) x[m][2 * c + e / 4][e % 4] = y[m][e / 4][e % 4];
    }
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
  /// body(m, n, e, does the entry exist, where) for this lane's entries of x.
  template <int MT, class Body>
  __device__ void each(const Place& at, int row, Body&& body) const {
    const int r = row + lane / 4, c = lane % 4 * 2;
    const Index ld = at.ld;
    const unsigned first = unsigned(at.offset + r - c), limit = unsigned(at.limit);
    double* even = at.data + r + c * ld;
#pragma unroll
    for (int n = 0; n < 8; ++n, even += 8 * ld) {
      double* const odd = even + ld;
#pragma unroll
      for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int down = 16 * m + e / 2 * 8;
          body(m, n, e, first + unsigned(down - 8 * n - e % 2) <= limit,
               (e % 2 == 0 ? even : odd) + down);
        }
    }
  }
  /// x += C.
  template <int MT>
  __device__ void add_to(double (&x)[MT][8][4], const Place& at, int row) const {
    each<MT>(at, row, [&](int m, int n, int e, bool has, const double* from) {
      if (has) x[m][n][e] += *from;
    });
  }
  /// C := x.
  template <int MT>
  __device__ void write(const double (&x)[MT][8][4], const Place& at, int row) const {
    if (at.offset < kW || at.offset + kW - 1 > at.limit) {  // partly outside the band
      each<MT>(at, row, [&](int m, int n, int e, bool has, double* to) {
        if (has) *to = x[m][n][e];
      });
    } else {
      each<MT>(at, row, [&](int m, int n, int e, bool, double* to) { *to = x[m][n][e]; });
    }
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

  template <int MT, bool masked>
  __device__ void pair_products(double (&x)[MT][8][4], const Task& t, bool active, Index i, Index j,
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
          step<MT, kLDB<NC>, masked>(x, at + ia * kW, at + kB + jb * kW, row, a_offset, b_offset,
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

  /// A warp has 16 MT rows: two tile rows (MT = 2), or one (MT = 1, and NC = 1).
  template <int MT>
  __device__ void pair_task(const Task& t) {
    const Part& p = l.parts[t.part];
    const int jb = warp / 4, ia = MT == 2 ? warp / 2 % 2 : 0;
    const int row = MT == 2 ? warp % 2 * 32 : warp % 4 * 16;
    const Index i = t.row + ia, j = t.column + jb;
    const bool band = t.kind == pair;
    const bool active = ia < t.rows && jb < t.columns &&
                        (!band || (i - j >= 2 && i - j <= l.reach_tiles)) &&
                        (t.kind != window ||
                         (i >= j && i - j <= l.reach_tiles && !(i == p.tiles && j == p.tiles))) &&
                        (t.kind != arrow || i >= j);
    const bool finishes = band || t.kind == spike;
    double x[MT][8][4];
    const Place at = place(l, p, t.kind, i, j);
    clear<MT>(x);
    const bool starts = t.kind == spike ? j < l.reach_tiles : band;  // else it is zero before
    if (starts && active) add_to<MT>(x, at, row);
    const Index cut = min(t.k1, t.k0 + kMasked);
    pair_products<MT, true>(x, t, active, i, j, ia, jb, row, t.k0, cut);
    pair_products<MT, false>(x, t, active, i, j, ia, jb, row, cut, t.k1);
    if (!finishes) {
      const bool shared = NC == 1 && t.kind == arrow && l.shares > 1;
      unsigned* const turns = l.turns + (shared ? t.block : 0);
      if (shared)
        while (acquire_flag(turns) < unsigned(4 * t.share)) __nanosleep(20);
      __syncwarp();
      if (active) add<MT>(x, at, row);
      if (shared) publish(turns, 1);
      return;
    }
    unsigned* const flag =
        p.flags + (j - p.from) * l.stride + (band ? i - j : Index(l.reach_tiles) + 1 + i);
    if (NC == 1 || jb == 0) {
      turn_pairs<MT>(x);
      wait_stages();
      if (active) finish<MT>(x, at, row, 0, flag);
      if (NC == 2 && t.columns == 2) {
        next_stages();
        if (active) to_stages<MT>(ia * kW + row, [&](int m, int n, int e) { return x[m][n][e]; });
        __syncwarp();
        barrier_arrive(1, 256);
        next_stages();
      }
    } else {
      wait_stages();
      if (t.columns == 2) {
        next_stages();  // of what lies between the tile columns
        meet(1, 256);   // the first tile column's blocks are there, too
        if (active && (!band || i - t.column <= l.reach_tiles)) {
          const int a_offset = band ? int(i - t.column) * kW : -kFar;
#pragma unroll 1
          for (int chunk = 0; chunk < kChunks; ++chunk) {
            const double* const from = stage(turn + chunk);
            step<MT, kLDB<NC>, true>(x, from + ia * kW, from + kB + kW, row, a_offset, kW, chunk);
          }
        }
        turn_pairs<MT>(x);
        next_stages();
        if (active) finish<MT>(x, at, row, kW, flag);
      }
    }
    for (int chunk = 0; chunk < kChunks; ++chunk) release(turn + chunk);
    turn += kChunks;
  }

  /// Multiplies x by the inverse in row `b` of B, writes it and says so.
  template <int MT>
  __device__ void finish(double (&x)[MT][8][4], const Place& at, int row, int b,
                         unsigned* flag) const {
    times_inverse<MT>(x, b);
    write<MT>(x, at, row);
    publish(flag, MT);
  }

  // kernels/band/cuda/parts_diagonal.cuh
  __device__ __noinline__ void diagonal_task(const Task& t);
  __device__ void beside_product(double (&d)[8][4]) const;
  __device__ void first_product(double (&d)[8][4]) const;
  __device__ void keep_rows(const double (&x)[8][4], int at) const;
  __device__ void finish_diagonal(const Part& p, Index j, bool below, bool block,
                                  double (&x)[1][8][4], double (&d)[1][8][4], const Place& at_d);
  template <class Keep>
  __device__ void factor_block(const Part& p, Index j, double (&d)[8][4], const Keep& keep) const;
  __device__ void hand_first(const double (&d)[8][4]) const;
  __device__ void write_factor(const Place& at) const;
  __device__ void write_factor_block(const Place& at, int k) const;

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
      else if (NC == 1 && t.rows == 1)
        pair_task<1>(t);
      else
        pair_task<2>(t);
    }
  }
};
}  // namespace terrace::band::parts
