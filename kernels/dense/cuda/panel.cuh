// Shared by the .cu files of the panel: the strip of columns being factored, keys of candidates.
#pragma once
#include <algorithm>
#include <climits>
#include <cmath>

#include "kernels/dense/cuda/dense.cuh"

namespace terrace::dense {

constexpr int threads = 256;       // of a block of pivot_kernel
constexpr int most_blocks = 1024;  // of pivot_kernel
constexpr int widest = 32;         // columns of one pivot_kernel
constexpr int board_stride = widest + 2;
using Bits = unsigned long long;

/// Rows among which pivots are sought; column-major. Of doubles, or of floats for LU's panels.
template <class Real>
struct StripOf {
  Real* x;
  Index ld, slots, width;
  const Index* id;   // global row
  Index* column_of;  // -1: may become a pivot row
  Index first;       // global number of the strip's column 0
  double* lu;
  Index block;  // ld of lu
  Index* pivots;
  Index* info;
  bool skip;         // a column without a pivot is passed over (rounds of the tournament)
  Index offset = 0;  // of column 0 within the panel, for info
};
using Strip = StripOf<double>;

/// Rows of a matrix: row list[t] (or t) begins at data + row * ld, its columns are `step` apart.
template <class Real>
struct PivotRowsOf {
  Real* data;
  Index ld, step;
  const Index* list;  // null: rows 0, 1 ...; otherwise the rows are zeroed once read
};
using PivotRows = PivotRowsOf<double>;

/// Device workspace cut out of `work`.
struct Work {
  double* board;      // 2 x most_blocks candidates: key, slot, row
  unsigned* flags;    // most_blocks
  Index* pivot_slot;  // block
  double* inverse;    // inner x inner
  float* upper;       // of a strip of floats: inner rows of U, ld its width
  double* players;    // panel of ranks x block rows
  Index* ids;         // ranks x block
  Index* columns;     // ranks x block
};
constexpr Index inner = 128;  // columns between products of all rows
constexpr Index fixed_work = 2 * most_blocks * board_stride + most_blocks + inner * inner;

inline Work cut(View<double, Cuda> work, Index block, Index count) {
  Work w{};
  w.board = work.data;
  w.flags = reinterpret_cast<unsigned*>(work.data + 2 * most_blocks * board_stride);
  w.inverse = work.data + 2 * most_blocks * board_stride + most_blocks;
  w.pivot_slot = reinterpret_cast<Index*>(work.data + fixed_work);
  w.ids = w.pivot_slot + block;
  w.columns = w.ids + count;
  w.players = reinterpret_cast<double*>(w.columns + count);
  return w;
}

/// |value| as ordered bits plus one, so that 0 means no candidate; not finite counts as infinity.
__device__ inline Bits key_of(double value) {
  const Bits infinity = 0x7ff0000000000000ull;
  const Bits bits = Bits(__double_as_longlong(fabs(value)));
  return (bits < infinity ? bits : infinity) + 1;
}
__device__ inline double value_of(Bits key) { return __longlong_as_double((long long)(key - 1)); }

__device__ inline bool better(Bits key, int row, Bits other_key, int other_row) {
  return key > other_key || (key == other_key && row < other_row);
}

/// Best (key, row) of the block, for all its threads. `shared_*` hold one entry a warp.
__device__ inline void block_best(Bits& key, int& row, Bits* shared_key, int* shared_row) {
  for (int d = 16; d > 0; d /= 2) {
    const Bits k = __shfl_xor_sync(~0u, key, d);
    const int r = __shfl_xor_sync(~0u, row, d);
    if (better(k, r, key, row)) {
      key = k;
      row = r;
    }
  }
  if (threadIdx.x % 32 == 0) {
    shared_key[threadIdx.x / 32] = key;
    shared_row[threadIdx.x / 32] = row;
  }
  __syncthreads();
  for (int w = 0; w < int(blockDim.x) / 32; ++w)
    if (better(shared_key[w], shared_row[w], key, row)) {
      key = shared_key[w];
      row = shared_row[w];
    }
}

inline Strip strip_of(const Rows<Cuda>& rows, const Panel<Cuda>& panel, bool skip) {
  return {panel.n.data,
          panel_ld(rows.slots),
          rows.slots,
          panel.width,
          rows.global_row.data,
          rows.column_of.data,
          panel.first,
          panel.lu.data,
          panel.block,
          panel.pivots.data,
          panel.info.data,
          skip,
          0};
}

/// Partial pivoting over the strip: N in place, LU, pivots, column_of; pivot rows of N are those of
/// -U^-1 (of floats: spoilt). Enqueues only.
template <class Real>
void factor(const Stream<Cuda>& stream, const StripOf<Real>& s, const Work& w);
/// The same for up to 128 columns in one launch, or false where one cluster has no room. `raw`
/// holds 32 x 128.
template <class Real>
bool factor_in_cluster(const Stream<Cuda>& stream, const StripOf<Real>& s, Index* pivot_slot,
                       double* raw);
/// out (b x length, b <= 128) := L^-1 times rows `in`; L unit lower, of lu. In place where `in` is
/// `out` and has no list. Nothing is done once info[0] >= 0.
template <class Real>
void solve_rows(const Stream<Cuda>& stream, Index b, const double* lu, Index ld_lu,
                const PivotRowsOf<Real>& in, Index length, double* out, Index ld_out,
                const Index* info);
/// Rows of N that are pivot rows := rows of -U^-1, U the leading width x width of lu; `inverse`
/// holds width x width with ld.
void set_pivot_rows(const Stream<Cuda>& stream, const Strip& s, double* inverse, Index ld);
/// Rows [j0, j0 + count) of LU (from the pivot rows, or, without pivot_slot, there already) become
/// final right of the block; the strip right of the block -= N[:, block] U[block, :]. `upper`: as
/// Work's.
template <class Real>
void finish_block(const Stream<Cuda>& stream, const StripOf<Real>& s, Index j0, Index count,
                  const Index* pivot_slot, float* upper);

}  // namespace terrace::dense
