// After the sweep of the packed triangle: the sums of its parts; and tiles into planes.
#pragma once
#include "kernels/cg/cuda/triangle.cuh"

namespace terrace::cg::triangle {

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
  const Word keep = read_again();
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
    // None of the rows held may reach as far down as J.
    const Index even = from < g.slots ? from & ~Index(1) : g.slots;
    const bool two = even + 1 < g.slots;
    Index segment = 0, last = -1;  // of the rows
    if (held) {
      const Index begin = first_tile(g.start, g.all, even);
      const Index middle = first_tile(g.start, g.all, even + 1);
      const Index stop = !two          ? middle
                         : from > even ? first_tile(g.start, g.all, even + 2)
                                       : 2 * middle - begin;
      segment = begin >> g.unit_bits;
      last = (stop - 1) >> g.unit_bits;
    }
    if (!waited) {
      wait_for_launch_ahead();
      let_next_begin();  // not before: cg_finish() reads what the product's launch has waited for
      skip = g.skip != nullptr && *g.skip != 0;
      waited = true;
    }
    double2 sum[V];
#pragma unroll
    for (int v = 0; v < V; ++v) sum[v] = make_double2(0, 0);
    const auto add = [&](const double* at) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const auto* const from_here = reinterpret_cast<const double2*>(at + c0) + v * 32 + lane;
        const double2 w = load_kept(from_here, keep);
        sum[v].x += w.x;
        sum[v].y += w.y;
      }
    };
#pragma unroll(V > 2 ? 4 : 8)
    for (Index k = even + 2 * warp; k < g.slots; k += 2 * warps) {
      const Index lower = k + 1 < g.slots ? k + 1 : k;
      add(g.columns + (first_tile(g.start, g.all, lower) + across * J) * width);
    }
#pragma unroll(V > 2 ? 2 : 4)
    for (Index k = segment + warp; k <= last; k += warps) add(g.rows + (2 * k + from) * height);
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
    let_next_begin();
    skip = g.skip != nullptr && *g.skip != 0;
  }
  if (skip) return;
  if (blockIdx.x == 0 && threadIdx.x == 0) *g.taken = 0;
  if (with_sums) finish_sums(pq, pp, sums);
}

template <int V>
void launch_gather(cudaStream_t stream, const Gather& g, const SumTarget<Cuda>& sums,
                   bool with_sums) {
  launch_early(gather_kernel<V>, sum_blocks(g.blocks * (height / (64 * V)), SumSpace<Cuda>::pieces),
               sum_threads, 0, stream, g, sums, with_sums);
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

}  // namespace terrace::cg::triangle
