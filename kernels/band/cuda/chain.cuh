// The chain of diagonal blocks: a 64 x 64 block, spread over four warps in registers, is factored
// and its factor inverted. Blocks of 16 x 16.
//
// A = M D M^T with M unit lower triangular; U = M D, V = M^-1. Block column k of U and of V^T comes
// out of the same two rules, whose rows are those of A and, from step k on, those of the identity:
//   panel     U_ik = A_ik V_kk^T        trailing  A_ij -= U_ik D_k^-1 U_jk^T  (j > k)
// Warp 0 leads: it factors the diagonal blocks, and takes the rules of row k + 1 as far as its own
// next block needs. Warp w > 0 keeps block row w of A in registers until step w - 2, and block row
// w - 1 of V^T from step w - 1 on.
#pragma once
#include "kernels/band/cuda/diagonal.cuh"

namespace terrace::band::parts {

constexpr int kBlock = 16, kSteps = kW / kBlock;
constexpr int kRow = kW + 8;  // of row-major numbers in shared memory
constexpr int kLeadLD = 40;   // of a leader's block: column j of U, then row j of V
constexpr int kLeadSize = kBlock * kLeadLD;
constexpr int kTurnLD = kBlock + 2;
// Where they lie in shared memory: the tile beside the block, U (and rows of A that are handed to
// the leader), the leader's blocks, a block that changes its layout, inverses of the pivots.
constexpr int kTileX = 0, kTileU = kW * kRow, kLead = 2 * kW * kRow;
constexpr int kTurn = kLead + kSteps * kLeadSize, kPivots = kTurn + kBlock * kTurnLD;
constexpr int kChainNumbers = kPivots + kW;
// Barriers: the leader's block k is there; block column k of U is; row k + 1 is handed over.
constexpr int kLeadThere = 3, kPanelThere = 7, kHanded = 10, kXThere = 13;
// The tile beside the block is in shared memory, for those who write it; they have written it.
constexpr int kBesideThere = 14, kBesideWritten = 15;

/// A block of 16 x 16 in the layout of results: [n][2 h + e] is row lane / 4 + 8 h, column
/// 8 n + lane % 4 * 2 + e. Row-major at `at` with ld numbers a row.
__device__ inline void load_block(double (&n0)[4], double (&n1)[4], int at, int ld, int lane) {
  const double* const m = shared_numbers<double>() + at + lane / 4 * ld + lane % 4 * 2;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const double2 a = *reinterpret_cast<const double2*>(m + 8 * h * ld);
    const double2 b = *reinterpret_cast<const double2*>(m + 8 * h * ld + 8);
    n0[2 * h] = a.x, n0[2 * h + 1] = a.y;
    n1[2 * h] = b.x, n1[2 * h + 1] = b.y;
  }
}
__device__ inline void store_block(const double (&n0)[4], const double (&n1)[4], int at, int ld,
                                   int lane) {
  double* const m = shared_numbers<double>() + at + lane / 4 * ld + lane % 4 * 2;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    *reinterpret_cast<double2*>(m + 8 * h * ld) = {n0[2 * h], n0[2 * h + 1]};
    *reinterpret_cast<double2*>(m + 8 * h * ld + 8) = {n1[2 * h], n1[2 * h + 1]};
  }
}
/// (c0, c1) += a B^T, blocks; a in the layout of results, which is that of left operands with the
/// 16 product indices in another order; B row-major in shared memory.
__device__ inline void block_product(double (&c0)[4], double (&c1)[4], const double (&a0)[4],
                                     const double (&a1)[4], int b, int ld, int lane) {
  const double left[8] = {a0[0], a0[2], a0[1], a0[3], a1[0], a1[2], a1[1], a1[3]};
  double n0[4], n1[4];
  load_block(n0, n1, b, ld, lane);
  const double right0[4] = {n0[0], n0[1], n1[0], n1[1]}, right1[4] = {n0[2], n0[3], n1[2], n1[3]};
  dmma(c0, left, right0);
  dmma(c1, left, right1);
}
/// The same with B in the layout of results.
__device__ inline void block_product(double (&c0)[4], double (&c1)[4], const double (&a0)[4],
                                     const double (&a1)[4], const double (&b0)[4],
                                     const double (&b1)[4]) {
  const double left[8] = {a0[0], a0[2], a0[1], a0[3], a1[0], a1[2], a1[1], a1[3]};
  const double right0[4] = {b0[0], b0[1], b1[0], b1[1]}, right1[4] = {b0[2], b0[3], b1[2], b1[3]};
  dmma(c0, left, right0);
  dmma(c1, left, right1);
}

__device__ inline double rough_reciprocal(double p) {  // 20 bits
  double r;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(p));
  return r;
}

/// One warp: lanes 0 .. 15 hold the rows of a 16 x 16 block, lanes 16 .. 31 those of the identity.
/// Column j of U and row j of V come to out[j * kLeadLD + lane], the pivots' inverses to over.
/// Returns 0 or the one-based number of the first pivot that is not usable(). A column costs the
/// latencies of a reciprocal and three multiply-adds: pivot = next - beside^2 r (1 + e + e^2).
__device__ inline int lead_block(double (&a)[kBlock], int out, int over, int lane) {
  double* const to = shared_numbers<double>() + out;
  double* const inverses = shared_numbers<double>() + over;
  double pivot = __shfl_sync(kAll, a[0], 0);
  double beside = __shfl_sync(kAll, a[0], 1), next = __shfl_sync(kAll, a[1], 1);
  int failed = 0;
#pragma unroll
  for (int j = 0; j < kBlock; ++j) {
    const double r = rough_reciprocal(pivot);
    to[j * kLeadLD + lane] = a[j];
    failed = failed == 0 && !usable(pivot) ? j + 1 : failed;
    __syncwarp();
    const double e = fma(-pivot, r, 1.0), first = beside * r, rough = a[j] * r;
    const double t = fma(e, e, e), near = fma(-first, beside, next), rest = first * beside;
    const double scaled = fma(rough, t, rough), inverse = fma(r, t, r);
    pivot = fma(-rest, t, near);
    if (j + 1 < kBlock) a[j + 1] = fma(-scaled, beside, a[j + 1]);
    if (j + 2 < kBlock) {
      beside = __shfl_sync(kAll, a[j + 1], j + 2);
      a[j + 2] = fma(-scaled, to[j * kLeadLD + j + 2], a[j + 2]);
      next = __shfl_sync(kAll, a[j + 2], j + 2);
    }
#pragma unroll
    for (int c = j + 3; c < kBlock; ++c) a[c] = fma(-scaled, to[j * kLeadLD + c], a[c]);
    if (lane == 0) inverses[j] = inverse;
  }
  return failed;
}

/// A block in the layout of results to one row a lane, and the identity.
__device__ inline void turn_block(double (&a)[kBlock], const double (&d0)[4], const double (&d1)[4],
                                  int lane) {
  store_block(d0, d1, kTurn, kTurnLD, lane);
  __syncwarp();
  const double* const row = shared_numbers<double>() + kTurn + lane % kBlock * kTurnLD;
#pragma unroll
  for (int c = 0; c < kBlock; c += 2) {
    const double2 both = *reinterpret_cast<const double2*>(row + c);
    a[c] = lane < kBlock ? both.x : double(c == lane - kBlock);
    a[c + 1] = lane < kBlock ? both.y : double(c + 1 == lane - kBlock);
  }
  __syncwarp();
}

/// Warp 0: (d0, d1) is the first diagonal block.
__device__ inline int lead_chain(double (&d0)[4], double (&d1)[4], int lane) {
  double a[kBlock];
  turn_block(a, d0, d1, lane);
  int failed = 0;
#pragma unroll 1
  for (int k = 0;; ++k) {
    const int out = kLead + k * kLeadSize;
    const int here = lead_block(a, out, kPivots + k * kBlock, lane);
    if (failed == 0 && here != 0) failed = k * kBlock + here;
    __syncwarp();
    barrier_arrive(kLeadThere + k, 128);
    if (k == kSteps - 1) return failed;
    meet(kHanded + k, 64);
    const int row = kTileU + (k + 1) * kBlock * kRow + k * kBlock;
    double x0[4], x1[4], u0[4] = {}, u1[4] = {};
    load_block(x0, x1, row, kRow, lane);
    load_block(d0, d1, row + kBlock, kRow, lane);
    block_product(u0, u1, x0, x1, out + kBlock, kLeadLD, lane);
    const double* const over = shared_numbers<double>() + kPivots + k * kBlock + lane % 4 * 2;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      x0[e] = u0[e] * -over[e % 2];
      x1[e] = u1[e] * -over[8 + e % 2];
    }
    block_product(d0, d1, x0, x1, u0, u1);
    store_block(u0, u1, row, kRow, lane);
    __syncwarp();
    barrier_arrive(kPanelThere + k, 128);
    turn_block(a, d0, d1, lane);
  }
}

/// Roots of the inverses of the pivots of block k that the columns of a lane's results have.
__device__ inline void roots_of(double (&root)[4], int k, int lane) {
  const double mine =
      rsqrt(shared_numbers<double>()[kLead + k * kLeadSize + lane % kBlock * (kLeadLD + 1)]);
#pragma unroll
  for (int i = 0; i < 4; ++i) root[i] = __shfl_sync(kAll, mine, i / 2 * 8 + lane % 4 * 2 + i % 2);
}

/// V_kk^T.
__device__ inline void load_v(double (&u0)[4], double (&u1)[4], int k, int lane) {
  const double* const v =
      shared_numbers<double>() + kLead + k * kLeadSize + kBlock + lane / 4 + lane % 4 * 2 * kLeadLD;
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      u0[2 * h + e] = v[8 * h + e * kLeadLD];
      u1[2 * h + e] = v[8 * h + (8 + e) * kLeadLD];
    }
}
/// Block (k, column) of the inverse, 64 x 64 column by column, from V^T.
__device__ inline void store_inverse(double* inverse, const double (&u0)[4], const double (&u1)[4],
                                     const double (&root)[4], int k, int column, int lane) {
  double* const to = inverse + (column * kBlock + lane / 4) * kW + k * kBlock + lane % 4 * 2;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    *reinterpret_cast<double2*>(to + 8 * h * kW) = {u0[2 * h] * root[0], u0[2 * h + 1] * root[1]};
    *reinterpret_cast<double2*>(to + 8 * h * kW + 8) = {u1[2 * h] * root[2],
                                                        u1[2 * h + 1] * root[3]};
  }
}

/// Of follow_chain(): nobody else wants the inverse or looks on.
struct KeepNothing {
  template <class... Block>
  __device__ void block(const Block&...) const {}
  __device__ void panel(int) const {}
};
/// Warp w = 1 .. 3: (d[2 j], d[2 j + 1]) is block (w, j). What store_inverse() gets goes to keep.block()
/// as well; keep.panel(k): block column k of U is there.
template <class Keep>
__device__ inline void follow_chain(double (&d)[8][4], int w, int lane, double* inverse,
                                    const Keep& keep) {
  const int row = kTileU + w * kBlock * kRow;
#pragma unroll 1
  for (int k = 0;; ++k) {
    const bool of_inverse = k >= w - 1;
    double u0[4], u1[4];
    meet(kLeadThere + k, 128);
    if (k == w - 1) {
      load_v(u0, u1, k, lane);
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) d[n][e] = 0.0;
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e) u0[e] = u1[e] = 0.0;
      block_product(u0, u1, d[0], d[1], kLead + k * kLeadSize + kBlock, kLeadLD, lane);
    }
    if (of_inverse) {
      double root[4];
      roots_of(root, k, lane);
      keep.block(u0, u1, root, k, w - 1);
      store_inverse(inverse, u0, u1, root, k, w - 1, lane);
    } else {
      store_block(u0, u1, row + k * kBlock, kRow, lane);
    }
    if (k == kSteps - 1) {
      return;
    }
    meet(kPanelThere + k, 128);
    keep.panel(k);
    const double* const over = shared_numbers<double>() + kPivots + k * kBlock + lane % 4 * 2;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      u0[e] *= -over[e % 2];
      u1[e] *= -over[8 + e % 2];
    }
#pragma unroll
    for (int j = 1; j < kSteps; ++j)
      if (k + j <= (of_inverse ? kSteps - 1 : w))
        block_product(d[2 * j], d[2 * j + 1], u0, u1, kTileU + (k + j) * kBlock * kRow + k * kBlock,
                      kRow, lane);
#pragma unroll
    for (int n = 0; n < 6; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) d[n][e] = d[n + 2][e];
    if (k == w - 2) {
      store_block(d[0], d[1], row + (w - 1) * kBlock, kRow, lane);
      store_block(d[2], d[3], row + w * kBlock, kRow, lane);
      __syncwarp();
      barrier_arrive(kHanded + w - 1, 64);
    }
    if (k == 2) {  // zeros above the diagonal
      const double none[4] = {};
#pragma unroll 1
      for (int i = 0; i < w; ++i) store_inverse(inverse, none, none, none, i, w, lane);
    }
  }
}

}  // namespace terrace::band::parts
