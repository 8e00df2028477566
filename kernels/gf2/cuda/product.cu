// BitProduct on CUDA: wgmma on bits (and, population count; the low bit of the count is the product
// over GF(2)), sm_90a.
//
// Roofline: 64 x 256 x 256 bit-MAC an instruction, at most one in 128 clocks an SM: 7.9e15
// bit-MAC/s on 132 SMs at 1.83 GHz; 12.5e15 operations (6.25e15 bit-MAC/s) were measured on an H200
// NVL by the authors of sseq/fp-cuda. A tile of 128 x 256 bits takes 48 KiB from L2 for 1,024 inner
// bits, 1.46e-3 bytes a bit-MAC; out is read and written once.
#include <algorithm>

#include "kernels/base/cuda/barriers.cuh"
#include "kernels/base/cuda/runtime.cuh"
#include "kernels/gf2/product.hpp"

namespace terrace::gf2 {
namespace {

using namespace device;

constexpr int tile_rows = 128;     // two warpgroups of 64
constexpr int tile_columns = 256;  // 4 words of out
constexpr int chunk_bits = 1024;   // of the inner dimension: one 128-byte row of a swizzled block
constexpr int chunk_words = chunk_bits / 64;
constexpr int left_bytes = tile_rows * chunk_bits / 8, right_bytes = tile_columns * chunk_bits / 8;
constexpr int stage_bytes = left_bytes + right_bytes;
constexpr int stages = 4;
constexpr int threads = 3 * 128;  // two warpgroups multiply, one warp of the third loads
constexpr int strip = 8;          // tiles side by side that share rows of left in L2
constexpr Index run_chunks = 48;  // of a block: then its SM is free for a lane of higher priority
constexpr int shared_bytes = stages * stage_bytes + 1024;
constexpr Index least_inner = 256;

constexpr Index packed_left_words(Index rows, Index inner) {
  return round_up(rows, tile_rows) * round_up(inner, chunk_bits) / 64;
}
constexpr Index packed_right_words(Index inner, Index words) {
  return round_up(64 * words, tile_columns) * round_up(inner, chunk_bits) / 64;
}

/// Place of 16-byte piece c of row r in a block of 128-byte rows: what the descriptors' 128-byte
/// swizzle expects.
__device__ __forceinline__ int swizzled(int r, int c) { return r * 128 + ((c ^ (r & 7)) << 4); }

// [tile of 128 rows][chunk][128 rows x 128 bytes]
__global__ void pack_left_kernel(unsigned char* to, BitRows<const Word, Cuda> left, Index words,
                                 Index chunks) {
  const Index total = round_up(left.count, tile_rows) * chunks * 8;
  for (Index x = Index(blockIdx.x) * blockDim.x + threadIdx.x; x < total;
       x += Index(gridDim.x) * blockDim.x) {
    const Index i = x / (8 * chunks), piece = x % (8 * chunks), word = 2 * piece;
    ulonglong2 bits{0, 0};
    if (i < left.count) {
      const Word* from = left.data + left.row(i) * left.stride;
      if (word < words) bits.x = from[word];
      if (word + 1 < words) bits.y = from[word + 1];
    }
    const Index block = i / tile_rows * chunks + piece / 8;
    *reinterpret_cast<ulonglong2*>(to + block * left_bytes +
                                   swizzled(int(i % tile_rows), int(piece % 8))) = bits;
  }
}

// [tile of 256 columns][chunk][256 columns x 128 bytes], the columns of a tile ordered so that
// each thread of the product finds the 64 bits of one word in its own accumulators:
// column 64 t + 2 j + e is row 8 j + 2 t + e of the tile.
// A warp turns 64 x 64 bits at a time; a block has 1,024 inner rows of 64 columns.
__global__ void __launch_bounds__(512)
    pack_right_kernel(unsigned char* to, BitRows<const Word, Cuda> right, Index words,
                      Index chunks) {
  __shared__ Word turned[64][chunk_words + 1];
  const Index word = blockIdx.x, chunk = blockIdx.y;
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  {
    // Rows 64 warp + lane and + 32 of the chunk.
    const Index q = chunk * chunk_bits + 64 * warp + lane;
    Word low = 0, high = 0;
    if (word < words && q < right.count) low = right.data[right.row(q) * right.stride + word];
    if (word < words && q + 32 < right.count)
      high = right.data[right.row(q + 32) * right.stride + word];
#pragma unroll 4
    for (int c = 0; c < 64; ++c) {
      const unsigned a = __ballot_sync(~0u, (low >> c) & 1),
                     b = __ballot_sync(~0u, (high >> c) & 1);
      if (lane == (c & 31)) turned[c][warp] = Word(b) << 32 | a;
    }
  }
  __syncthreads();
  const int t = int(word % 4);
  unsigned char* block = to + (word / 4 * chunks + chunk) * right_bytes;
  for (int x = int(threadIdx.x); x < 64 * 8; x += int(blockDim.x)) {
    const int c = x / 8, piece = x % 8;
    const int row = 8 * (c / 2) + 2 * t + (c & 1);
    *reinterpret_cast<ulonglong2*>(block + swizzled(row, piece)) =
        ulonglong2{turned[c][2 * piece], turned[c][2 * piece + 1]};
  }
}

struct Product {
  const unsigned char *left, *right;
  BitRows<Word, Cuda> out;
  Index out_word, words;
  Index row_tiles, column_tiles, chunks;
  Index wave;  // blocks at a time; block b has tiles (b / wave run + i) wave + b % wave, i < run
  Index run;
};

/// Tile number k: strips of `strip` columns of tiles, row by row.
__device__ __forceinline__ void tile_at(const Product& p, Index k, Index& row, Index& column) {
  const Index per_strip = strip * p.row_tiles, s = k / per_strip, left = k % per_strip;
  const Index width = min(Index(strip), p.column_tiles - s * strip);
  row = left / width;
  column = s * strip + left % width;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
/// wait_for without a loop that the compiler sees: it unrolls the loops around it.
__device__ __forceinline__ void wait(const Word* barrier, unsigned parity) {
  asm volatile(
      "{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra "
      "done;\nbra again;\ndone:\n}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}
/// K-major block of 128-byte rows with the 128-byte swizzle; 8 rows are 1,024 bytes.
__device__ __forceinline__ unsigned long long descriptor(unsigned address) {
  return (unsigned long long)((address & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

#define TERRACE_D4(i) "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3])
#define TERRACE_D16(i) TERRACE_D4(i), TERRACE_D4(i + 4), TERRACE_D4(i + 8), TERRACE_D4(i + 12)
#define TERRACE_D64(i) TERRACE_D16(i), TERRACE_D16(i + 16), TERRACE_D16(i + 32), TERRACE_D16(i + 48)
/// d (64 x 256 counts) = or += left (64 x 256 bits) and right (256 x 256 bits).
__device__ __forceinline__ void multiply_step(int (&d)[128], unsigned long long left,
                                              unsigned long long right, int add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k256.s32.b1.b1.and.popc {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,"
      "%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,"
      "%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,"
      "%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,"
      "%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,"
      "%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,"
      "%127}, %128, %129, p;\n}\n"
      : TERRACE_D64(0), TERRACE_D64(64)
      : "l"(left), "l"(right), "r"(add));
}

/// A block's stages in shared memory and its tiles first, + wave, + 2 wave ... < end.
struct Stages {
  const Product& p;
  const unsigned base;
  Word *const full, *const empty = full + stages;
  Word* const turn = empty + stages;  // two: which warpgroup has the tensor cores
  const Index first = Index(blockIdx.x) / p.wave * p.run * p.wave + Index(blockIdx.x) % p.wave;
  const Index end = min(p.row_tiles * p.column_tiles, first + p.run * p.wave);
  const int group = int(threadIdx.x) / 128;
  Ring<stages> ring;

  /// One thread: the chunks of all tiles.
  __device__ __forceinline__ void load() {
    for (Index k = first; k < end; k += p.wave) {
      Index row = 0, column = 0;
      tile_at(p, k, row, column);
      for (Index c = 0; c < p.chunks; ++c) {
        wait(empty + ring.stage, ring.emptied());
        Word* const barrier = full + ring.stage;
        const unsigned at = base + ring.stage * stage_bytes;
        arrive_for_bytes(barrier, stage_bytes);
        copy_in_bulk(at, p.left + (row * p.chunks + c) * left_bytes, left_bytes, barrier);
        copy_in_bulk(at + left_bytes, p.right + (column * p.chunks + c) * right_bytes, right_bytes,
                     barrier);
        ring.next();
      }
    }
  }
  /// The stage before this one may be filled again.
  __device__ __forceinline__ void release_before() const {
    if (threadIdx.x % 128 == 0) arrive(empty + (ring.stage == 0 ? stages - 1 : ring.stage - 1));
  }
  /// d = the products of all chunks of a tile, the last ones still under way.
  template <int steps>
  __device__ __forceinline__ void multiply(int (&d)[128]) {
    for (Index c = 0; c < p.chunks; ++c) {
      wait(full + ring.stage, ring.filled());
      const unsigned at = base + ring.stage * stage_bytes;
      const Word left = descriptor(at + unsigned(group) * (left_bytes / 2));
      const Word right = descriptor(at + left_bytes);
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
      // 256 bits are 32 bytes, 2 units of a descriptor.
#pragma unroll
      for (int s = 0; s < steps; ++s) multiply_step(d, left + 2 * s, right + 2 * s, c > 0 || s > 0);
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      if (c > 0) {  // the chunk before this one is done
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        release_before();
      }
      ring.next();
    }
  }
};

/// This thread's rows i and i + 8 of out in a tile, or -1.
struct Rows {
  int row[2], column = 0;
  __device__ __forceinline__ void ask(const Product& p, Index k) {
    Index tile_row = 0, at = 0;
    tile_at(p, k, tile_row, at);
    column = int(at);
    const int thread = int(threadIdx.x);
    const Index i =
        tile_row * tile_rows + 64 * (thread / 128) + 16 * (thread / 32 % 4) + thread % 32 / 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) row[h] = i + 8 * h < p.out.count ? int(p.out.row(i + 8 * h)) : -1;
  }
};

/// The low bits of a thread's counts for row h, 64 columns.
__device__ __forceinline__ Word low_bits(const int (&d)[128], int h) {
  unsigned low = 0, high = 0;
#pragma unroll
  for (int j = 0; j < 16; ++j)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      low = __funnelshift_r(low, unsigned(d[4 * j + 2 * h + e]), 1);
      high = __funnelshift_r(high, unsigned(d[4 * (j + 16) + 2 * h + e]), 1);
    }
  return Word(high) << 32 | low;
}
#endif

/// `steps`: of 256 bits in every chunk, fewer than 4 for a single chunk only.
template <int steps>
__global__ void __launch_bounds__(threads, 1) product_kernel(const Product p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char raw[];
  __shared__ alignas(8) Word barriers[2 * stages + 2];
  Stages block{p, (shared_address(raw) + 1023u) & ~1023u, barriers};
  if (threadIdx.x == 0) {
    for (int s = 0; s < stages; ++s) {
      make_barrier(block.full + s, 1);
      make_barrier(block.empty + s, 2);
    }
    for (int g = 0; g < 2; ++g) make_barrier(block.turn + g, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (block.group == 2) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 256) block.load();
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  const bool in_turns = p.chunks <= stages / 2;
  unsigned turns = 0;
  int d[128];
  Rows rows;  // asked for a tile ahead
  if (block.first < block.end) rows.ask(p, block.first);
  for (Index k = block.first; k < block.end; k += p.wave) {
    const Index word = 4 * rows.column + threadIdx.x % 4;
    Word* place[2] = {nullptr, nullptr};
    Word old[2] = {0, 0};
#pragma unroll
    for (int h = 0; h < 2; ++h)
      if (word < p.words && rows.row[h] >= 0) {
        place[h] = p.out.data + rows.row[h] * p.out.stride + p.out_word + word;
        old[h] = *place[h];
      }
    if (k + p.wave < block.end) rows.ask(p, k + p.wave);
    // The warpgroups multiply in turns: one stores while the other multiplies.
    if (in_turns && (block.group == 1 || turns > 0))
      wait(block.turn + block.group, (turns + block.group + 1) & 1);
    ++turns;
    block.multiply<steps>(d);
    if (in_turns && threadIdx.x % 128 == 0) arrive(block.turn + 1 - block.group);
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    block.release_before();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const Word bits = low_bits(d, h);
      if (place[h]) *place[h] = old[h] ^ bits;
    }
  }
#else
  (void)p;
#endif
}

/// The instruction alone, from shared memory, in two warpgroups.
__global__ void __launch_bounds__(256, 1) rate_kernel(int rounds, int* out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char raw[];
  const unsigned base = (shared_address(raw) + 1023u) & ~1023u;
  for (unsigned x = threadIdx.x; x < stage_bytes / 4; x += blockDim.x)
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(base + 4 * x), "r"(x * 2654435761u) : "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const unsigned long long left = descriptor(base + threadIdx.x / 128 * (left_bytes / 2));
  const unsigned long long right = descriptor(base + left_bytes);
  int d[128] = {};
  for (int r = 0; r < rounds; ++r) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int s = 0; s < chunk_bits / 256; ++s) multiply_step(d, left + 2 * s, right + 2 * s, 1);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  int sum = 0;
#pragma unroll
  for (int i = 0; i < 128; ++i) sum ^= d[i];
  if (sum == 1) *out = sum;
#else
  (void)rounds, (void)out;
#endif
}

}  // namespace

Index BitProduct<Cuda>::bytes(Index rows, Index inner, Index words, ProductMethod method) {
  if (method.stored) return 8 * stored_table_words<Cuda>(inner, words, method.shape);
  if (method.tables || inner < least_inner || !has_bit_tensor_cores()) return 0;
  return 8 * (packed_left_words(rows, inner) + packed_right_words(inner, words));
}

BitProduct<Cuda>::BitProduct(Index rows, Index inner, Index words, ProductMethod method)
    : method_(method) {
  const Index total = bytes(rows, inner, words, method);
  if (total == 0) return;
  if (method.stored) {
    tables_ = Buffer<Word, Cuda>(total / 8);
    return;
  }
  packed_left_ = Buffer<Word, Cuda>(packed_left_words(rows, inner));
  packed_right_ = Buffer<Word, Cuda>(packed_right_words(inner, words));
}

bool BitProduct<Cuda>::packed() const {
  return right_.rows.count >= least_inner && packed_right_.size() > 0;
}

View<Word, Cuda> BitProduct<Cuda>::tables() const {
  return tables_.view().slice(
      0, stored_table_words<Cuda>(right_.rows.count, right_.words(), method_.shape));
}

void BitProduct<Cuda>::set_right(const Stream<Cuda>& stream, BitRows<const Word, Cuda> right,
                                 Index words) {
  right_ = {right, {0, words}, nullptr};
  if (method_.stored && right.data)
    build_tables(stream, right, words, method_.shape, tables_.data());
  set_strip(stream, 0);
}

Word* BitProduct<Cuda>::packed_strip(int p) const {
  return packed_right_.data() + packed_right_words(right_.rows.count, right_.cuts[std::size_t(p)]);
}

void BitProduct<Cuda>::set_strip(const Stream<Cuda>& stream, int p) {
  const Index words = right_.words(p);
  if (!packed() || words <= 0) return;
  const Index chunks = ceil_div(right_.rows.count, chunk_bits);
  const dim3 grid(unsigned(round_up(words, tile_columns / 64)), unsigned(chunks));
  pack_right_kernel<<<grid, 512, 0, native(stream)>>>(
      reinterpret_cast<unsigned char*>(packed_strip(p)), right_.strip(p), words, chunks);
  check_launch();
}

View<Word, Cuda> BitProduct<Cuda>::strip_memory(int p) const {
  if (packed()) return {packed_strip(p), packed_right_words(right_.rows.count, right_.words(p))};
  return right_.strip_memory(p);
}

void BitProduct<Cuda>::set_left(const Stream<Cuda>& stream, BitRows<const Word, Cuda> left) {
  left_ = left;
  if (!packed() || left.count <= 0) return;
  const Index chunks = ceil_div(right_.rows.count, chunk_bits);
  const Index pieces = round_up(left.count, tile_rows) * chunks * 8;
  pack_left_kernel<<<unsigned(std::min(ceil_div(pieces, 256), Index(1) << 16)), 256, 0,
                     native(stream)>>>(reinterpret_cast<unsigned char*>(packed_left_.data()), left,
                                       ceil_div(right_.rows.count, 64), chunks);
  check_launch();
}

void BitProduct<Cuda>::add(const Stream<Cuda>& stream, BitRows<Word, Cuda> out, Index out_word,
                           Index right_word, Index words) const {
  if (method_.stored) {
    combine_stored(stream, out, left_, right_.rows.count, tables_.data(), right_.words(), out_word,
                   right_word, words, method_.shape);
    return;
  }
  if (!packed()) {
    right_.each(right_word, words,
                [&](BitRows<const Word, Cuda> strip, Index word, Index at, Index count) {
                  combine(stream, out, left_, strip, out_word + at, word, count, method_.shape);
                });
    return;
  }
  if (out.count <= 0 || words <= 0) return;
  using Kernel = void (*)(Product);
  static const Kernel kernels[] = {product_kernel<1>, product_kernel<2>, product_kernel<3>,
                                   product_kernel<4>};
  static OncePerDevice<Index> once;
  const Index multiprocessors = once([] {
    for (const Kernel kernel : kernels) allow_shared(kernel, shared_bytes);
    return Index(current_cuda_device().multiprocessors);
  });
  Product p{};
  p.chunks = ceil_div(right_.rows.count, chunk_bits);
  p.left = reinterpret_cast<const unsigned char*>(packed_left_.data());
  p.right = reinterpret_cast<const unsigned char*>(packed_right_.data()) +
            right_word / (tile_columns / 64) * p.chunks * right_bytes;
  p.out = out;
  p.out_word = out_word;
  p.words = words;
  p.row_tiles = ceil_div(out.count, tile_rows);
  p.column_tiles = ceil_div(words, tile_columns / 64);
  const Index tiles = p.row_tiles * p.column_tiles;
  p.wave = std::min(tiles, multiprocessors);
  p.run = std::max<Index>(1, run_chunks / p.chunks);
  const Index blocks = ceil_div(tiles, p.wave * p.run) * p.wave;
  const Index steps = p.chunks > 1 ? 4 : ceil_div(right_.rows.count, 256);
  kernels[steps - 1]<<<unsigned(blocks), threads, shared_bytes, native(stream)>>>(p);
  check_launch();
}

double bit_tensor_rate(const Stream<Cuda>& stream) {
  if (!has_bit_tensor_cores()) return 0;
  constexpr int rounds = 4000, bytes = stage_bytes + 1024;
  const auto multiprocessors = unsigned(current_cuda_device().multiprocessors);
  const Buffer<int, Cuda> out(1);
  allow_shared(rate_kernel, bytes);
  double seconds = 0;
  for (int repeat = 0; repeat < 2; ++repeat) {
    const auto begin = stream.record();
    rate_kernel<<<multiprocessors, 256, bytes, native(stream)>>>(rounds, out.data());
    check_launch();
    const auto end = stream.record();
    stream.synchronize();
    seconds = seconds_between(begin, end);
  }
  return double(multiprocessors) * rounds * tile_rows * tile_columns * chunk_bits / seconds;
}

}  // namespace terrace::gf2
