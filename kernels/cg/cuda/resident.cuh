// Conjugate gradients of a small dense system in one launch: the kernel of resident_cg.cu.
//
// The lower triangle is cut into pieces of 64 x 64, numbered down the columns of pieces; each block
// keeps an equal share of them: 3 in registers, 6 in shared memory, what is left comes from L2. An
// iteration has two hand-overs, both of numbers that say themselves that they are there (no
// barrier):
//   product   each piece: row sums (by shuffles) and column sums (registers, then the 8 warps)
//             -> parts of q
//   owners    block b adds the parts of its rows of q in fixed order -> q
//   vectors   every block does p.q, alpha, r, r.z, beta and p for all of n, from the same numbers
//             in the same order; x only for its own rows
// A part is written again only after its reader has sent q of this iteration. q has four places in
// turn: a block may still read q of the iteration before, and a place is cleared two iterations
// before its next use, when every block has sent what it made of its last content.
#pragma once
#include "kernels/base/cuda/runtime.cuh"
#include "kernels/cg/cuda/resident_exchange.cuh"
#include "kernels/cg/resident.hpp"

namespace terrace::cg::resident {

constexpr int side = 64, piece = side * side;
constexpr int strip = side / warps, tall = strip / 4;  // rows of a piece a warp, a lane
constexpr int in_registers = 3, in_shared = 6;
constexpr int most_side = 53;                                      // pieces: n <= 3392
constexpr int items = (most_side * side + threads - 1) / threads;  // numbers of a vector a thread
constexpr int most_rows = 32;                                      // rows of q that a block owns

struct Arguments {
  const double* a;
  const Index* start;
  int n, m;       ///< m = n / 64, rounded up
  int per;        ///< pieces a block
  int rows_each;  ///< rows of q a block owns
  const double* inverse_diagonal;
  double *p, *x, *r;
  double* rows;
  Index ring, stride, first;
  unsigned count;
  CgLimits limits;
  Word *row_parts, *column_parts, *q;
};

constexpr int pieces_of(int m) { return m * (m + 1) / 2; }
/// Number of the first piece of column j, which is the one at the diagonal.
__host__ __device__ constexpr int column_start(int m, int j) { return j * m - j * (j - 1) / 2; }
inline int shared_bytes(int m) { return 8 * (in_shared * piece + m * side + warps * side); }

/// The part of one piece that a lane holds: rows lane / 8 + 4 i of its warp's, columns
/// 2 (lane % 8) + 16 u and the next.
struct Share {
  double2 v[tall][4];
};
__device__ inline void load_share(Share& s, const double* from) {
#pragma unroll
  for (int i = 0; i < tall; ++i)
#pragma unroll
    for (int u = 0; u < 4; ++u)
      s.v[i][u] = *reinterpret_cast<const double2*>(from + 4 * i * side + 16 * u);
}

/// A thread's block: its vectors and pieces in shared memory, its share of the matrix and its rows.
struct Block {
  const Arguments& w;
  double *const pieces, *const p, *const meeting;  // meeting: warps x side
  const int tid = int(threadIdx.x), lane = tid % 32, warp = tid / 32, block = int(blockIdx.x);
  const int m = w.m, padded = m * side, all = m * (m + 1) / 2;
  const int begin = min(block * w.per, all), mine = min(begin + w.per, all) - begin;  // pieces
  const int inside = (warp * strip + lane / 8) * side + 2 * (lane % 8);
  const int own = block * w.rows_each + lane;  // row of q and x, in warp 0
  const bool owns = lane < w.rows_each && own < padded;
  int first_row = 0, first_column = 0;

  __device__ __forceinline__ Block(const Arguments& arguments, double* shared)
      : w(arguments), pieces(shared), p(pieces + in_shared * piece), meeting(p + w.m * side) {
    while (column_start(m, first_column + 1) <= begin && first_column + 1 < m) ++first_column;
    first_row = first_column + begin - column_start(m, first_column);
  }
  __device__ __forceinline__ const double* place(int row, int column) const {
    return w.a + (w.start[row / 4] + column) * triangle::tile + row % 4 * piece;
  }
};

/// The first pieces of the block's share to registers, the next to shared memory.
__device__ __forceinline__ void load_pieces(const Block& b, Share (&kept)[in_registers]) {
  int row = b.first_row, column = b.first_column;
  const auto next_piece = [&] {
    if (++row == b.m) row = ++column;
  };
#pragma unroll
  for (int s = 0; s < in_registers; ++s)
    if (s < b.mine) {
      load_share(kept[s], b.place(row, column) + b.inside);
      next_piece();
    }
  for (int s = in_registers; s < min(b.mine, in_registers + in_shared); ++s) {
    const double2* from = reinterpret_cast<const double2*>(b.place(row, column));
    double2* to = reinterpret_cast<double2*>(b.pieces + (s - in_registers) * piece);
    for (int e = b.tid; e < piece / 2; e += threads) to[e] = __ldcs(from + e);
    next_piece();
  }
}

/// Product of the block's pieces: where it stands, and sums of the column there.
struct Product {
  const Block& b;
  const unsigned tag;
  int row = b.first_row, column = b.first_column;
  int segment = b.begin;  // first piece of this block in the column
  double2 sums[4] = {}, across[4];

  __device__ __forceinline__ void open_column() {
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      across[u] =
          *reinterpret_cast<const double2*>(b.p + column * side + 2 * (b.lane % 8) + 16 * u);
      sums[u] = make_double2(0, 0);
    }
  }
  __device__ __forceinline__ void close_column() {
    double2 half[2];
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      const bool upper = (b.lane & 16) != 0;
      const double2 give = upper ? sums[u] : sums[u + 2];
      half[u] = upper ? sums[u + 2] : sums[u];
      half[u].x += __shfl_xor_sync(0xffffffffu, give.x, 16);
      half[u].y += __shfl_xor_sync(0xffffffffu, give.y, 16);
    }
    const bool upper = (b.lane & 8) != 0;
    const double2 give = upper ? half[0] : half[1];
    double2 keep = upper ? half[1] : half[0];
    keep.x += __shfl_xor_sync(0xffffffffu, give.x, 8);
    keep.y += __shfl_xor_sync(0xffffffffu, give.y, 8);
    const int u = (b.lane & 16) / 8 + (b.lane & 8) / 8;
    *reinterpret_cast<double2*>(b.meeting + b.warp * side + 2 * (b.lane % 8) + 16 * u) = keep;
    __syncthreads();
    if (b.tid < side) {
      const double sum = sum_of_warps<side>(b.meeting + b.tid);
      device::send_number(b.w.column_parts + (Index(segment) * side + b.tid) * 2, sum, tag);
    }
    __syncthreads();
  }
  /// One piece: onto the column sums, and the lane's parts of its rows' sums.
  __device__ __forceinline__ void multiply(const Share& s, double (&row_sums)[tall], int id) {
#pragma unroll
    for (int i = 0; i < tall; ++i) {
      const double down = b.p[row * side + b.warp * strip + b.lane / 8 + 4 * i];
      double even = 0, odd = 0;
#pragma unroll
      for (int u = 0; u < 4; ++u) {
        even = fma(s.v[i][u].x, across[u].x, even);
        odd = fma(s.v[i][u].y, across[u].y, odd);
        sums[u].x = fma(s.v[i][u].x, down, sums[u].x);
        sums[u].y = fma(s.v[i][u].y, down, sums[u].y);
      }
      row_sums[i] = even + odd;
    }
    if (++row == b.m) {
      close_column();
      row = ++column;
      segment = id + 1;
      if (column < b.m) open_column();
    }
  }
  /// Row sums of four pieces over the 8 lanes of a row: a lane keeps what its bits name.
  __device__ __forceinline__ void send_rows(const double (&v)[4][tall], int from) const {
    const int lane = b.lane;
    const bool bit2 = (lane & 4) != 0, bit1 = (lane & 2) != 0, bit0 = (lane & 1) != 0;
    double pair[2][tall], one[tall];
#pragma unroll
    for (int k = 0; k < 2; ++k)
#pragma unroll
      for (int i = 0; i < tall; ++i)
        pair[k][i] = (bit2 ? v[2 + k][i] : v[k][i]) +
                     __shfl_xor_sync(0xffffffffu, bit2 ? v[k][i] : v[2 + k][i], 4);
#pragma unroll
    for (int i = 0; i < tall; ++i)
      one[i] = (bit1 ? pair[1][i] : pair[0][i]) +
               __shfl_xor_sync(0xffffffffu, bit1 ? pair[0][i] : pair[1][i], 2);
    const double sum = (bit0 ? one[tall - 1] : one[0]) +
                       __shfl_xor_sync(0xffffffffu, bit0 ? one[0] : one[tall - 1], 1);
    const int s = from + (lane & 4) / 2 + (lane & 2) / 2;
    if ((tall == 2 || !bit0) && s < b.mine)
      device::send_number(
          b.w.row_parts +
              (Index(b.begin + s) * side + b.warp * strip + lane / 8 + 4 * (lane & 1)) * 2,
          sum, tag);
  }
  /// All pieces of the block, four at a time.
  __device__ __forceinline__ void run(const Share (&kept)[in_registers]) {
    if (b.mine <= 0) return;
    open_column();
    double v[4][tall] = {};
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      if (s >= b.mine) continue;
      if (s < in_registers) {
        multiply(kept[s], v[s], b.begin + s);
      } else {
        Share share;
        load_share(share, b.pieces + (s - in_registers) * piece + b.inside);
        multiply(share, v[s], b.begin + s);
      }
    }
    send_rows(v, 0);
    for (int from = 4; from < b.mine; from += 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int s = from + i;
        if (s >= b.mine) continue;
        Share share;
        if (s < in_registers + in_shared)
          load_share(share, b.pieces + (s - in_registers) * piece + b.inside);
        else
          load_share(share, b.place(row, column) + b.inside);
        multiply(share, v[i], b.begin + s);
      }
      send_rows(v, from);
    }
    if (segment < b.begin + b.mine) close_column();
  }
};

/// Owners: a warp takes every 8th part of a row, row sums from the left, then column sums down.
__device__ __forceinline__ void send_rows_of_q(const Block& b, unsigned tag, Word* q_now) {
  const Arguments& w = b.w;
  double* const slices = b.meeting;
  double sum = 0;
  if (b.owns) {
    const int above = b.own / side, within = b.own % side;
    const int top = column_start(b.m, above);
    const int first_part = top / w.per, last_part = (top + b.m - 1 - above) / w.per;
    const int parts = above + 1 + last_part - first_part + 1;
    constexpr int at_once = 64 / warps;
    for (int c0 = b.warp; c0 < parts; c0 += at_once * warps) {
      double value[at_once];
      const Word* slot[at_once];
#pragma unroll
      for (int u = 0; u < at_once; ++u) {
        const int c = min(c0 + u * warps, parts - 1);
        slot[u] =
            c <= above
                ? w.row_parts + (Index(column_start(b.m, c) + above - c) * side + within) * 2
                : w.column_parts +
                      (Index(max(top, (first_part + c - above - 1) * w.per)) * side + within) * 2;
      }
      receive(slot, tag, value);
#pragma unroll
      for (int u = 0; u < at_once; ++u)
        if (c0 + u * warps < parts) sum += value[u];
    }
  }
  slices[b.warp * most_rows + b.lane] = sum;
  __syncthreads();
  if (b.warp == 0 && b.owns) {
    device::send_bare(q_now + b.own, sum_of_warps<most_rows>(slices + b.lane));
    device::send_word(w.q + Index((tag + 2) % 4) * b.padded + b.own, nothing);
    __threadfence();  // cleared before q of the next iteration is seen
  }
}

/// This thread's numbers of q, once all are there.
__device__ __forceinline__ void receive_q(const Block& b, const Word* q_now, double (&q)[items]) {
  const auto wanted = [&](int e) { return b.tid + e * threads < b.padded; };
  Word bits[items];
  do bits[0] = look(q_now + b.tid, wanted(0));
  while (bits[0] == nothing);
  bool all;
  do {
#pragma unroll
    for (int e = 1; e < items; ++e) bits[e] = look(q_now + b.tid + e * threads, wanted(e));
    all = true;
#pragma unroll
    for (int e = 1; e < items; ++e) all = all && bits[e] != nothing;
  } while (!all);
#pragma unroll
  for (int e = 0; e < items; ++e) q[e] = __longlong_as_double(static_cast<long long>(bits[e]));
}

/// Vectors: r in registers, p in shared memory, x of this block's rows in warp 0.
struct Vectors {
  const Block& b;
  double r[items], x, pq, pp, rr, rz;

  __device__ __forceinline__ explicit Vectors(const Block& block)
      : b(block), x(b.owns ? b.w.x[b.own] : 0.0) {
#pragma unroll
    for (int e = 0; e < items; ++e) {
      const int i = b.tid + e * threads;
      r[e] = 0;
      if (i < b.padded) {
        r[e] = b.w.r[i];
        b.p[i] = b.w.p[i];
      }
    }
    const double* before = b.w.rows + (b.w.first - 1) % b.w.ring * b.w.stride;
    pq = before[cg_row::pq], pp = before[cg_row::pp];
    rr = before[cg_row::rr], rz = before[cg_row::rz];
  }
  /// alpha = r.z / p.q, x += alpha p, r -= alpha q and q := z; nothing where alpha is zero.
  __device__ __forceinline__ double step(double (&q)[items], double (&space)[2][2 * warps]) {
    double2 s = {};
#pragma unroll
    for (int e = 0; e < items; ++e) {
      const int i = b.tid + e * threads;
      const double v = i < b.padded ? b.p[i] : 0.0;
      s.x = fma(v, q[e], s.x);
      s.y = fma(v, v, s.y);
    }
    s = sum_for_all(s, space[0]);
    pq = s.x;
    pp = s.y;
    const double alpha = cg_step_length(rr, rz, pq, pp, b.w.limits);
    if (alpha == 0) return alpha;
    if (b.owns) x = fma(alpha, b.p[b.own], x);
    s = make_double2(0, 0);
#pragma unroll
    for (int e = 0; e < items; ++e) {
      const int i = b.tid + e * threads;
      r[e] = fma(-alpha, q[e], r[e]);
      const double d = b.w.inverse_diagonal && i < b.w.n ? __ldg(b.w.inverse_diagonal + i) : 1.0;
      q[e] = d * r[e];  // z from here on
      s.x = fma(r[e], r[e], s.x);
      s.y = fma(r[e], q[e], s.y);
    }
    s = sum_for_all(s, space[1]);
    rr = s.x;
    rz = s.y;
    return alpha;
  }
  /// p = z + beta p.
  __device__ __forceinline__ void turn(const double (&z)[items], double beta) const {
#pragma unroll
    for (int e = 0; e < items; ++e) {
      const int i = b.tid + e * threads;
      if (i < b.padded) b.p[i] = fma(beta, b.p[i], z[e]);
    }
  }
  /// The scalars of iteration `first` + k.
  __device__ __forceinline__ void record(Index k) const {
    double* row_now = b.w.rows + (b.w.first + k) % b.w.ring * b.w.stride;
    row_now[cg_row::pq] = pq;
    row_now[cg_row::pp] = pp;
    row_now[cg_row::rr] = rr;
    row_now[cg_row::rz] = rz;
  }
  /// This block's rows of x, p and r.
  __device__ __forceinline__ void store() const {
    if (b.warp == 0 && b.owns) {
      b.w.x[b.own] = x;
      b.w.p[b.own] = b.p[b.own];
    }
    const int low = b.block * b.w.rows_each;
#pragma unroll
    for (int e = 0; e < items; ++e) {
      const int i = b.tid + e * threads;
      if (i >= low && i < low + b.w.rows_each && i < b.padded) b.w.r[i] = r[e];
    }
  }
};

__global__ void __launch_bounds__(threads, 1) iterate_kernel(const Arguments w) {
  extern __shared__ __align__(128) double shared[];
  __shared__ double space[2][2 * warps];
  const Block b(w, shared);
  Share kept[in_registers];
  load_pieces(b, kept);
  Vectors v(b);
  __syncthreads();

  const bool records = b.block == 0 && b.tid == 0;
  unsigned tag = 0;
  bool moved = false;
  while (tag < w.count && cg_active(v.rr, v.rz, w.limits)) {
    ++tag;
    Product{b, tag}.run(kept);
    Word* const q_now = w.q + Index(tag % 4) * b.padded;
    send_rows_of_q(b, tag, q_now);
    double q[items];
    receive_q(b, q_now, q);
    const double rz_before = v.rz;
    const bool stepped = v.step(q, space) != 0;
    if (records) v.record(Index(tag) - 1);
    if (!stepped) break;
    moved = true;
    if (cg_active(v.rr, v.rz, w.limits)) v.turn(q, v.rz / rz_before);
    __syncthreads();
  }

  if (records)
    for (Index k = max(Index(tag), Index(w.count) - w.ring); k < w.count; ++k) v.record(k);
  if (moved) v.store();
}

}  // namespace terrace::cg::resident
