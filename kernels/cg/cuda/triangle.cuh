// Kernels of the packed triangle on CUDA; see triangle.cu.
//
// The sweep takes tile rows in pairs, so that the two tiles of a column make one partial sum: from
// the left a tile of the upper row, the one below it, ..., then what the lower row has more.
//
//   slot 2 m      | 0 2 4 6         A block of 8 warps takes *units*, runs of `unit` tiles in this
//   slot 2 m + 1  | 1 3 5 7 8 9     order. A warp owns 32 rows of a tile, a lane two columns.
//
// The matrix comes through a ring in shared memory that each warp fills for itself, across tiles,
// pairs and units. Row sums stay in registers until the pair or the unit ends:
//
//   rows[(2 k + s) 256 + i]   unit k, tile row in slot s, row i: 2 k + s never repeats
//   columns[t 64 + c]         column c of tile t (the lower one of two)
//
// The gather adds both in an order that only the matrix decides. Both kernels may start before the
// one ahead of them has ended, and wait for it before they touch what changes.
#pragma once
#include "kernels/base/cuda/barriers.cuh"
#include "kernels/base/cuda/early.cuh"
#include "kernels/base/cuda/sums.cuh"
#include "kernels/cg/triangle.hpp"

namespace terrace::cg::triangle {

constexpr int sweep_threads = 256, sweep_warps = 8, warp_rows = 32, stage_bytes = 8192;

struct Sweep {
  const char* a;  ///< tiles
  const Index *row, *start;
  Index slots, tiles;  ///< tile rows held, their tiles
  const double* p;
  double *columns, *rows;
  unsigned long long* taken;  ///< units that blocks took beyond the first ones; zero at the start
  Index units;
  int unit;       ///< tiles
  unsigned mask;  ///< of the high words: all, or all but the sign
  const double* skip;
  bool all;  ///< tile rows are held: slot s is tile row s
};

/// Last s in [0, count) with list[s] <= value (list[0] is). All lanes of a warp.
__device__ inline Index last_not_above(const Index* list, Index count, Index value) {
  const Index lane = threadIdx.x & 31;
  Index low = 0, high = count;
  while (high - low > 1) {
    const Index step = (high - low + 31) / 32, probe = low + lane * step;
    const unsigned below = __ballot_sync(0xffffffffu, probe < high && list[probe] <= value);
    low += (__popc(below) - 1) * step;
    high = low + step < high ? low + step : high;
  }
  return low;
}

/// First tile of a slot; `all` tile rows are held: no need to look.
__device__ inline Index first_tile(const Index* start, bool all, Index slot) {
  return all ? across / 2 * slot * (slot + 1) : start[slot];
}
/// The slot of a tile. All lanes of a warp.
__device__ inline Index slot_of(const Index* start, Index slots, bool all, Index t) {
  if (!all) return last_not_above(start, slots, t);
  Index slot = Index((sqrtf(1.0f + 2.0f * float(t)) - 1.0f) * 0.5f);
  while (first_tile(start, all, slot + 1) <= t) ++slot;
  while (first_tile(start, all, slot) > t) --slot;
  return slot;
}
/// Tile rows in slots `slot` (even) and the next, where there is one: tiles [begin, middle) and
/// [middle, end); until `both` in the order of the sweep they alternate.
struct Pair {
  Index slot, begin, middle, end, both;
  __device__ Pair(const Index* start, Index slots, bool all, Index even)
      : slot(even),
        begin(first_tile(start, all, even)),
        middle(first_tile(start, all, even + 1)),
        end(even + 1 < slots ? first_tile(start, all, even + 2) : middle),
        both(end > middle ? 2 * middle - begin : begin) {}
  [[nodiscard]] __device__ bool two() const { return end > middle; }
  /// Row of the pair, and tile, number z of the order.
  [[nodiscard]] __device__ int row(Index z) const { return z < both ? int(z - begin) & 1 : two(); }
  [[nodiscard]] __device__ Index tile(Index z) const {
    if (z >= both) return z;
    return begin + (z - begin) / 2 + (row(z) != 0 ? middle - begin : 0);
  }
  [[nodiscard]] __device__ Index column(Index z) const {
    return tile(z) - (row(z) != 0 ? middle : begin);
  }
};

/// v[k] summed over the lanes, for k = lane * count / 32, in all lanes that share k.
template <int half, int mask, int count>
__device__ __forceinline__ double fold(double (&v)[count]) {
  if constexpr (half > 0) {
    const bool upper = (threadIdx.x & mask) != 0;
#pragma unroll
    for (int k = 0; k < half; ++k) {
      const double sent = upper ? v[k] : v[k + half], kept = upper ? v[k + half] : v[k];
      v[k] = kept + __shfl_xor_sync(0xffffffffu, sent, mask);
    }
    return fold<half / 2, mask / 2>(v);
  } else if constexpr (mask > 0) {
    v[0] += __shfl_xor_sync(0xffffffffu, v[0], mask);
    return fold<0, mask / 2>(v);
  } else {
    return v[0];
  }
}

/// These are read again soon, and overwritten in the next product: they need not reach HBM.
__device__ inline Word read_again() {
  Word policy = 0;
#if __CUDA_ARCH__ >= 800
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
#endif
  return policy;
}
__device__ inline void store_kept(double* to, double value, Word policy) {
#if __CUDA_ARCH__ >= 800
  asm volatile("st.global.L2::cache_hint.f64 [%0], %1, %2;" ::"l"(to), "d"(value), "l"(policy)
               : "memory");
#endif
}
__device__ inline double2 load_kept(const double2* from, Word policy) {
  double2 v = make_double2(0, 0);
#if __CUDA_ARCH__ >= 800
  asm volatile("ld.global.L2::cache_hint.v2.f64 {%0, %1}, [%2], %3;"
               : "=d"(v.x), "=d"(v.y)
               : "l"(from), "l"(policy)
               : "memory");
#endif
  return v;
}
template <int bytes>
__device__ inline void copy_own(void* to, const void* from) {
#if __CUDA_ARCH__ >= 800
  if constexpr (bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(device::shared_address(to)),
                 "l"(from)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(device::shared_address(to)),
                 "l"(from)
                 : "memory");
#endif
}

/// A warp's ring of stages: what comes next into it, and where it is read. `bulk`: lane 0 orders a
/// stage as one or two copies (compute capability 9); otherwise lanes copy what they will read.
template <Read read, int stages, bool bulk>
struct Ring {
  static constexpr int deep = read == Read::head ? 32 : 16;  // rows a stage
  static constexpr int row_bytes = read == Read::whole ? 512 : 256;
  static constexpr int pieces = warp_rows / deep;
  static constexpr int fixed = 2 + stages / pieces;  // units taken unasked, and looks ahead
  const Sweep& s;
  const Index* const queue;
  char* const memory;
  Word* const full;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const Word policy = device::read_once();
  int unit = 0, piece = 0;  // next to copy: place in the queue, stage of the tile
  Index z = 0, end = 0;     // tile, and the end of the unit
  Pair pair{s.start, s.slots, s.all, 0};
  const char* source = nullptr;
  int slot = 0;  // next to read
  unsigned parity = 0;

  __device__ __forceinline__ Ring(const Sweep& sweep, const Index* units, char* ring,
                                  Word* barriers)
      : s(sweep), queue(units), memory(ring), full(barriers) {}
  [[nodiscard]] __device__ __forceinline__ Pair pair_of(Index tile_z) const {
    return Pair(s.start, s.slots, s.all, slot_of(s.start, s.slots, s.all, tile_z) & ~Index(1));
  }
  __device__ __forceinline__ void aim() {
    source = s.a + (pair.tile(z) * (tile * 8) + warp * warp_rows * row_bytes);
  }
  __device__ __forceinline__ void open() {
    const Index number = queue[unit % (2 * fixed)];
    z = end = 0;
    if (number >= s.units) return;
    z = number * s.unit;
    end = z + s.unit < s.tiles ? z + s.unit : s.tiles;
    pair = pair_of(z);
    aim();
  }
  __device__ __forceinline__ void copy(char* to, const char* from, Word* barrier) const {
    if constexpr (bulk) {
      if (lane == 0) {
        device::arrive_for_bytes(barrier, deep * row_bytes * (read == Read::both ? 2 : 1));
        device::copy_in_bulk(to, from, deep * row_bytes, barrier, policy);
        if constexpr (read == Read::both)
          device::copy_in_bulk(to + deep * row_bytes, from + tile * 4, deep * row_bytes, barrier,
                               policy);
      }
    } else {
      constexpr int own = row_bytes / 32;
#pragma unroll
      for (int r = 0; r < deep; ++r) {
        const int at = r * row_bytes + lane * own;
        copy_own<own>(to + at, from + at);
        if constexpr (read == Read::both)
          copy_own<own>(to + deep * row_bytes + at, from + tile * 4 + at);
      }
    }
  }
  /// The next piece of a tile, if there is one, into stage k.
  __device__ __forceinline__ void fill(int k) {
    if (z < end) {
      copy(memory + k * stage_bytes, source + piece * deep * row_bytes, full + k);
      if (++piece == pieces) {
        piece = 0;
        if (++z == end) {
          ++unit;
          open();
        } else {
          if (z == pair.end) pair = Pair(s.start, s.slots, s.all, pair.slot + 2);
          aim();
        }
      }
    }
    if constexpr (!bulk) asm volatile("cp.async.commit_group;" ::: "memory");
  }
  /// The first filling: stages with something to read.
  __device__ __forceinline__ int start() {
    open();
    int filled = 0;
    for (int k = 0; k < stages; ++k) {
      filled += z < end ? 1 : 0;
      fill(k);
    }
    return filled;
  }
  /// Waits for the copies into the first `filled` stages, which nobody will read.
  __device__ __forceinline__ void drain(int filled) const {
    if constexpr (bulk)
      for (int k = 0; k < filled; ++k) device::wait_for(&full[k], 0);
    else
      asm volatile("cp.async.wait_all;" ::: "memory");
  }
  /// Both entries of a lane in row r of a stage.
  [[nodiscard]] __device__ __forceinline__ double2 entries(const char* here, int r) const {
    unsigned high_x, high_y, low_x = 0, low_y = 0;
    if constexpr (read == Read::whole) {
      const uint4 v = reinterpret_cast<const uint4*>(here)[r * 32 + lane];
      low_x = v.x, high_x = v.y, low_y = v.z, high_y = v.w;
    } else {
      const uint2 head = reinterpret_cast<const uint2*>(here)[r * 32 + lane];
      high_x = head.x, high_y = head.y;
      if constexpr (read == Read::both) {
        const uint2 tail = reinterpret_cast<const uint2*>(here + deep * row_bytes)[r * 32 + lane];
        low_x = tail.x, low_y = tail.y;
        high_x -= low_x >> 31;
        high_y -= low_y >> 31;
      }
    }
    return make_double2(__hiloint2double(int(high_x & s.mask), int(low_x)),
                        __hiloint2double(int(high_y & s.mask), int(low_y)));
  }
  /// The next tile of the ring: row_sum += A pc, column += A^T row_p.
  __device__ __forceinline__ void take_tile(double (&row_sum)[warp_rows], const double* row_p,
                                            double2 pc, double2& column) {
#pragma unroll
    for (int k = 0; k < pieces; ++k) {
      if constexpr (bulk)
        device::wait_for(&full[slot], parity);
      else
        asm volatile("cp.async.wait_group %0;" ::"n"(stages - 1) : "memory");
      const char* const here = memory + slot * stage_bytes;
#pragma unroll
      for (int r = 0; r < deep; ++r) {
        const double2 a = entries(here, r);
        const double pr = row_p[k * deep + r];
        double& mine = row_sum[k * deep + r];
        mine = fma(a.x, pc.x, mine);
        mine = fma(a.y, pc.y, mine);
        column.x = fma(a.x, pr, column.x);
        column.y = fma(a.y, pr, column.y);
      }
      __syncwarp();
      fill(slot);
      if (++slot == stages) {
        slot = 0;
        parity ^= 1;
      }
    }
  }
};

/// Sums of a tile's columns over the warps, to their place. All threads of the first `width`.
__device__ __forceinline__ void store_columns(const Sweep& s, const double2* of_warps, Index t,
                                              Word keep) {
  const auto* const c = reinterpret_cast<const double*>(of_warps) + threadIdx.x;
  double total = c[0];
#pragma unroll
  for (int w = 1; w < sweep_warps; ++w) total += c[w * width];
  store_kept(s.columns + t * width + threadIdx.x, total, keep);
}

template <Read read, int stages, bool bulk>
__global__ void __launch_bounds__(sweep_threads, 1) sweep_kernel(const Sweep s) {
#if __CUDA_ARCH__ >= 800
  using Stages = Ring<read, stages, bulk>;
  constexpr int R = warp_rows, fixed = Stages::fixed;
  extern __shared__ __align__(128) char ring_memory[];
  __shared__ Word full[sweep_warps][stages];
  __shared__ double p_row[sweep_warps][2][R];
  __shared__ double2 sides[2][sweep_warps][32];
  __shared__ Index queue[2 * fixed];
  let_next_begin();

  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const Word keep = read_again();
  if (threadIdx.x < fixed) queue[threadIdx.x] = blockIdx.x + Index(threadIdx.x) * gridDim.x;
  if (bulk && lane == 0) {
    for (int k = 0; k < stages; ++k) device::make_barrier(&full[warp][k], 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  Stages ring(s, queue, ring_memory + warp * stages * stage_bytes, full[warp]);
  const int filled = ring.start();
  wait_for_launch_ahead();
  if (s.skip != nullptr && *s.skip != 0) return ring.drain(filled);
  const auto* const p2 = reinterpret_cast<const double2*>(s.p);
  double sum[2][R];
  double2 column, pc;
  int side = 0;
  for (int turn = 0;; ++turn) {
    const Index unit = queue[turn % (2 * fixed)];
    if (unit >= s.units) break;
    unsigned long long taken = 0;
    if (threadIdx.x == 0) taken = atomicAdd(s.taken, 1ull);
    const Index to = (unit + 1) * s.unit < s.tiles ? (unit + 1) * s.unit : s.tiles;
    bool first = true;
    for (Index z = unit * s.unit; z < to;) {
      const Pair pair = ring.pair_of(z);
      const Index stop = to < pair.end ? to : pair.end;
      const bool two = pair.two(), upper = !two || z < pair.both;
      __syncwarp();
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (h == 0 || two) {
          const Index row = s.all ? pair.slot + h : s.row[pair.slot + h];
          p_row[warp][h][lane] = s.p[row * height + warp * R + lane];
        }
#pragma unroll
        for (int r = 0; r < R; ++r) sum[h][r] = 0;
      }
      __syncwarp();
      pc = p2[pair.column(z) * 32 + lane];
      while (z < stop) {
        const Index lowest = z < pair.both ? z + 1 : z;  // the last tile of this column
        const double2 pc_next =
            p2[pair.column(lowest + 1 < stop ? lowest + 1 : lowest) * 32 + lane];
        column = make_double2(0, 0);
        if (upper && (z < pair.both || !two)) ring.take_tile(sum[0], p_row[warp][0], pc, column);
        if (two) ring.take_tile(sum[1], p_row[warp][1], pc, column);
        sides[side][warp][lane] = column;
        if (first && threadIdx.x == 0)
          queue[(turn + fixed) % (2 * fixed)] = Index(taken) + Index(fixed) * gridDim.x;
        first = false;
        __syncthreads();
        if (threadIdx.x < width) store_columns(s, &sides[side][0][0], pair.tile(lowest), keep);
        side ^= 1;
        pc = pc_next;
        z = lowest + 1;
      }
      double* const out = s.rows + (2 * unit + pair.slot) * height + warp * R + lane;
      if (upper) store_kept(out, fold<R / 2, 16>(sum[0]), keep);
      if (two) store_kept(out + height, fold<R / 2, 16>(sum[1]), keep);
    }
  }
#endif
}

template <Read read, int stages, bool bulk>
void launch_sweep(cudaStream_t stream, const Sweep& s, int multiprocessors) {
  constexpr int bytes = sweep_warps * stages * stage_bytes;
  const auto kernel = sweep_kernel<read, stages, bulk>;
  static OncePerDevice<bool> once;
  (void)once([&] { return allow_shared(kernel, bytes); });
  const unsigned blocks = unsigned(std::min<Index>(s.units, multiprocessors));
  launch_early(kernel, blocks, sweep_threads, bytes, stream, s);
}

}  // namespace terrace::cg::triangle
