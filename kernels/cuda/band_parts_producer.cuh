// What the kernel of kernels/cuda/band_parts.cu is made of, 3: the warps that bring operands.
#pragma once
#include "kernels/cuda/band_parts_tasks.cuh"

namespace terrace::device::band_parts {

/// Where tile row (or arrow row) `i` of tile column k begins.
struct Strip {
  const double* data = nullptr;  // null: nothing to bring
  Index ld = 0;
  int rows = kW;  // 64, or 128: the next tile row too
  int to = 0;     // where in a stage
  int to_ld = kLDA;
};
__device__ inline Strip strip(const Launch& l, const Part& p, bool of_arrow, Index i, Index k,
                              int rows) {
  if (of_arrow) return {p.spike + i * kW + k * kW * p.arrow * kW, p.arrow * kW, rows};
  return {p.tile(l, k) + (i - k) * kW, l.reach, rows};
}
/// True when that tile is finished.
__device__ inline bool ready(const Launch& l, const Part& p, bool of_arrow, Index i, Index k) {
  if (k < p.from || (!of_arrow && i - k > l.reach_tiles)) return true;
  const Index at = (k - p.from) * l.stride + (of_arrow ? l.reach_tiles + 1 + i : i - k);
  return acquire_flag(p.flags + at) >= 4;
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
    wait_for(&empty[stage], (turn / S + 1) % 2);
    bring(s, chunk);
    bring(other, chunk);
    arrive_after_copies(&full[stage]);
    ++turn;
  }
  __device__ void spin(const unsigned* flag) const {
    while (acquire_flag(flag) < 4) __nanosleep(20);
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

  __device__ void run() {
    for (unsigned number = 0;; ++number) {
      const int slot = number % 2;
      if (side == 0 && half == 0) {
        const Task t = next_task<NC>(l, lane);
        wait_for(&task_empty[slot], (number / 2 + 1) % 2);
        if (lane == 0) tasks[slot] = t;
        __syncwarp();
        if (lane == 0) arrive(&task_full[slot]);
      }
      wait_for(&task_full[slot], number / 2 % 2);
      const Task t = tasks[slot];
      __syncwarp();
      if (side + half > 0 && lane == 0) arrive(&task_empty[slot]);
      if (t.kind == stop) return;
      products(t, l.parts[t.part]);
      finish(t, l.parts[t.part]);
    }
  }
};
}  // namespace terrace::device::band_parts
