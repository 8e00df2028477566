// For .cu files only: the kernel of combine() and its launch shapes; bits_combine.cu has its
// roofline.
#pragma once
#include <cuda_pipeline_primitives.h>

#include "kernels/base/cuda/runtime.cuh"
#include "kernels/gf2/bits.hpp"

namespace terrace::gf2 {
namespace {

struct Combine {
  BitRows<Word, Cuda> out;
  BitRows<const Word, Cuda> multipliers, source;
  Index out_word, source_word, words;
  const Word* stored;  // tables from build_tables(), or null
  Index strips;        // that `stored` has
};

__device__ __forceinline__ void add(uint4& a, const uint4& b) {
  a.x ^= b.x, a.y ^= b.y, a.z ^= b.z, a.w ^= b.w;
}
__device__ __forceinline__ void add(uint2& a, const uint2& b) { a.x ^= b.x, a.y ^= b.y; }

/// One launch shape: T tables of 2^K combinations a stage, strips of L lanes of type V, R rows a
/// thread.
template <int K, int T, class V, int L, int R, int Threads, int Blocks>
struct Launch {
  static constexpr int k = K, tables = T, lanes = L, rows = R, threads = Threads, blocks = Blocks;
  using Part = V;
  static constexpr int strip_words = L * int(sizeof(V)) / 8;
  static constexpr int groups = threads / L;  // rows at a time
  static constexpr int tile_rows = groups * R;
  static constexpr int entries = T << K;
  static constexpr int table_bytes = entries * L * int(sizeof(V));
  static constexpr int source_bytes = 2 * T * K * L * int(sizeof(V));
};

/// All combinations of source rows K t .. K t + K - 1 (parts `rows`, T K x L), t < T, to
/// table[t][2^K][L]: a thread walks 8 or 16 of them in Gray-code order (one row changes), which is
/// computed, not stored; neighbouring threads write neighbouring entries.
template <class S>
__device__ __forceinline__ void build(const typename S::Part* rows, typename S::Part* table) {
  constexpr int most = S::threads * S::blocks > 512 ? 3 : 4;  // as registers allow
  constexpr int gray = S::k < most ? S::k : most, low = S::k - gray;
  for (int item = int(threadIdx.x); item < (S::tables << low) * S::lanes; item += int(blockDim.x)) {
    const int lane = item % S::lanes, h = item / S::lanes % (1 << low),
              t = item / (S::lanes << low);
    const typename S::Part* from = rows + t * S::k * S::lanes + lane;
    typename S::Part entry{}, changing[gray];
#pragma unroll
    for (int j = 0; j < low; ++j)
      if ((h >> j) & 1) add(entry, from[j * S::lanes]);
#pragma unroll
    for (int j = 0; j < gray; ++j) changing[j] = from[(low + j) * S::lanes];
    typename S::Part* to = table + ((t << S::k) + h) * S::lanes + lane;
    to[0] = entry;
#pragma unroll
    for (int step = 1; step < 1 << gray; ++step) {
      const int changed = (step & 1) ? 0 : (step & 2) ? 1 : (step & 4) ? 2 : 3;
      add(entry, changing[changed % gray]);
      to[(step ^ (step >> 1)) * (S::lanes << low)] = entry;
    }
  }
}

/// Source rows stage T K ... on their way to `rows`; zero beyond the source and the strip.
template <class S>
__device__ __forceinline__ void fetch(const BitRows<const Word, Cuda>& source, Index stage,
                                      Index word, Index words, typename S::Part* rows) {
  using V = typename S::Part;
  for (int x = int(threadIdx.x); x < S::tables * S::k * S::lanes; x += int(blockDim.x)) {
    const Index q = stage * S::tables * S::k + x / S::lanes;
    const Index at = word + x % S::lanes * Index(sizeof(V) / 8);
    const bool there = q < source.count && at < words;
    const Word* from = there ? source.data + source.row(q) * source.stride + at : source.data;
    __pipeline_memcpy_async(rows + x, from, sizeof(V), there ? 0 : sizeof(V));
  }
  __pipeline_commit();
}

/// The order that tables are built in: computed, see build().
struct Computed {
  template <class S>
  static __device__ __forceinline__ void tables(const typename S::Part* rows,
                                                typename S::Part* table) {
    build<S>(rows, table);
  }
};

template <class S, bool stored, class Order = Computed>
__global__ void __launch_bounds__(S::threads, S::blocks) combine_kernel(const Combine p) {
  using V = typename S::Part;
  constexpr int stage_bits = S::tables * S::k;
  constexpr unsigned mask = (1u << S::k) - 1;
  extern __shared__ uint4 memory[];
  V* table = reinterpret_cast<V*>(memory);  // [tables][2^k][lanes]
  V* source = table + S::entries * S::lanes;
  const int lane = int(threadIdx.x) % S::lanes, group = int(threadIdx.x) / S::lanes;
  // Stored tables have strips of their own: the first may begin before the range.
  const Index skip = stored ? p.source_word % S::strip_words : 0;
  const Index strip_word = Index(blockIdx.x) * S::strip_words - skip;
  const Index word = strip_word + lane * Index(sizeof(V) / 8);
  const bool inside = word >= 0 && word < p.words;
  const Index first_row = Index(blockIdx.y) * S::tile_rows + group;
  const int rows_left = int(min(p.out.count - first_row, Index(S::tile_rows)));
  const Word* multipliers = p.multipliers.data + first_row * p.multipliers.stride;
  const int multiplier_step = S::groups * int(p.multipliers.stride);
  const int multiplier_words = int(ceil_div(p.source.count, 64));
  const auto place = [&](int r) {
    return reinterpret_cast<V*>(p.out.data + p.out.row(first_row + r * S::groups) * p.out.stride +
                                p.out_word + word);
  };

  V sum[S::rows];
#pragma unroll
  for (int r = 0; r < S::rows; ++r) {
    sum[r] = V{};
    if (inside && r * S::groups < rows_left) sum[r] = *place(r);
  }
  const BitRows<const Word, Cuda> strip{p.source.data + p.source_word, p.source.stride,
                                        p.source.count, p.source.list};
  const int stages = int(ceil_div(p.source.count, stage_bits));
  if (!stored) fetch<S>(strip, 0, strip_word, p.words, source);
  for (int stage = 0; stage < stages; ++stage) {
    if constexpr (stored) {
      const uint4* from = reinterpret_cast<const uint4*>(
          p.stored +
          (Index(stage) * p.strips + p.source_word / S::strip_words + Index(blockIdx.x)) *
              (S::table_bytes / 8));
      __syncthreads();
      for (int x = int(threadIdx.x); x < S::table_bytes / 16; x += S::threads)
        __pipeline_memcpy_async(memory + x, from + x, 16, 0);
      __pipeline_commit();
      __pipeline_wait_prior(0);
    } else {
      const int turn = stage % 2 * stage_bits * S::lanes;
      __pipeline_wait_prior(0);
      __syncthreads();
      Order::template tables<S>(source + turn, table);
      if (stage + 1 < stages)  // on its way while the tables are read
        fetch<S>(strip, stage + 1, strip_word, p.words, source + (stage_bits * S::lanes - turn));
    }
    __syncthreads();
    const Index bit = stage * stage_bits, at = bit / 64;
    const int offset = int(bit % 64);
    const bool straddles =
        64 % stage_bits != 0 && offset + stage_bits > 64 && at + 1 < multiplier_words;
#pragma unroll
    for (int r = 0; r < S::rows; ++r) {
      Word m = 0;
      if (r * S::groups < rows_left) {
        m = multipliers[r * multiplier_step + at] >> offset;
        if (straddles) m |= multipliers[r * multiplier_step + at + 1] << (64 - offset);
      }
      const V* from = table + lane;
#pragma unroll
      for (int t = 0; t < S::tables; ++t)
        add(sum[r], from[((t << S::k) + int(unsigned(m >> (t * S::k)) & mask)) * S::lanes]);
    }
  }
#pragma unroll
  for (int r = 0; r < S::rows; ++r)
    if (inside && r * S::groups < rows_left) *place(r) = sum[r];
}

}  // namespace
}  // namespace terrace::gf2
