// Roofline: 2 m flops a row and right-hand side on the FP64 tensor cores, 60 TFLOP/s; a tile
// product of 64 x 64 x 64 (1.2 us) takes 64 KiB through L2, about 75 % of that rate at 5.5 TB/s.
//
// One launch. A chain is a part and C right-hand sides. Blocks are dealt the steps of
// all chains round-robin and do a whole step: gather from far to near as solved rows appear,
//   solved(t) = D (b - sum_{d >= 2} T_d solved(t - d)) - (D T_1) solved(t - 1).
// A solved step is written to the board (64 rows of C), then the chain's flag says t
// + 1. Who has seen t sees all before it: each step has seen the one before. All blocks are
// resident and take their steps in order, so none waits for ever. Sums have a fixed order. C is 32
// where latency bounds (few chains), 64 where the left tiles' way through L2 does.
#include <algorithm>

#include "kernels/band/cuda/parts_solve.cuh"
#include "kernels/base/cuda/barriers.cuh"
#include "kernels/base/cuda/runtime.cuh"

namespace terrace::band {
namespace {

constexpr int kMath = 256;   // warps 0-7: products
constexpr int kLeft = 64;    // warps 8, 9: tiles
constexpr int kRight = 128;  // warps 10-13: solved rows
constexpr int kThreads = kMath + kLeft + kRight;
constexpr int kMathWarps = kMath / 32;
template <int C>
constexpr int kStages = C == 32 ? 4 : 3;
template <int C>
constexpr int kBoardSize = kTile* C;

template <bool transposed, int C>
constexpr int shared_bytes() {
  using Product = TileProduct<transposed, C>;
  return 8 * (kStages<C> * (Product::left_size + Product::right_size) + 3 * kStages<C>);
}
static_assert(shared_bytes<false, 32>() <= 232448 && shared_bytes<true, 32>() <= 232448);
static_assert(shared_bytes<false, 64>() <= 232448 && shared_bytes<true, 64>() <= 232448);

/// Place on the board of step t (or, going backward, of the window: t < 0).
template <bool transposed, int C>
__device__ Index place(const SolvePart& p, int t, int chain, int chains) {
  return (Index(t + (transposed ? p.window : 0)) * chains + chain) * kBoardSize<C>;
}

/// One block: its stages in shared memory, and what each kind of warp does for all of its steps.
template <bool transposed, int C>
struct Block {
  using Product = TileProduct<transposed, C>;
  using Sums = double[Product::blocks][2][4];
  const SolveParts& s;
  double *lefts, *rights;
  Word *loaded, *arrived, *empty;  // barriers of the stages
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, chains = (s.columns + C - 1) / C;
  Ring<kStages<C>> ring;

  __device__ __forceinline__ Block(const SolveParts& parts, double* shared)
      : s(parts),
        lefts(shared),
        rights(lefts + kStages<C> * Product::left_size),
        loaded(reinterpret_cast<Word*>(rights + kStages<C> * Product::right_size)),
        arrived(loaded + kStages<C>),
        empty(arrived + kStages<C>) {
    if (threadIdx.x == 0)
      for (int i = 0; i < kStages<C>; ++i) {
        make_barrier(loaded + i, kLeft);
        make_barrier(arrived + i, kRight);
        make_barrier(empty + i, kMathWarps);
      }
    __syncthreads();
  }

  template <class Take>
  __device__ __forceinline__ void for_each_step(Take take) const {
    const Index steps = Index(s.steps) * s.count * chains;
    for (Index id = blockIdx.x; id < steps; id += gridDim.x) {
      const int chain = int(id % chains), t = int(id / chains / s.count);
      const SolvePart& p = s.part[id / chains % s.count];
      if (p.tiles > 0 && t < p.tiles + (transposed ? 0 : p.window)) take(p, t, chain);
    }
  }
  static __device__ __forceinline__ bool has_neighbour(const SolvePart& p, int t) {
    return t > 0 || (transposed && p.window > 0);
  }
  /// This step's place on the board.
  __device__ __forceinline__ double* board(const SolvePart& p, int t, int chain) const {
    return reinterpret_cast<double*>(p.board) + place<transposed, C>(p, t, chain, chains);
  }
  __device__ __forceinline__ double* left() const {
    return lefts + ring.stage * Product::left_size;
  }
  __device__ __forceinline__ double* right() const {
    return rights + ring.stage * Product::right_size;
  }

  /// c of this warp to rows of `ld`: the rows of a stage or of the board.
  static __device__ __forceinline__ void store(const Product& product, const Sums& c, double* to,
                                               int ld) {
#pragma unroll
    for (int m = 0; m < Product::blocks; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          *reinterpret_cast<double2*>(to + product.row_of(m, h) * ld + product.column + 2 * e) =
              make_double2(c[m][0][2 * h + e], c[m][1][2 * h + e]);
  }
  __device__ __forceinline__ void wait_stage() const {
    wait_for(loaded + ring.stage, ring.filled());
    wait_for(arrived + ring.stage, ring.filled());
  }
  /// c -= left x right of this stage.
  __device__ __forceinline__ void take_stage(const Product& product, Sums& c) {
    product.subtract(c, left(), right(), warp, lane);
    give_back(empty + ring.stage, lane);
    ring.next();
  }
  /// c = D c - (D T_1) solved(t - 1), to the board, and the chain's flag.
  __device__ __forceinline__ void solve(const Product& product, Sums& c, const SolvePart& p, int t,
                                        int chain) {
    wait_stage();
    store(product, c, right(), Product::right_ld);
#pragma unroll
    for (int m = 0; m < Product::blocks; ++m)
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) c[m][n][e] = 0.0;
    meet(1, kMath);
    take_stage(product, c);
#pragma unroll
    for (int m = 0; m < Product::blocks; ++m)
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) c[m][n][e] = -c[m][n][e];
    if (has_neighbour(p, t)) {
      wait_stage();
      take_stage(product, c);
    }
    store(product, c, board(p, t, chain), C);
    meet(1, kMath);
    // The release covers what the others wrote before the meeting.
    if (threadIdx.x == 0) release_flag(p.flags + chain * kFlagStride, unsigned(t) + 1);
  }

  /// The math warps: rows of b (or x) in registers from the first product to the last.
  __device__ __forceinline__ void multiply() {
    const Product product(warp, lane);
    for_each_step([&](const SolvePart& p, int t, int chain) {
      double* const mine =
          p.rows + column_of<transposed>(p, t) * kTile * s.stride + chain * C + product.column;
      const int columns = s.columns - chain * C - product.column;  // of mine inside
      Sums c;
#pragma unroll
      for (int m = 0; m < Product::blocks; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            c[m][e % 2][2 * h + e / 2] =
                e < columns ? mine[product.row_of(m, h) * s.stride + e] : 0.0;
      for_each_distance<transposed>(p, s.reach, t, 2, [&](int) {
        wait_stage();
        take_stage(product, c);
      });
      if (t < p.tiles) solve(product, c, p, t, chain);
#pragma unroll
      for (int m = 0; m < Product::blocks; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            if (e < columns) mine[product.row_of(m, h) * s.stride + e] = c[m][e % 2][2 * h + e / 2];
    });
  }

  /// Tiles of the factor to the left of the products.
  __device__ __forceinline__ void load_lefts() {
    const auto load = [&](const double* tile, Index ld, int d) {
      wait_for(empty + ring.stage, ring.emptied());
      copy_tile<kLeft>(left(), Product::left_ld, tile, ld, d, threadIdx.x - kMath);
      arrive_after_copies(loaded + ring.stage);
      ring.next();
    };
    for_each_step([&](const SolvePart& p, int t, int) {
      for_each_distance<transposed>(p, s.reach, t, 2, [&](int d) {
        load(tile_of<transposed>(p, s.reach, t, d), s.reach, d);
      });
      if (t >= p.tiles) return;
      load(p.inverse + column_of<transposed>(p, t) * kTileSize, -1, 0);
      if (has_neighbour(p, t)) load(p.product + Index(t) * kTileSize, -1, 0);
    });
  }

  /// Solved rows to the right of the products, once their chain's flag names them.
  __device__ __forceinline__ void load_rights() {
    const int thread = threadIdx.x - kMath - kLeft;
    for_each_step([&](const SolvePart& p, int t, int chain) {
      unsigned done = 0;
      const auto load = [&](int from) {
        wait_for(empty + ring.stage, ring.emptied());
        if (from >= 0 && done <= unsigned(from)) {
          if (lane == 0) do {
              done = acquire_flag(p.flags + chain * kFlagStride);
            } while (done <= unsigned(from));
          __syncwarp();  // the rest of the warp reads after the acquire, too
          done = __shfl_sync(0xffffffffu, done, 0);
        }
        copy_rows<kRight, C>(right(), Product::right_ld, board(p, from, chain), thread);
        arrive_after_copies(arrived + ring.stage);
        ring.next();
      };
      for_each_distance<transposed>(p, s.reach, t, 2, [&](int d) { load(t - d); });
      if (t >= p.tiles) return;
      wait_for(empty + ring.stage, ring.emptied());  // the math warps fill this one themselves
      arrive(arrived + ring.stage);
      ring.next();
      if (has_neighbour(p, t)) load(t - 1);
    });
  }
};

template <bool transposed, int C>
__global__ void __launch_bounds__(kThreads, 1) many_kernel(const __grid_constant__ SolveParts s) {
  extern __shared__ __align__(16) double shared[];
  Block<transposed, C> block(s, shared);
  if (block.warp < kMathWarps)
    block.multiply();
  else if (block.warp < kMathWarps + kLeft / 32)
    block.load_lefts();
  else
    block.load_rights();
}

/// Known rows of the window, one tile a block, to the board of each chain.
template <int C>
__global__ void __launch_bounds__(256) post_window(const __grid_constant__ SolveParts s) {
  const SolvePart& p = s.part[blockIdx.y];
  const int tile = blockIdx.x, chain = blockIdx.z, chains = gridDim.z;
  if (p.tiles == 0 || tile >= p.window) return;
  double* const board =
      reinterpret_cast<double*>(p.board) + place<true, C>(p, -1 - tile, chain, chains);
  const double* const rows = p.rows + (Index(p.tiles) + tile) * kTile * s.stride;
  for (int at = threadIdx.x; at < kBoardSize<C>; at += blockDim.x) {
    const int i = at / C, v = chain * C + at % C;
    board[at] = v < s.columns ? rows[i * s.stride + v] : 0.0;
  }
}

template <bool transposed, int C>
void launch(cudaStream_t stream, const SolveParts& s) {
  constexpr int bytes = shared_bytes<transposed, C>();
  static OncePerDevice<int> once;
  const int resident =
      once([] { return resident_blocks(many_kernel<transposed, C>, kThreads, bytes); });
  const int chains = int(ceil_div(s.columns, C));
  if (transposed) {
    int window = 0;
    for (int p = 0; p < s.count; ++p) window = std::max(window, s.part[p].window);
    if (window > 0) {
      post_window<C>
          <<<dim3(unsigned(window), unsigned(s.count), unsigned(chains)), 256, 0, stream>>>(s);
      check_launch();
    }
  }
  const Index blocks = std::min<Index>(resident, Index(s.steps) * s.count * chains);
  launch_together(many_kernel<transposed, C>, int(blocks), kThreads, bytes, stream, s);
}

}  // namespace

Index many_chains(Index columns) { return ceil_div(columns, Index(columns <= 64 ? 32 : 64)); }

Index many_board(Index tiles, Index window, Index columns) {
  return (tiles + window) * round_up(columns, Index(64)) * kTile;
}

void substitute_many(cudaStream_t stream, const SolveParts& s, bool transposed) {
  if (s.columns <= 64)
    transposed ? launch<true, 32>(stream, s) : launch<false, 32>(stream, s);
  else
    transposed ? launch<true, 64>(stream, s) : launch<false, 64>(stream, s);
}

}  // namespace terrace::band
