// Packed tiles times up to 16 vectors on FP64 tensor cores: the kernels of triangle_block.cu.
//
// Work is cut into units: `across` tile columns of `down` tile rows of the rank. A block takes
// units as it gets free and walks through the tile rows of one from the widest to the narrowest, 32
// columns a step. A step comes to shared memory once and is read twice:
//
//            32 columns                    warp w: rows 64 (w / 2) .., columns 16 (w % 2) ..
//   256  | w0  w1 |   x   P of the columns -> row sums, in registers through the tile row
//   rows | w2  w3 |   ^T  P of the rows    -> column sums: over the warps in shared memory, over
//        | ...    |                           the tile rows of the unit in its strip (L2)
//
// Sums of k = 8 or 16 vectors stand in the order of the registers, 16 rows (2 g + h) at a time:
//   place(i, v) = 16 k (i / 16) + ((h k / 8 + v / 8) 32 + 4 g + v % 8 / 2) 2 + v % 2.
// The vectors themselves: 16 rows 4 t + q at a time, as the second operand takes them.
#pragma once
#include "kernels/base/cuda/barriers.cuh"
#include "kernels/base/cuda/dmma.cuh"
#include "kernels/cg/triangle.hpp"

namespace terrace::cg::triangle_block {

constexpr int threads = 256, step_width = 32, row_groups = 4;
constexpr int step_doubles = 256 * step_width;

struct Arguments {
  const double* a;
  const Index *row, *start;
  int rows;  ///< tile rows of this rank
  Index padded;
  int down, across, groups, chunks;  ///< shape and most numbers of the units
  double* vectors;                   ///< padded x k
  double* row_sums;                  ///< rows x chunks x 256 k
  double* column_sums;               ///< groups x padded x k
  unsigned* next;
  const double* skip;
};

template <int k>
constexpr int meeting_doubles = row_groups* step_width* k;
template <int k, int stages>
constexpr int shared_bytes = 8 * (stages * step_doubles + 2 * meeting_doubles<k>);

/// Copies of the matrix pass through the second-level cache without staying there.
__device__ inline void copy16_once(unsigned shared, const double* global, Word policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(shared),
               "l"(global), "l"(policy)
               : "memory");
}

/// Where a block stands: unit (group, chunk), tile row, tile column, half of the tile.
struct Walk {
  int group = 0, chunk = 0, row = 0;  // row: of the rank's tile rows; group * down is the last
  int column = 0, end = 0, half = 0;
  unsigned unit = 0;  // how many units this block has begun
  const double* tile = nullptr;
  bool over = false;

  __device__ bool open_row(const Arguments& w) {
    column = chunk * w.across;
    end = min(column + w.across, int(triangle::tiles_of(w.row[row])));
    tile = w.a + (w.start[row] + column) * triangle::tile;
    half = 0;
    return column < end;
  }
  __device__ void open_unit(const Arguments& w, int number) {
    over = number < 0;
    if (over) return;
    ++unit;
    group = number / w.chunks;
    chunk = number % w.chunks;
    row = min(w.rows, (group + 1) * w.down) - 1;
    open_row(w);
  }
  /// False at the end of the tile row.
  __device__ bool next_step() {
    if ((half ^= 1) != 0) return true;
    tile += triangle::tile;
    return ++column < end;
  }
  /// False at the end of the unit.
  __device__ bool next_row(const Arguments& w) { return --row >= group * w.down && open_row(w); }
};

/// The next unit that is not empty, or -1. Those at the diagonal, which are smaller, come last.
__device__ inline int claim(const Arguments& w) {
  for (;;) {
    const int turn = int(atomicAdd(w.next, 1u));
    if (turn >= w.groups * w.chunks) return -1;
    const int group = w.groups - 1 - turn % w.groups, back = w.chunks - 1 - turn / w.groups;
    const int last = min(w.rows, (group + 1) * w.down) - 1;
    const int there = int(ceil_div(triangle::tiles_of(w.row[last]), Index(w.across)));
    if (back < there) return group * w.chunks + there - 1 - back;
  }
}

/// Brings the steps of a block's units to shared memory, `stages` of them in turn.
template <int stages>
struct Loader {
  const Arguments& w;
  int* const units;  // the block's next ones, in turn
  Walk at;
  // Copies of one step, 16 bytes (2 columns) of every 16th row a thread.
  const int chunk16 = threadIdx.x % 16, row16 = threadIdx.x / 16;
  const Index from = Index(row16) * triangle::width + 2 * chunk16;
  const unsigned to;
  const Word policy = device::read_once();
  int fill = 0;

  __device__ __forceinline__ Loader(const Arguments& arguments, const double* shared, int* next)
      : w(arguments),
        units(next),
        to(device::shared_address(shared) +
           unsigned(chunk16 / 8 * 32768 + row16 * 128 + ((chunk16 % 8) ^ (row16 / 2)) * 16)) {
    at.open_unit(w, units[0]);
    if (threadIdx.x == 0 && !at.over) units[1] = claim(w);
  }
  /// An eighth of the step.
  __device__ __forceinline__ void part(int eighth) const {
    if (at.over) return;
    const double* source = at.tile + at.half * step_width + from;
    const unsigned target = to + unsigned(fill) * (8u * step_doubles);
#pragma unroll
    for (int pass = 2 * eighth; pass < 2 * eighth + 2; ++pass)
      copy16_once(target + pass * 2048u, source + pass * 16 * triangle::width, policy);
  }
  __device__ __forceinline__ void next_step() {
    device::commit_copies();
    if (at.over) return;
    fill = fill + 1 == stages ? 0 : fill + 1;
    if (!at.next_step() && !at.next_row(w)) {
      at.open_unit(w, units[at.unit % 4]);
      if (threadIdx.x == 0 && !at.over) units[at.unit % 4] = claim(w);
    }
  }
};

/// 16 rows of the vectors, as the second operand takes them.
template <int parts>
__device__ __forceinline__ void load_operand(double (&v)[parts][4], const double2* from) {
#pragma unroll
  for (int j = 0; j < 2 * parts; ++j) {
    const double2 two = __ldg(from + j * 32);
    if (parts == 2) {
      v[0][j] = two.x;
      v[parts - 1][j] = two.y;
    } else {
      v[0][2 * j] = two.x;
      v[0][2 * j + 1] = two.y;
    }
  }
}

/// Sums of the columns of a step: the warps meet in shared memory, one step later they are added up
/// onto the unit's strip.
template <int k>
struct Columns {
  static constexpr int each = step_width * k / 2;  // pairs of sums
  double* const meetings;
  const bool adds = threadIdx.x < each;
  double2* strip = nullptr;  // of the step before
  bool onto = false;
  int place = 0;  // where the warps meet in this step

  __device__ __forceinline__ double2* meeting(int where) const {
    return reinterpret_cast<double2*>(meetings + where * meeting_doubles<k>);
  }
  /// Sum over the warps, of the step before.
  __device__ __forceinline__ double2 sum() const {
    const double2* const from = meeting(place ^ 1);
    double2 v = from[threadIdx.x];
#pragma unroll
    for (int i = 1; i < row_groups; ++i) {
      const double2 u = from[i * each + threadIdx.x];
      v.x += u.x;
      v.y += u.y;
    }
    return v;
  }
  /// The strip's numbers to which the sums are added.
  __device__ __forceinline__ double2 old() const { return onto ? __ldcg(strip) : double2{}; }
  __device__ __forceinline__ void next_step(double2* of_unit, bool first_row) {
    strip = of_unit + threadIdx.x;
    onto = !first_row;
    place ^= 1;
  }
};

/// Row sums: the two sides in order, half of the rows at a time.
template <int parts>
__device__ __forceinline__ void store_row_sums(const double (&sums)[4][parts][4], double2* meet,
                                               double2* target, int side) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4 * parts; ++i) {
      const int m = 2 * half + i / (2 * parts), h = i / parts % 2, p = i % parts;
      if (side == 1) meet[i * 32] = make_double2(sums[m][p][2 * h], sums[m][p][2 * h + 1]);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4 * parts; ++i) {
      const int m = 2 * half + i / (2 * parts), h = i / parts % 2, p = i % parts;
      if (side == 0) {
        const double2 v = meet[i * 32];
        __stcg(target + (half * 4 * parts + i) * 32,
               make_double2(sums[m][p][2 * h] + v.x, sums[m][p][2 * h + 1] + v.y));
      }
    }
  }
  __syncthreads();
}

/// A warp's part of one step: `down` are the sums of its columns, `sums` those of its rows.
template <int k, int stages>
struct Step {
  static constexpr int parts = k / 8;  // products of 8 vectors
  const double2* blocks;               // of the warp, in shared memory
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;

  /// down = A^T P of the rows.
  __device__ __forceinline__ void multiply_down(double (&down)[parts][4],
                                                const double (&mine)[4][parts][4],
                                                const Loader<stages>& loader) const {
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      double a[8];
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const double2 v = blocks[(16 * m + 4 * t + q) * 8 + (g ^ (2 * t + q / 2))];
        a[2 * q] = v.x;
        a[2 * q + 1] = v.y;
      }
#pragma unroll
      for (int p = 0; p < parts; ++p) device::dmma(down[p], a, mine[m][p]);
      loader.part(m);
    }
  }
  /// sums += A P of the columns.
  __device__ __forceinline__ void multiply_across(double (&sums)[4][parts][4],
                                                  const double (&theirs)[parts][4],
                                                  const Loader<stages>& loader) const {
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      double a[8];
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const double2 v = blocks[(16 * m + 2 * g + h) * 8 + ((2 * t + c) ^ g)];
          a[2 * (2 * c) + h] = v.x;
          a[2 * (2 * c + 1) + h] = v.y;
        }
#pragma unroll
      for (int p = 0; p < parts; ++p) device::dmma(sums[m][p], a, theirs[p]);
      loader.part(4 + m);
    }
  }
};

template <int k, int stages>
__global__ void __launch_bounds__(threads, 1) multiply_kernel(const Arguments w) {
  constexpr int parts = k / 8;
  extern __shared__ __align__(128) double shared[];
  __shared__ int units[4];
  if (w.skip && *w.skip != 0) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int side = warp % 2, rows_at = 64 * (warp / 2);
  if (threadIdx.x == 0) units[0] = claim(w);
  __syncthreads();
  Loader<stages> loader(w, shared, units);
  Walk at;
  at.open_unit(w, units[0]);
#pragma unroll
  for (int s = 0; s < stages - 1; ++s) {
    for (int eighth = 0; eighth < 8; ++eighth) loader.part(eighth);
    loader.next_step();
    __syncthreads();
  }

  Columns<k> columns{shared + stages * step_doubles};
  int stage = 0;
  while (!at.over) {
    double mine[4][parts][4];       // P of the warp's 64 rows
    double sums[4][parts][4] = {};  // sums of these rows over the warp's columns
    const double2* from_rows =
        reinterpret_cast<const double2*>(w.vectors + (w.row[at.row] * 256 + rows_at) * k) + lane;
#pragma unroll
    for (int m = 0; m < 4; ++m) load_operand(mine[m], from_rows + m * (2 * parts * 32));
    const bool first_row = at.row == min(w.rows, (at.group + 1) * w.down) - 1;
    bool more = true;
    while (more) {
      device::wait_copies<stages - 2>();
      __syncthreads();
      double2 column = {}, old = {};
      double2* const strip_before = columns.adds ? columns.strip : nullptr;
      if (strip_before != nullptr) {
        old = columns.old();
        column = columns.sum();
      }
      const Index first_column = Index(at.column) * triangle::width + at.half * step_width;
      double theirs[parts][4], down[parts][4] = {};
      load_operand(
          theirs,
          reinterpret_cast<const double2*>(w.vectors + (first_column + 16 * side) * k) + lane);
      const Step<k, stages> step{reinterpret_cast<const double2*>(shared + stage * step_doubles) +
                                 side * 2048 + rows_at * 8};
      step.multiply_down(down, mine, loader);
      if (strip_before != nullptr)
        __stcg(strip_before, make_double2(old.x + column.x, old.y + column.y));
      double2* meet =
          columns.meeting(columns.place) + (warp / 2) * columns.each + side * (8 * k) + lane;
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int p = 0; p < parts; ++p)
          meet[(h * parts + p) * 32] = make_double2(down[p][2 * h], down[p][2 * h + 1]);
      step.multiply_across(sums, theirs, loader);
      loader.next_step();
      columns.next_step(reinterpret_cast<double2*>(w.column_sums +
                                                   (Index(at.group) * w.padded + first_column) * k),
                        first_row);
      stage = stage + 1 == stages ? 0 : stage + 1;
      more = at.next_step();
    }
    __syncthreads();
    if (columns.adds) {
      const double2 column = columns.sum(), old = columns.old();
      __stcg(columns.strip, make_double2(old.x + column.x, old.y + column.y));
    }
    columns.strip = nullptr;
    double2* target =
        reinterpret_cast<double2*>(w.row_sums + (Index(at.row) * w.chunks + at.chunk) * 256 * k +
                                   rows_at * k) +
        lane;
    store_row_sums(sums, columns.meeting(columns.place) + (warp / 2) * (16 * k) + lane, target,
                   side);
    if (!at.next_row(w)) at.open_unit(w, units[at.unit % 4]);
  }
}

/// P (padded x columns) in the order of the products, zeros in the missing columns.
template <int k>
__global__ void __launch_bounds__(threads)
    arrange_kernel(const Arguments w, const double* __restrict__ p, int columns) {
  if (w.skip && *w.skip != 0) return;
  const Index at = Index(blockIdx.x) * threads + threadIdx.x;  // two doubles each
  if (at == 0) *w.next = 0;
  if (at >= w.padded * k / 2) return;
  const int lane = int(at % 32), j = int(at / 32 % (k / 4));
  const Index group = at / (8 * k);
  double v[2];
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int q = k == 16 ? j : 2 * j + e, vector = lane / 4 + (k == 16 ? 8 * e : 0);
    v[e] = vector < columns ? p[(16 * group + 4 * (lane % 4) + q) * columns + vector] : 0.0;
  }
  reinterpret_cast<double2*>(w.vectors)[at] = make_double2(v[0], v[1]);
}

/// Q = the sums of all units, row sums by chunks and then column sums by groups.
template <int k>
__global__ void __launch_bounds__(threads)
    finish_kernel(const Arguments w, double* __restrict__ q, int columns) {
  if (w.skip && *w.skip != 0) return;
  const Index at = Index(blockIdx.x) * threads + threadIdx.x;
  if (at >= w.padded * k / 2) return;
  const Index i0 = at / (8 * k) * 16, tile_row = i0 / triangle::height;
  double2 sum = {};
  int low = 0, high = w.rows;  // first tile row of the rank that is not above this one
  while (low < high) {
    const int middle = (low + high) / 2;
    if (w.row[middle] < tile_row)
      low = middle + 1;
    else
      high = middle;
  }
  if (low < w.rows && w.row[low] == tile_row) {
    const int there = int(ceil_div(triangle::tiles_of(tile_row), Index(w.across)));
    const double2* part = reinterpret_cast<const double2*>(w.row_sums) +
                          Index(low) * w.chunks * (128 * k) + at % (128 * k);
#pragma unroll 8
    for (int c = 0; c < there; ++c) {
      const double2 v = __ldcs(part + Index(c) * (128 * k));
      sum.x += v.x;
      sum.y += v.y;
    }
  }
  const double2* part = reinterpret_cast<const double2*>(w.column_sums) + at;
#pragma unroll 8
  for (int group = low < w.rows ? low / w.down : w.groups; group < w.groups; ++group) {
    const double2 v = __ldcs(part + group * (w.padded * k / 2));
    sum.x += v.x;
    sum.y += v.y;
  }
  const int lane = int(at % 32), p = int(at / 32 % (k / 8)), h = int(at / (4 * k) % 2);
  const Index i = i0 + 2 * (lane / 4) + h;
  const int vector = 8 * p + 2 * (lane % 4);
  if (vector < columns) q[i * columns + vector] = sum.x;
  if (vector + 1 < columns) q[i * columns + vector + 1] = sum.y;
}

}  // namespace terrace::cg::triangle_block
