// For dense_cluster.cu: one column of a panel, eliminated by the processors of a cluster together.
#pragma once
#include "kernels/base/cuda/dmma.cuh"
#include "kernels/dense/cuda/panel.cuh"

#ifdef TERRACE_SM90A

namespace terrace::dense::cluster {

constexpr int most_processors = 16;  // of a cluster
constexpr int panel_most = 128;      // columns of one launch

__device__ inline unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
/// 16 bytes of a message: a number and, beside it, which column it belongs to. What has come is
/// recognised by that, so that there is no flag, fence or reset. Counts on aligned stores of 16
/// bytes to come whole, as they do on compute capability 9.0; PTX promises 8.
struct Chunk {
  Bits value;
  unsigned row, tag;  ///< row only in the first chunk: bit 31 is the sign of the pivot
};
__device__ inline void send(unsigned to, unsigned processor, const Chunk& chunk) {
  asm volatile(
      "{\n\t.reg .u32 there;\n\t.reg .u64 two;\n\t"
      "mapa.shared::cluster.u32 there, %0, %1;\n\t"
      "mov.b64 two, {%3, %4};\n\t"
      "st.relaxed.cluster.shared::cluster.v2.u64 [there], {%2, two};\n\t}" ::"r"(to),
      "r"(processor), "l"(chunk.value), "r"(chunk.row), "r"(chunk.tag)
      : "memory");
}
/// The chunk at `from` of every lane that `wants` one, once they have come with `tag`.
__device__ inline Chunk receive(unsigned from, bool wants, unsigned tag) {
  Chunk chunk{0, 0, tag};
  do {
    if (wants)
      asm volatile(
          "{\n\t.reg .u64 two;\n\t"
          "ld.relaxed.cluster.shared::cta.v2.u64 {%0, two}, [%3];\n\t"
          "mov.b64 {%1, %2}, two;\n\t}"
          : "=l"(chunk.value), "=r"(chunk.row), "=r"(chunk.tag)
          : "r"(from)
          : "memory");
  } while (!__all_sync(~0u, chunk.tag == tag));
  return chunk;
}
__device__ inline void arrive_at_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ inline void wait_at_barrier() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// |value| as ordered bits, its exponent one up so that 0 means no candidate; not finite counts as
/// infinity.
__device__ inline Bits rank_of(double value) {
  const unsigned high = unsigned(__double2hiint(value)) & 0x7fffffffu;
  const bool finite = high < 0x7ff00000u;
  return Bits((finite ? high : 0x7ff00000u) + 1) << 32 |
         (finite ? unsigned(__double2loint(value)) : 0u);
}
__device__ inline bool is_usable(Bits key) {
  return key > Bits(1) << 32 && key < Bits(0x7ff00001u) << 32;
}
__device__ inline bool is_infinite(Bits key) { return key == Bits(0x7ff00001u) << 32; }

/// One bit: the lane with the best (key, row), the largest key, the lowest row among equal ones.
__device__ inline unsigned best_lane(Bits key, int row) {
  const unsigned high = unsigned(key >> 32), best = __reduce_max_sync(~0u, high);
  unsigned mask = __ballot_sync(~0u, high == best);
  if (mask & (mask - 1)) {
    const unsigned low = unsigned(key);
    const unsigned best_low = __reduce_max_sync(~0u, high == best ? low : 0u);
    const bool equal = high == best && low == best_low;
    const unsigned lowest = __reduce_min_sync(~0u, equal ? unsigned(row) : unsigned(INT_MAX));
    mask = __ballot_sync(~0u, equal && unsigned(row) == lowest);
  }
  return mask & (0u - mask);
}

__device__ inline double reciprocal(double p) {
  double r;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(p));
  r = fma(r, fma(-p, r, 1.0), r);
  return fma(r, fma(-p, r, 1.0), r);
}

template <class Real>
struct PairOf;
template <>
struct PairOf<double> {
  using Type = double2;
};
template <>
struct PairOf<float> {
  using Type = float2;
};

/// Shared memory of one processor, in doubles; everything begins at a multiple of 16 bytes.
template <class Real, int W>
struct Layout {
  int rows;  // of the processor, a multiple of 32
  static constexpr int ld_u = panel_most + 4, ld_l = W + 4;
  static constexpr int message = 2 * W;  // header, a[1], a[2] ... as chunks
  static constexpr int row = W + 2;      // key, row, unused, a[0], a[1] ...
  __host__ __device__ int ld_n() const { return rows + 32 / int(sizeof(Real)); }
  __host__ __device__ int n() const { return 0; }  // column by column, Reals
  __host__ __device__ int u() const { return n() + W * ld_n() * int(sizeof(Real)) / 8; }
  __host__ __device__ int l() const { return u() + W * ld_u; }  // L, then its inverse blocks
  __host__ __device__ int board() const { return l() + 2 * W * ld_l; }
  __host__ __device__ int stage() const { return board() + 2 * most_processors * message; }
  __host__ __device__ int pivot() const { return stage() + 2 * 16 * row; }  // a row for every warp
  __host__ __device__ int warps() const { return pivot() + 16 * row; }      // 2 x 16 (key, row)
  __host__ __device__ int slots() const { return warps() + 2 * 16 * 2; }    // W ints
  __host__ __device__ int fresh() const { return slots() + W / 2; }         // a byte a row
  __host__ __device__ int bytes() const { return fresh() * 8 + rows; }
};

/// What all columns of a launch have in common.
template <class Real>
struct Place {
  StripOf<Real> s;
  Index* pivot_slot;
  double* raw;  // W x panel_most: pivot rows right of the leaf, for all processors
  int processors, me, base, rows, j0;
};

template <class Real, int W, int R, int T>
struct Leaf {
  static constexpr int warps = T / 32;
  Real a[R][W];
  unsigned open;  // bit q: row q may become a pivot row
  int step;       // columns since the kernel began
  bool stopped;

  /// The warp's best row goes to its stage.
  template <int LIVE>
  __device__ __forceinline__ void offer(const Place<Real>& at, double* stages,
                                        ulonglong2* found) const {
    const int tid = int(threadIdx.x), warp = tid / 32, lane = tid % 32;
    double* const stage = stages + warp * Layout<Real, W>::row;
    Bits key = 0;
    int row = INT_MAX, which = 0;
    if constexpr (std::is_same_v<Real, double>) {
#pragma unroll
      for (int q = 0; q < R; ++q) {
        const Bits mine = rank_of(a[q][0]);
        if ((open >> q & 1) && mine > key) {
          key = mine;
          row = at.base + q * T + tid;
          which = q;
        }
      }
    } else {
      float most = -1;
#pragma unroll
      for (int q = 0; q < R; ++q) {
        const float size = fabsf(a[q][0]) < INFINITY ? fabsf(a[q][0]) : INFINITY;
        if ((open >> q & 1) && size > most) {
          most = size;
          row = at.base + q * T + tid;
          which = q;
        }
      }
      if (most >= 0) key = rank_of(double(most));
    }
    if (best_lane(key, row) == 1u << lane) {
#pragma unroll
      for (int q = 0; q < R; ++q)
        if (q == which) {
          const unsigned sign = unsigned(__double2hiint(double(a[q][0]))) & 0x80000000u;
          found[warp] = {key, Bits(unsigned(row) | sign)};
#pragma unroll
          for (int c = 1; c < LIVE; c += 2)
            *reinterpret_cast<double2*>(stage + 1 + c) = {double(a[q][c]),
                                                          c + 1 < LIVE ? double(a[q][c + 1]) : 0.0};
        }
    }
  }

  /// One column, a[.][0], number j of the leaf; LIVE columns are still wanted. Leaves a[.][c] one
  /// place to the left.
  template <int LIVE>
  __device__ void column(const Place<Real>& at, const Layout<Real, W>& layout, double* memory,
                         int j) {
    const StripOf<Real>& s = at.s;
    const int tid = int(threadIdx.x), warp = tid / 32, lane = tid % 32;
    constexpr int slot = Layout<Real, W>::message, size = Layout<Real, W>::row;
    double* const board = memory + layout.board() + (step & 1) * most_processors * slot;
    double* const stages = memory + layout.stage() + (step & 1) * 16 * size;
    const unsigned tag = unsigned(step) + 1;
    ulonglong2* const found =
        reinterpret_cast<ulonglong2*>(memory + layout.warps()) + (step & 1) * 16;
    offer<LIVE>(at, stages, found);
    __syncthreads();
    // The processor's best row goes to all.
    constexpr unsigned row_bits = 0x7fffffffu;
    const ulonglong2 other = lane < warps ? found[lane] : ulonglong2{0, INT_MAX};
    const int best = __ffs(int(best_lane(other.x, int(unsigned(other.y) & row_bits)))) - 1;
    if (lane < LIVE) {
      const unsigned to = shared_address(board + at.me * slot + lane * 2);
      const Chunk chunk =
          lane == 0 ? Chunk{found[best].x, unsigned(found[best].y), tag}
                    : Chunk{Bits(__double_as_longlong(stages[best * size + 1 + lane])), 0, tag};
      for (int processor = warp; processor < at.processors; processor += warps)
        send(to, unsigned(processor), chunk);
    }
    ++step;
    const Chunk head = receive(shared_address(board + lane * slot), lane < at.processors, tag);
    const int winner =
        __ffs(int(best_lane(lane < at.processors ? head.value : 0,
                            lane < at.processors ? int(head.row & row_bits) : INT_MAX))) -
        1;
    const Bits key = __shfl_sync(~0u, head.value, winner);
    const unsigned signed_row = __shfl_sync(~0u, head.row, winner);
    const int row = int(signed_row & row_bits);
    const bool usable = is_usable(key);
    const double pivot = __longlong_as_double(
        (long long)((key - (Bits(1) << 32)) | Bits(signed_row & ~row_bits) << 32));
    const double inverse = reciprocal(pivot);
    const Chunk mine =
        receive(shared_address(board + winner * slot + lane * 2), lane > 0 && lane < LIVE, tag);
    const double value = lane == 0 ? pivot : __longlong_as_double((long long)mine.value);
    Real* const p = reinterpret_cast<Real*>(memory + layout.pivot() + warp * size) + 1;
    if (lane < LIVE) p[lane] = Real(value);
    __syncwarp();
    const int column = at.j0 + j;
    if (tid == 0) reinterpret_cast<int*>(memory + layout.slots())[j] = usable ? row : -1;
    if (!usable) {
      pass<LIVE>(at, layout, memory, j, row, is_infinite(key));
      return;
    }
    if (at.me == 0 && warp == 1 % warps && lane < LIVE && j + lane < W && column + lane < s.width)
      s.lu[column * s.block + column + lane] = value;
    const unsigned exponent =
        unsigned(key >> 52);  // one over what is too small or too large for 1/p
    constexpr unsigned far = std::is_same_v<Real, double> ? 959 : 100;
    const bool divide = exponent < 1023 - far || exponent > 1023 + far;
    Real l[R];
#pragma unroll
    for (int q = 0; q < R; ++q) {
      const int lr = q * T + tid, r = at.base + lr;
      if (lr < at.rows && r == row) {
        open &= ~(1u << q);
        reinterpret_cast<unsigned char*>(memory + layout.fresh())[lr] = 1;
#pragma unroll
        for (int c = 1; c < LIVE; ++c) a[q][c] = 0;
        a[q][0] = -1;
      }
      l[q] = a[q][0] * Real(inverse);
      if (divide) l[q] = Real(double(a[q][0]) / pivot);
    }
#pragma unroll
    for (int c = 1; c < LIVE; c += 2) {
      using Pair = typename PairOf<Real>::Type;
      const Pair two = *reinterpret_cast<const Pair*>(p + c);
#pragma unroll
      for (int q = 0; q < R; ++q) {
        a[q][c - 1] = fma(-l[q], two.x, a[q][c]);
        if (c + 1 < LIVE) a[q][c] = fma(-l[q], two.y, a[q][c + 1]);
      }
    }
    finish(at, layout, memory, j, l);
  }

  __device__ void finish(const Place<Real>& at, const Layout<Real, W>& layout, double* memory,
                         int j, const Real (&l)[R]) {
#pragma unroll
    for (int q = 0; q < R; ++q) {
      const int lr = q * T + int(threadIdx.x), r = at.base + lr;
      if (lr >= at.rows) continue;
      reinterpret_cast<Real*>(memory + layout.n())[j * layout.ld_n() + lr] = l[q];
      if (r < at.s.slots) at.s.x[r + (at.j0 + j) * at.s.ld] = l[q];
    }
  }

  /// A column without a usable pivot: the end, or, where columns are passed over, a row of the
  /// identity in LU.
  template <int LIVE>
  __device__ void pass(const Place<Real>& at, const Layout<Real, W>& layout, double* memory, int j,
                       int row, bool infinite) {
    const StripOf<Real>& s = at.s;
    const int column = at.j0 + j, tid = int(threadIdx.x);
    if (at.me == 0 && tid == 0) {
      at.pivot_slot[column] = -1;
      if (!s.skip) {
        s.info[0] = s.offset + column;
        s.info[1] = infinite ? 2 : 1;
      }
    }
    stopped = !s.skip;
    if (stopped) return;
    if (at.me == 0)
      for (int c = tid; c < W && j + c < W && column + c < s.width; c += T)
        s.lu[column * s.block + column + c] = c == 0 ? 1.0 : 0.0;
    Real l[R];
#pragma unroll
    for (int q = 0; q < R; ++q) {
      const int lr = q * T + tid, r = at.base + lr;
      if (lr < at.rows && r == row && infinite) {  // not finite: let it show
        open &= ~(1u << q);
        s.column_of[r] = s.first + column;
      }
      l[q] = 0;
#pragma unroll
      for (int c = 1; c < LIVE; ++c) a[q][c - 1] = a[q][c];
    }
    finish(at, layout, memory, j, l);
  }

  template <int LIVE>
  __device__ void columns(const Place<Real>& at, const Layout<Real, W>& layout, double* memory,
                          int& j, int count) {
    const int end = min(count, W - LIVE + W / 4);
#pragma unroll 1
    for (; j < end && !stopped; ++j) column<LIVE>(at, layout, memory, j);
  }
};

}  // namespace terrace::dense::cluster

#endif
