// What kernels/band/cuda/parts.cu is made of, 6: parts whose half-bandwidth is one or two tiles.
//
// Two multiprocessors eliminate a part. The numbers of its chain never leave the first one, by three
// groups of four warps. The first factors block (j, j) and inverts the factor. The second, meanwhile,
// makes what the next block needs: with X = L(j, j-1) and Y = L(j+1, j-1), both times the inverse
// before,
//   -Y Y^T  (sums, for block (j+1, j+1))   and   A(j+1, j) - Y X^T  (to be X of the next column).
// The third writes X, Y and the factor. On the other multiprocessor eight warps have 16 rows of the arrow
// each, whose last two tiles stay in registers; three warps bring the tiles X, Y and the inverse.
// Nothing of the first one waits for the second one.
#pragma once
#include "kernels/band/cuda/parts_diagonal.cuh"

namespace terrace::band::parts {

constexpr int kNarrowTiles = 2, kNarrowThreads = 384;
// Shared memory of a chain: Y, the sums for the next diagonal block (lower blocks, as a warp has them),
// and the inverses of this column and the one before, row-major.
constexpr int kTileY = kChainNumbers, kSums = kTileY + kW * kRow;
constexpr int kInverses = kSums + kSteps * (kSteps + 1) / 2 * kBlock * kBlock;
constexpr int kNarrowNumbers = kInverses + 2 * kW * kRow;
// Barriers: X and the sums are there; the sums were read; the inverse is there; Y is there.
constexpr int kSumsRead = 0, kInverseThere = 1, kBesideStored = 2, kYThere = 13;
// And in memory: a block column of U is there, three times; X and Y are; all of a tile column is; what
// the third group wrote of both.
enum : int { panel_there, tiles_there = kSteps - 1, column_there, tiles_written, column_written };
// And of an arrow: tiles, column by column, twice three of them.
constexpr int kTileNumbers = kW * kLD;
static_assert(6 * kTileNumbers <= kNarrowNumbers && 6 <= kMostStages);

using Rows = Consumer<1, 4>;  // its ways with blocks of 16 x 64

__device__ inline int inverse_at(Index j) { return kInverses + int(j % 2) * kW * kRow; }
/// Block (warp, c) of the sums, in the layout of results.
__device__ inline double* sums_at(int warp, int c, int lane) {
  return shared_numbers<double>() + kSums + (warp * (warp + 1) / 2 + c) * kBlock * kBlock + lane;
}
/// sums := -Y Y^T, with -Y in `a`; columns of it before block `warp` are zero.
__device__ inline void keep_sums(const double (&a)[8][4], int warp, int lane) {
#pragma unroll 1
  for (int c = 0; c <= warp; ++c) {
    double y0[4] = {}, y1[4] = {};
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
      if (k >= warp)
        block_product(y0, y1, a[2 * k], a[2 * k + 1], kTileY + c * kBlock * kRow + k * kBlock, kRow,
                      lane);
#pragma unroll
    for (int e = 0; e < 8; ++e) sums_at(warp, c, lane)[32 * e] = e < 4 ? y0[e % 4] : y1[e % 4];
  }
}
__device__ inline void add_sums(double (&d)[8][4], int warp, int lane) {
#pragma unroll
  for (int c = 0; c < kSteps; ++c)
    if (c <= warp)
#pragma unroll
      for (int e = 0; e < 8; ++e) d[2 * c + e / 4][e % 4] += sums_at(warp, c, lane)[32 * e];
}
/// Block (k, column) of an inverse in shared memory, as store_inverse() gets it.
__device__ inline void keep_inverse(int at, const double (&u0)[4], const double (&u1)[4],
                                    const double (&root)[4], int k, int column, int lane) {
  double* const to = shared_numbers<double>() + at + (k * kBlock + lane % 4 * 2) * kRow +
                     column * kBlock + lane / 4;
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      to[e * kRow + 8 * h] = u0[2 * h + e] * root[e];
      to[(8 + e) * kRow + 8 * h] = u1[2 * h + e] * root[2 + e];
    }
}
/// x := x times the transposed inverse at `at`; columns before block `first` are zero.
__device__ inline void times_kept_inverse(double (&x)[8][4], int at, int first, int lane) {
#pragma unroll
  for (int c = kSteps - 1; c >= 0; --c) {
    double y0[4] = {}, y1[4] = {};
#pragma unroll
    for (int k = 0; k <= c; ++k)
      if (k >= first)
        block_product(y0, y1, x[2 * k], x[2 * k + 1], at + c * kBlock * kRow + k * kBlock, kRow,
                      lane);
#pragma unroll
    for (int e = 0; e < 4; ++e) x[2 * c][e] = y0[e], x[2 * c + 1][e] = y1[e];
  }
}
/// x += a B^T, B row-major at `b`; columns of a before block `first` are zero.
__device__ inline void add_product(double (&x)[8][4], const double (&a)[8][4], int b, int first,
                                   int lane) {
#pragma unroll
  for (int k = 0; k < kSteps; ++k)
    if (k >= first)
#pragma unroll
      for (int c = 0; c < kSteps; ++c)
        block_product(x[2 * c], x[2 * c + 1], a[2 * k], a[2 * k + 1],
                      b + c * kBlock * kRow + k * kBlock, kRow, lane);
}
/// x := the numbers at `at`, zeros where it has none.
__device__ inline void load_rows(const Rows& rows, double (&x)[1][8][4], const Place& at, int row) {
  if (at.offset < kW || at.offset + kW - 1 > at.limit)
    rows.each<1>(at, row, [&](int, int n, int e, bool has, const double* from) {
      x[0][n][e] = has ? *from : 0.0;
    });
  else
    rows.each<1>(at, row, [&](int, int n, int e, bool, const double* from) { x[0][n][e] = *from; });
}
/// A warp says so.
__device__ inline void say(int what, int lane) {
  __syncwarp();
  if (lane == 0) arrive(&full[what]);
}
/// Until so was said of tile column j.
__device__ inline void hear(int what, Index j) { wait_for(&full[what], unsigned(j % 2)); }
/// Where a chain keeps its inverse.
struct KeepNear {
  int at, lane;
  __device__ void block(const double (&u0)[4], const double (&u1)[4], const double (&root)[4],
                        int k, int column) const {
    keep_inverse(at, u0, u1, root, k, column, lane);
  }
  __device__ void panel(int k) const { say(panel_there + k, lane); }
};
/// The last tile row whose diagonal block is ours, if only to take what comes before it.
__device__ inline Index last_row(const Part& p) { return p.window > 0 ? p.tiles : p.tiles - 1; }

/// Four warps: the diagonal blocks.
__device__ inline void narrow_chain(const Rows& rows, const Part& p) {
  const int warp = rows.warp, lane = rows.lane;
  const Index last = last_row(p);
#pragma unroll 1
  for (Index j = 0; j <= last; ++j) {
    double d[1][8][4];
    const Place at = place(rows.l, p, pair, j, j);
    load_rows(rows, d, at, warp * kBlock);
    if (j > 0) {
      meet(kBesideStored, 256);
      if (j > 1 && rows.l.reach_tiles == 2) add_sums(d[0], warp, lane);
      if (j < last) barrier_arrive(kSumsRead, 256);
      if (warp == 0)
        rows.first_product(d[0]);
      else
        rows.beside_product(d[0]);
    }
    if (j == p.tiles) return rows.write<1>(d, at, warp * kBlock);
    if (j > 0) hear(column_written, j - 1);
    rows.factor_block(p, j, d[0], KeepNear{inverse_at(j), lane});
    say(column_there, lane);
    if (j < last) barrier_arrive(kInverseThere, 256);
  }
}

/// Four warps: the tiles below the diagonal blocks, and the sums for the next one.
__device__ inline void narrow_tiles(const Rows& rows, const Part& p) {
  const Launch& l = rows.l;
  const int warp = rows.warp, lane = rows.lane, row = warp * kBlock;
  const Index last = last_row(p), end = p.tiles + p.window;
  const bool two = l.reach_tiles == 2;
  double x[1][8][4], y[1][8][4];
  const auto load = [&](double(&to)[1][8][4], Index i, Index j) {
    if (i < end) load_rows(rows, to, place(l, p, pair, i, j), row);
  };
  if (last == 0) return;
  load(x, 1, 0);
  if (two) load(y, 2, 0);
#pragma unroll 1
  for (Index i = 1;; ++i) {  // what is loaded is wanted half a column later
    const int inverse = inverse_at(i - 1);
    const bool below = two && i + 1 < end;
    meet(kInverseThere, 256);
    times_kept_inverse(x[0], inverse, 0, lane);
    if (i > 1) hear(tiles_written, i - 2);
    rows.keep_rows(x[0], kTileX);
    __syncwarp();
    barrier_arrive(kBesideStored, 256);
    if (i < last) load(x, i + 1, i);
    if (below) {
      times_kept_inverse(y[0], inverse, warp, lane);
      rows.keep_rows(y[0], kTileY);
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) y[0][n][e] = -y[0][n][e];
    }
    say(tiles_there, lane);
    if (i == last) return;
    meet(kYThere, 128);
    meet(kSumsRead, 256);
    if (below) {
      keep_sums(y[0], warp, lane);
      add_product(x[0], y[0], kTileX, warp, lane);
    }
    if (two) load(y, i + 2, i);
  }
}

/// This warp's 16 rows of a tile in shared memory, to their place.
__device__ inline void write_tile(const Rows& rows, int tile, const Place& at) {
  const int r = rows.warp * kBlock + rows.lane / 4;
#pragma unroll 1
  for (int k = 0; k < kSteps; ++k) {
    double n[2][4];
    load_block(n[0], n[1], tile + rows.warp * kBlock * kRow + k * kBlock, kRow, rows.lane);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const int down = r + e % 4 / 2 * 8, c = k * kBlock + e / 4 * 8 + rows.lane % 4 * 2 + e % 2;
      if (at.has(down, c)) at.data[down + c * at.ld] = n[e / 4][e % 4];
    }
  }
}
/// Four warps: X, Y and the diagonal blocks' factors to their places.
__device__ inline void narrow_factor(const Rows& rows, const Part& p) {
  const Launch& l = rows.l;
  const int warp = rows.warp, lane = rows.lane;
  const Index last = last_row(p), end = p.tiles + p.window;
#pragma unroll 1
  for (Index j = 0; j <= last; ++j) {
    const Place at = place(l, p, pair, j, j);
    const bool below = l.reach_tiles == 2 && j + 1 < end;
    if (j > 0) {
      hear(tiles_there, j - 1);
      write_tile(rows, kTileX, place(l, p, pair, j, j - 1));
      if (below) write_tile(rows, kTileY, place(l, p, pair, j + 1, j - 1));
      say(tiles_written, lane);
    }
    if (j < p.tiles) {
#pragma unroll 1
      for (int k = 0; k + 1 < kSteps; ++k) {
        hear(panel_there + k, j);
        if (k <= warp) rows.write_factor_block(at, k);
      }
      hear(column_there, j);
      if (warp == 0) Rows{l, lane, kSteps - 1}.write_factor_block(at, kSteps - 1);
      say(column_written, lane);
    }
    __syncwarp();
    // The inverse of this column, X and Y of the one before: flags d of column j - d or j - 1.
    const bool there = lane == 0 ? j < p.tiles : j > 0 && (lane == 1 || (lane == 2 && below));
    if (there) add_release(p.flags + (lane == 0 ? j : j - 1) * l.stride + lane, 1);
  }
}

/// x -= A B^T, with -A in `a` after turn_pairs() and B, whose entries (r, c) count if r - c <= limit,
/// column by column at `b`. `corner`: nothing of B is below its diagonal.
template <bool corner>
__device__ inline void subtract_tile(double (&x)[8][4], const double (&a)[8][4], int b, int limit,
                                     int lane) {
  const int t = lane % 4, even = 2 * t + t / 2, odd = 2 * t + 1 - t / 2;
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    const double(&a0)[4] = a[2 * k], (&a1)[4] = a[2 * k + 1];
    const double left[8] = {a0[0], a0[2], a0[1], a0[3], a1[0], a1[2], a1[1], a1[3]};
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      if (corner && n > 2 * k + 1) continue;
      double right[4];
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const int c = k * kBlock + q / 2 * 8 + (q % 2 == 0 ? even : odd), r = 8 * n + lane / 4;
        right[q] = r - c > limit ? 0.0 : shared_numbers<double>()[b + c * kLD + r];
      }
      dmma(x[n], left, right);
    }
  }
}
/// x, after turn_pairs(), := x times the transposed inverse, which lies column by column at `b`.
__device__ inline void times_tile_inverse(double (&x)[8][4], int b, int lane) {
  const int t = lane % 4, even = (2 * t + t / 2) * kLD, odd = (2 * t + 1 - t / 2) * kLD;
#pragma unroll
  for (int c = kSteps - 1; c >= 0; --c) {
    double y[2][4] = {};
#pragma unroll
    for (int k = 0; k <= c; ++k) {
      const double(&a0)[4] = x[2 * k], (&a1)[4] = x[2 * k + 1];
      const double left[8] = {a0[0], a0[2], a0[1], a0[3], a1[0], a1[2], a1[1], a1[3]};
      const double* const s =
          shared_numbers<double>() + b + k * kBlock * kLD + c * kBlock + lane / 4;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const double right[4] = {s[even + 8 * n], s[odd + 8 * n], s[even + 8 * kLD + 8 * n],
                                 s[odd + 8 * kLD + 8 * n]};
        dmma(y[n], left, right);
      }
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) x[2 * c + e / 4][e % 4] = y[e / 4][e % 4];
  }
}

/// What three warps bring for tile column k: L(k, k-2), L(k, k-1), the inverse.
enum : int { far_tile, near_tile, inverse_tile };
__device__ inline int tile_slot(int kind, Index number) { return 2 * kind + int(number % 2); }

/// A warp: its 16 rows of the arrow.
__device__ inline void narrow_arrow(const Rows& rows, const Part& p) {
  const int lane = rows.lane, row = rows.warp % 4 * kBlock;
  const Index i = rows.warp / 4, reach = rows.l.reach;
  double x[1][8][4], near[1][8][4], far[1][8][4];  // the last two tiles, negated and turned
  Rows::clear<1>(near);
  Rows::clear<1>(far);
#pragma unroll 1
  for (Index k = 0; k < p.end; ++k) {
    const Place at = place(rows.l, p, spike, i, k);
    Rows::clear<1>(x);
    if (k < rows.l.reach_tiles) load_rows(rows, x, at, row);
    const auto tile = [&](int kind, Index number, auto&& body) {
      const int slot = tile_slot(kind, number);
      wait_for(&full[slot], number / 2 % 2);
      body(slot * kTileNumbers);
      give_back(&empty[slot], lane);
    };
    if (k >= 2 && rows.l.reach_tiles == 2)
      tile(far_tile, k - 2,
           [&](int b) { subtract_tile<true>(x[0], far[0], b, int(reach) - 2 * kW, lane); });
    if (k >= 1)
      tile(near_tile, k - 1,
           [&](int b) { subtract_tile<false>(x[0], near[0], b, int(reach) - kW, lane); });
    rows.turn_pairs<1>(x);
    tile(inverse_tile, k, [&](int b) { times_tile_inverse(x[0], b, lane); });
    rows.write<1>(x, at, row);
    rows.turn_pairs<1>(x);
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) far[0][n][e] = near[0][n][e], near[0][n][e] = -x[0][n][e];
  }
}
/// A warp: tiles of one kind.
__device__ inline void narrow_copies(const Launch& l, const Part& p, int kind, int lane) {
  const Index before = kind == inverse_tile ? 0 : kind == near_tile ? 1 : 2;
  if (before > l.reach_tiles) return;
#pragma unroll 1
  for (Index k = before, number = 0; k < p.end; ++k, ++number) {
    const int slot = tile_slot(kind, number);
    const unsigned* const flag = p.flags + (k - before) * l.stride + before;
    const double* const from =
        kind == inverse_tile ? p.inverse_of(k) : p.tile(l, k - before) + before * kW;
    const Index ld = kind == inverse_tile ? Index(kW) : l.reach;
    double* const to = shared_numbers<double>() + slot * kTileNumbers;
    wait_for(&empty[slot], (number / 2 + 1) % 2);
    while (acquire_flag(flag) < 4) __nanosleep(20);
    __syncwarp();
#pragma unroll 16
    for (int c = 0; c < kW; ++c) copy16(to + c * kLD + 2 * lane, from + c * ld + 2 * lane, 16);
    arrive_after_copies(&full[slot]);
  }
}

/// Parts of at most kNarrowTiles tiles: two CTAs each, chains first.
__global__ void __launch_bounds__(kNarrowThreads, 1)
    eliminate_narrow(const __grid_constant__ Launch launch) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool chain = int(blockIdx.x) < launch.count;
  const Part& p = launch.parts[int(blockIdx.x) % launch.count];
  if (!chain && p.arrow == 0) return;
  if (chain && threadIdx.x == 0)
    for (int what = panel_there; what <= column_written; ++what)
      make_barrier(&full[what], what < tiles_there ? 3 : 4);
  if (!chain && threadIdx.x == 0)
    for (int s = 0; s < 6; ++s) {
      make_barrier(&full[s], 32);
      make_barrier(&empty[s], unsigned(4 * p.arrow));
    }
  __syncthreads();
  if (warp >= 8) {
    fewer_registers<72>();
    if (chain)
      narrow_factor(Rows{launch, lane, warp - 8}, p);
    else if (warp < 11)
      narrow_copies(launch, p, warp - 8, lane);
    return;
  }
  more_registers<216>();
  if (!chain) {
    if (warp < 4 * p.arrow) narrow_arrow(Rows{launch, lane, warp}, p);
  } else if (warp < 4) {
    narrow_chain(Rows{launch, lane, warp}, p);
  } else {
    narrow_tiles(Rows{launch, lane, 7 - warp}, p);  // the fewest blocks beside the leader
  }
}

}  // namespace terrace::band::parts
