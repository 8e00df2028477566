// Roofline: the factor is read once, 8 bytes for 2 flops a right-hand side: HBM, 4.3 TB/s. A chain
// of steps stands against it, and 64 KiB of products a step on their way to one multiprocessor:
// 0.78 us on an H200, 0.52 us with one product, 0.95 us where workers wait for HBM.
//
// One launch. A chain block a part solves the steps one after the other from shared memory,
//   solved(t) = gathered(t) - (D T_2) solved(t - 2) - (D T_1) solved(t - 1),
// and worker blocks, dealt the steps round-robin, send it
//   gathered(t) = D (b - sum_{d >= 3} T_d solved(t - d)).
// Both ways numbers travel with a tag in their own words: no fence, no flag. All blocks are
// resident, and each takes its steps in order, so none waits for ever. Sums have a fixed order.
#include <algorithm>

#include "kernels/band/cuda/parts_solve.cuh"
#include "kernels/base/cuda/barriers.cuh"
#include "kernels/base/cuda/runtime.cuh"

namespace terrace::band {
namespace {

constexpr int kMath = 256;    // warps 0-7: products; in the chain warps 8-15 too
constexpr int kPollers = 64;  // warps 16, 17: numbers from other blocks, a thread a row
constexpr int kThreads = 2 * kMath + kPollers + 32;  // warp 18: the chain's tiles
constexpr int kMathWarps = kMath / 32;
constexpr int kProducts = 3;  // stages of the chain's tiles, for each distance
constexpr int kGathered = 4;  // stages of gathered rows
constexpr int kStages = 5;    // stages of a worker
constexpr int kTileLd = 66;   // 16-byte loads of one row of 8 columns: 8 banks
constexpr int kStageTile = kTile * kTileLd;

constexpr int words_of_chain(int v) {
  return 2 * kProducts * kTileSize + (kGathered + 4) * v * kTile + 4 * kProducts + 2 * kGathered;
}
constexpr int words_of_worker(int v) {
  return kStages * (kStageTile + v * kTile) + (kMathWarps + 1) * v * kTile + 3 * kStages;
}
constexpr int shared_bytes(int v) { return 8 * std::max(words_of_chain(v), words_of_worker(v)); }
static_assert(shared_bytes(kFewColumns) <= 232448);

/// Numbers of one row, once all are there, to to[0], to[kTile], ...
template <int V>
__device__ void receive(const Word* slot, double* to) {
  constexpr int together = V < 4 ? V : 4;  // loads under way
#pragma unroll 1
  for (int first = 0; first < V; first += together) {
    double value[together];
    const Word* const here = slot + 2 * first;
    bool all = false;
    while (!all) {
      all = true;
#pragma unroll
      for (int v = 0; v < together; ++v) all = number_arrived(here + 2 * v, value[v]) && all;
    }
#pragma unroll
    for (int v = 0; v < together; ++v) to[(first + v) * kTile] = value[v];
  }
}

/// Sums of four neighbouring lanes, each of which has taken columns 8 a + 2 (lane % 4) + {0, 1}.
template <int V>
__device__ void row_times(double (&sum)[V], const double2 (&row)[8], const double* x) {
  const int g = threadIdx.x % 4;
#pragma unroll
  for (int v = 0; v < V; ++v) {
    double even = 0.0, odd = 0.0;
#pragma unroll
    for (int a = 0; a < 8; ++a) {
      const double2 two = *reinterpret_cast<const double2*>(x + v * kTile + 8 * a + 2 * g);
      even += row[a].x * two.x;
      odd += row[a].y * two.y;
    }
    sum[v] = even + odd;
  }
#pragma unroll
  for (int v = 0; v < V; ++v) {
    sum[v] += __shfl_xor_sync(0xffffffffu, sum[v], 1);
    sum[v] += __shfl_xor_sync(0xffffffffu, sum[v], 2);
  }
}
/// This thread's part of a tile that form_products made.
__device__ void load_row(double2 (&row)[8], const double* tile, int thread) {
#pragma unroll
  for (int a = 0; a < 8; ++a)
    row[a] = *reinterpret_cast<const double2*>(tile + (a * kMath + thread) * 2);
}

/// The chain block of a part. Step t of distance 2 is taken one step ahead by warps 8-15.
template <bool transposed, int V>
struct Chain {
  static constexpr int rows = V * kTile;
  const SolveParts& s;
  const SolvePart& p;
  double* const tiles;  // distance, stage
  double* const gathered = tiles + 2 * kProducts * kTileSize;
  double* const solved = gathered + kGathered * rows;           // steps t % 2
  double* const rest = solved + 2 * rows;                       // steps t % 2: without distance 1
  Word* const full = reinterpret_cast<Word*>(rest + 2 * rows);  // distance, stage
  Word* const empty = full + 2 * kProducts;
  Word* const arrived = empty + 2 * kProducts;
  Word* const taken = arrived + kGathered;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int thread = threadIdx.x % kMath, row = thread / 4, g = thread % 4;
  const int distances = few_distances(s.reach);

  __device__ __forceinline__ void start() const {
    if (threadIdx.x == 0) {
      for (int i = 0; i < 2 * kProducts; ++i) {
        make_barrier(full + i, 1);
        make_barrier(empty + i, kMathWarps);
      }
      for (int i = 0; i < kGathered; ++i) {
        make_barrier(arrived + i, kPollers);
        make_barrier(taken + i, kMathWarps);
      }
    }
    for (int at = threadIdx.x; at < 2 * rows; at += kThreads) {  // steps -2, -1
      const int back = 2 - at / rows, v = at % rows / kTile, i = at % kTile;
      double value = 0.0;
      if (transposed && back <= p.window && v < s.columns)
        value = p.rows[((Index(p.tiles) + back - 1) * kTile + i) * s.stride + v];
      solved[at] = value;
    }
    __syncthreads();
  }
  /// Distance 1, and the solved rows.
  __device__ __forceinline__ void solve() const {
    Ring<kProducts> ring;
    for (int t = 0; t < p.tiles; ++t, ring.next()) {
      double2 left[8];
      wait_for(full + ring.stage, ring.filled());
      load_row(left, tiles + ring.stage * kTileSize, thread);
      meet(1, 2 * kMath);  // solved(t - 1) and rest(t) are there
      double sum[V];
      row_times(sum, left, solved + (t + 1) % 2 * rows);
      __syncwarp();  // the lanes' numbers are in their sums: no need to give_back()
      if (lane == 0) arrive(empty + ring.stage);
      const Index i = column_of<transposed>(p, t) * kTile + row;
#pragma unroll
      for (int v = 0; v < V; ++v)
        if (v % 4 == g) {
          const int at = t % 2 * rows + v * kTile + row;
          const double value = rest[at] - sum[v];
          send_number(p.board + ((Index(t) * kTile + row) * V + v) * 2, value);
          solved[at] = value;
          if (v < s.columns) p.rows[i * s.stride + v] = value;
        }
    }
  }
  /// Distance 2: rest = gathered - (D T_2) solved.
  __device__ __forceinline__ void prepare() const {
    Ring<kProducts> ring;
    Ring<kGathered> from;
    for (int t = 0; t < p.tiles; ++t, ring.next(), from.next()) {
      double sum[V] = {};
      if (distances > 1) {
        double2 left[8];
        wait_for(full + kProducts + ring.stage, ring.filled());
        load_row(left, tiles + (kProducts + ring.stage) * kTileSize, thread);
        row_times(sum, left, solved + t % 2 * rows);
      }
      wait_for(arrived + from.stage, from.filled());
#pragma unroll
      for (int v = 0; v < V; ++v)
        if (v % 4 == g) {
          const int at = v * kTile + row;
          rest[t % 2 * rows + at] = gathered[from.stage * rows + at] - sum[v];
        }
      __syncwarp();
      if (lane == 0) {
        arrive(empty + kProducts + ring.stage);
        arrive(taken + from.stage);
      }
      meet(1, 2 * kMath);
    }
  }
  /// Numbers that workers have gathered, a thread a row.
  __device__ __forceinline__ void receive_gathered() const {
    const int i = threadIdx.x - 2 * kMath;
    const Word* const board = p.board + Index(p.tiles) * rows * 2;
    Ring<kGathered> to;
    for (int t = 0; t < p.tiles; ++t, to.next()) {
      wait_for(taken + to.stage, to.emptied());
      receive<V>(board + (Index(t) * kTile + i) * V * 2, gathered + to.stage * rows + i);
      arrive(arrived + to.stage);
    }
  }
  /// One thread: bulk copies bring 84 GB/s, those of 16 bytes by 64 threads 40.
  __device__ __forceinline__ void load_products() const {
    constexpr unsigned bytes = kTileSize * sizeof(double);
    const Word policy = read_once();
    Ring<kProducts> ring;
    for (int t = 0; t < p.tiles; ++t, ring.next())
#pragma unroll 1
      for (int d = distances - 1; d >= 0; --d) {
        const int stage = d * kProducts + ring.stage;
        wait_for(empty + stage, ring.emptied());
        arrive_for_bytes(full + stage, bytes);
        copy_in_bulk(tiles + stage * kTileSize, p.product + (Index(t) * distances + d) * kTileSize,
                     bytes, full + stage, policy);
      }
    // Copies still under way end before the block does: the math warps wait for all of them.
  }
  __device__ __forceinline__ void run() const {
    start();
    if (warp < kMathWarps)
      solve();
    else if (warp < 2 * kMathWarps)
      prepare();
    else if (threadIdx.x < 2 * kMath + kPollers)
      receive_gathered();
    else if (lane == 0)
      load_products();
  }
};

/// Sums over the tile's eight rows (columns, going backward) that belong to this warp.
template <bool transposed, int V>
__device__ void tile_times(double (&sum)[2][V], const double* tile, const double* x) {
  const int lane = threadIdx.x % 32, k0 = threadIdx.x / 32 * 8;
#pragma unroll
  for (int k = 0; k < 8; k += 2) {
    double2 a[2];  // forward: rows 2 lane, + 1 of column k, k + 1; backward: columns lane, + 32
#pragma unroll
    for (int h = 0; h < 2; ++h)
      a[h] =
          *reinterpret_cast<const double2*>(transposed ? tile + (lane + 32 * h) * kTileLd + k0 + k
                                                       : tile + (k0 + k + h) * kTileLd + 2 * lane);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const double2 both = *reinterpret_cast<const double2*>(x + v * kTile + k0 + k);
      if constexpr (transposed) {
        sum[0][v] += a[0].x * both.x;
        sum[1][v] += a[1].x * both.x;
        sum[0][v] += a[0].y * both.y;
        sum[1][v] += a[1].y * both.y;
      } else {
        sum[0][v] += a[0].x * both.x;
        sum[1][v] += a[0].y * both.x;
        sum[0][v] += a[1].x * both.y;
        sum[1][v] += a[1].y * both.y;
      }
    }
  }
}

/// A worker block: what each kind of warp does for all of its steps.
template <bool transposed, int V>
struct Worker {
  static constexpr int rows = V * kTile, each = (rows + kMath - 1) / kMath;
  const SolveParts& s;
  const int worker, workers;
  double* const tiles;
  double* const inputs = tiles + kStages * kStageTile;
  double* const sums = inputs + kStages * rows;  // warp, right-hand side, row
  double* const own = sums + kMathWarps * rows;  // b
  Word* const loaded = reinterpret_cast<Word*>(own + rows);
  Word* const arrived = loaded + kStages;
  Word* const empty = arrived + kStages;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Ring<kStages> ring;
  double sum[2][V];

  __device__ __forceinline__ void start() const {
    if (threadIdx.x == 0)
      for (int i = 0; i < kStages; ++i) {
        make_barrier(loaded + i, kMath);
        make_barrier(arrived + i, kPollers);
        make_barrier(empty + i, kMathWarps);
      }
    __syncthreads();
  }
  template <class Take>
  __device__ __forceinline__ void for_each_step(Take take) const {
    const int steps = s.steps * s.count;
    for (int id = worker; id < steps; id += workers) {
      const int t = id / s.count;
      const SolvePart& p = s.part[id % s.count];
      if (p.tiles > 0 && t < p.tiles + (transposed ? 0 : p.window)) take(p, t);
    }
  }

  __device__ __forceinline__ void wait_stage() const {
    wait_for(loaded + ring.stage, ring.filled());
    wait_for(arrived + ring.stage, ring.filled());
  }
  __device__ __forceinline__ void take_stage() {
    tile_times<transposed>(sum, tiles + ring.stage * kStageTile, inputs + ring.stage * rows);
    __syncwarp();
    if (lane == 0) arrive(empty + ring.stage);
    ring.next();
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int v = 0; v < V; ++v) sum[0][v] = sum[1][v] = 0.0;
  }
  /// The warps' sums to each other.
  __device__ __forceinline__ void share() const {
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int v = 0; v < V; ++v)
        sums[warp * rows + v * kTile + (transposed ? lane + 32 * h : 2 * lane + h)] = sum[h][v];
    meet(2, kMath);
  }
  [[nodiscard]] __device__ __forceinline__ double total(int at) const {
    double result = 0.0;
#pragma unroll
    for (int w = 0; w < kMathWarps; ++w) result += sums[w * rows + at];
    return result;
  }
  /// take(at, v, i) for this thread's numbers, at = 64 v + i.
  template <class Take>
  __device__ __forceinline__ void for_each_own(Take take) const {
#pragma unroll 1
    for (int e = 0; e < each; ++e) {
      const int at = threadIdx.x + e * kMath;
      if (at < rows) take(at, at / kTile, at % kTile);
    }
  }
  /// The math warps: D (b - sums), or in the window b - sums.
  __device__ __forceinline__ void multiply() {
    for_each_step([&](const SolvePart& p, int t) {
      double* const mine = p.rows + column_of<transposed>(p, t) * kTile * s.stride;
      for_each_own(
          [&](int at, int v, int i) { own[at] = v < s.columns ? mine[i * s.stride + v] : 0.0; });
      clear();
      for_each_distance<transposed>(p, s.reach, t, kFewDistances + 1, [&](int) {
        wait_stage();
        take_stage();
      });
      share();
      const bool inside = t < p.tiles;
      if (inside) wait_stage();
      for_each_own([&](int at, int v, int i) {
        const double value = own[at] - total(at);
        if (inside)
          inputs[ring.stage * rows + at] = value;
        else if (v < s.columns)
          mine[i * s.stride + v] = value;
      });
      meet(2, kMath);
      if (!inside) return;
      clear();
      take_stage();
      share();
      for_each_own([&](int at, int v, int i) {
        send_number(p.board + ((Index(p.tiles + t) * kTile + i) * V + v) * 2, total(at));
      });
      meet(2, kMath);
    });
  }
  __device__ __forceinline__ void load_tiles() {
    const int thread = threadIdx.x - kMath;
    const auto load = [&](const double* tile, Index ld, int d) {
      wait_for(empty + ring.stage, ring.emptied());
      copy_tile<kMath>(tiles + ring.stage * kStageTile, kTileLd, tile, ld, d, thread);
      arrive_after_copies(loaded + ring.stage);
      ring.next();
    };
    for_each_step([&](const SolvePart& p, int t) {
      for_each_distance<transposed>(p, s.reach, t, kFewDistances + 1, [&](int d) {
        load(tile_of<transposed>(p, s.reach, t, d), s.reach, d);
      });
      if (t < p.tiles) load(p.inverse + column_of<transposed>(p, t) * kTileSize, -1, 0);
    });
  }
  /// Solved rows, a thread a row.
  __device__ __forceinline__ void receive_solved() {
    const int i = threadIdx.x - 2 * kMath;
    for_each_step([&](const SolvePart& p, int t) {
      for_each_distance<transposed>(p, s.reach, t, kFewDistances + 1, [&](int d) {
        const int from = t - d;
        double* const to = inputs + ring.stage * rows + i;
        wait_for(empty + ring.stage, ring.emptied());
        if (from >= 0) {
          receive<V>(p.board + (Index(from) * kTile + i) * V * 2, to);
        } else {  // a row of the window
          const double* const known =
              p.rows + (column_of<transposed>(p, from) * kTile + i) * s.stride;
#pragma unroll 1
          for (int v = 0; v < V; ++v) to[v * kTile] = v < s.columns ? known[v] : 0.0;
        }
        arrive(arrived + ring.stage);
        ring.next();
      });
      if (t < p.tiles) {  // the math warps fill this one themselves
        wait_for(empty + ring.stage, ring.emptied());
        arrive(arrived + ring.stage);
        ring.next();
      }
    });
  }
  __device__ __forceinline__ void run() {
    start();
    if (warp < kMathWarps)
      multiply();
    else if (warp < 2 * kMathWarps)
      load_tiles();
    else if (threadIdx.x < 2 * kMath + kPollers)
      receive_solved();
  }
};

/// Blocks 0 .. count - 1 are the chains, the rest workers.
template <bool transposed, int V>
__global__ void __launch_bounds__(kThreads, 1) few_kernel(const __grid_constant__ SolveParts s) {
  extern __shared__ __align__(16) double shared[];
  const int block = blockIdx.x;
  if (block < s.count)
    Chain<transposed, V>{s, s.part[block], shared}.run();
  else
    Worker<transposed, V>{s, block - s.count, int(gridDim.x) - s.count, shared}.run();
}

constexpr int padded(Index columns) {
  return columns <= 1 ? 1 : columns <= 2 ? 2 : columns <= 4 ? 4 : 8;
}

template <bool transposed, int V>
void launch(cudaStream_t stream, const SolveParts& s) {
  constexpr int bytes = shared_bytes(V);
  static OncePerDevice<int> once;
  const int resident =
      once([] { return resident_blocks(few_kernel<transposed, V>, kThreads, bytes); });
  const Index blocks = std::min<Index>(resident, s.count + Index(s.steps) * s.count);
  if (blocks <= s.count)
    throw Error(Exit::resources, "too few multiprocessors; kernels/band/cuda/parts_few.cu");
  launch_together(few_kernel<transposed, V>, int(blocks), kThreads, bytes, stream, s);
}

template <bool transposed>
void launch_for(cudaStream_t stream, const SolveParts& s) {
  const int v = padded(s.columns);
  v == 1   ? launch<transposed, 1>(stream, s)
  : v == 2 ? launch<transposed, 2>(stream, s)
  : v == 4 ? launch<transposed, 4>(stream, s)
           : launch<transposed, 8>(stream, s);
}

}  // namespace

Index few_board(Index tiles, Index columns) { return tiles * kTile * padded(columns) * 4; }

void substitute_few(cudaStream_t stream, const SolveParts& s, bool transposed) {
  transposed ? launch_for<true>(stream, s) : launch_for<false>(stream, s);
}

}  // namespace terrace::band
