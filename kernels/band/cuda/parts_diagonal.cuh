// What the kernel of kernels/band/cuda/parts.cu is made of, 5: the diagonal tasks.
#pragma once
#include "kernels/band/cuda/chain.cuh"
#include "kernels/band/cuda/parts_consumer.cuh"

namespace terrace::band::parts {

template <int NC, int S>
__device__ __noinline__ void Consumer<NC, S>::diagonal_task(const Task& t) {
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
  // Tiles (j, k) partly outside the band.
  const Index inside = j - l.reach_tiles + (l.reach + 1 < Index(l.reach_tiles) * kW ? 2 : 1);
  const Index cut = min(t.k1, max(t.k0, inside));
  diagonal_products<true>(x, d, j, below, block, t.k0, cut);
  diagonal_products<false>(x, d, j, below, block, cut, t.k1);
  turn_pairs<1>(x);
  for (int chunk = 0; chunk < S; ++chunk) arrived(turn + chunk);
  if (warp < 4) finish_diagonal(p, j, below, block, x, d, at_d);
  for (int chunk = 0; chunk < S; ++chunk) release(turn + chunk);
  turn += S;
}

/// This warp's rows of d -= X X^T, up to the diagonal; X row-major at kTileX.
template <int NC, int S>
__device__ void Consumer<NC, S>::beside_product(double (&d)[8][4]) const {
#pragma unroll 1
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    const int at = kTileX + chunk * kBlock;
    double a0[4], a1[4];
    load_block(a0, a1, at + warp * kBlock * kRow, kRow, lane);
#pragma unroll
    for (int e = 0; e < 4; ++e) a0[e] = -a0[e], a1[e] = -a1[e];
#pragma unroll
    for (int c = 0; c < kSteps; ++c)
      if (c <= warp)
        block_product(d[2 * c], d[2 * c + 1], a0, a1, at + c * kBlock * kRow, kRow, lane);
  }
}
/// The first block of d -= X X^T.
template <int NC, int S>
__device__ void Consumer<NC, S>::first_product(double (&d)[8][4]) const {
  double y0[4] = {}, y1[4] = {};  // a second chain
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    const int at = kTileX + chunk * kBlock;
    double a0[4], a1[4];
    load_block(a0, a1, at, kRow, lane);
#pragma unroll
    for (int e = 0; e < 4; ++e) a0[e] = -a0[e], a1[e] = -a1[e];
    if (chunk % 2 == 0)
      block_product(d[0], d[1], a0, a1, at, kRow, lane);
    else
      block_product(y0, y1, a0, a1, at, kRow, lane);
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) d[0][e] += y0[e], d[1][e] += y1[e];
}
/// This warp's rows to shared memory, row-major.
template <int NC, int S>
__device__ void Consumer<NC, S>::keep_rows(const double (&x)[8][4], int at) const {
#pragma unroll
  for (int c = 0; c < kSteps; ++c)
    store_block(x[2 * c], x[2 * c + 1], at + warp * kBlock * kRow + c * kBlock, kRow, lane);
}
/// x := the finished tile (j, j-1), which the producers write; d takes its product, is factored and
/// inverted. Four warps.
template <int NC, int S>
__device__ void Consumer<NC, S>::finish_diagonal(const Part& p, Index j, bool below, bool block,
                                                 double (&x)[1][8][4], double (&d)[1][8][4],
                                                 const Place& at_d) {
  const int row = warp * kBlock;
  const bool factors = j < p.end;
  if (below) {
    times_inverse<1>(x, 0);
    meet(2, 128);  // the stages are free
    keep_rows(x[0], kTileX);
    __syncwarp();
    barrier_arrive(kBesideThere, 256);
    if (warp == 0) {
      barrier_arrive(kXThere, 128);
      if (block) first_product(d[0]);
    } else {
      meet(kXThere, 128);
      if (block) beside_product(d[0]);
    }
  } else {
    meet(2, 128);
  }
  if (!factors) {
    if (block) write<1>(d, at_d, row);
    return;
  }
  factor_block(p, j, d[0], KeepNothing{});
  publish(p.flags + (j - p.from) * l.stride, 1);
  write_factor(at_d);
}
/// d is factored and inverted: U and the leader's blocks in shared memory, the inverse in its place,
/// and where `keep` wants it (follow_chain()).
template <int NC, int S>
template <class Keep>
__device__ void Consumer<NC, S>::factor_block(const Part& p, Index j, double (&d)[8][4],
                                              const Keep& keep) const {
  double* const inverse = p.inverse_of(j);
  if (warp == 0) {
    const int failed = lead_chain(d[0], d[1], lane);
    if (failed != 0 && lane == 0) atomicMin(p.failed, (unsigned long long)(j * kW + failed));
    double u0[4], u1[4], root[4];
    roots_of(root, 3, lane);
    load_v(u0, u1, 3, lane);
    keep.block(u0, u1, root, 3, 3);
    store_inverse(inverse, u0, u1, root, 3, 3, lane);
  } else {
    if (warp == 1) hand_first(d);  // before anything else
    follow_chain(d, warp, lane, inverse, keep);
  }
}
template <int NC, int S>
__device__ void Consumer<NC, S>::hand_first(const double (&d)[8][4]) const {
  const int at = kTileU + kBlock * kRow;
  store_block(d[0], d[1], at, kRow, lane);
  store_block(d[2], d[3], at + kBlock, kRow, lane);
  __syncwarp();
  barrier_arrive(kHanded, 64);
}
/// Block row `warp` of the factor; all of it is in shared memory.
template <int NC, int S>
__device__ void Consumer<NC, S>::write_factor(const Place& at) const {
#pragma unroll 1
  for (int k = 0; k <= warp; ++k) write_factor_block(at, k);
}
template <int NC, int S>
__device__ void Consumer<NC, S>::write_factor_block(const Place& at, int k) const {
  const double* const s = dynamic_shared();
  const int row = warp * kBlock;
  const double mine = rsqrt(s[kLead + k * kLeadSize + lane % kBlock * (kLeadLD + 1)]);
#pragma unroll
  for (int i = 0; i < kBlock / 2; ++i) {
    const int c = 2 * i + lane / kBlock, r = lane % kBlock;
    const double root = __shfl_sync(kAll, mine, c);
    const double value = k < warp ? s[kTileU + (row + r) * kRow + k * kBlock + c]
                                  : s[kLead + k * kLeadSize + c * kLeadLD + r];
    if (at.has(row + r, k * kBlock + c)) at.data[row + r + (k * kBlock + c) * at.ld] = value * root;
  }
}

}  // namespace terrace::band::parts
