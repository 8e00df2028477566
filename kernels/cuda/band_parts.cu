// Roofline: a product of 64 x 64 blocks is 0.52 MFLOP; a task of 128 x 64 (NC = 1) reads 96 KB from
// L2 for two of them, one of 128 x 128 (NC = 2) 128 KB for four: 11 and 16 flops a byte against
// L2's 5.5 TB/s. The chain of a column is about 60 ns in the factorization of a diagonal block; a
// diagonal block, its inverse and three hand-overs through L2 bound narrow bands.
//
// One launch eliminates whole parts. Tasks are dealt in column order by a counter; each waits for
// the factored tiles it reads (flags in L2), so the order of the tasks is all the synchronization
// there is, and a task only waits for earlier ones. Left-looking: a block of the factor is summed
// in registers over all tile columns before it, multiplied by the inverse of the diagonal block,
// and written once.
//
//   diagonal task j     tiles (j, j-1) and (j, j): the first is finished, the second takes its
//                       product, is factored and inverted; the chain runs through these tasks alone
//   pair task           tile rows i, i+1 of NC tile columns
//
// Four warps of their own bring operands by asynchronous copies (16 columns of each tile a stage);
// the others multiply on the FP64 tensor cores.
#include "kernels/band_parts.hpp"

#include <cfloat>

#include "kernels/cuda/band_parts.cuh"
#include "kernels/cuda/runtime.cuh"

namespace terrace {
namespace {

using namespace device;
using namespace band_parts;

constexpr Index kWideTiles = 60;  // from here on blocks of 128 x 128

/// A block of the result, 128 x 64 NC at most.
struct Task {
  Index k0, k1;       // tile columns of the products
  Index row, column;  // first tile row (of A) and tile column (row of B)
  int part;
  int kind;           // Kind
  int rows, columns;  // tiles of the block that exist
};
__shared__ Task tasks[2];
__shared__ alignas(8) unsigned long long full[kMostStages], empty[kMostStages], task_full[2],
    task_empty[2];

enum Kind : int { stop, diagonal, pair, spike, window, arrow, coupling };

/// The number-th diagonal task of a part.
__device__ bool decode_diagonal(const Launch& launch, int part, Index number, Task& t) {
  const Part& p = launch.parts[part];
  t.part = part;
  t.kind = diagonal;
  t.row = t.column = p.from + number;
  t.rows = t.columns = 1;
  t.k0 = max(Index(0), t.row - launch.reach_tiles);
  t.k1 = t.row > p.from ? t.row - 1 : t.row;
  return t.row < p.end || (t.row == p.end && t.row > p.from && t.row < p.tiles + p.window);
}

/// The other tasks are numbered: arrow blocks that come first, columns, what is left. False: no
/// such block.
///
/// All pairs of NC tile columns wait for the inverse of their diagonal block at the end, and the
/// nearer to the diagonal the longer is their sum. So a step takes the last pairs of a group with
/// the middle ones of a later and the first ones of a still later group: each begins when it has to
/// begin. A pair waits for later pairs of earlier groups only (steps go from the last pair to the
/// first, and `slope` is below one group a pair), so the order still has no circles.
template <int NC>
__device__ bool decode(const Launch& launch, Index id, Task& t) {
  const int m = launch.reach_tiles;
  t.rows = t.columns = 0;
  const Index arrows = launch.arrow_groups * launch.arrow_pairs;
  const auto schur = [&](Index at) {  // arrow block of a part
    const Part& p = launch.parts[t.part];
    t.kind = arrow;
    t.column = at / launch.arrow_pairs * NC;
    t.row = t.column + at % launch.arrow_pairs * 2;
    t.k0 = 0;
    t.k1 = p.tiles;
    t.rows = int(min(Index(2), p.arrow - t.row));
    t.columns = int(min(Index(NC), p.arrow - t.column));
    return p.complete && t.rows > 0 && t.columns > 0;
  };
  if (id < launch.early) {
    t.part = int(id / arrows);
    return schur(id % arrows);
  }
  id -= launch.early;
  if (id < launch.column_tasks) {
    const Index number = id / launch.per_group;
    const int at = int(id % launch.per_group);
    t.part = int(number % launch.count);
    const Part& p = launch.parts[t.part];
    const bool of_band = at < launch.band_pairs;
    const Index group = number / launch.count - launch.most_ahead +
                        (of_band ? launch.ahead(at) : launch.most_ahead);
    if (group < 0) return false;
    const Index first = p.from + group * NC;
    if (first >= p.end) return false;
    t.column = first;
    t.columns = int(min(Index(NC), p.end - first));
    t.k1 = first;
    if (of_band) {
      t.kind = pair;
      t.row = first + 2 + Index(launch.band_pairs - 1 - at) * 2;
      t.rows = int(min(Index(2), min(p.tiles + p.window, first + t.columns + m) - t.row));
      t.k0 = max(Index(0), t.row - m);
      return t.rows > 0;
    }
    t.kind = spike;
    t.row = Index(at - launch.band_pairs) * 2;
    t.rows = int(min(Index(2), p.arrow - t.row));
    t.k0 = max(Index(0), first - m);
    return t.rows > 0;
  }
  id -= launch.column_tasks;
  const Index windows = launch.window_groups * launch.window_pairs;
  const Index couplings = launch.arrow_groups * launch.window_pairs;
  const Index late = launch.early > 0 ? 0 : arrows, all = windows + couplings + late;
  if (id >= all * launch.count) {
    t.kind = stop;
    return true;
  }
  t.part = int(id % launch.count);
  id /= launch.count;
  const Part& p = launch.parts[t.part];
  if (!p.complete) return false;
  t.k1 = p.tiles;
  if (id < windows) {
    t.kind = window;
    t.column = p.tiles + id / launch.window_pairs * NC;
    t.row = t.column + id % launch.window_pairs * 2;
    t.columns = int(min(Index(NC), p.tiles + p.window - t.column));
  } else if (id < windows + couplings) {
    id -= windows;
    t.kind = coupling;
    t.column = id / launch.window_pairs * NC;
    t.row = p.tiles + id % launch.window_pairs * 2;
    t.columns = int(min(Index(NC), p.arrow - t.column));
  } else {
    return schur(id - windows - couplings);
  }
  t.rows = int(min(Index(2), p.tiles + p.window - t.row));
  t.k0 = max(Index(0), t.row - m);
  return t.rows > 0 && t.columns > 0;
}

/// Where tile row (or arrow row) `i` of tile column k begins.
struct Strip {
  const double* data = nullptr;  // null: nothing to bring
  Index ld = 0;
  int rows = kW;  // 64, or 128: the next tile row too
  int to = 0;     // where in a stage
  int to_ld = kLDA;
};
__device__ Strip strip(const Launch& l, const Part& p, bool of_arrow, Index i, Index k, int rows) {
  if (of_arrow) return {p.spike + i * kW + k * kW * p.arrow * kW, p.arrow * kW, rows};
  return {p.tile(l, k) + (i - k) * kW, l.reach, rows};
}
/// True when that tile is finished.
__device__ bool ready(const Launch& l, const Part& p, bool of_arrow, Index i, Index k) {
  if (k < p.from || (!of_arrow && i - k > l.reach_tiles)) return true;
  const Index at = (k - p.from) * l.stride + (of_arrow ? l.reach_tiles + 1 + i : i - k);
  return acquire(p.flags + at) >= 4;
}

/// The producers: two warps (side 0) bring A, one of which deals the tasks, two (side 1) B.
template <int NC, int S>
struct Producer {
  const Launch& l;
  const int lane, side, half;
  unsigned turn = 0;  // stages filled so far

  /// This warp's share of 16 columns of a strip: two rows a lane.
  __device__ void bring(const Strip& s, int chunk) const {
    if (s.data == nullptr) return;
    double* to = dynamic_shared() + turn % S * stage_doubles<NC> + s.to + 2 * lane;
    const double* from = s.data + chunk * kDepth * s.ld + 2 * lane;
    if (s.rows == 2 * kW) {
      to += half * kW;
      from += half * kW;
#pragma unroll
      for (int c = 0; c < kDepth; ++c) copy16(to + c * s.to_ld, from + c * s.ld, 16);
    } else {
      to += half * (kDepth / 2) * s.to_ld;
      from += half * (kDepth / 2) * s.ld;
#pragma unroll
      for (int c = 0; c < kDepth / 2; ++c) copy16(to + c * s.to_ld, from + c * s.ld, 16);
    }
  }
  /// This warp's part of the next stage: 16 columns of a strip and of another, or nothing.
  __device__ void fill(const Strip& s, int chunk, const Strip& other = {}) {
    const int stage = turn % S;
    wait(empty[stage], (turn / S + 1) % 2);
    bring(s, chunk);
    bring(other, chunk);
    arrive_after_copies(full[stage]);
    ++turn;
  }
  __device__ void spin(const unsigned* flag) const {
    while (acquire(flag) < 4) __nanosleep(20);
    __syncwarp();
  }

  __device__ void products(const Task& t, const Part& p) {
    const bool diagonals = t.kind == diagonal;
    const bool from_arrow =
        side == 0 ? t.kind == spike || t.kind == arrow : t.kind == arrow || t.kind == coupling;
    const int tiles = side == 0 ? t.rows : t.columns;
    const Index first = side == 0 ? t.row : t.column;
    for (Index k = t.k0; k < t.k1;) {
      const Index mine = k + lane;
      bool ok = mine < t.k1;
      if (ok && diagonals) {
        ok = side == 1 || (ready(l, p, false, t.row, mine) &&
                           (t.row == p.from || ready(l, p, false, t.row - 1, mine)));
      } else if (ok) {
        for (int a = 0; a < tiles; ++a) ok = ok && ready(l, p, from_arrow, first + a, mine);
      }
      const unsigned all = __ballot_sync(kAll, ok);
      const int run = all == kAll ? 32 : __ffs(int(~all)) - 1;
      if (run == 0) {
        __nanosleep(20);
        continue;
      }
      for (const Index to = k + run; k < to; ++k) {
        Strip s;
        if (!diagonals) {
          s = strip(l, p, from_arrow, first, k, tiles * kW);
        } else if (side == 0) {  // tile rows j - 1 and j
          const bool both = t.row > p.from;
          s = strip(l, p, false, both ? t.row - 1 : t.row, k, both ? 2 * kW : kW);
          s.to = both ? 0 : kW;
        }
        if (side == 1) {
          s.to = kB;
          s.to_ld = kLDB<NC>;
        }
#pragma unroll 1
        for (int chunk = 0; chunk < kChunks; ++chunk) fill(s, chunk);
      }
    }
  }
  /// Inverses and what lies between the tile columns of a block, as B; C in the place of A.
  __device__ void finish(const Task& t, const Part& p) {
    Strip s, between;
    const auto as_b = [&](const double* data, Index ld, int row) {
      return Strip{data, ld, kW, kB + row, kLDB<NC>};
    };
    if (t.kind == diagonal) {  // holds all stages until the block is factored
      if (side == 1 && t.row > p.from) {
        spin(p.flags + (t.row - 1 - p.from) * l.stride);
        s = as_b(p.inverse_of(t.row - 1), kW, 0);
      }
      for (int chunk = 0; chunk < S; ++chunk) {
        if (chunk == kChunks) s.data = nullptr;
        fill(s, chunk);
      }
    } else if (t.kind == pair || t.kind == spike) {
      const unsigned* const flags = p.flags + (t.column - p.from) * l.stride;
      for (int q = 0; q < t.columns; ++q) {
        if (side == 0) {
          s = strip(l, p, t.kind == spike, t.row, t.column + q, t.rows * kW);
        } else {
          spin(flags + q * l.stride);
          s = as_b(p.inverse_of(t.column + q), kW, q * kW);
          if (NC == 2 && q == 0 && t.columns == 2) {
            spin(flags + 1);
            between = as_b(p.tile(l, t.column) + kW, l.reach, kW);
          }
        }
        for (int chunk = 0; chunk < kChunks; ++chunk) fill(s, chunk, between);
        between.data = nullptr;
      }
    }
  }

  /// The next task of this CTA: the first CTAs do the diagonal blocks, so that their code stays in
  /// the instruction cache.
  __device__ Task next() const {
    Task t;
    const int part = int(blockIdx.x) < l.diagonals * l.count ? int(blockIdx.x) % l.count : -1;
    while (true) {
      unsigned long long id = 0;
      if (lane == 0) id = atomicAdd(l.counter + 1 + part, 1ull);
      id = __shfl_sync(kAll, id, 0);
      if (part >= 0) {
        if (!decode_diagonal(l, part, Index(id), t)) t.kind = stop;
        break;
      }
      if (decode<NC>(l, Index(id), t)) break;
    }
    if (t.kind != stop && *(volatile unsigned long long*)l.parts[t.part].failed != ~0ull)
      t.k0 = t.k1;  // nothing after a failure counts
    return t;
  }

  __device__ void run() {
    for (unsigned number = 0;; ++number) {
      const int slot = number % 2;
      if (side == 0 && half == 0) {
        const Task t = next();
        wait(task_empty[slot], (number / 2 + 1) % 2);
        if (lane == 0) tasks[slot] = t;
        __syncwarp();
        if (lane == 0) arrive(task_full[slot]);
      }
      wait(task_full[slot], number / 2 % 2);
      const Task t = tasks[slot];
      __syncwarp();
      if (side + half > 0 && lane == 0) arrive(task_empty[slot]);
      if (t.kind == stop) return;
      products(t, l.parts[t.part]);
      finish(t, l.parts[t.part]);
    }
  }
};

/// Where a block of 64 x 64 results lies: entry (r, c) at data[r + c * ld], and exists if
/// 0 <= offset + r - c <= limit.
struct Place {
  double* data;
  Index ld;
  int offset, limit;
  __device__ bool has(int r, int c) const { return unsigned(offset + r - c) <= unsigned(limit); }
};
__device__ Place place(const Launch& l, const Part& p, int kind, Index i, Index j) {
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
  __device__ void arrived(unsigned t) const { wait(full[t % S], t / S % 2); }
  __device__ void release(unsigned t) const {
    __syncwarp();
    if (lane == 0) arrive(empty[t % S]);
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
        barrier(1, 256);  // the first tile column's blocks are in the stages
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
    barrier(2, 128);  // the stages are free
    if (below) {
      each_entry([&](int n, int e, int at) { s[kBeside + at] = x[0][n][e]; });
      barrier(2, 128);
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
    barrier(2, 128);
    const int failed = factor_and_invert(warp, lane, [&] {
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
      wait(task_full[slot], number / 2 % 2);
      const Task t = tasks[slot];
      __syncwarp();
      if (lane == 0) arrive(task_empty[slot]);
      if (t.kind == stop) return;
      if (t.kind == diagonal)
        diagonal_task(t);
      else
        pair_task(t);
    }
  }
};

/// Threads: NC warpgroups that multiply, and one that brings their operands.
template <int NC>
constexpr int kThreads = NC * 128 + 128;

template <int NC, int S>
__global__ void __launch_bounds__(kThreads<NC>, NC == 1 ? 2 : 1)
    eliminate_parts(const __grid_constant__ Launch launch) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int s = 0; s < S; ++s) {
      init(full[s], 128);
      init(empty[s], NC * 4);
    }
    for (int s = 0; s < 2; ++s) {
      init(task_full[s], 1);
      init(task_empty[s], NC * 4 + 3);
    }
  }
  __syncthreads();
  if (warp >= NC * 4) {
    fewer_registers<40>();
    Producer<NC, S>{launch, lane, (warp - NC * 4) / 2, warp % 2}.run();
  } else {
    more_registers<NC == 1 ? 208 : 232>();
    Consumer<NC, S>{launch, lane, warp}.run();
  }
}

/// status := 0, or the column that failed.
__global__ void read_status(const unsigned long long* failed, int count, Index* status) {
  const int p = int(threadIdx.x);
  if (p < count) status[p] = failed[p] == ~0ull ? 0 : Index(failed[p]);
}

template <int NC, int S>
void launch_parts(const Stream<Cuda>& stream, Launch& launch) {
  constexpr int bytes = std::max(S * stage_doubles<NC>, kFactorDoubles) * int(sizeof(double));
  static const int resident = [] {
    check(cudaFuncSetAttribute(eliminate_parts<NC, S>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               bytes));
    int blocks = 0;
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, eliminate_parts<NC, S>,
                                                        kThreads<NC>, bytes));
    return std::max(blocks, 1) * current_cuda_device().multiprocessors;
  }();
  Index groups = 0, window = 0, arrow = 0;
  for (int p = 0; p < launch.count; ++p) {
    const Part& part = launch.parts[p];
    groups = std::max(groups, ceil_div(part.end - part.from, NC));
    window = std::max(window, part.window);
    arrow = std::max(arrow, part.arrow);
  }
  launch.band_pairs = int(ceil_div(launch.reach_tiles + NC - 2, 2));
  launch.arrow_pairs = ceil_div(arrow, 2);
  launch.arrow_groups = ceil_div(arrow, NC);
  launch.window_pairs = ceil_div(window, 2);
  launch.window_groups = ceil_div(window, NC);
  launch.per_group = launch.band_pairs + int(launch.arrow_pairs);
  // As many as it takes to begin a diagonal block's sum early enough: where the GPU is full, the
  // others make a tile column in 5 M^2 ns, and a sum of M tiles takes 2 M us.
  const Index tiles = launch.reach_tiles, wanted = NC == 1 ? tiles / 4 + 2 : 900 / tiles + 3;
  launch.diagonals = int(std::min<Index>(wanted, std::max(1, resident / (2 * launch.count))));
  // A pair of tile rows has two tiles less to sum than the one above it: 8 us of a step that takes
  // the chain 20 us a tile column, or the others M^2 us / their number.
  const double workers = double(resident) / launch.count - launch.diagonals;
  launch.slope = int(65536 * std::min(NC == 1 ? 0.4 : 0.2, 8 * workers / double(tiles * tiles)));
  launch.most_ahead = launch.band_pairs > 0 ? launch.ahead(launch.band_pairs - 1) : 0;
  launch.column_tasks = (groups + launch.most_ahead) * launch.count * launch.per_group;
  // Arrow blocks wait for the whole part: beside it, if they leave most CTAs to it.
  const Index arrows = launch.arrow_groups * launch.arrow_pairs * launch.count;
  launch.early = 3 * (arrows + launch.diagonals * launch.count) <= 2 * resident ? arrows : 0;
  eliminate_parts<NC, S><<<unsigned(resident), kThreads<NC>, bytes, native(stream)>>>(launch);
  check_launch();
}

/// Words of scratch: failures, counters (a part's diagonal blocks, and all else), flags of two to a
/// word.
struct Scratch {
  Index flags = 0, words = 0;
  Scratch(const BandShape& s, std::span<const BandPart<Cuda>> parts) {
    Index stride = 0, columns = 0;
    for (const BandPart<Cuda>& p : parts) {
      stride = std::max(stride, width(s, p));
      columns += p.end() - p.from;
    }
    flags = columns * stride;
    words = 2 * Index(parts.size()) + 1 + ceil_div(flags, 2);
  }
  static Index width(const BandShape& s, const BandPart<Cuda>& p) {
    return band_reach_tiles(s) + 1 + p.arrow / kW;
  }
};

}  // namespace

Index band_factor_scratch(Cuda, BandShape s, std::span<const BandPart<Cuda>> parts) {
  return Scratch(s, parts).words;
}

void band_factor_parts(const Stream<Cuda>& stream, BandShape s,
                       std::span<const BandPart<Cuda>> parts, View<Index, Cuda> status,
                       View<Word, Cuda> scratch) {
  const Scratch layout(s, parts);
  if (s.width != kW || scratch.size < layout.words || status.size < Index(parts.size()))
    throw Error(Exit::internal, "width, scratch or status of parts; kernels/cuda/band_parts.cu");
  for (std::size_t first = 0; first < parts.size(); first += kMostParts) {
    const auto some = parts.subspan(first, std::min<std::size_t>(kMostParts, parts.size() - first));
    const Index words = Scratch(s, some).words;
    auto* const failed = reinterpret_cast<unsigned long long*>(scratch.data);
    auto* const counter = failed + some.size();
    check(cudaMemsetAsync(failed, 0, std::size_t(words) * sizeof(Word), native(stream)));
    check(cudaMemsetAsync(failed, 0xff, some.size() * sizeof(Word), native(stream)));
    auto* flags = reinterpret_cast<unsigned*>(counter + 1 + some.size());
    Launch launch{};
    launch.reach = s.reach;
    launch.reach_tiles = int(band_reach_tiles(s));
    launch.count = int(some.size());
    launch.counter = counter;
    for (const BandPart<Cuda>& p : some)
      launch.stride = std::max(launch.stride, int(Scratch::width(s, p)));
    for (std::size_t i = 0; i < some.size(); ++i) {
      const BandPart<Cuda>& p = some[i];
      launch.parts[i] = {p.band,       p.inverse,    p.spike, p.arrow_block, p.coupling,
                         p.tiles,      p.window,     p.from,  p.end(),       p.ring,
                         p.arrow / kW, p.complete(), flags,   failed + i};
      flags += (p.end() - p.from) * launch.stride;
    }
    if (launch.reach_tiles >= kWideTiles)
      launch_parts<2, 6>(stream, launch);
    else
      launch_parts<1, 4>(stream, launch);
    read_status<<<1, kMostParts, 0, native(stream)>>>(failed, launch.count, status.data + first);
    check_launch();
  }
}

}  // namespace terrace
