// Kernels of the packed triangle on CUDA; see triangle.cu.
//
// The sweep: a block of 8 warps takes *units*, runs of `unit` tiles (or of the same `part` of that
// many tiles: 64 rows of each). A warp owns `R` rows of the unit's tiles, a lane two columns. The
// matrix comes through a ring in shared memory that each warp fills for itself, across tiles, rows
// of tiles and units. Row sums stay in registers until the tile row or the unit ends:
//
//   rows[(k + s) 256 + i]    unit k, tile row in slot s, row i: k + s never repeats
//   columns[(t P + h) 64 + c]  tile t, part h of P = 256 / (8 R), column c
//
// The gather adds both in an order that only the matrix decides.
#pragma once
#include "kernels/cuda/barriers.cuh"
#include "kernels/cuda/sums.cuh"
#include "kernels/triangle.hpp"

namespace terrace::triangle {

constexpr int sweep_threads = 256, sweep_warps = 8, stage_bytes = 4096;

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
  bool keep;      ///< the matrix fits the second-level cache
  const double* skip;
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
__device__ inline Word cache_policy(bool keep) {
  Word policy = 0;
#if __CUDA_ARCH__ >= 800
  if (keep)
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  else
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
template <Read read, int R, int stages, bool bulk, int blocks>
__global__ void __launch_bounds__(sweep_threads, blocks) sweep_kernel(const Sweep s) {
#if __CUDA_ARCH__ >= 800
  constexpr int deep = read == Read::head && R > 8 ? 16 : 8;  // rows a stage
  constexpr int row_bytes = read == Read::whole ? 512 : 256;
  constexpr int pieces = R / deep, parts = int(height) / (sweep_warps * R);
  constexpr int fixed = stages + 2;  // units that a block takes unasked, and looks ahead
  extern __shared__ __align__(128) char ring_memory[];
  __shared__ Word full[sweep_warps][stages];
  __shared__ double p_row[sweep_warps][R];
  __shared__ double2 sides[2][sweep_warps][32];
  __shared__ Index queue[2 * fixed];
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  if (s.skip != nullptr && *s.skip != 0) return;

  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  char* const ring = ring_memory + warp * stages * stage_bytes;
  const Word policy = cache_policy(s.keep);
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
      ahead_tile = unit / parts * s.unit;
      ahead_end = ahead_tile + s.unit < s.tiles ? ahead_tile + s.unit : s.tiles;
      source =
          s.a + ahead_tile * (tile * 8) + (unit % parts * (sweep_warps * R) + warp * R) * row_bytes;
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
          copy_own<own>(to + r * row_bytes + lane * own, from + r * row_bytes + lane * own, policy);
          if constexpr (read == Read::both)
            copy_own<own>(to + (deep + r) * row_bytes + lane * own,
                          from + tile * 4 + r * row_bytes + lane * own, policy);
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
  for (int k = 0; k < stages; ++k) fill(k);

  const auto* const p2 = reinterpret_cast<const double2*>(s.p);
  double sum[R];
  int slot = 0, side = 0;
  unsigned parity = 0;
  for (int turn = 0;; ++turn) {
    const Index unit = queue[turn % (2 * fixed)];
    if (unit >= s.units) break;
    unsigned long long taken = 0;
    if (threadIdx.x == 0) taken = atomicAdd(s.taken, 1ull);
    const Index group = unit / parts, from = group * s.unit;
    const Index to = from + s.unit < s.tiles ? from + s.unit : s.tiles;
    const int part = int(unit % parts), first = part * sweep_warps * R + warp * R;
    Index place = last_not_above(s.start, s.slots, from);
    Index begin = s.start[place], end = s.start[place + 1];
    bool fresh = true;
    double2 pc = p2[(from - begin) * 32 + lane];
    for (Index t = from; t < to; ++t) {
      if (fresh) {
        __syncwarp();
        if (lane < R) p_row[warp][lane] = s.p[s.row[place] * height + first + lane];
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
          double2 v;
          if constexpr (read == Read::whole) {
            v = reinterpret_cast<const double2*>(here)[r * 32 + lane];
            v.x =
                __hiloint2double(int(unsigned(__double2hiint(v.x)) & s.mask), __double2loint(v.x));
            v.y =
                __hiloint2double(int(unsigned(__double2hiint(v.y)) & s.mask), __double2loint(v.y));
          } else {
            uint2 high = reinterpret_cast<const uint2*>(here)[r * 32 + lane], low{0, 0};
            if constexpr (read == Read::both) {
              low = reinterpret_cast<const uint2*>(here + deep * row_bytes)[r * 32 + lane];
              high.x -= low.x >> 31;
              high.y -= low.y >> 31;
            }
            v.x = __hiloint2double(int(high.x & s.mask), int(low.x));
            v.y = __hiloint2double(int(high.y & s.mask), int(low.y));
          }
          const double pr = p_row[warp][piece * deep + r];
          double& mine = sum[piece * deep + r];
          mine = fma(v.x, pc.x, mine);
          mine = fma(v.y, pc.y, mine);
          column.x = fma(v.x, pr, column.x);
          column.y = fma(v.y, pr, column.y);
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
        s.columns[(t * parts + part) * width + threadIdx.x] = total;
      }
      side ^= 1;
      pc = pc_next;
      if (ends || t + 1 == to) {
        const double total = fold<R / 2, 16>(sum);
        constexpr int share = 32 / R;
        if (lane % share == 0) s.rows[(group + place) * height + first + lane / share] = total;
        if (ends && t + 1 < to) {
          ++place;
          begin = end;
          end = s.start[place + 1];
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
  int unit_bits, part_bits;      ///< logarithms of tiles a unit and parts a tile
  const double *columns, *rows, *p;
  double* q;
  unsigned long long* taken;
  const double* skip;
};

/// q and its sums: 32 entries a block and turn, the pieces dealt to the warps.
__global__ void __launch_bounds__(sum_threads)
    gather_kernel(const Gather g, const SumTarget<Cuda> sums, bool with_sums) {
  __shared__ double halves[8][32];
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  if (g.skip != nullptr && *g.skip != 0) return;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  if (blockIdx.x == 0 && threadIdx.x == 0) *g.taken = 0;
  double pq = 0, pp = 0;
  for (Index item = blockIdx.x; item < g.blocks * 8; item += gridDim.x) {
    const Index J = item / 8, c = item % 8 * 32 + lane;
    Index from = g.slots;  // first slot at or below tile row J
    if (g.slots > 0) {
      from = g.row[0] >= J ? 0 : last_not_above(g.row, g.slots, J);
      if (g.row[from] < J) ++from;
    }
    double sum = 0;
    const Index pieces = (g.slots - from) << g.part_bits, part_mask = (1 << g.part_bits) - 1;
#pragma unroll 8
    for (Index k = warp; k < pieces; k += 8) {
      const Index t = g.start[from + (k >> g.part_bits)] + across * J + c / width;
      sum += __ldcs(g.columns + ((t << g.part_bits) + (k & part_mask)) * width + c % width);
    }
    if (from < g.slots && g.row[from] == J) {
      const Index first = (g.start[from] >> g.unit_bits) + from;
      const Index last = ((g.start[from + 1] - 1) >> g.unit_bits) + from;
#pragma unroll 4
      for (Index k = first + warp; k <= last; k += 8) sum += __ldcs(g.rows + k * height + c);
    }
    halves[warp][lane] = sum;
    __syncthreads();
    if (warp == 0) {
      double total = 0;
#pragma unroll
      for (int w = 0; w < 8; ++w) total += halves[w][lane];
      const Index i = J * height + c;
      if (i < g.entries) g.q[i] = total;
      if (with_sums) {
        const double mine = g.p[i];
        pq += mine * total;
        pp += mine * mine;
      }
    }
    __syncthreads();
  }
  if (with_sums) finish_sums(pq, pp, sums);
}

/// The gather may be launched before the sweep has ended: it waits for it itself.
inline void launch_gather(cudaStream_t stream, const Gather& g, const SumTarget<Cuda>& sums,
                          bool with_sums, bool early) {
  cudaLaunchConfig_t config{};
  config.gridDim = sum_blocks(g.blocks * 8, SumSpace<Cuda>::pieces);
  config.blockDim = sum_threads;
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = early ? 1 : 0;
  check(cudaLaunchKernelEx(&config, gather_kernel, g, sums, with_sums));
}

template <Read read, int R, int stages, bool bulk, int blocks>
void launch_sweep(cudaStream_t stream, const Sweep& s, int multiprocessors) {
  constexpr int bytes = sweep_warps * stages * stage_bytes;
  const auto kernel = sweep_kernel<read, R, stages, bulk, blocks>;
  static const bool once = [&] {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    return true;
  }();
  (void)once;
  const unsigned grid = unsigned(std::min<Index>(s.units, Index(multiprocessors) * blocks));
  kernel<<<grid, sweep_threads, bytes, stream>>>(s);
  check_launch();
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
