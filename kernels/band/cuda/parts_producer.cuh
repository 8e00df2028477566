// What the kernel of kernels/band/cuda/parts.cu is made of, 3: the warps that bring operands.
#pragma once
#include "kernels/band/cuda/chain.cuh"
#include "kernels/band/cuda/parts_tasks.cuh"

namespace terrace::band::parts {

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
  const int role, lane, side, half;
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
  /// This warp's part of the next stage: 16 columns of a strip, or nothing.
  __device__ void fill(const Strip& s, int chunk) {
    const int stage = turn % S;
    wait_for(&empty[stage], (turn / S + 1) % 2);
    bring(s, chunk);
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
      // One load a lane: its half of the warp looks at one of the two strips.
      const Index mine = k + lane % 16, strip_row = lane / 16;
      bool ok = mine < t.k1;
      if (ok && diagonals)
        ok = side == 1 || t.row - strip_row < p.from || ready(l, p, false, t.row - strip_row, mine);
      else if (ok && strip_row < tiles)
        ok = ready(l, p, from_arrow, first + strip_row, mine);
      unsigned all = __ballot_sync(kAll, ok);
      all &= all >> 16;
      const int run = __ffs(int(~(all & 0xffff))) - 1;
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
  /// Tile (j, j - 1), row-major in shared memory, goes to its place: 16 rows a warp.
  __device__ void write_beside(const Part& p, Index j) const {
    const int row = (2 * side + half) * kBlock + lane / 4, column = lane % 4 * 2;
    const Index ld = l.reach;
    double* to = p.tile(l, j - 1) + kW + row + column * ld;
    const double* from = shared_numbers<double>() + kTileX + row * kRow + column;
    const unsigned limit = unsigned(l.reach);
    unsigned offset = unsigned(kW + row - column);  // at least 1
    meet(kBesideThere, 256);
#pragma unroll 1
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const double2 both = *reinterpret_cast<const double2*>(from + 8 * h * kRow);
        if (offset + 8 * h <= limit) to[8 * h] = both.x;
        if (offset + 8 * h - 1 <= limit) to[8 * h + ld] = both.y;
      }
      to += 8 * ld;
      from += 8;
      offset -= 8;
    }
    __syncwarp();
    if (lane == 0) add_release(p.flags + (j - 1 - p.from) * l.stride + 1, 1);
    meet(kBesideWritten, 128);  // before a copy takes its place
  }
  /// Inverses and what lies between the tile columns of a block, as B.
  __device__ void finish(const Task& t, const Part& p) {
    Strip s;
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
      if (t.row > p.from) write_beside(p, t.row);
    } else if (t.kind == pair || t.kind == spike) {
      const unsigned* const flags = p.flags + (t.column - p.from) * l.stride;
      for (int q = 0; q < t.columns; ++q) {
        if (side == 1) {
          spin(flags + q * l.stride);
          s = as_b(p.inverse_of(t.column + q), kW, q * kW);
        }
        for (int chunk = 0; chunk < kChunks; ++chunk) fill(s, chunk);
        if (NC == 2 && q == 0 && t.columns == 2) {
          if (side == 1) {
            spin(flags + 1);
            s = as_b(p.tile(l, t.column) + kW, l.reach, kW);
          }
          for (int chunk = 0; chunk < kChunks; ++chunk) fill(s, chunk);
        }
      }
    }
  }

  /// Before the next task is dealt: until this one can end. A task that this CTA would hold meanwhile
  /// may be one that others wait for.
  __device__ void wait_for_end(const Task& t, const Part& p) const {
    if (t.kind == pair || t.kind == spike)
      spin(p.flags + (t.column + t.columns - 1 - p.from) * l.stride);
  }

  __device__ void run() {
    for (unsigned number = 0;; ++number) {
      const int slot = number % 2;
      if (side == 0 && half == 0) {
        const Task t = next_task<NC>(l, role, lane);
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
      if (side == 0 && half == 0) wait_for_end(t, l.parts[t.part]);
    }
  }
};
}  // namespace terrace::band::parts
