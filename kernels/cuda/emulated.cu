// Emulated products on CUDA: 8-bit integer products by wgmma (sm_90a), and the way back to double
// in the same kernel.
//
// Roofline: 4,096 byte products a clock an SM, 1,979e12 operations/s on 132 SMs at 1.83 GHz, s of
// them for one of A -= N Y: 130 TFLOP/s at 15 moduli; 700 W allow less. A pair of blocks takes
// 64 KiB from L2 for 128 inner numbers of 256 x 256 products, 7.8e-3 bytes a product. A is read and
// written once; residues wait in L2 (or beyond), s bytes each way an element.
#include <algorithm>

#include "kernels/cuda/emulated_back.cuh"
#include "kernels/cuda/emulated_wgmma.cuh"

namespace terrace::emulated {
namespace {

using namespace device;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
/// Residues of half of a thread's sums, one modulus.
__device__ __forceinline__ void store_residues(const int (&d)[64], const Modulus& m, uint2* to) {
  const auto four = [&](int i) {
    return bytes_of(residue_of_sum(d[i], m), residue_of_sum(d[i + 1], m),
                    residue_of_sum(d[i + 2], m), residue_of_sum(d[i + 3], m));
  };
#pragma unroll
  for (int x = 0; x < pieces / 2; ++x) to[x * 256] = uint2{four(8 * x), four(8 * x + 4)};
}
#endif

/// A cluster has tiles first + its number, + wave, + 2 wave ... < end.
template <int groups>
__global__ void __launch_bounds__(threads, 1) product_kernel(const __grid_constant__ Product p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char raw[];
  __shared__ alignas(8) Word left_full[left_units], left_empty[left_units];
  __shared__ alignas(8) Word right_full[right_units], right_empty[right_units];
  __shared__ alignas(8) Word ready[2], taken[2];
  const unsigned left_base = (shared_address(raw) + 1023u) & ~1023u;
  const unsigned right_base = left_base + left_units * unit_bytes;
  const int group = int(threadIdx.x) / 128;
  const unsigned rank = rank_in_cluster();
  const unsigned row_in_cluster = rank % cluster_rows, column_in_cluster = rank / cluster_rows;
  if (threadIdx.x == 0) {
    for (int u = 0; u < left_units; ++u) {
      make_barrier(left_full + u, 1);
      make_barrier(left_empty + u, 2 * cluster_columns);  // warpgroups
    }
    for (int u = 0; u < right_units; ++u) {
      make_barrier(right_full + u, 1);
      make_barrier(right_empty + u, 2 * cluster_rows);
    }
    for (int h = 0; h < 2; ++h) {
      make_barrier(ready + h, 256);
      make_barrier(taken + h, 128);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  meet_cluster();
  const Index first = p.first + blockIdx.x / cluster;
  const auto chunks = int(p.left.chunks);

  if (group == 3) {  // loads
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 3 * 128) {
      constexpr unsigned left_part = unit_bytes / cluster_columns;
      constexpr unsigned right_part = unit_bytes / cluster_rows;
      constexpr unsigned every_column = ((1u << cluster) - 1) / ((1u << cluster_rows) - 1);
      const unsigned left_mask = every_column << row_in_cluster;
      const unsigned right_mask = ((1u << cluster_rows) - 1) << column_in_cluster * cluster_rows;
      Ring<left_units> left_ring;
      Ring<right_units> right_ring;
      for (Index k = first; k < p.end; k += p.wave) {
        Index row = 0, column = 0;
        tile_at(p, k, row, column);
        for (int q = 0; q < p.s.count; ++q) {
          const unsigned char* left =
              p.left.data + p.left.block(q, row + row_in_cluster) + column_in_cluster * left_part;
          const unsigned char* right = p.right.data + p.right.block(q, column + column_in_cluster) +
                                       row_in_cluster * right_part;
          for (int c = 0; c < chunks; ++c) {
            const int l = left_ring.stage;
            wait_for(left_empty + l, left_ring.emptied());
            expect_bytes(left_full + l, unit_bytes);
            copy_to(left_mask, left_base + l * unit_bytes + column_in_cluster * left_part, left,
                    left_part, left_full + l);
            left += unit_bytes;
            left_ring.next();
            for (int half = 0; half < 2; ++half) {
              const int r = right_ring.stage;
              wait_for(right_empty + r, right_ring.emptied());
              expect_bytes(right_full + r, unit_bytes);
              copy_to(right_mask, right_base + r * unit_bytes + row_in_cluster * right_part, right,
                      right_part, right_full + r);
              right += unit_bytes;
              right_ring.next();
            }
          }
        }
      }
    }
  } else if (group == 2) {  // from residues to doubles
    asm volatile("setmaxnreg.inc.sync.aligned.u32 152;");
    Ring<2> ring;
    const int thread = int(threadIdx.x) % 128;
    for (Index k = first; k < p.end; k += p.wave) {
      Index row = 0, column = 0;
      tile_at(p, k, row, column);
      wait_for(ready + ring.stage, ring.filled());
      const Index row0 = (row + row_in_cluster) * tile_rows;
      const Index column0 = (column + column_in_cluster) * tile_columns;
      const Tile tile{p.a + row0 * p.lda + column0, p.row_exponents + row0,
                      p.column_exponents + column0, int(min(p.m - row0, Index(tile_rows))),
                      int(min(p.n - column0, Index(tile_columns)))};
      const int i = thread / 32 * 16 + thread % 32 / 4, j = thread % 4 * 2;
      const uint2* const from = scratch_at(p, ring.stage, 0, 0, thread);
      Piece<groups> piece;
      piece.load(p, from);
#pragma unroll 1
      for (int x = 0; x < 2 * pieces; ++x)  // the upper rows' pieces at even x
        piece.finish(p, tile, i + x % 2 * 64, j + x / 2 * 16, [&] {
          if (x + 1 < 2 * pieces) piece.load(p, from + (x + 1) * 128);
        });
      arrive(taken + ring.stage);
      ring.next();
    }
  } else {  // products
    asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
    const int thread = int(threadIdx.x);
    // Of a warpgroup these tell the blocks that a unit came from that it is done with.
    const unsigned speaker = unsigned(thread % 128);
    const auto release_left = [&](int unit) {
      if (speaker < cluster_columns)
        arrive_at(left_empty + unit, row_in_cluster + speaker * cluster_rows);
    };
    const auto release_right = [&](int unit) {
      if (speaker < cluster_rows)
        arrive_at(right_empty + unit, speaker + column_in_cluster * cluster_rows);
    };
    Ring<left_units> left_ring;
    Ring<right_units> right_ring;
    Ring<2> out;
    int low[64], high[64];  // columns 0 ... 127 and 128 ... 255
    int l = 0, r = 0;       // units of the products under way
    const auto multiply_low = [&](int add) {
      l = left_ring.stage;
      r = right_ring.stage;
      wait_for(left_full + l, left_ring.filled());
      wait_for(right_full + r, right_ring.filled());
      multiply_chunk(low, descriptor(left_base + unsigned(l * unit_bytes + group * unit_bytes / 2)),
                     descriptor(right_base + unsigned(r * unit_bytes)), add);
      left_ring.next();
      right_ring.next();
    };
    const auto multiply_high = [&](int add) {
      const int h = right_ring.stage;
      wait_for(right_full + h, right_ring.filled());
      multiply_chunk(high,
                     descriptor(left_base + unsigned(l * unit_bytes + group * unit_bytes / 2)),
                     descriptor(right_base + unsigned(h * unit_bytes)), add);
      right_ring.next();
      wait_products<1>(low);
      release_right(r);
      r = h;
    };
    // The high half of a modulus is finished while the next one's products run.
    int left = int(ceil_div(p.end - first, p.wave)) * p.s.count;  // steps
    multiply_low(0);
    multiply_high(0);
    for (int q = 0;;) {
      for (int c = 1; c < chunks; ++c) {
        const int done_left = l, done_right = r;
        multiply_low(1);
        wait_products<1>(high);
        release_left(done_left);
        release_right(done_right);
        multiply_high(1);
      }
      if (q == 0) wait_for(taken + out.stage, out.emptied());
      store_residues(low, p.s.moduli[q], scratch_at(p, out.stage, q, 0, thread));
      uint2* const to = scratch_at(p, out.stage, q, pieces / 2, thread);
      // The last products of high have had the time that store_residues took.
      wait_products<0>(high);
      release_left(l);
      release_right(r);
      if (--left == 0) break;
      multiply_low(0);
      store_residues(high, p.s.moduli[q], to);
      multiply_high(0);
      if (++q == p.s.count) {
        q = 0;
        arrive(ready + out.stage);
        out.next();
      }
    }
    store_residues(high, p.s.moduli[p.s.count - 1],
                   scratch_at(p, out.stage, p.s.count - 1, pieces / 2, thread));
    arrive(ready + out.stage);
  }
  __syncwarp();
  meet_cluster();  // no block's memory goes while others may still write to it
#else
  (void)p;
#endif
}

struct Launch {
  cudaLaunchConfig_t config{};
  cudaLaunchAttribute attribute{};
  Launch(unsigned clusters, cudaStream_t stream) {
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = cluster;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    config.gridDim = dim3(cluster * clusters);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
  }
};
using Kernel = void (*)(Product);
Kernel kernel_for(const Scheme& s) {
  return s.groups == 2 ? product_kernel<2> : s.groups == 3 ? product_kernel<3> : product_kernel<4>;
}
/// Clusters that run at a time.
Index resident_clusters() {
  static const Index clusters = [] {
    for (const Kernel kernel : {product_kernel<2>, product_kernel<3>, product_kernel<4>})
      check(
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
    Launch launch(unsigned(current_cuda_device().multiprocessors) / cluster, nullptr);
    int count = 0;
    check(cudaOccupancyMaxActiveClusters(&count, product_kernel<4>, &launch.config));
    return Index(count);
  }();
  return clusters;
}
/// Of the workspace: N's exponents and residues, then Y's, then room for residues of A.
struct Parts {
  int *row_exponents, *column_exponents;
  Packed<tile_rows> left;
  Packed<tile_columns> right;
  unsigned char *scratch, *end;
  Index tiles, wave;  // clusters
  Parts(const Shape& s, unsigned char* at) {
    const Index chunks = ceil_div(s.k, chunk);
    const auto take = [&](Index bytes) {
      unsigned char* const here = at;
      at += round_up(bytes, 128);
      return here;
    };
    row_exponents = reinterpret_cast<int*>(take(s.m * Index(sizeof(int))));
    left = {nullptr, round_up(ceil_div(s.m, tile_rows), cluster_rows), chunks};
    left.data = take(left.block(s.moduli, 0));
    column_exponents = reinterpret_cast<int*>(take(s.n * Index(sizeof(int))));
    right = {nullptr, round_up(ceil_div(s.n, tile_columns), cluster_columns), chunks};
    right.data = take(right.block(s.moduli, 0));
    tiles = left.tiles * right.tiles / cluster;
    wave = std::min(resident_clusters(), tiles);
    scratch = take(wave * cluster * 2 * s.moduli * tile_rows * tile_columns);
    end = at;
  }
};

unsigned char* bytes_of(View<std::byte, Cuda> workspace) {
  return reinterpret_cast<unsigned char*>(workspace.data);
}

template <bool is_left, int rows>
void convert(const Stream<Cuda>& stream, const Scheme& s, Index count, Index k, const double* in,
             Index ld, int* exponents, const Packed<rows>& out) {
  exponents_kernel<<<unsigned(ceil_div(count, 32)), 256, 0, native(stream)>>>(
      count, k, in, ld, room_for(s, k), exponents);
  const dim3 grid(unsigned(out.tiles * rows / 32), unsigned(out.chunks));
  residues_kernel<is_left><<<grid, 256, 0, native(stream)>>>(count, k, in, ld, exponents, s, out);
  check_launch();
}

}  // namespace

bool available(Cuda) {
#ifdef TERRACE_SM90A
  static const bool has = cuda_device_count() > 0 && current_cuda_device().compute_capability == 90;
  return has;
#else
  return false;
#endif
}

Index workspace_bytes(Cuda, const Shape& shape) {
  return Parts(shape, nullptr).end - static_cast<unsigned char*>(nullptr);
}

template <>
void set_left(const Stream<Cuda>& stream, const Shape& shape, View<const double, Cuda> left,
              Index ld, View<std::byte, Cuda> workspace) {
  const Scheme s = make_scheme(shape.moduli);
  if (shape.k > most_inner) throw Error(Exit::internal, "too many products for 32-bit sums");
  if (shape.m <= 0 || shape.k <= 0) return;
  const Parts parts(shape, bytes_of(workspace));
  convert<true>(stream, s, shape.m, shape.k, left.data, ld, parts.row_exponents, parts.left);
}

template <>
void subtract_product(const Stream<Cuda>& stream, const Shape& shape,
                      View<const double, Cuda> right, Index ld, View<double, Cuda> a, Index lda,
                      View<std::byte, Cuda> workspace) {
  const Scheme s = make_scheme(shape.moduli);
  if (shape.m <= 0 || shape.n <= 0 || shape.k <= 0) return;
  const Parts parts(shape, bytes_of(workspace));
  convert<false>(stream, s, shape.n, shape.k, right.data, ld, parts.column_exponents, parts.right);

  Product p{};
  p.s = s;
  p.left = parts.left;
  p.right = parts.right;
  p.row_exponents = parts.row_exponents;
  p.column_exponents = parts.column_exponents;
  p.scratch = parts.scratch;
  p.a = a.data;
  p.lda = lda;
  p.m = shape.m;
  p.n = shape.n;
  p.pairs = lda % 2 == 0 && reinterpret_cast<std::uintptr_t>(a.data) % 16 == 0;
  p.wave = parts.wave;
  // Launches of several tiles a block: between them other lanes' kernels find room.
  const Index run = std::max<Index>(1, launch_chunks / (p.left.chunks * s.count));
  for (p.first = 0; p.first < parts.tiles; p.first = p.end) {
    p.end = std::min(parts.tiles, p.first + run * p.wave);
    const Launch launch(unsigned(std::min(p.wave, p.end - p.first)), native(stream));
    check(cudaLaunchKernelEx(&launch.config, kernel_for(s), p));
  }
}

}  // namespace terrace::emulated
