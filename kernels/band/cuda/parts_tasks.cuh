// What the kernel of kernels/band/cuda/parts.cu is made of, 2: its tasks and their order.
#pragma once
#include <algorithm>

#include "kernels/band/cuda/parts.cuh"

namespace terrace::band::parts {

/// A block of the result, 128 x 64 NC at most.
struct Task {
  Index k0, k1;       // tile columns of the products
  Index row, column;  // first tile row (of A) and tile column (row of B)
  int part;
  int kind;           // Kind
  int rows, columns;  // tiles of the block that exist
  int share;          // of an arrow block
  Index block;        // its number
};
__shared__ Task tasks[2];
__shared__ Word full[kMostStages], empty[kMostStages], task_full[2], task_empty[2];

enum Kind : int { stop, diagonal, pair, spike, window, arrow, coupling };

/// The number-th diagonal task of a part.
__device__ inline bool decode_diagonal(const Launch& launch, int part, Index number, Task& t) {
  const Part& p = launch.parts[part];
  t.part = part;
  t.kind = diagonal;
  t.row = t.column = p.from + number;
  t.rows = t.columns = 1;
  t.k0 = max(Index(0), t.row - launch.reach_tiles);
  t.k1 = t.row > p.from ? t.row - 1 : t.row;
  return t.row < p.end || (t.row == p.end && t.row > p.from && t.row < p.tiles + p.window);
}

/// Share and block of a part's arrow block number `at`. False: no such block.
template <int NC>
__device__ inline bool decode_arrow(const Launch& launch, Index at, Task& t) {
  const Part& p = launch.parts[t.part];
  const Index arrows = launch.arrow_groups * launch.arrow_pairs;
  t.kind = arrow;
  t.share = int(at / arrows);
  at %= arrows;
  t.block = t.part * arrows + at;
  t.column = at / launch.arrow_pairs * NC;
  t.row = t.column + at % launch.arrow_pairs * 2;
  t.k0 = p.tiles * t.share / launch.shares;
  t.k1 = p.tiles * (t.share + 1) / launch.shares;
  t.rows = int(min(Index(2), p.arrow - t.row));
  t.columns = int(min(Index(NC), p.arrow - t.column));
  return p.complete && t.rows > 0 && t.columns > 0;
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
__device__ inline bool decode(const Launch& launch, Index id, Task& t) {
  const int m = launch.reach_tiles;
  t.rows = t.columns = 0;
  const Index arrows = launch.arrow_groups * launch.arrow_pairs;
  if (id < launch.early) {
    t.part = int(id / arrows);
    return decode_arrow<NC>(launch, id % arrows, t);
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
      const Index row = first + 2 - launch.alone + Index(launch.band_pairs - 1 - at) * launch.high;
      t.row = max(first + 2, row);
      t.rows = int(min(row + launch.high, min(p.tiles + p.window, first + t.columns + m)) - t.row);
      t.k0 = max(Index(0), t.row - m);
      return t.rows > 0;
    }
    t.kind = spike;
    t.row = Index(at - launch.band_pairs) * launch.high;
    t.rows = int(min(Index(launch.high), p.arrow - t.row));
    t.k0 = max(Index(0), first - m);
    return t.rows > 0;
  }
  id -= launch.column_tasks;
  const Index windows = launch.window_groups * launch.window_pairs;
  const Index couplings = launch.arrow_groups * launch.window_pairs;
  const Index late = launch.early > 0 ? 0 : arrows * launch.shares;
  const Index all = windows + couplings + late;
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
    return decode_arrow<NC>(launch, id - windows - couplings, t);
  }
  t.rows = int(min(Index(2), p.tiles + p.window - t.row));
  t.k0 = max(Index(0), t.row - m);
  return t.rows > 0 && t.columns > 0;
}

constexpr int kOther = -1, kLeaves = -2;
/// One thread: the part whose diagonal blocks this CTA does, kOther, or kLeaves. A few CTAs do them
/// all, so that their code stays in the instruction cache. Where they are `apart`, each is the first
/// one on its multiprocessor and the second one leaves: beside one that multiplies, the chain takes
/// half as long again. Whatever comes third has work to do, so that no launch is without.
__device__ inline int role(const Launch& l) {
  const int diagonals = l.diagonals * l.count;
  if (!l.apart) return int(blockIdx.x) < diagonals ? int(blockIdx.x) % l.count : kOther;
  constexpr unsigned multiplies = 1, chains = 2;
  unsigned here;
  asm volatile("mov.u32 %0, %smid;" : "=r"(here));
  unsigned* const came = l.blocks + 2 + here % kMultiprocessors * 2;
  const unsigned turn = atomicAdd(came, 1u);
  if (turn == 0) {
    const int number = int(atomicAdd(l.blocks, 1u));
    release_flag(came + 1, number < diagonals ? chains : multiplies);
    return number < diagonals ? number % l.count : kOther;
  }
  if (turn > 1) return kOther;
  unsigned first = 0;
  while (first == 0) first = acquire_flag(came + 1);
  return first == chains ? kLeaves : kOther;
}

/// One warp: the next task of this CTA.
template <int NC>
__device__ inline Task next_task(const Launch& l, int part, int lane) {
  Task t;
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

/// Numbers and order of the tasks for the parts of `launch`, `resident` CTAs and `diagonals` of
/// them a part.
template <int NC>
void lay_out(Launch& launch, int resident, Index diagonals) {
  Index groups = 0, window = 0, arrow = 0;
  for (int p = 0; p < launch.count; ++p) {
    const Part& part = launch.parts[p];
    groups = std::max(groups, ceil_div(part.end - part.from, NC));
    window = std::max(window, part.window);
    arrow = std::max(arrow, part.arrow);
  }
  // One tile row each where the chain binds: 10 to 15 % (H200). In pairs a tile row that enters the
  // band alone, without a product before it, costs the chain 4 us a tile column, unless NC = 2.
  const Index tiles = launch.reach_tiles;
  launch.high = NC == 1 && (tiles <= 3 || launch.apart) ? 1 : 2;
  launch.alone = NC == 1 && launch.high == 2 && tiles % 2 == 0 ? 1 : 0;
  launch.band_pairs = int(ceil_div(tiles + NC - 2 + launch.alone, launch.high));
  launch.arrow_pairs = ceil_div(arrow, 2);
  launch.arrow_groups = ceil_div(arrow, NC);
  launch.window_pairs = ceil_div(window, 2);
  launch.window_groups = ceil_div(window, NC);
  launch.per_group = launch.band_pairs + int(ceil_div(arrow, launch.high));
  // No more than half of the multiprocessors; two CTAs go to each where they are `apart`.
  const int most = resident / ((launch.apart ? 4 : 2) * launch.count);
  launch.diagonals = int(std::min<Index>(diagonals, std::max(1, most)));
  // A pair of tile rows has two tiles less to sum than the one above it: 8 us of a step that takes
  // the chain 10 to 20 us a tile column, or the others M^2 us / their number.
  const double workers =
      double(resident) / launch.count - launch.diagonals * (launch.apart ? 2 : 1);
  launch.slope = int(65536 / 2 * launch.high *
                     std::min(NC == 1 ? 0.4 : 0.3, 8 * workers / double(tiles * tiles)));
  launch.most_ahead = launch.band_pairs > 0 ? launch.ahead(launch.band_pairs - 1) : 0;
  launch.column_tasks =
      launch.rest ? 0 : (groups + launch.most_ahead) * launch.count * launch.per_group;
  // Arrow blocks wait for the whole part: beside it, if they leave most CTAs to it.
  const Index arrows = launch.arrow_groups * launch.arrow_pairs * launch.count;
  const bool beside = 3 * (arrows + launch.diagonals * launch.count) <= 2 * resident;
  launch.early = beside && !launch.rest ? arrows : 0;
  launch.shares = 1;
  if (launch.rest) {
    launch.diagonals = 0;
    launch.shares = int(std::clamp<Index>(4 * resident / std::max(Index(1), arrows), 1, 16));
  }
}
}  // namespace terrace::band::parts
