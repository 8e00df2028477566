// What the kernel of low_solve.cu is made of, 1: its sizes, and the block that solves the steps one
// after the other.
#pragma once
#include <algorithm>

#include "kernels/band/cuda/low.cuh"
#include "kernels/band/cuda/parts_solve.cuh"

namespace terrace::band::low::substitution {

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
      meet(1, 2 * kMath);  // solved(t - 1) and rest(t) are there
      float sum[V];
      row_times<V>(sum, near, solved + (t + 3) % 4 * rows);
      __syncwarp();  // the lanes' numbers are in their sums: no need to give_back()
      if (lane == 0) arrive(taken + ring.stage);
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
      float two[V], three[V];
      row_times<V>(three, third, solved + (t + 1) % 4 * rows);
      row_times<V>(two, second, solved + (t + 2) % 4 * rows);
      __syncwarp();
      if (lane == 0) arrive(taken + ring.stage);
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

}  // namespace terrace::band::low::substitution
