// Emulated products on CUDA: 8-bit integer products by wgmma (sm_90a), and the way back to double
// in the same kernel.
//
// Roofline: 4,096 byte products per clock and SM, 1,979e12 operations/s on 132 SMs at 1.83 GHz, s of
// them for one of A -= N Y: 141 TFLOP/s at 14 moduli. A pair of blocks takes 64 KiB from L2 for 128
// inner numbers of 256 x 256 products, 7.8e-3 bytes per product; A is read and written once, residues
// pass through L2 once each way, s bytes per element. What one H200 reaches, and what lost:
// jobs/results/dense.md, "Emulated products".
#include <algorithm>
#include <type_traits>

#include "kernels/base/assumed.hpp"
#include "kernels/dense/cuda/emulated_back.cuh"
#include "kernels/dense/cuda/emulated_wgmma.cuh"

namespace terrace::dense::emulated {
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

/// A block's barriers and tiles, and what each of its warpgroups does for all of them.
struct Block {
  const Product& p;
  const unsigned base;  // of the stages
  Word *const full, *const empty, *const ready, *const taken;
  const Index first = p.first + blockIdx.x / 2;
  const int chunks = int(p.left.chunks), group = int(threadIdx.x) / 128;
  const unsigned rank = rank_in_cluster();

  /// One thread: the chunks of all moduli.
  __device__ __forceinline__ void load() const {
    Ring<stages> ring;
    for (Index k = first; k < p.end; k += p.wave) {
      Index row = 0, column = 0;
      tile_at(p, k, row, column);
      for (int q = 0; q < p.s.count; ++q) {
        const unsigned char* left = p.left.data + p.left.block(q, 2 * row + rank);
        const unsigned char* right =
            p.right.data + p.right.block(q, column) + rank * (right_bytes / 2);
        for (int c = 0; c < chunks; ++c) {
          wait_for(empty + ring.stage, ring.emptied());
          const unsigned at = base + ring.stage * stage_bytes;
          arrive_for_bytes(full + ring.stage, stage_bytes);
          copy_in_bulk(at, left, left_bytes, full + ring.stage);
          copy_to_both(at + left_bytes + rank * (right_bytes / 2), right, right_bytes / 2,
                       full + ring.stage);
          left += left_bytes;
          right += right_bytes;
          ring.next();
        }
      }
    }
  }

  /// Warp `warp` of `finishing`: from residues to doubles.
  template <int groups>
  __device__ __forceinline__ void finish(int warp) const {
    Ring<2> ring;
    const int lane = int(threadIdx.x) % 32;
    for (Index k = first; k < p.end; k += p.wave) {
      Index row = 0, column = 0;
      tile_at(p, k, row, column);
      wait_for(ready + ring.stage, ring.filled());
      const Index row0 = (2 * row + rank) * tile_rows, column0 = column * tile_columns;
      const Tile tile{p.a + row0 * p.lda + column0, p.row_exponents + row0,
                      p.column_exponents + column0, int(min(p.m - row0, Index(tile_rows))),
                      int(min(p.n - column0, Index(tile_columns)))};
      const uint2* const from = scratch_at(p, ring.stage, 0, 0, lane);
      const auto work = [&](auto whole) {
        Piece<groups> piece;
#pragma unroll 1
        for (int x = warp; x < 8 * pieces; x += finishing) {  // 8 pieces, one below the other
          piece.load(p, from + x * 32);
          piece.template finish<decltype(whole)::value>(p, tile, x % 8 * 16 + lane / 4,
                                                        x / 8 * 16 + lane % 4 * 2);
        }
      };
      if (p.pairs && tile.rows == tile_rows && tile.columns == tile_columns)
        work(std::true_type());
      else
        work(std::false_type());
      arrive(taken + ring.stage);
      ring.next();
    }
  }

  /// Two warpgroups: products. The high half of a modulus is finished while the next one's run.
  __device__ __forceinline__ void multiply() const {
    const int thread = int(threadIdx.x);
    const bool speaks = thread % 128 < 2;  // to block thread % 128
    Ring<stages> ring;
    Ring<2> out;
    int low[64], high[64];  // columns 0 ... 127 and 128 ... 255
    const auto multiply = [&](int(&d)[64], int half, int add) {
      const unsigned at = base + unsigned(ring.stage) * stage_bytes;
      multiply_chunk(d, descriptor(at + unsigned(group) * (left_bytes / 2)),
                     descriptor(at + left_bytes + unsigned(half) * (right_bytes / 2)), add);
    };
    const auto release_before = [&] {
      if (speaks)
        arrive_at(empty + (ring.stage == 0 ? stages - 1 : ring.stage - 1), unsigned(thread % 128));
    };
    int left = int(ceil_div(p.end - first, p.wave)) * p.s.count;  // steps
    wait_for(full + ring.stage, ring.filled());
    multiply(low, 0, 0);
    multiply(high, 1, 0);
    ring.next();
    for (int q = 0;;) {
      for (int c = 1; c < chunks; ++c) {
        wait_for(full + ring.stage, ring.filled());
        multiply(low, 0, 1);
        wait_products<1>(high);
        release_before();
        multiply(high, 1, 1);
        ring.next();
      }
      wait_products<1>(low);
      if (q == 0) wait_for(taken + out.stage, out.emptied());
      store_residues(low, p.s.moduli[q], scratch_at(p, out.stage, q, 0, thread));
      uint2* const to = scratch_at(p, out.stage, q, pieces / 2, thread);
      if (--left == 0) break;
      // The last products of high have had the time that store_residues took.
      wait_products<0>(high);
      release_before();
      wait_for(full + ring.stage, ring.filled());
      multiply(low, 0, 0);
      store_residues(high, p.s.moduli[q], to);
      multiply(high, 1, 0);
      ring.next();
      if (++q == p.s.count) {
        q = 0;
        arrive(ready + out.stage);
        out.next();
      }
    }
    wait_products<0>(high);
    store_residues(high, p.s.moduli[p.s.count - 1],
                   scratch_at(p, out.stage, p.s.count - 1, pieces / 2, thread));
    arrive(ready + out.stage);
  }
};
#endif

/// A cluster of two blocks has tiles first + its number, + wave, + 2 wave ... < end.
template <int groups>
__global__ void __launch_bounds__(threads, 1) product_kernel(const __grid_constant__ Product p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char raw[];
  __shared__ alignas(8) Word full[stages], empty[stages], ready[2], taken[2];
  const Block block{p, (shared_address(raw) + 1023u) & ~1023u, full, empty, ready, taken};
  if (threadIdx.x == 0) {
    for (int s = 0; s < stages; ++s) {
      make_barrier(full + s, 1);
      make_barrier(empty + s, 4);  // two warpgroups of both blocks
    }
    for (int h = 0; h < 2; ++h) {
      make_barrier(ready + h, 256);
      make_barrier(taken + h, finishing * 32);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  meet_cluster();
  if (block.group >= 2) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 96;");
    const int warp = int(threadIdx.x) / 32 - 8;
    if (warp < finishing)
      block.template finish<groups>(warp);
    else if (threadIdx.x % 32 == 0)
      block.load();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
    block.multiply();
  }
  __syncwarp();
  meet_cluster();  // neither block's memory goes while the other may still write to it
#else
  (void)p;
#endif
}

/// Of clusters of two blocks.
struct Launch {
  cudaLaunchConfig_t config{};
  cudaLaunchAttribute cluster{};
  Launch(unsigned clusters, cudaStream_t stream) {
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = 2;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    config.gridDim = dim3(2 * clusters);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
  }
};
using Kernel = void (*)(Product);
Kernel kernel_for(const Scheme& s) {
  return s.groups == 2 ? product_kernel<2> : s.groups == 3 ? product_kernel<3> : product_kernel<4>;
}
/// Clusters that run at a time.
Index resident_clusters() {
  if (const AssumedDevice* const assumed = assumed_device())
    return assumed->info.multiprocessors / 2;
  static OncePerDevice<Index> once;
  const Index clusters = once([] {
    for (const Kernel kernel : {product_kernel<2>, product_kernel<3>, product_kernel<4>})
      allow_shared(kernel, shared_bytes);
    Launch launch(unsigned(current_cuda_device().multiprocessors) / 2, nullptr);
    int count = 0;
    check(cudaOccupancyMaxActiveClusters(&count, product_kernel<4>, &launch.config));
    return Index(count);
  });
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
    left = {nullptr, ceil_div(s.m, 2 * tile_rows) * 2, chunks};
    left.data = take(left.block(s.moduli, 0));
    column_exponents = reinterpret_cast<int*>(take(s.n * Index(sizeof(int))));
    right = {nullptr, ceil_div(s.n, tile_columns), chunks};
    right.data = take(right.block(s.moduli, 0));
    tiles = left.tiles / 2 * right.tiles;
    wave = std::min(resident_clusters(), tiles);
    scratch = take(wave * 2 * 2 * s.moduli * tile_rows * tile_columns);
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
  static OncePerDevice<bool> once;
  const bool has = once(
      [] { return cuda_device_count() > 0 && current_cuda_device().compute_capability == 90; });
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

}  // namespace terrace::dense::emulated
