// emulated products on CUDA: 8-bit integer products by wgmma (sm_90a), and the way back to double
// in the same kernel.
//
// Roofline: 4,096 byte products a clock an SM, 1,979e12 operations/s on 132 SMs at 1.83 GHz, s of
// them for one of A -= N Y: 130 TFLOP/s at 15 moduli; 700 W allow less. A pair of blocks takes
// 64 KiB from L2 for 128 inner numbers of 256 x 256 products, 7.8e-3 bytes a product. A is read and
// written once; residues wait in L2 (or beyond), s bytes each way an element.
#include <algorithm>

#include "kernels/cuda/barriers.cuh"
#include "kernels/cuda/emulated.cuh"

namespace terrace::emulated {
namespace {

using device::arrive;
using device::make_barrier;
using device::Ring;
using device::shared_address;
using device::wait_for;

constexpr int tile_rows = 128;     // of a block; two warpgroups of 64, two blocks a cluster
constexpr int tile_columns = 256;  // shared by the blocks of a cluster
constexpr int chunk = 128;         // inner numbers a stage: one row of a swizzled block
constexpr int left_bytes = tile_rows * chunk, right_bytes = tile_columns * chunk;
constexpr int stage_bytes = left_bytes + right_bytes;
constexpr int stages = 4;
constexpr int shared_bytes = stages * stage_bytes + 1024;
constexpr int threads =
    4 * 128;                // two warpgroups multiply, one turns residues into doubles, one loads
constexpr Index strip = 8;  // tiles side by side that share rows of N in L2
constexpr int pieces = 16;  // of 8 residues, of a thread and a modulus
constexpr Index launch_chunks = 1 << 12;  // of a block, of all moduli: 2 to 3 ms

/// [modulus][tile of `rows` vectors][chunk][rows x 128 bytes], swizzled as descriptors expect.
template <int rows>
struct Packed {
  unsigned char* data;
  Index tiles, chunks;
  __host__ __device__ Index block(Index plane, Index tile) const {
    return (plane * tiles + tile) * chunks * rows * chunk;
  }
  __device__ uint4* at(Index plane, Index vector, Index piece) const {
    const auto r = int(vector % rows), c = int(piece % 8);
    return reinterpret_cast<uint4*>(data + block(plane, vector / rows) + piece / 8 * rows * chunk +
                                    r * 128 + ((c ^ (r & 7)) << 4));
  }
};

struct Product {
  Packed<tile_rows> left;
  Packed<tile_columns> right;
  const int *row_exponents, *column_exponents;
  double* a;
  Index lda, m, n;
  bool pairs;  // of columns can be read at once
  unsigned char* scratch;
  Index first, end;  // tiles of this launch
  Index wave;        // clusters
  Scheme s;
};

/// Rows and columns of cluster tile k: strips of `strip` tiles, row by row.
__device__ __forceinline__ void tile_at(const Product& p, Index k, Index& row, Index& column) {
  const Index row_pairs = p.left.tiles / 2, per_strip = strip * row_pairs;
  const Index s = k / per_strip, rest = k % per_strip;
  const Index width = min(strip, p.right.tiles - s * strip);
  row = rest / width;
  column = s * strip + rest % width;
}

/// Residues of a block: [tile % 2][modulus][piece][thread of 256], 8 bytes each.
__device__ __forceinline__ uint2* scratch_at(const Product& p, int half, int modulus, int piece,
                                             int thread) {
  return reinterpret_cast<uint2*>(p.scratch) +
         (((Index(blockIdx.x) * 2 + half) * p.s.count + modulus) * pieces + piece) * 256 + thread;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
__device__ __forceinline__ unsigned rank_in_cluster() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void meet_cluster() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
/// At this barrier of block `rank` of the cluster.
__device__ __forceinline__ void arrive_at(const Word* barrier, unsigned rank) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n}" ::"r"(
          shared_address(barrier)),
      "r"(rank)
      : "memory");
}
__device__ __forceinline__ void expect_bytes(const Word* barrier, unsigned bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
/// To one block, or to the same place in both blocks; each one's barrier counts the bytes.
__device__ __forceinline__ void copy_in(unsigned to, const void* from, unsigned bytes,
                                        const Word* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}
__device__ __forceinline__ void copy_to_both(unsigned to, const void* from, unsigned bytes,
                                             const Word* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(shared_address(barrier)), "h"((unsigned short)(3))
      : "memory");
}
/// K-major block of 128-byte rows with the 128-byte swizzle; 8 rows are 1,024 bytes.
__device__ __forceinline__ Word descriptor(unsigned address) {
  return Word((address & 0x3ffff) >> 4) | Word(1) << 16 | Word(64) << 32 | Word(1) << 62;
}

#define TERRACE_D4(i) "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3])
#define TERRACE_D16(i) TERRACE_D4(i), TERRACE_D4(i + 4), TERRACE_D4(i + 8), TERRACE_D4(i + 12)
#define TERRACE_D64 TERRACE_D16(0), TERRACE_D16(16), TERRACE_D16(32), TERRACE_D16(48)
/// d (64 x 128 sums) = or += left (64 x 32 bytes) times right (128 x 32 bytes).
__device__ __forceinline__ void multiply_step(int (&d)[64], Word left, Word right, int add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,"
      "%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,"
      "%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, %64, %65, p;\n}\n"
      : TERRACE_D64
      : "l"(left), "l"(right), "r"(add));
}
/// A chunk: one group of asynchronous products.
__device__ __forceinline__ void multiply_chunk(int (&d)[64], Word left, Word right, int add) {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (int k = 0; k < chunk / 32; ++k) multiply_step(d, left + 2 * k, right + 2 * k, add | k);
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// All groups but the last `left` are done; d is one of them.
template <int left>
__device__ __forceinline__ void wait_products(int (&d)[64]) {
  asm volatile("wgmma.wait_group.sync.aligned %64;" : TERRACE_D64 : "n"(left) : "memory");
}

/// Residues of half of a thread's sums, one modulus.
__device__ __forceinline__ void store_residues(const int (&d)[64], const Modulus& m, uint2* to) {
  const auto four = [&](int i) {
    return bytes_of(residue_of_sum(d[i], m), residue_of_sum(d[i + 1], m),
                    residue_of_sum(d[i + 2], m), residue_of_sum(d[i + 3], m));
  };
#pragma unroll
  for (int x = 0; x < pieces / 2; ++x) to[x * 256] = uint2{four(8 * x), four(8 * x + 4)};
}

/// Byte e of word 4 g + j becomes byte j of to[e][g].
template <int groups>
__device__ __forceinline__ void transpose(unsigned (&to)[4][groups],
                                          const unsigned (&r)[4 * groups]) {
#pragma unroll
  for (int g = 0; g < groups; ++g) {
    const unsigned a = r[4 * g], b = r[4 * g + 1], c = r[4 * g + 2], d = r[4 * g + 3];
    const unsigned low = __byte_perm(a, b, 0x5140), high = __byte_perm(a, b, 0x7362);
    const unsigned low2 = __byte_perm(c, d, 0x5140), high2 = __byte_perm(c, d, 0x7362);
    to[0][g] = __byte_perm(low, low2, 0x5410);
    to[1][g] = __byte_perm(low, low2, 0x7632);
    to[2][g] = __byte_perm(high, high2, 0x5410);
    to[3][g] = __byte_perm(high, high2, 0x7632);
  }
}

/// This block's part of A, rows x columns of it, and exponents.
struct Tile {
  double* a;
  const int *row_exponents, *column_exponents;
  int rows, columns;
};

__device__ __forceinline__ double changed(const Product& p, double a, double x, int row,
                                          int column) {
  const double v = subtract(a, x, p.s.mantissa, p.s.exponent - row - column);
  return row == not_finite || column == not_finite ? __longlong_as_double(0x7ff8ll << 48) : v;
}

/// Eight numbers of A, as a multiplying thread holds their sums: two words, of four each.
template <int groups>
struct Piece {
  unsigned r[2][4 * groups];  ///< residues of a word's numbers, one modulus each

  __device__ __forceinline__ void load(const Product& p, const uint2* from) {
#pragma unroll
    for (int q = 0; q < 4 * groups; ++q) {
      const uint2 both = q < p.s.count ? __ldcg(from + q * pieces * 256) : uint2{0, 0};
      r[0][q] = both.x;
      r[1][q] = both.y;
    }
  }

  /// A -= product in rows i, i + 8 and columns j, j + 1 (a word), j + 8, j + 9. `load_next` is done
  /// while A comes.
  template <class LoadNext>
  __device__ __forceinline__ void finish(const Product& p, const Tile& tile, int i, int j,
                                         const LoadNext& load_next) {
    double2 a[2][2];
    int row[2], column[2][2];
    double* const at = tile.a + i * p.lda + j;
#pragma unroll
    for (int h = 0; h < 2; ++h) row[h] = i + 8 * h < tile.rows ? tile.row_exponents[i + 8 * h] : 0;
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      const int in = tile.columns - j - 8 * w;  // columns
#pragma unroll
      for (int e = 0; e < 2; ++e) column[w][e] = e < in ? tile.column_exponents[j + 8 * w + e] : 0;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        a[w][h] = double2{0, 0};
        if (i + 8 * h >= tile.rows) continue;
        const double* const here = at + 8 * h * p.lda + 8 * w;
        if (p.pairs && in > 1) {
          a[w][h] = *reinterpret_cast<const double2*>(here);
        } else {
          if (in > 0) a[w][h].x = here[0];
          if (in > 1) a[w][h].y = here[1];
        }
      }
    }
    unsigned t[2][4][groups];
    transpose(t[0], r[0]);
    transpose(t[1], r[1]);
    load_next();
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      const int in = tile.columns - j - 8 * w;
      double x[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) x[e] = fraction(t[w][e], p.s);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const double2 v{changed(p, a[w][h].x, x[2 * h], row[h], column[w][0]),
                        changed(p, a[w][h].y, x[2 * h + 1], row[h], column[w][1])};
        if (i + 8 * h >= tile.rows) continue;
        double* const here = at + 8 * h * p.lda + 8 * w;
        if (p.pairs && in > 1) {
          *reinterpret_cast<double2*>(here) = v;
        } else {
          if (in > 0) here[0] = v.x;
          if (in > 1) here[1] = v.y;
        }
      }
    }
  }
};
#endif

/// A cluster of two blocks has tiles first + its number, + wave, + 2 wave ... < end.
template <int groups>
__global__ void __launch_bounds__(threads, 1) product_kernel(const __grid_constant__ Product p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char raw[];
  __shared__ alignas(8) Word full[stages], empty[stages], ready[2], taken[2];
  const unsigned base = (shared_address(raw) + 1023u) & ~1023u;
  const int group = int(threadIdx.x) / 128;
  const unsigned rank = rank_in_cluster();
  if (threadIdx.x == 0) {
    for (int s = 0; s < stages; ++s) {
      make_barrier(full + s, 1);
      make_barrier(empty + s, 4);  // two warpgroups of both blocks
    }
    for (int h = 0; h < 2; ++h) {
      make_barrier(ready + h, 256);
      make_barrier(taken + h, 128);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  meet_cluster();
  const Index first = p.first + blockIdx.x / 2;
  const auto chunks = int(p.left.chunks);

  if (group == 3) {  // loads
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 3 * 128) {
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
            expect_bytes(full + ring.stage, stage_bytes);
            copy_in(at, left, left_bytes, full + ring.stage);
            copy_to_both(at + left_bytes + rank * (right_bytes / 2), right, right_bytes / 2,
                         full + ring.stage);
            left += left_bytes;
            right += right_bytes;
            ring.next();
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
      const Index row0 = (2 * row + rank) * tile_rows, column0 = column * tile_columns;
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
    // The high half of a modulus is finished while the next one's products run.
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
  static const Index clusters = [] {
    for (const Kernel kernel : {product_kernel<2>, product_kernel<3>, product_kernel<4>})
      check(
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
    Launch launch(unsigned(current_cuda_device().multiprocessors) / 2, nullptr);
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
