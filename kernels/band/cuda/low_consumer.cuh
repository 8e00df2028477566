// What the kernel of low_factor.cu is made of: its sizes, and the warps that multiply.
#pragma once
#include "kernels/band/cuda/low.cuh"
#include "kernels/band/cuda/parts_tasks.cuh"

namespace terrace::band::low::factoring {

using parts::Launch;
using parts::Task;

constexpr int kColumns = 2;               // tile columns of a task
constexpr int kStages = 3;                // what finishes a pair task takes three
constexpr int kStage = 4 * kTileBytes;    // A: two tiles, B: two tiles
constexpr int kB = 2 * kTileBytes;        // where B lies
constexpr int kSpare = kStages * kStage;  // two tiles more
constexpr int kShared = kSpare + 2 * kTileBytes;
constexpr int kWarps = 8;  // that multiply
constexpr int kThreads = 32 * kWarps + 32;
static_assert(parts::kFactorNumbers * int(sizeof(float)) <= kSpare);

using parts::empty, parts::full, parts::task_empty, parts::task_full, parts::tasks;

__device__ inline unsigned char* shared_bytes() { return parts::shared_numbers<unsigned char>(); }

struct Problem {
  Launch launch;
  Factor f;
};

/// Tiles that lie one after the other.
struct Piece {
  const __half* from = nullptr;
  int tiles = 0;
};

/// One warp that multiplies.
struct Consumer {
  const Problem& p;
  const Launch& l;
  const int lane, warp;
  Ring<kStages> ring{};

  [[nodiscard]] __device__ static unsigned char* stage(const Ring<kStages>& r) {
    return shared_bytes() + r.stage * kStage;
  }
  __device__ static void arrived(const Ring<kStages>& r) { wait_for(&full[r.stage], r.filled()); }
  __device__ void release(const Ring<kStages>& r) const {
    __syncwarp();
    if (lane == 0) arrive(&empty[r.stage]);
  }
  /// What this warp has written may be read by all, by bulk copies too.
  __device__ void publish(unsigned* flag, unsigned by) const {
    order_global_copies();
    __syncwarp();
    if (lane == 0) add_release(flag, by);
  }
  [[nodiscard]] __device__ unsigned* flags(int k) const {
    return l.parts[0].flags + Index(k) * l.stride;
  }

  template <int MT>
  __device__ static void clear(float (&x)[MT][8][4]) {
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) x[m][n][e] = 0.0f;
  }
  /// body(first of two neighbouring numbers, the second, their place in a tile in halves).
  template <int MT, class Body>
  __device__ void each_two(float (&x)[MT][8][4], int row, Body&& body) const {
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int r = row + 16 * m + 8 * h + lane / 4;
#pragma unroll
        for (int n = 0; n < 8; ++n)
          body(x[m][n][2 * h], x[m][n][2 * h + 1], r * kW + (n ^ (lane / 4)) * 8 + lane % 4 * 2);
      }
  }
  /// x := C - x.
  template <int MT>
  __device__ void subtract_from(const unsigned char* c, float (&x)[MT][8][4], int row) const {
    const auto* const from = reinterpret_cast<const __half*>(c);
    each_two<MT>(x, row, [&](float& a, float& b, int at) {
      const float2 two = __half22float2(*reinterpret_cast<const __half2*>(from + at));
      a = two.x - a;
      b = two.y - b;
    });
  }
  /// Tile := x, rounded; `lost`, unless null, takes what the rounding lost.
  template <int MT>
  __device__ void to_tile(unsigned char* tile, unsigned char* lost, float (&x)[MT][8][4],
                          int row) const {
    auto* const to = reinterpret_cast<__half*>(tile);
    auto* const rest = reinterpret_cast<__half*>(lost);
    each_two<MT>(x, row, [&](float& a, float& b, int at) {
      const __half2 two = __floats2half2_rn(a, b);
      *reinterpret_cast<__half2*>(to + at) = two;
      if (rest != nullptr) {
        const float2 back = __half22float2(two);
        *reinterpret_cast<__half2*>(rest + at) = __floats2half2_rn(a - back.x, b - back.y);
      }
    });
  }
  /// x := (C - x) (inverse + rest)^T, by way of C's place and `spare`, where this warp's rows lie.
  template <int MT>
  __device__ void times_inverse(float (&x)[MT][8][4], unsigned char* c, unsigned char* spare,
                                const unsigned char* inverse, int row) const {
    subtract_from<MT>(c, x, row);
    __syncwarp();
    to_tile<MT>(c, spare, x, row);
    __syncwarp();
    clear<MT>(x);
    const unsigned value = shared_address(c), lost = shared_address(spare),
                   by = shared_address(inverse);
#pragma unroll 1
    for (int term = 0; term < 3; ++term)
      multiply_tiles<MT, 8>(x, term == 1 ? lost : value, term == 2 ? by + kTileBytes : by, row,
                            lane);
    __syncwarp();
  }
  /// Rows [row, row + 16 MT) of a tile in shared memory to their place.
  template <int MT>
  __device__ void store_rows(const unsigned char* tile, __half* to, int row) const {
    const auto* const from = reinterpret_cast<const uint4*>(tile + row * 128);
    auto* const at = reinterpret_cast<uint4*>(to + row * kW);
#pragma unroll
    for (int i = 0; i < 4 * MT; ++i) at[i * 32 + lane] = from[i * 32 + lane];
  }

  /// Tile (i, j) := x, finished with the inverse in the stage of `r`; `spare`: two tiles of
  /// scratch.
  __device__ void finish_pair(float (&x)[2][8][4], const Ring<kStages>& r, unsigned char* spare,
                              int i, int j, int ia, int row) const {
    unsigned char* const c = stage(r) + ia * kTileBytes;
    times_inverse<2>(x, c, spare + ia * kTileBytes, stage(r) + kB, row);
    to_tile<2>(c, nullptr, x, row);
    __syncwarp();
    store_rows<2>(c, p.f.tile(j, i - j), row);
    publish(flags(j) + (i - j), 2);
  }

  __device__ void pair_task(const Task& t) {
    const int jb = warp / 4, ia = warp / 2 % 2, row = warp % 2 * 32;
    const int i = int(t.row) + ia, j = int(t.column) + jb, columns = t.columns;
    const bool active = ia < t.rows && jb < columns && i - j >= 2 && i - j <= l.reach_tiles;
    float x[2][8][4];
    clear<2>(x);
    // The first tile column of the sum does not reach the second tile row.
    const int steps = int(t.k1 - t.k0),
              from = active ? max(0, i - l.reach_tiles - int(t.k0)) : steps;
#pragma unroll 1
    for (int k = 0; k < steps; ++k, ring.next()) {
      arrived(ring);
      const unsigned at = shared_address(stage(ring));
      if (k >= from)
        multiply_tiles<2, 8>(x, at + unsigned(ia) * kTileBytes, at + kB + unsigned(jb) * kTileBytes,
                             row, lane);
      release(ring);
    }
    arrived(ring);
    if (jb == 0 && active) finish_pair(x, ring, shared_bytes() + kSpare, i, j, ia, row);
    if (columns == 2) {
      meet(1, 32 * kWarps);  // the first tile column's blocks are in the stage
      const Ring<kStages> first = ring;
      ring.next();
      arrived(ring);
      if (jb == 1 && active && i - j < l.reach_tiles)
        multiply_tiles<2, 8>(x, shared_address(stage(first)) + unsigned(ia) * kTileBytes,
                             shared_address(stage(ring)) + kB, row, lane);
      order_shared_copies();
      release(first);
      const Ring<kStages> between = ring;
      ring.next();
      arrived(ring);
      if (jb == 1 && active) finish_pair(x, ring, stage(between), i, j, ia, row);
      order_shared_copies();
      release(between);
    }
    order_shared_copies();
    release(ring);
    ring.next();
  }

  __device__ __noinline__ void diagonal_task(const Task& t) {
    const int j = int(t.row);
    const bool below = j > 0;  // tile (j, j - 1) is ours
    const int row = warp % 4 * 16;
    const bool is_below = warp < 4;  // warps 0-3: (j, j - 1), 4-7: (j, j)
    float x[1][8][4];
    clear<1>(x);
    const int steps = int(t.k1 - t.k0);
#pragma unroll 1
    for (int k = 0; k < steps; ++k, ring.next()) {
      arrived(ring);
      const unsigned at = shared_address(stage(ring));
      multiply_tiles<1, 8>(x, at + kTileBytes, is_below ? at : at + kTileBytes, row, lane,
                           is_below ? 8 : 2 * (warp % 4) + 2);
      release(ring);
    }
    unsigned char* const held = stage(ring);
    const Ring<kStages> first = ring;
    for (int s = 0; s < kStages; ++s, ring.next()) arrived(ring);
    unsigned char* const spare = shared_bytes() + kSpare;
    unsigned char* const beside = spare + kTileBytes;  // the finished tile (j, j - 1)
    float* const s = parts::shared_numbers<float>();
    if (is_below) {
      if (below) {
        times_inverse<1>(x, held, spare, held + kB, row);
        to_tile<1>(beside, nullptr, x, row);
      }
    } else {
      subtract_from<1>(below ? held + kTileBytes : held + kB, x, row);
    }
    meet(1, 32 * kWarps);  // the stages are free, `beside` is there
    if (is_below) {
      if (below) {
        store_rows<1>(beside, p.f.tile(j - 1, 1), row);
        publish(flags(j - 1) + 1, 1);
      }
    } else {
      if (below) {
        float product[1][8][4];
        clear<1>(product);
        multiply_tiles<1, 8>(product, shared_address(beside), shared_address(beside), row, lane,
                             2 * (warp % 4) + 2);
#pragma unroll
        for (int n = 0; n < 8; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) x[0][n][e] -= product[0][n][e];
      }
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          s[(8 * n + lane % 4 * 2 + e % 2) * parts::kLD + row + lane / 4 + e / 2 * 8] = x[0][n][e];
    }
    meet(1, 32 * kWarps);
    if (warp < 4) {
      const int failed = parts::factor_and_invert(warp, lane);
      if (failed != 0 && warp == 0 && lane == 0)
        atomicMin(l.parts[0].failed, (unsigned long long)(Index(j) * kW + failed));
    }
    meet(1, 32 * kWarps);
    store_inverse(j, s);
    publish(flags(j), 1);
    order_shared_copies();
    meet(1, 32 * kWarps);  // all have read
    ring = first;
    for (int q = 0; q < kStages; ++q, ring.next()) release(ring);
  }

  /// Each of the 256 threads two neighbouring pieces of a row.
  __device__ void store_inverse(Index j, const float* s) const {
    const int thread = warp * 32 + lane, r = thread % kW, q = thread / kW * 2;
    auto* const to = reinterpret_cast<uint4*>(p.f.tile(j, 0) + r * kW);
    auto* const rest = reinterpret_cast<uint4*>(p.f.rest + j * kTile + r * kW);
    const float root = s[parts::kRoots + r];
#pragma unroll
    for (int piece = q; piece < q + 2; ++piece) {
      __align__(16) __half2 value[4];
      __align__(16) __half2 lost[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int c = piece * 8 + 2 * e;
        const float a = r >= c ? s[parts::kInverse + c * parts::kLD + r] * root : 0.0f;
        const float b = r >= c + 1 ? s[parts::kInverse + (c + 1) * parts::kLD + r] * root : 0.0f;
        value[e] = __floats2half2_rn(a, b);
        const float2 back = __half22float2(value[e]);
        lost[e] = __floats2half2_rn(a - back.x, b - back.y);
      }
      to[piece ^ (r % 8)] = *reinterpret_cast<const uint4*>(value);
      rest[piece ^ (r % 8)] = *reinterpret_cast<const uint4*>(lost);
    }
  }

  __device__ void run() {
    for (unsigned number = 0;; ++number) {
      const int slot = number % 2;
      wait_for(&task_full[slot], number / 2 % 2);
      const Task t = tasks[slot];
      __syncwarp();
      if (lane == 0) arrive(&task_empty[slot]);
      if (t.kind == parts::stop) return;
      if (t.kind == parts::diagonal)
        diagonal_task(t);
      else
        pair_task(t);
    }
  }
};

}  // namespace terrace::band::low::factoring
