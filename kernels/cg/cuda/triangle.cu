// Products of the packed triangle on CUDA. Floor: 4 n (n + 1) bytes at the read rate of HBM (heads
// alone: half), 3.8 ms for n = 65,536 at 4.5 TB/s; two flops a byte are far below the FP64 rate.
// A byte written to HBM beside a stream of reads costs as much as ten read, so partial sums are
// few (0.3 % of the bytes) and stay in the second-level cache. One H200 that reads 4.54 TB/s, whole
// product with its sums: 98 % at n = 65,536 and at 100,000 (heads alone: 96 %, 95 %).
#include "kernels/cg/cuda/triangle_gather.cuh"

#include <cmath>

#include "kernels/base/problems.hpp"
#include "kernels/cg/products.hpp"

namespace terrace::cg {
namespace {

using namespace triangle;

int multiprocessors() {
  static OncePerDevice<int> once;
  const int count = once([] {
    int device = 0, value = 0;
    check(cudaGetDevice(&device));
    check(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, device));
    return value;
  });
  return count;
}

template <Read read>
void sweep(cudaStream_t stream, const Sweep& s) {
  if (compiled_for_hopper())
    launch_sweep<read, 3, true>(stream, s, multiprocessors());
  else
    launch_sweep<read, 2, false>(stream, s, multiprocessors());
}
Index units_of(Index tiles) { return ceil_div(tiles, Index(1) << unit_bits(tiles)); }
constexpr Index counter = 16;  // doubles before the partial sums; the first is the units taken

__global__ void __launch_bounds__(sum_threads)
    sum_products_kernel(const double* __restrict__ p, const double* __restrict__ q, Index n,
                        SumTarget<Cuda> sums, const double* skip) {
  let_next_begin();
  wait_for_launch_ahead();
  if (skip != nullptr && *skip != 0) return;
  double pq = 0, pp = 0;
  for (Index i = Index(blockIdx.x) * sum_threads + threadIdx.x; i < n;
       i += Index(gridDim.x) * sum_threads) {
    pq += p[i] * q[i];
    pp += p[i] * p[i];
  }
  finish_sums(pq, pp, sums);
}

__global__ void pack_kernel(const double* __restrict__ slab, Index rows, Index n, Index tile_row,
                            Index tiles, double* __restrict__ to) {
  for (Index J = blockIdx.x; J < tiles; J += gridDim.x)
    for (Index k = threadIdx.x; k < tile; k += blockDim.x) {
      const Index r = k / width, i = tile_row * height + r, j = J * width + k % width;
      const double v = r < rows && j <= i ? slab[r * n + j] : 0.0;
      to[J * tile + k] = i == j ? 0.5 * v : v;
    }
}

/// 32 x 32 pieces: slab rows [i0, i0 + rows) against the tile row of slot blockIdx.y, whose part
/// comes through shared memory.
__global__ void compare_kernel(const double* __restrict__ slab, Index rows, Index tile_row,
                               TriangleTiles<Cuda> t, Index* worst) {
  __shared__ double part[32][33];
  const Index n = t.n, held = t.row.data[blockIdx.y];
  if (held < tile_row) return;
  const double* const tiles = t.a.data + t.start.data[blockIdx.y] * tile;
  const int tx = threadIdx.x & 31, ty = threadIdx.x >> 5;
  const Index r0 = Index(blockIdx.x) / 8 * 32, c0 = Index(blockIdx.x) % 8 * 32;
  const Index i0 = tile_row * height + r0, j0 = held * height + c0;
  for (int k = ty; k < 32; k += sum_threads / 32) {
    const Index i = i0 + tx;
    part[k][tx] =
        i < (held + 1) * height ? tiles[i / width * tile + (c0 + k) * width + i % width] : 0;
  }
  __syncthreads();
  for (int k = ty; k < 32; k += sum_threads / 32) {
    const Index i = i0 + k, j = j0 + tx;
    if (r0 + k >= rows || j >= n || j < i) continue;
    const double* const row = slab + (r0 + k) * n;
    const double own = row[i];
    const double other = 2 * tiles[j / width * tile + (c0 + tx) * width + j % width];
    const double scale = sqrt(fabs(own)) * sqrt(fabs(other));
    if (!symmetric_pair(row[j], i == j ? own : part[tx][k], scale))
      atomicMin(reinterpret_cast<long long*>(worst), static_cast<long long>(i * n + j));
  }
}

__global__ void fill_kernel(Word seed, double scale, TriangleTiles<Cuda> t, Index tiles,
                            double diagonal, double* a) {
  for (Index k = blockIdx.x; k < tiles; k += gridDim.x) {
    const Index slot = last_not_above(t.start.data, t.row.size, k);
    const Index i0 = t.row.data[slot] * height, j0 = (k - t.start.data[slot]) * width;
    for (Index e = threadIdx.x; e < tile; e += blockDim.x) {
      const Index i = i0 + e / width, j = j0 + e % width;
      const double v = i >= t.n || j > i ? 0.0 : dense_cg_entry(seed, scale, i, j, diagonal);
      a[k * tile + e] = i == j ? 0.5 * v : v;
    }
  }
}

__global__ void diagonal_kernel(TriangleTiles<Cuda> t, double* d) {
  const Index i = t.row.data[blockIdx.x] * height + threadIdx.x;
  if (i >= t.n) return;
  const double* const at = t.a.data + (t.start.data[blockIdx.x] + i / width) * tile;
  const Index k = Index(threadIdx.x) * width + i % width;
  double v = 0;
  if (t.read == Read::whole) {
    v = at[k];
  } else {
    const auto* const head = reinterpret_cast<const std::uint32_t*>(at);
    v = __longlong_as_double(static_cast<long long>(joined(head[k], head[tile + k])));
  }
  d[i] = 2 * v;
}

}  // namespace

Index triangle_scratch(Cuda, Index tiles, Index tile_rows) {
  return counter + tiles * width + (2 * units_of(tiles) + tile_rows) * height;
}

void multiply(const Stream<Cuda>& stream, const TriangleTiles<Cuda>& t, View<const double, Cuda> p,
              View<double, Cuda> q, View<double, Cuda> scratch, const SumTarget<Cuda>& sums,
              const double* skip, bool absolute) {
  const Index tiles = t.tiles();
  Sweep s{};
  s.a = reinterpret_cast<const char*>(t.a.data);
  s.row = t.row.data;
  s.start = t.start.data;
  s.slots = t.row.size;
  s.tiles = tiles;
  s.p = p.data;
  s.taken = reinterpret_cast<unsigned long long*>(scratch.data);
  s.columns = scratch.data + counter;
  s.rows = s.columns + tiles * width;
  s.unit = 1 << unit_bits(tiles);
  s.units = units_of(tiles);
  s.mask = absolute ? 0x7fffffffu : 0xffffffffu;
  s.skip = skip;
  s.all = t.row.size == ceil_div(t.n, height);
  if (tiles > 0) {
    const cudaStream_t lane = native(stream);
    t.read == Read::whole  ? sweep<Read::whole>(lane, s)
    : t.read == Read::both ? sweep<Read::both>(lane, s)
                           : sweep<Read::head>(lane, s);
  }

  Gather g{};
  g.row = s.row;
  g.start = s.start;
  g.slots = s.slots;
  g.blocks = ceil_div(t.n, height);
  g.entries = q.size;
  g.unit_bits = unit_bits(tiles);
  g.all = s.all;
  g.columns = s.columns;
  g.rows = s.rows;
  g.p = p.data;
  g.q = q.data;
  g.taken = s.taken;
  g.skip = skip;
  launch_gather<1>(native(stream), g, sums, sums.result.data != nullptr);
}

void sum_products(const Stream<Cuda>& stream, View<const double, Cuda> p,
                  View<const double, Cuda> q, const SumTarget<Cuda>& sums, const double* skip) {
  const unsigned blocks = sum_blocks(ceil_div(p.size, Index(sum_threads)), 264);
  launch_early(sum_products_kernel, blocks, sum_threads, 0, native(stream), p.data, q.data, p.size,
               sums, skip);
}

void pack_rows(const Stream<Cuda>& stream, View<const double, Cuda> slab, Index n, Index tile_row,
               View<double, Cuda> tiles) {
  const Index count = tiles_of(tile_row);
  pack_kernel<<<unsigned(count), 256, 0, native(stream)>>>(slab.data, slab.size / n, n, tile_row,
                                                           count, tiles.data);
  check_launch();
}

void compare_upper(const Stream<Cuda>& stream, View<const double, Cuda> slab, Index tile_row,
                   const TriangleTiles<Cuda>& t, View<Index, Cuda> worst) {
  if (t.row.size == 0) return;
  compare_kernel<<<dim3(64, unsigned(t.row.size)), sum_threads, 0, native(stream)>>>(
      slab.data, slab.size / t.n, tile_row, t, worst.data);
  check_launch();
}

void fill_triangle(const Stream<Cuda>& stream, Word seed, const TriangleTiles<Cuda>& t,
                   View<double, Cuda> a, double diagonal) {
  const Index tiles = a.size / tile;
  if (tiles == 0) return;
  fill_kernel<<<unsigned(std::min<Index>(tiles, 8448)), 256, 0, native(stream)>>>(
      seed, 1.0 / std::sqrt(double(t.n)), t, tiles, diagonal, a.data);
  check_launch();
}

void triangle_diagonal(const Stream<Cuda>& stream, const TriangleTiles<Cuda>& t,
                       View<double, Cuda> d) {
  fill_zero(stream, d);
  if (t.row.size == 0) return;
  diagonal_kernel<<<unsigned(t.row.size), unsigned(height), 0, native(stream)>>>(t, d.data);
  check_launch();
}

void split_planes(const Stream<Cuda>& stream, View<double, Cuda> tiles) {
  if (tiles.size == 0) return;
  constexpr int bytes = int(tile) * 8;
  allow_shared(split_kernel, bytes);
  const Index count = tiles.size / tile;
  split_kernel<<<unsigned(std::min<Index>(count, multiprocessors())), 1024, bytes,
                 native(stream)>>>(reinterpret_cast<char*>(tiles.data), count);
  check_launch();
}

}  // namespace terrace::cg
