// What the kernel of low_solve.cu is made of, 2: the blocks that gather the far tiles of each step.
#pragma once
#include "kernels/band/cuda/low_chain.cuh"

namespace terrace::band::low::substitution {

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
    give_back(empty + ring.stage, lane);
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

}  // namespace terrace::band::low::substitution
