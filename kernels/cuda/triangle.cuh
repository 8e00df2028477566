// Kernels of the packed triangle on CUDA; see triangle.cu.
//
// The sweep: a block of 8 warps takes *units*, runs of `unit` tiles. A warp owns 32 rows of a tile,
// a lane two columns. The matrix comes through a ring in shared memory that each warp fills for
// itself, across tiles, rows of tiles and units. Row sums stay in registers until the tile row or
// the unit ends:
//
//   rows[(k + s) 256 + i]   unit k, tile row in slot s, row i: k + s never repeats
//   columns[t 64 + c]       tile t, column c
//
// The gather adds both in an order that only the matrix decides. Both kernels may start before the
// one ahead of them has ended, and wait for it before they touch what changes.
#pragma once
#include "kernels/cuda/barriers.cuh"
#include "kernels/cuda/sums.cuh"
#include "kernels/triangle.hpp"

namespace terrace::triangle {

constexpr int sweep_threads = 256, sweep_warps = 8, warp_rows = 32, stage_bytes = 4096;

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
__device__ inline void wait_for_launch_ahead() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

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

#if __CUDA_ARCH__ >= 900
__device__ inline void copy_bulk(void* to, const void* from, int bytes, Word* barrier,
                                 Word policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(device::shared_address(to)),
      "l"(from), "r"(bytes), "r"(device::shared_address(barrier)), "l"(policy)
      : "memory");
}
__device__ inline void expect_bytes(Word* barrier, int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(device::shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
#endif
/// The matrix shall not push the vectors and partial sums out of the second-level cache.
__device__ inline Word read_once() {
  Word policy = 0;
#if __CUDA_ARCH__ >= 800
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
#endif
  return policy;
}
template <int bytes>
__device__ inline void copy_own(void* to, const void* from, Word policy) {
#if __CUDA_ARCH__ >= 800
  if constexpr (bytes == 16)
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(
                     device::shared_address(to)),
                 "l"(from), "l"(policy)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global.L2::cache_hint [%0], [%1], 8, %2;" ::"r"(
                     device::shared_address(to)),
                 "l"(from), "l"(policy)
                 : "memory");
#endif
}

/// `bulk`: lane 0 orders a stage as one or two copies (compute capability 9); otherwise every lane
/// copies what it will read.
template <Read read, int stages, bool bulk>
__global__ void __launch_bounds__(sweep_threads, 1) sweep_kernel(const Sweep s) {
#if __CUDA_ARCH__ >= 800
  constexpr int R = warp_rows, deep = read == Read::head ? 16 : 8;  // rows a stage
  constexpr int row_bytes = read == Read::whole ? 512 : 256;
  constexpr int pieces = R / deep;
  constexpr int fixed = 2 + stages / pieces;  // units that a block takes unasked, and looks ahead
  extern __shared__ __align__(128) char ring_memory[];
  __shared__ Word full[sweep_warps][stages];
  __shared__ double p_row[sweep_warps][R];
  __shared__ double2 sides[2][sweep_warps][32];
  __shared__ Index queue[2 * fixed];
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif

  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  char* const ring = ring_memory + warp * stages * stage_bytes;
  const Word policy = read_once();
  if (threadIdx.x < fixed) queue[threadIdx.x] = blockIdx.x + Index(threadIdx.x) * gridDim.x;
  if (bulk && lane == 0) {
    for (int k = 0; k < stages; ++k) device::make_barrier(&full[warp][k], 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  // What comes next into the ring.
  int ahead = 0, ahead_piece = 0;
  Index ahead_tile = 0, ahead_end = 0;
  const char* source = nullptr;
  const auto open = [&] {
    const Index unit = queue[ahead % (2 * fixed)];
    ahead_tile = ahead_end = 0;
    if (unit < s.units) {
      ahead_tile = unit * s.unit;
      ahead_end = ahead_tile + s.unit < s.tiles ? ahead_tile + s.unit : s.tiles;
      source = s.a + ahead_tile * (tile * 8) + warp * R * row_bytes;
    }
  };
  const auto fill = [&](int slot) {
    if (ahead_tile < ahead_end) {
      char* const to = ring + slot * stage_bytes;
      const char* const from = source + ahead_piece * deep * row_bytes;
      if constexpr (bulk) {
#if __CUDA_ARCH__ >= 900
        if (lane == 0) {
          Word* const barrier = &full[warp][slot];
          expect_bytes(barrier, deep * row_bytes * (read == Read::both ? 2 : 1));
          copy_bulk(to, from, deep * row_bytes, barrier, policy);
          if constexpr (read == Read::both)
            copy_bulk(to + deep * row_bytes, from + tile * 4, deep * row_bytes, barrier, policy);
        }
#endif
      } else {
        constexpr int own = row_bytes / 32;
#pragma unroll
        for (int r = 0; r < deep; ++r) {
          const int at = r * row_bytes + lane * own;
          copy_own<own>(to + at, from + at, policy);
          if constexpr (read == Read::both)
            copy_own<own>(to + deep * row_bytes + at, from + tile * 4 + at, policy);
        }
      }
      if (++ahead_piece == pieces) {
        ahead_piece = 0;
        source += tile * 8;
        if (++ahead_tile == ahead_end) {
          ++ahead;
          open();
        }
      }
    }
    if constexpr (!bulk) asm volatile("cp.async.commit_group;" ::: "memory");
  };
  open();
  int filled = 0;
  for (int k = 0; k < stages; ++k) {
    filled += ahead_tile < ahead_end ? 1 : 0;
    fill(k);
  }

  wait_for_launch_ahead();
  if (s.skip != nullptr && *s.skip != 0) {
    if constexpr (bulk)
      for (int k = 0; k < filled; ++k) device::wait_for(&full[warp][k], 0);
    else
      asm volatile("cp.async.wait_all;" ::: "memory");
    return;
  }
  const auto* const p2 = reinterpret_cast<const double2*>(s.p);
  double sum[R];
  int slot = 0, side = 0;
  unsigned parity = 0;
  for (int turn = 0;; ++turn) {
    const Index unit = queue[turn % (2 * fixed)];
    if (unit >= s.units) break;
    unsigned long long taken = 0;
    if (threadIdx.x == 0) taken = atomicAdd(s.taken, 1ull);
    const Index from = unit * s.unit;
    const Index to = from + s.unit < s.tiles ? from + s.unit : s.tiles;
    Index place = slot_of(s.start, s.slots, s.all, from);
    Index begin = first_tile(s.start, s.all, place), end = first_tile(s.start, s.all, place + 1);
    bool fresh = true;
    double2 pc = p2[(from - begin) * 32 + lane];
    for (Index t = from; t < to; ++t) {
      if (fresh) {
        const Index row = s.all ? place : s.row[place];
        __syncwarp();
        p_row[warp][lane] = s.p[row * height + warp * R + lane];
        __syncwarp();
#pragma unroll
        for (int r = 0; r < R; ++r) sum[r] = 0;
        fresh = false;
      }
      const bool ends = t + 1 == end;  // the tile row does
      const double2 pc_next = p2[(ends ? 0 : t + 1 - begin) * 32 + lane];
      double2 column = make_double2(0, 0);
#pragma unroll
      for (int piece = 0; piece < pieces; ++piece) {
        if constexpr (bulk) {
          device::wait_for(&full[warp][slot], parity);
        } else {
          asm volatile("cp.async.wait_group %0;" ::"n"(stages - 1) : "memory");
        }
        const char* const here = ring + slot * stage_bytes;
#pragma unroll
        for (int r = 0; r < deep; ++r) {
          unsigned high_x, high_y, low_x = 0, low_y = 0;
          if constexpr (read == Read::whole) {
            const uint4 v = reinterpret_cast<const uint4*>(here)[r * 32 + lane];
            low_x = v.x, high_x = v.y, low_y = v.z, high_y = v.w;
          } else {
            const uint2 head = reinterpret_cast<const uint2*>(here)[r * 32 + lane];
            high_x = head.x, high_y = head.y;
            if constexpr (read == Read::both) {
              const uint2 tail =
                  reinterpret_cast<const uint2*>(here + deep * row_bytes)[r * 32 + lane];
              low_x = tail.x, low_y = tail.y;
              high_x -= low_x >> 31;
              high_y -= low_y >> 31;
            }
          }
          const double x = __hiloint2double(int(high_x & s.mask), int(low_x));
          const double y = __hiloint2double(int(high_y & s.mask), int(low_y));
          const double pr = p_row[warp][piece * deep + r];
          double& mine = sum[piece * deep + r];
          mine = fma(x, pc.x, mine);
          mine = fma(y, pc.y, mine);
          column.x = fma(x, pr, column.x);
          column.y = fma(y, pr, column.y);
        }
        __syncwarp();
        fill(slot);
        if (++slot == stages) {
          slot = 0;
          parity ^= 1;
        }
      }
      sides[side][warp][lane] = column;
      if (t == from && threadIdx.x == 0)
        queue[(turn + fixed) % (2 * fixed)] = Index(taken) + Index(fixed) * gridDim.x;
      __syncthreads();
      if (threadIdx.x < width) {
        const auto* const c = reinterpret_cast<const double*>(&sides[side][0][0]) + threadIdx.x;
        double total = c[0];
#pragma unroll
        for (int w = 1; w < sweep_warps; ++w) total += c[w * width];
        s.columns[t * width + threadIdx.x] = total;
      }
      side ^= 1;
      pc = pc_next;
      if (ends || t + 1 == to) {
        s.rows[(unit + place) * height + warp * R + lane] = fold<R / 2, 16>(sum);
        if (ends && t + 1 < to) {
          ++place;
          begin = end;
          end = first_tile(s.start, s.all, place + 1);
          fresh = true;
        }
      }
    }
  }
#endif
}

struct Gather {
  const Index *row, *start;
  Index slots, blocks, entries;  ///< tile rows held, of the matrix; entries of q
  int unit_bits;                 ///< logarithm of tiles a unit
  bool all;
  const double *columns, *rows, *p;
  double* q;
  unsigned long long* taken;
  const double* skip;
};

/// q and its sums: 64 V entries a block and turn, two to a lane and V, the pieces dealt to the
/// warps.
template <int V>
__global__ void __launch_bounds__(sum_threads)
    gather_kernel(const Gather g, const SumTarget<Cuda> sums, bool with_sums) {
  constexpr int warps = sum_threads / 32, across_blocks = int(height) / (64 * V);
  __shared__ double2 parts[warps][V][32];
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  double pq = 0, pp = 0;
  bool waited = false, skip = false;
  for (Index item = blockIdx.x; item < g.blocks * across_blocks; item += gridDim.x) {
    const Index J = item / across_blocks, c0 = item % across_blocks * (64 * V);
    Index from = g.slots < J ? g.slots : J;  // first slot at or below tile row J
    if (!g.all && g.slots > 0) {
      from = g.row[0] >= J ? 0 : last_not_above(g.row, g.slots, J);
      if (g.row[from] < J) ++from;
    }
    const bool held = from < g.slots && (g.all || g.row[from] == J);
    const Index begin = held ? first_tile(g.start, g.all, from) : 0;
    const Index end = held ? first_tile(g.start, g.all, from + 1) : 0;
    if (!waited) {
      wait_for_launch_ahead();
      skip = g.skip != nullptr && *g.skip != 0;
      waited = true;
    }
    double2 sum[V];
#pragma unroll
    for (int v = 0; v < V; ++v) sum[v] = make_double2(0, 0);
    const auto add = [&](const double* at) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const double2 w = __ldcs(reinterpret_cast<const double2*>(at + c0) + v * 32 + lane);
        sum[v].x += w.x;
        sum[v].y += w.y;
      }
    };
#pragma unroll(V > 2 ? 4 : 8)
    for (Index k = from + warp; k < g.slots; k += warps)
      add(g.columns + (first_tile(g.start, g.all, k) + across * J) * width);
    if (held) {
      const Index last = ((end - 1) >> g.unit_bits) + from;
#pragma unroll(V > 2 ? 2 : 4)
      for (Index k = (begin >> g.unit_bits) + from + warp; k <= last; k += warps)
        add(g.rows + k * height);
    }
#pragma unroll
    for (int v = 0; v < V; ++v) parts[warp][v][lane] = sum[v];
    __syncthreads();
    if (threadIdx.x < 64 * V && !skip) {
      const auto* const c = reinterpret_cast<const double*>(&parts[0][0][0]) + threadIdx.x;
      double total = 0;
#pragma unroll
      for (int w = 0; w < warps; ++w) total += c[w * 64 * V];
      const Index i = J * height + c0 + threadIdx.x;
      if (i < g.entries) g.q[i] = total;
      if (with_sums) {
        const double mine = g.p[i];
        pq += mine * total;
        pp += mine * mine;
      }
    }
    __syncthreads();
  }
  if (!waited) {
    wait_for_launch_ahead();
    skip = g.skip != nullptr && *g.skip != 0;
  }
  if (skip) return;
  if (blockIdx.x == 0 && threadIdx.x == 0) *g.taken = 0;
  if (with_sums) finish_sums(pq, pp, sums);
}

/// `early`: may start before the launch ahead of it has ended; it waits itself.
template <class... Parameters>
void launch_kernel(void (*kernel)(Parameters...), unsigned blocks, int threads, int bytes,
                   cudaStream_t stream, bool early, const Parameters&... parameters) {
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = unsigned(threads);
  config.dynamicSmemBytes = std::size_t(bytes);
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = early ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, parameters...));
}

template <int V>
void launch_gather(cudaStream_t stream, const Gather& g, const SumTarget<Cuda>& sums,
                   bool with_sums, bool early) {
  launch_kernel<Gather, SumTarget<Cuda>, bool>(
      gather_kernel<V>, sum_blocks(g.blocks * (height / (64 * V)), SumSpace<Cuda>::pieces),
      sum_threads, 0, stream, early, g, sums, with_sums);
}

template <Read read, int stages, bool bulk>
void launch_sweep(cudaStream_t stream, const Sweep& s, int multiprocessors, bool early) {
  constexpr int bytes = sweep_warps * stages * stage_bytes;
  const auto kernel = sweep_kernel<read, stages, bulk>;
  static const bool once = [&] {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    return true;
  }();
  (void)once;
  const unsigned blocks = unsigned(std::min<Index>(s.units, multiprocessors));
  launch_kernel<Sweep>(kernel, blocks, sweep_threads, bytes, stream, early, s);
}

/// Each tile from doubles to two planes, in place: a block a tile, through shared memory.
__global__ void __launch_bounds__(1024) split_kernel(char* a, Index tiles) {
  extern __shared__ __align__(128) char tile_memory[];
  auto* const words = reinterpret_cast<uint2*>(tile_memory);  // .x low, .y high
  for (Index t = blockIdx.x; t < tiles; t += gridDim.x) {
    char* const at = a + t * (tile * 8);
    for (int k = threadIdx.x; k < int(tile) / 2; k += 1024)
      reinterpret_cast<uint4*>(words)[k] = __ldcs(reinterpret_cast<const uint4*>(at) + k);
    __syncthreads();
    for (int k = threadIdx.x; k < int(tile) / 4; k += 1024) {
      uint4 head, tail;
      const auto one = [&](int e, unsigned& h, unsigned& l) {
        const uint2 w = words[4 * k + e];
        l = w.x;
        h = w.y + (w.x >> 31);
      };
      one(0, head.x, tail.x);
      one(1, head.y, tail.y);
      one(2, head.z, tail.z);
      one(3, head.w, tail.w);
      reinterpret_cast<uint4*>(at)[k] = head;
      reinterpret_cast<uint4*>(at + tile * 4)[k] = tail;
    }
    __syncthreads();
  }
}

}  // namespace terrace::triangle
