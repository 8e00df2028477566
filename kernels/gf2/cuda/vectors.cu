// 64 vectors at once: products for certificates.
//
// Roofline: the rows are read once from HBM, 0.5 ms for 2 GiB on an H200; the tensor cores need 0.2
// ms for the products.
#include <algorithm>

#include "kernels/base/cuda/items.cuh"
#include "kernels/base/cuda/runtime.cuh"
#include "kernels/gf2/bits.hpp"

namespace terrace::gf2 {
namespace {

__global__ void slice_kernel(const Word* z, Index size, Word* sliced, Index total) {
  for (Index x = first_item(); x < total; x += item_stride()) {
    const Index first = x / 64 * 64, t = x % 64;
    Word bits = 0;
    for (Index c = 0; c < 64 && first + c < size; ++c) bits |= ((z[first + c] >> t) & 1) << c;
    sliced[x] = bits;
  }
}

constexpr int rows_per_warp = 8;

// Without tensor cores, and for what their steps leave over. Lane t holds the running products with
// vectors t and t + 32 for a few rows and a segment of their words; neighbouring warps share the
// segment's vectors. Roofline: 4 operations a lane for a word and 64 vectors.
__global__ void products_kernel(Word* out, BitRows<const Word, Cuda> rows, Index word, Index words,
                                Index segment, const Word* sliced) {
  const int lane = int(threadIdx.x) % 32;
  const Index groups = ceil_div(rows.count, rows_per_warp);
  const Index items = groups * ceil_div(words, segment);
  for (Index item = first_item() / 32; item < items; item += item_stride() / 32) {
    const Index base = item % groups * rows_per_warp, first = item / groups * segment;
    const Index last = min(words, first + segment);
    const Word* from[rows_per_warp];
    Word low[rows_per_warp], high[rows_per_warp];
#pragma unroll
    for (int r = 0; r < rows_per_warp; ++r) {
      const Index i = min(base + r, rows.count - 1);
      from[r] = rows.data + rows.row(i) * rows.stride + word;
      low[r] = high[r] = 0;
    }
#pragma unroll 4
    for (Index w = first; w < last; ++w) {
      const Word z0 = sliced[64 * w + lane], z1 = sliced[64 * w + 32 + lane];
#pragma unroll
      for (int r = 0; r < rows_per_warp; ++r) {
        const Word bits = from[r][w];
        low[r] ^= bits & z0;
        high[r] ^= bits & z1;
      }
    }
#pragma unroll
    for (int r = 0; r < rows_per_warp; ++r) {
      const unsigned a = __ballot_sync(~0u, __popcll(low[r]) & 1);
      const unsigned b = __ballot_sync(~0u, __popcll(high[r]) & 1);
      if (lane == 0 && base + r < rows.count)
        atomicXor(reinterpret_cast<unsigned long long*>(out + base + r), Word(a) | Word(b) << 32);
    }
  }
}

constexpr int step_words = 16;  // of a row: four steps of 256 bits
constexpr int warp_rows = 32;   // two tiles of 16

/// d += a b^T on 16 x 256 and 8 x 256 bits, counts of common ones.
__device__ __forceinline__ void count_common(int (&d)[4], unsigned a0, unsigned a1, unsigned a2,
                                             unsigned a3, unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#else
  (void)d, (void)a0, (void)a1, (void)a2, (void)a3, (void)b0, (void)b1;
#endif
}

__device__ __forceinline__ unsigned part(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// The order of the inner bits is free as long as both factors have the same: in 32 half-words of a
// row, lane l takes half-words 4 (l % 4) .. + 3 and 16 + 4 (l % 4) .. + 3, one of each a step.
__global__ void __launch_bounds__(block_threads)
    tensor_products_kernel(Word* out, BitRows<const Word, Cuda> rows, Index word, Index words,
                           Index segment, const Word* sliced) {
  const int lane = int(threadIdx.x) % 32, quad = lane % 4, place = lane / 4;
  const Index groups = ceil_div(rows.count, warp_rows);
  const Index items = groups * ceil_div(words, segment);
  for (Index item = first_item() / 32; item < items; item += item_stride() / 32) {
    const Index base = item % groups * warp_rows, first = item / groups * segment;
    const Index last = min(words, first + segment);
    const uint4* from[4];  // rows place, place + 8, place + 16, place + 24
#pragma unroll
    for (int r = 0; r < 4; ++r)
      from[r] = reinterpret_cast<const uint4*>(
                    rows.data + rows.row(min(base + place + 8 * r, rows.count - 1)) * rows.stride +
                    word) +
                quad;
    int sums[2][8][4] = {};
    for (Index w = first; w < last; w += step_words) {
      uint4 low[4], high[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        low[r] = from[r][w / 2];
        high[r] = from[r][w / 2 + 4];
      }
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        // Vector 8 n + place: its half-words of words w .. w + 15, 64 words apart.
        const Word* vector = sliced + 64 * w + 8 * n + place;
        unsigned b[8];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const Word l = vector[64 * (2 * quad + i)], h = vector[64 * (8 + 2 * quad + i)];
          b[2 * i] = unsigned(l), b[2 * i + 1] = unsigned(l >> 32);
          b[4 + 2 * i] = unsigned(h), b[4 + 2 * i + 1] = unsigned(h >> 32);
        }
#pragma unroll
        for (int tile = 0; tile < 2; ++tile)
#pragma unroll
          for (int s = 0; s < 4; ++s)
            count_common(sums[tile][n], part(low[2 * tile], s), part(low[2 * tile + 1], s),
                         part(high[2 * tile], s), part(high[2 * tile + 1], s), b[s], b[4 + s]);
      }
    }
    // Lane l holds vectors 8 n + 2 (l % 4) and the next of rows place and place + 8 of a tile.
#pragma unroll
    for (int tile = 0; tile < 2; ++tile)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Word bits = 0;
#pragma unroll
        for (int n = 0; n < 8; ++n)
          bits |= (Word(sums[tile][n][2 * half] & 1) | Word(sums[tile][n][2 * half + 1] & 1) << 1)
                  << (8 * n + 2 * quad);
        bits |= __shfl_xor_sync(~0u, bits, 1);
        bits |= __shfl_xor_sync(~0u, bits, 2);
        const Index row = base + place + 16 * tile + 8 * half;
        if (quad == 0 && row < rows.count)
          atomicXor(reinterpret_cast<unsigned long long*>(out + row), bits);
      }
  }
}

/// Words of a warp's segment, so that enough warps fill the device.
Index segment_of(Index words, Index groups, Index least) {
  constexpr Index wanted = 16384;
  return round_up(std::max(least, ceil_div(words * groups, wanted)), least);
}

}  // namespace

void slice_words(const Stream<Cuda>& stream, View<const Word, Cuda> z, View<Word, Cuda> sliced) {
  if (sliced.size <= 0) return;
  slice_kernel<<<blocks_for(sliced.size), block_threads, 0, native(stream)>>>(
      z.data, z.size, sliced.data, sliced.size);
  check_launch();
}

void multiply_words(const Stream<Cuda>& stream, Word* out, BitRows<const Word, Cuda> rows,
                    Index word, Index words, const Word* sliced) {
  if (rows.count <= 0 || words <= 0) return;
  static OncePerDevice<bool> once;
  const bool tensor = once([] { return current_cuda_device().compute_capability >= 80; });
  const bool aligned =
      reinterpret_cast<std::uintptr_t>(rows.data + word) % 16 == 0 && rows.stride % 2 == 0;
  const Index steps = tensor && aligned ? words / step_words * step_words : 0;
  if (steps > 0) {
    const Index groups = ceil_div(rows.count, warp_rows);
    const Index segment = segment_of(steps, groups, 4 * step_words);
    tensor_products_kernel<<<blocks_for(32 * groups * ceil_div(steps, segment)), block_threads, 0,
                             native(stream)>>>(out, rows, word, steps, segment, sliced);
    check_launch();
  }
  const Index rest = words - steps;
  if (rest == 0) return;
  const Index groups = ceil_div(rows.count, rows_per_warp), segment = segment_of(rest, groups, 32);
  products_kernel<<<blocks_for(32 * groups * ceil_div(rest, segment)), block_threads, 0,
                    native(stream)>>>(out, rows, word + steps, rest, segment, sliced + 64 * steps);
  check_launch();
}

}  // namespace terrace::gf2
