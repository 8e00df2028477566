// Roofline: the factor is read once a direction, 2 bytes for 2 flops a right-hand side: HBM,
// 4.3 TB/s. A chain of steps stands against it: the way solved rows -> worker -> chain (about 2 us)
// every fourth step, and 48 KiB a step that one multiprocessor brings.
//
// The two launches of kernels/band/cuda/parts_few.cu in single precision. A chain block solves the
// steps one after the other,
//   solved(t) = gathered(t) - sum_{d = 1..3} (D T_d) solved(t - d),
// and worker blocks, dealt the steps round-robin, send it
//   gathered(t) = D (b - sum_{d >= 4} T_d solved(t - d)).
// Step t is tile column t going forward, count - 1 - t going backward, where T_d and D are
// transposed. Numbers travel with a tag in their own word: no fence, no flag. All blocks are
// resident, and each takes its steps in order, so none waits for ever. Sums have a fixed order.
#include <algorithm>

#include "kernels/band/cuda/low.cuh"
#include "kernels/band/cuda/parts_solve.cuh"

namespace terrace::band {
namespace low {

Index factor_scratch(const Factor& f);

namespace {

constexpr int kMost = 8;  // right-hand sides of one launch
constexpr int padded(Index columns) {
  return columns <= 1 ? 1 : columns <= 2 ? 2 : columns <= 4 ? 4 : 8;
}

struct Solve {
  Factor f;
  float* rows;   // 64 count x V: right-hand sides, then solutions
  Word* solved;  // 64 count x V numbers under way
  Word* gathered;
};

/// Tile at distance d that step t takes, and the tile column of step t.
template <bool transposed>
__device__ inline Index column_of(const Factor& f, Index t) {
  return transposed ? f.count - 1 - t : t;
}
template <bool transposed>
__device__ inline const __half* tile_of(const Factor& f, Index t, int d) {
  return f.tile(transposed ? f.count - 1 - t : t - d, d);
}

__device__ inline void send(Word* slot, float value) {
  send_word(slot, Word(__float_as_uint(value)) | Word(1) << 32);
}
/// V numbers of one row, kW words apart, once all are there, to to[0], to[kW], ... Waits for the
/// last one first: whoever waits should ask for little.
template <int V>
__device__ void receive(const Word* slot, float* to) {
  Word word[V];
  while ((look(slot + (V - 1) * kW) >> 32) == 0) {
  }
  bool all = false;
  while (!all) {
    all = true;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      word[v] = look(slot + v * kW);
      all = all && (word[v] >> 32) != 0;
    }
  }
#pragma unroll
  for (int v = 0; v < V; ++v) to[v * kW] = __uint_as_float(unsigned(word[v]));
}

// ---- D T_d

/// near: [direction][step][d - 1] as the chain reads it: piece (a, thread) of four numbers is row
/// thread / 4, columns 16 a + 4 (thread % 4) on. One product a block: x = step, y = d - 1, z =
/// direction.
__global__ void __launch_bounds__(256) near_kernel(Factor f) {
  __shared__ float left[kW][kW + 1], right[kW][kW + 1];
  const Index t = blockIdx.x;
  const int d = int(blockIdx.y) + 1, backward = int(blockIdx.z), thread = int(threadIdx.x);
  float* const out = f.near + ((backward * f.count + t) * kNear + d - 1) * kTile;
  if (t - d < 0 || d > f.reach_tiles) {
    for (int at = thread; at < kTile; at += 256) out[at] = 0.0f;
    return;
  }
  const Index j = backward ? f.count - 1 - t : t;
  const __half* const inverse = f.tile(j, 0);
  const __half* const rest = f.rest + j * kTile;
  const __half* const tile = backward ? tile_of<true>(f, t, d) : tile_of<false>(f, t, d);
  for (int at = thread; at < kTile; at += 256) {
    const int r = at / kW, c = at % kW, from = place(r, c);
    const float value = __half2float(inverse[from]) + __half2float(rest[from]);
    (backward ? left[c][r] : left[r][c]) = value;
    (backward ? right[c][r] : right[r][c]) = __half2float(tile[from]);
  }
  __syncthreads();
  const int r = thread / 4, g = thread % 4;
#pragma unroll
  for (int a = 0; a < 4; ++a) {
    float sum[4] = {};
    for (int k = 0; k < kW; ++k)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[e] = fmaf(left[r][k], right[k][16 * a + 4 * g + e], sum[e]);
    reinterpret_cast<float4*>(out)[a * 256 + thread] = make_float4(sum[0], sum[1], sum[2], sum[3]);
  }
}

// ---- the chain

constexpr int kMath = 256;     // a group of warps of the chain; a worker's warps that multiply
constexpr int kPollers = 256;  // four groups of 64 rows
constexpr int kThreads = 2 * kMath + kPollers + 32;
constexpr int kChainStages = 4;  // of D T_1 .. D T_3 of a step
constexpr int kGathered = 8;     // steps gathered ahead
constexpr int kNearBytes = kNear * kTile * int(sizeof(float));
constexpr int kWorkerStages = 16;
constexpr int chain_bytes(int v) {
  return kChainStages * kNearBytes + (kGathered + 4 + 2) * v * kW * 4 +
         8 * (2 * kChainStages + 2 * kGathered);
}
constexpr int worker_bytes(int v) {
  return kWorkerStages * (kTileBytes + v * kW * 4) + 10 * v * kW * 4 + 8 * 3 * kWorkerStages;
}
constexpr int shared_size(int v) { return std::max(chain_bytes(v), worker_bytes(v)); }
static_assert(shared_size(kMost) <= 224 * 1024);

__device__ inline unsigned char* shared_bytes() {
  extern __shared__ __align__(1024) unsigned char memory[];
  return memory;
}

/// Sums of the four lanes of a row.
template <int V>
__device__ void row_times(float (&sum)[V], const float4 (&row)[4], const float* x) {
  const int g = int(threadIdx.x) % 4;
#pragma unroll
  for (int v = 0; v < V; ++v) {
    float s[4] = {};
#pragma unroll
    for (int a = 0; a < 4; ++a) {
      const float4 four = *reinterpret_cast<const float4*>(x + v * kW + 16 * a + 4 * g);
      s[0] = fmaf(row[a].x, four.x, s[0]);
      s[1] = fmaf(row[a].y, four.y, s[1]);
      s[2] = fmaf(row[a].z, four.z, s[2]);
      s[3] = fmaf(row[a].w, four.w, s[3]);
    }
    sum[v] = (s[0] + s[1]) + (s[2] + s[3]);
  }
#pragma unroll
  for (int v = 0; v < V; ++v) {
    sum[v] += __shfl_xor_sync(kAll, sum[v], 1);
    sum[v] += __shfl_xor_sync(kAll, sum[v], 2);
  }
}

template <bool transposed, int V>
struct Chain {
  static constexpr int rows = V * kW;
  const Solve& s;
  unsigned char* const memory = shared_bytes();
  const float4* const tiles = reinterpret_cast<const float4*>(memory);  // stage, distance
  float* const gathered = reinterpret_cast<float*>(memory + kChainStages * kNearBytes);
  float* const solved = gathered + kGathered * rows;  // steps t % 4
  float* const rest = solved + 4 * rows;              // steps t % 2: without distance 1
  Word* const loaded = reinterpret_cast<Word*>(rest + 2 * rows);
  Word* const taken = loaded + kChainStages;
  Word* const arrived = taken + kChainStages;
  Word* const empty = arrived + kGathered;
  const int steps = int(s.f.count);
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const int thread = int(threadIdx.x) % kMath, row = thread / 4, g = thread % 4;
  Ring<kChainStages> ring;

  __device__ __forceinline__ void start() const {
    if (threadIdx.x == 0) {
      for (int i = 0; i < kChainStages; ++i) {
        make_barrier(loaded + i, 1);
        make_barrier(taken + i, 2 * kMath / 32);
      }
      for (int i = 0; i < kGathered; ++i) {
        make_barrier(arrived + i, 2);
        make_barrier(empty + i, kMath / 32);
      }
    }
    for (int at = int(threadIdx.x); at < 4 * rows; at += kThreads) solved[at] = 0.0f;
    __syncthreads();
  }
  /// Distance 1, and the solved rows.
  __device__ __forceinline__ void solve() {
    for (int t = 0; t < steps; ++t, ring.next()) {
      float4 near[4];
      wait_for(loaded + ring.stage, ring.filled());
#pragma unroll
      for (int a = 0; a < 4; ++a)
        near[a] = tiles[ring.stage * (kNearBytes / 16) + a * 256 + thread];
      __syncwarp();
      if (lane == 0) arrive(taken + ring.stage);
      meet(1, 2 * kMath);  // solved(t - 1) and rest(t) are there
      float sum[V];
      row_times<V>(sum, near, solved + (t + 3) % 4 * rows);
      const Index i = column_of<transposed>(s.f, t) * kW + row;
#pragma unroll
      for (int v = 0; v < V; ++v)
        if (v % 4 == g) {
          const float value = rest[t % 2 * rows + v * kW + row] - sum[v];
          send(s.solved + (Index(t) * V + v) * kW + row, value);
          solved[t % 4 * rows + v * kW + row] = value;
          s.rows[i * V + v] = value;
        }
    }
  }
  /// Distances 2 and 3.
  __device__ __forceinline__ void prepare() {
    Ring<kGathered> from;
    for (int t = 0; t < steps; ++t, ring.next(), from.next()) {
      float4 second[4], third[4];
      wait_for(loaded + ring.stage, ring.filled());
#pragma unroll
      for (int a = 0; a < 4; ++a) {
        second[a] = tiles[ring.stage * (kNearBytes / 16) + 1024 + a * 256 + thread];
        third[a] = tiles[ring.stage * (kNearBytes / 16) + 2048 + a * 256 + thread];
      }
      __syncwarp();
      if (lane == 0) arrive(taken + ring.stage);
      float two[V], three[V];
      row_times<V>(three, third, solved + (t + 1) % 4 * rows);
      row_times<V>(two, second, solved + (t + 2) % 4 * rows);
      wait_for(arrived + from.stage, from.filled());
#pragma unroll
      for (int v = 0; v < V; ++v)
        if (v % 4 == g) {
          const int at = v * kW + row;
          rest[t % 2 * rows + at] = gathered[from.stage * rows + at] - three[v] - two[v];
        }
      __syncwarp();
      if (lane == 0) arrive(empty + from.stage);
      meet(1, 2 * kMath);
    }
  }
  __device__ __forceinline__ void receive_gathered() const {
    const int group = (int(threadIdx.x) - 2 * kMath) / kW, i = int(threadIdx.x) % kW;
    for (int t = group; t < steps; t += kPollers / kW) {
      const int stage = t % kGathered;
      wait_for(empty + stage, (unsigned(t / kGathered) & 1) ^ 1);
      receive<V>(s.gathered + Index(t) * rows + i, gathered + stage * rows + i);
      __syncwarp();
      if (lane == 0) arrive(arrived + stage);
    }
  }
  __device__ __forceinline__ void load_near() {
    const float* const near = s.f.near + (transposed ? s.f.count * kNear * kTile : 0);
    for (int t = 0; t < steps; ++t, ring.next()) {
      wait_for(taken + ring.stage, ring.emptied());
      arrive_for_bytes(loaded + ring.stage, kNearBytes);
      copy_in_bulk(memory + ring.stage * kNearBytes, near + Index(t) * kNear * kTile, kNearBytes,
                   loaded + ring.stage);
    }
  }
  __device__ __forceinline__ void run() {
    start();
    if (warp < kMath / 32)
      solve();
    else if (warp < 2 * kMath / 32)
      prepare();
    else if (warp < (2 * kMath + kPollers) / 32)
      receive_gathered();
    else if (lane == 0)
      load_near();
  }
};

// ---- the workers

/// Eight numbers of half precision.
__device__ inline void unpack(float (&to)[8], const uint4& four) {
  const auto* const halves = reinterpret_cast<const __half2*>(&four);
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const float2 two = __half22float2(halves[e]);
    to[2 * e] = two.x;
    to[2 * e + 1] = two.y;
  }
}

/// A warp's share of tile times x: rows 8 warp + lane / 8 + {0, 4}, columns 8 (lane % 8) on. Sums:
/// forward of those two rows, backward of those eight columns.
template <bool transposed, int V>
struct Sums {
  static constexpr int each = transposed ? 8 : 2;
  float of[each][V];

  __device__ void clear() {
#pragma unroll
    for (int e = 0; e < each; ++e)
#pragma unroll
      for (int v = 0; v < V; ++v) of[e][v] = 0.0f;
  }
  __device__ void add(const unsigned char* tile, const float* x, int warp, int lane) {
    const int q = lane % 8;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = warp * 8 + lane / 8 + 4 * h;
      float a[8];
      unpack(a, *reinterpret_cast<const uint4*>(tile + r * 128 + (q ^ (r % 8)) * 16));
#pragma unroll
      for (int v = 0; v < V; ++v) {
        if constexpr (transposed) {
          const float known = x[v * kW + r];
#pragma unroll
          for (int e = 0; e < 8; ++e) of[e][v] = fmaf(a[e], known, of[e][v]);
        } else {
          const float4 low = *reinterpret_cast<const float4*>(x + v * kW + 8 * q);
          const float4 high = *reinterpret_cast<const float4*>(x + v * kW + 8 * q + 4);
          float even = fmaf(a[0], low.x, of[h][v]), odd = a[1] * low.y;
          even = fmaf(a[2], low.z, even);
          odd = fmaf(a[3], low.w, odd);
          even = fmaf(a[4], high.x, even);
          odd = fmaf(a[5], high.y, odd);
          even = fmaf(a[6], high.z, even);
          odd = fmaf(a[7], high.w, odd);
          of[h][v] = even + odd;
        }
      }
    }
  }
  /// All warps: sums over lanes, and going backward over warps too; part: [8 warps][V][64], total:
  /// [V][64]. Ends with a meeting.
  __device__ void total(float* part, float* total, int warp, int lane, int thread) {
    if constexpr (transposed) {
#pragma unroll
      for (int e = 0; e < 8; ++e)
#pragma unroll
        for (int v = 0; v < V; ++v) {
          of[e][v] += __shfl_xor_sync(kAll, of[e][v], 8);
          of[e][v] += __shfl_xor_sync(kAll, of[e][v], 16);
          if (lane < 8) part[(warp * V + v) * kW + 8 * lane + e] = of[e][v];
        }
      meet(2, kMath);
      for (int at = thread; at < V * kW; at += kMath) {
        float sum = 0.0f;
#pragma unroll
        for (int w = 0; w < 8; ++w) sum += part[w * V * kW + at];
        total[at] = sum;
      }
    } else {
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int v = 0; v < V; ++v) {
          of[h][v] += __shfl_xor_sync(kAll, of[h][v], 1);
          of[h][v] += __shfl_xor_sync(kAll, of[h][v], 2);
          of[h][v] += __shfl_xor_sync(kAll, of[h][v], 4);
          if (lane % 8 == 0) total[v * kW + warp * 8 + lane / 8 + 4 * h] = of[h][v];
        }
    }
    meet(2, kMath);
  }
};

template <bool transposed, int V>
struct Worker {
  static constexpr int rows = V * kW;
  const Solve& s;
  const int worker, workers;
  unsigned char* const tiles = shared_bytes();
  float* const inputs = reinterpret_cast<float*>(tiles + kWorkerStages * kTileBytes);
  float* const part = inputs + kWorkerStages * rows;
  float* const total = part + 8 * rows;
  float* const own = total + rows;
  Word* const loaded = reinterpret_cast<Word*>(own + rows);
  Word* const arrived = loaded + kWorkerStages;
  Word* const empty = arrived + kWorkerStages;
  const int thread = int(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int steps = int(s.f.count);
  Ring<kWorkerStages> ring;

  [[nodiscard]] __device__ __forceinline__ int farthest(int t) const {
    return min(s.f.reach_tiles, t);
  }
  /// sums += this stage's tile times x.
  __device__ __forceinline__ void take_stage(Sums<transposed, V>& sums, const float* x) {
    sums.add(tiles + ring.stage * kTileBytes, x, warp, lane);
    __syncwarp();
    if (lane == 0) arrive(empty + ring.stage);
    ring.next();
  }
  /// The math warps: D (b - sums).
  __device__ __forceinline__ void multiply() {
    Sums<transposed, V> sums;
    for (int t = worker; t < steps; t += workers) {
      const float* const mine = s.rows + column_of<transposed>(s.f, t) * kW * V;
      for (int at = thread; at < rows; at += kMath) own[at] = mine[at % kW * V + at / kW];
      sums.clear();
      for (int d = farthest(t); d > kNear; --d) {
        wait_for(loaded + ring.stage, ring.filled());
        wait_for(arrived + ring.stage, ring.filled());
        take_stage(sums, inputs + ring.stage * rows);
      }
      sums.total(part, total, warp, lane, thread);
      for (int at = thread; at < rows; at += kMath) own[at] -= total[at];
      meet(2, kMath);
      sums.clear();
      for (int half = 0; half < 2; ++half) {  // the inverse, and what its rounding lost
        wait_for(loaded + ring.stage, ring.filled());
        take_stage(sums, own);
      }
      sums.total(part, total, warp, lane, thread);
      for (int at = thread; at < rows; at += kMath)
        send(s.gathered + Index(t) * rows + at, total[at]);
      meet(2, kMath);
    }
  }
  /// One thread.
  __device__ __forceinline__ void load_tiles() {
    const auto load = [&](const __half* tile) {
      wait_for(empty + ring.stage, ring.emptied());
      arrive_for_bytes(loaded + ring.stage, kTileBytes);
      copy_in_bulk(tiles + ring.stage * kTileBytes, tile, kTileBytes, loaded + ring.stage);
      ring.next();
    };
    for (int t = worker; t < steps; t += workers) {
      for (int d = farthest(t); d > kNear; --d) load(tile_of<transposed>(s.f, t, d));
      const Index j = column_of<transposed>(s.f, t);
      load(s.f.tile(j, 0));
      load(s.f.rest + j * kTile);
    }
  }
  /// Group g brings the solved rows of stages number % 4 = g.
  __device__ __forceinline__ void receive_solved() const {
    const int group = (thread - 2 * kMath) / kW, i = thread % kW;
    unsigned number = 0;
    for (int t = worker; t < steps; t += workers) {
      for (int d = farthest(t); d > kNear; --d, ++number) {
        if (int(number % (kPollers / kW)) != group) continue;
        const int stage = int(number % kWorkerStages);
        wait_for(empty + stage, (number / kWorkerStages & 1) ^ 1);
        receive<V>(s.solved + Index(t - d) * rows + i, inputs + stage * rows + i);
        __syncwarp();
        if (lane == 0) arrive(arrived + stage);
      }
      for (int half = 0; half < 2; ++half, ++number) {
        if (int(number % (kPollers / kW)) != group) continue;
        const int stage = int(number % kWorkerStages);
        wait_for(empty + stage, (number / kWorkerStages & 1) ^ 1);
        if (lane == 0) arrive(arrived + stage);
      }
    }
  }
  __device__ __forceinline__ void run() {
    if (thread == 0)
      for (int i = 0; i < kWorkerStages; ++i) {
        make_barrier(loaded + i, 1);
        make_barrier(arrived + i, 2);
        make_barrier(empty + i, kMath / 32);
      }
    __syncthreads();
    if (warp < kMath / 32)
      multiply();
    else if (thread == kMath)
      load_tiles();
    else if (warp >= 2 * kMath / 32 && warp < (2 * kMath + kPollers) / 32)
      receive_solved();
  }
};

/// Block 0 is the chain, the rest workers.
template <bool transposed, int V>
__global__ void __launch_bounds__(kThreads, 1) solve_kernel(const __grid_constant__ Solve s) {
  if (blockIdx.x == 0)
    Chain<transposed, V>{s}.run();
  else
    Worker<transposed, V>{s, int(blockIdx.x) - 1, int(gridDim.x) - 1}.run();
}

template <bool transposed, int V>
void launch(cudaStream_t stream, Solve s) {
  constexpr int bytes = shared_size(V);
  static const int resident = resident_blocks(solve_kernel<transposed, V>, kThreads, bytes);
  if (resident < 2)
    throw Error(Exit::resources, "too few multiprocessors; kernels/band/cuda/low_solve.cu");
  const Index blocks = std::min<Index>(resident, 1 + s.f.count);
  void* arguments[] = {&s};
  check(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(solve_kernel<transposed, V>),
                                    dim3(unsigned(blocks)), dim3(kThreads), arguments,
                                    std::size_t(bytes), stream));
}
template <int V>
void substitute(cudaStream_t stream, const Solve& s) {
  const std::size_t board = std::size_t(2 * s.f.count * kW * V) * sizeof(Word);
  check(cudaMemsetAsync(s.solved, 0, board, stream));
  launch<false, V>(stream, s);
  check(cudaMemsetAsync(s.solved, 0, board, stream));
  launch<true, V>(stream, s);
}

// ---- in and out

/// largest[v] := the bits of max_i |scale_i r_iv|; NaN counts as more than all numbers.
__global__ void __launch_bounds__(256)
    largest_kernel(Index padded_rows, Index stride, int columns, const double* scale,
                   const double* r, unsigned long long* largest) {
  __shared__ unsigned long long of_block[kMost];
  if (threadIdx.x < kMost) of_block[threadIdx.x] = 0;
  __syncthreads();
  const Index step = Index(gridDim.x) * 256;
  for (int v = 0; v < columns; ++v) {
    unsigned long long most = 0;
    for (Index i = Index(blockIdx.x) * 256 + threadIdx.x; i < padded_rows; i += step) {
      const double s = scale[i];
      const double value = s == 0.0 ? 0.0 : fabs(s * r[i * stride + v]);
      most = max(most, (unsigned long long)__double_as_longlong(value));
    }
    atomicMax(&of_block[v], most);
  }
  __syncthreads();
  if (int(threadIdx.x) < columns) atomicMax(largest + threadIdx.x, of_block[threadIdx.x]);
}
/// Power of two that the largest number is divided by.
__device__ inline int exponent_of(unsigned long long largest) {
  const double value = __longlong_as_double((long long)largest);
  return value > 0.0 && value < INFINITY ? ilogb(value) : 0;
}
template <int V>
__global__ void __launch_bounds__(256)
    in_kernel(Index padded_rows, Index stride, int columns, const double* scale, const double* r,
              const unsigned long long* largest, float* rows) {
  const Index at = Index(blockIdx.x) * 256 + threadIdx.x, i = at / V;
  const int v = int(at % V);
  if (i >= padded_rows) return;
  const double s = scale[i];
  rows[at] = v < columns && s != 0.0
                 ? float(scalbn(s * r[i * stride + v], -exponent_of(largest[v])))
                 : 0.0f;
}
template <int V>
__global__ void __launch_bounds__(256)
    out_kernel(Index padded_rows, Index stride, int columns, const double* scale,
               const unsigned long long* largest, const float* rows, double* z) {
  const Index at = Index(blockIdx.x) * 256 + threadIdx.x, i = at / V;
  const int v = int(at % V);
  if (i >= padded_rows || v >= columns) return;
  const double s = scale[i];
  z[i * stride + v] = s == 0.0 ? 0.0 : s * scalbn(double(rows[at]), exponent_of(largest[v]));
}

struct Places {
  Index largest = 0, rows = 0, solved = 0, gathered = 0, size = 0;
  Places(const Factor& f, Index nrhs) {
    const Index each = f.count * kW * padded(std::min<Index>(nrhs, kMost));
    rows = largest + kMost + kMost % 2;
    solved = rows + round_up(ceil_div(each, 2), 2);
    gathered = solved + each;
    size = gathered + each;
  }
};

template <int V>
void solve(cudaStream_t stream, const Factor& f, Index stride, int columns, const double* scale,
           const double* r, double* z, Word* scratch) {
  const Places places(f, columns);
  auto* const largest = reinterpret_cast<unsigned long long*>(scratch + places.largest);
  const Solve s{f, reinterpret_cast<float*>(scratch + places.rows), scratch + places.solved,
                scratch + places.gathered};
  const Index n = f.count * kW;
  const unsigned blocks = unsigned(ceil_div(n * V, 256));
  check(cudaMemsetAsync(largest, 0, kMost * sizeof(Word), stream));
  largest_kernel<<<unsigned(std::min<Index>(ceil_div(n, 256), 1024)), 256, 0, stream>>>(
      n, stride, columns, scale, r, largest);
  check_launch();
  in_kernel<V><<<blocks, 256, 0, stream>>>(n, stride, columns, scale, r, largest, s.rows);
  check_launch();
  substitute<V>(stream, s);
  out_kernel<V><<<blocks, 256, 0, stream>>>(n, stride, columns, scale, largest, s.rows, z);
  check_launch();
}

}  // namespace

void form_near(cudaStream_t stream, const Factor& f) {
  near_kernel<<<dim3(unsigned(f.count), kNear, 2), 256, 0, stream>>>(f);
  check_launch();
}

}  // namespace low

using namespace device;
using namespace low;

Index band_low_scratch(Cuda, BandShape s, Index nrhs) {
  const Factor f(s, nullptr);
  return std::max(factor_scratch(f), Places(f, std::max<Index>(nrhs, 1)).size);
}

void band_low_solve(const Stream<Cuda>& stream, BandShape s, View<const Word, Cuda> low,
                    View<const double, Cuda> scale, Index nrhs, View<const double, Cuda> r,
                    View<double, Cuda> z, View<Word, Cuda> scratch) {
  const Factor f(s, low.data);
  if (s.width != kW || low.size < f.words() || scale.size < s.padded() ||
      r.size < s.padded() * nrhs || z.size < s.padded() * nrhs ||
      (nrhs > 0 && scratch.size < Places(f, nrhs).size))
    throw Error(Exit::internal, "sizes of a solve; kernels/band/cuda/low_solve.cu");
  if (f.count == 0) return;
  for (Index first = 0; first < nrhs; first += kMost) {
    const int columns = int(std::min<Index>(kMost, nrhs - first));
    switch (padded(columns)) {
      case 1:
        solve<1>(native(stream), f, nrhs, columns, scale.data, r.data + first, z.data + first,
                 scratch.data);
        break;
      case 2:
        solve<2>(native(stream), f, nrhs, columns, scale.data, r.data + first, z.data + first,
                 scratch.data);
        break;
      case 4:
        solve<4>(native(stream), f, nrhs, columns, scale.data, r.data + first, z.data + first,
                 scratch.data);
        break;
      default:
        solve<8>(native(stream), f, nrhs, columns, scale.data, r.data + first, z.data + first,
                 scratch.data);
    }
  }
}

}  // namespace terrace::band
