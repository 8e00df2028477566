// combine() on CUDA: the Method of the Four Russians, tables in shared memory, rows in registers.
//
// Roofline: 128 bytes of shared memory a row, strip and 8 columns; 32.7 TB/s on an H200 allow
// 2.1e15 bit-MAC/s. Tables cost a quarter of that again (1,024 rows a tile); each row is read and
// written once a call.
#include "kernels/bits.hpp"
#include "kernels/cuda/runtime.cuh"

namespace terrace {
namespace {

constexpr int threads = 512;
constexpr int lanes = 8;                 // threads that hold a row's strip, 16 bytes each
constexpr int strip_words = 2 * lanes;   // 128 bytes: one conflict-free phase of a 128-bit load
constexpr int groups = threads / lanes;  // rows at a time
constexpr int rows_per_thread = 16;
constexpr int tile_rows = groups * rows_per_thread;
constexpr int tables = 4;  // of 8 source rows: 32 bits of multipliers a stage
constexpr int table_bytes = tables * 256 * strip_words * 8;

struct Combine {
  BitRows<Word, Cuda> out;
  BitRows<const Word, Cuda> multipliers, source;
  Index out_word, source_word, words;
};

__device__ __forceinline__ void add(uint4& a, const uint4& b) {
  a.x ^= b.x, a.y ^= b.y, a.z ^= b.z, a.w ^= b.w;
}

/// The 16 bytes of source rows first .. first + 7 that this thread's tables are made of.
__device__ __forceinline__ void fetch(const Combine& p, Index first, Index word, bool inside,
                                      uint4 (&rows)[8]) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    rows[j] = make_uint4(0, 0, 0, 0);
    if (inside && first + j < p.source.count)
      rows[j] = *reinterpret_cast<const uint4*>(
          p.source.data + p.source.row(first + j) * p.source.stride + p.source_word + word);
  }
}

/// Where row i's 16 bytes at `word` are.
__device__ __forceinline__ uint4* place(const Combine& p, Index i, Index word) {
  return reinterpret_cast<uint4*>(p.out.data + p.out.row(i) * p.out.stride + p.out_word + word);
}

__global__ void __launch_bounds__(threads, 1) combine_kernel(const Combine p) {
  extern __shared__ uint4 table[];  // [tables][256][lanes]
  const int lane = threadIdx.x % lanes, group = threadIdx.x / lanes;
  const Index word = Index(blockIdx.x) * strip_words + 2 * lane;
  const bool inside = word < p.words;
  const Index first_row = Index(blockIdx.y) * tile_rows + group;
  const int rows_left = int(min(p.out.count - first_row, Index(tile_rows)));  // from group's first
  const unsigned* multipliers =
      reinterpret_cast<const unsigned*>(p.multipliers.data + first_row * p.multipliers.stride);
  const Index multiplier_step = 2 * groups * p.multipliers.stride;

  uint4 sum[rows_per_thread];
#pragma unroll
  for (int r = 0; r < rows_per_thread; ++r) {
    sum[r] = make_uint4(0, 0, 0, 0);
    if (inside && r * groups < rows_left) sum[r] = *place(p, first_row + r * groups, word);
  }

  // This thread builds 16 entries of one table: high nibble h, all low nibbles.
  const int my_table = threadIdx.x / (16 * lanes), h = threadIdx.x / lanes % 16;
  const Index stages = ceil_div(p.source.count, 8 * tables);
  uint4 rows[8];
  fetch(p, 8 * my_table, word, inside, rows);
  for (Index stage = 0; stage < stages; ++stage) {
    uint4 entry = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if ((h >> j) & 1) add(entry, rows[4 + j]);
    uint4* to = table + (my_table * 256 + h * 16) * lanes + lane;
    to[0] = entry;
#pragma unroll
    for (int step = 1; step < 16; ++step) {  // Gray code: one row changes
      const int changed = (step & 1) ? 0 : (step & 2) ? 1 : (step & 4) ? 2 : 3;
      add(entry, rows[changed]);
      to[(step ^ (step >> 1)) * lanes] = entry;
    }
    __syncthreads();
    if (stage + 1 < stages)  // on its way while the tables are read
      fetch(p, (stage + 1) * 8 * tables + 8 * my_table, word, inside, rows);
#pragma unroll
    for (int r = 0; r < rows_per_thread; ++r) {
      const unsigned m = r * groups < rows_left ? multipliers[r * multiplier_step + stage] : 0;
      const uint4* from = table + lane;
      const uint4 a = from[(m & 255) * lanes];
      const uint4 b = from[(256 + ((m >> 8) & 255)) * lanes];
      const uint4 c = from[(512 + ((m >> 16) & 255)) * lanes];
      const uint4 d = from[(768 + (m >> 24)) * lanes];
      sum[r].x ^= a.x ^ b.x ^ c.x ^ d.x;
      sum[r].y ^= a.y ^ b.y ^ c.y ^ d.y;
      sum[r].z ^= a.z ^ b.z ^ c.z ^ d.z;
      sum[r].w ^= a.w ^ b.w ^ c.w ^ d.w;
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < rows_per_thread; ++r) {
    if (inside && r * groups < rows_left) *place(p, first_row + r * groups, word) = sum[r];
  }
}

}  // namespace

void combine(const Stream<Cuda>& stream, BitRows<Word, Cuda> out,
             BitRows<const Word, Cuda> multipliers, BitRows<const Word, Cuda> source,
             Index out_word, Index source_word, Index words) {
  if (out.count <= 0 || source.count <= 0 || words <= 0) return;
  static const bool prepared = [] {
    check(cudaFuncSetAttribute(combine_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               table_bytes));
    return true;
  }();
  (void)prepared;
  const dim3 grid(unsigned(ceil_div(words, strip_words)), unsigned(ceil_div(out.count, tile_rows)));
  combine_kernel<<<grid, threads, table_bytes, native(stream)>>>(
      {out, multipliers, source, out_word, source_word, words});
  check_launch();
}

}  // namespace terrace
