// The smaller bit kernels on CUDA.
//
// Roofline: each reads its rows once from HBM.
#include <algorithm>

#include "kernels/base/cuda/items.cuh"
#include "kernels/base/cuda/runtime.cuh"
#include "kernels/gf2/bits.hpp"

namespace terrace::gf2 {
namespace {

__global__ void copy_kernel(BitRows<Word, Cuda> to, BitRows<const Word, Cuda> from, Index from_word,
                            Index words) {
  for (Index x = first_item(); x < to.count * words; x += item_stride()) {
    const Index i = x / words, w = x % words;
    to.data[to.row(i) * to.stride + w] = from.data[from.row(i) * from.stride + from_word + w];
  }
}

__global__ void clear_kernel(BitRows<Word, Cuda> rows, Index word, Index words) {
  for (Index x = first_item(); x < rows.count * words; x += item_stride())
    rows.data[rows.row(x / words) * rows.stride + word + x % words] = 0;
}

// A thread adds 16 bytes of four rows at a time; blocks are as wide as the rows, up to 128 threads.
constexpr int add_unroll = 4;
__global__ void __launch_bounds__(block_threads)
    add_kernel(BitRows<Word, Cuda> out, Index words, BitRows<const Word, Cuda> a, Index a_words,
               BitRows<const Word, Cuda> b, Index b_words) {
  const Index word = 2 * (Index(blockIdx.x) * blockDim.x + threadIdx.x);
  if (word >= words) return;
  const Index a_rows = word < a_words ? a.count : 0, b_rows = word < b_words ? b.count : 0;
  const Index lanes = Index(gridDim.y) * blockDim.y;
  for (Index i = Index(blockIdx.y) * blockDim.y + threadIdx.y; i < out.count;
       i += add_unroll * lanes) {
    ulonglong2 x[add_unroll], y[add_unroll];
#pragma unroll
    for (int u = 0; u < add_unroll; ++u) {
      const Index r = i + u * lanes;
      x[u] = y[u] = ulonglong2{0, 0};
      if (r < a_rows) x[u] = *reinterpret_cast<const ulonglong2*>(a.data + r * a.stride + word);
      if (r < b_rows) y[u] = *reinterpret_cast<const ulonglong2*>(b.data + r * b.stride + word);
    }
#pragma unroll
    for (int u = 0; u < add_unroll; ++u) {
      const Index r = i + u * lanes;
      if (r < out.count)
        *reinterpret_cast<ulonglong2*>(out.data + r * out.stride + word) =
            ulonglong2{x[u].x ^ y[u].x, x[u].y ^ y[u].y};
    }
  }
}

__global__ void flip_kernel(Word* data, Index stride, const Index* rows, const Index* columns,
                            Index count) {
  for (Index x = first_item(); x < count; x += item_stride())
    data[rows[x] * stride + columns[x] / 64] ^= Word(1) << (columns[x] % 64);
}

// A thread packs a row; the pivot columns lie in shared memory, sorted, with the first of each
// word.
__global__ void extract_kernel(BitRows<Word, Cuda> out, BitRows<const Word, Cuda> rows, Index word,
                               int words, const Index* info) {
  __shared__ short columns[64 * max_wide_words];
  __shared__ short first[max_wide_words + 1];
  const int rank = int(info[0]);
  if (rank == 64 * words) {
    for (Index x = first_item(); x < rows.count * words; x += item_stride()) {
      const Index i = x / words, w = x % words;
      out.data[out.row(i) * out.stride + w] = rows.data[rows.row(i) * rows.stride + word + w];
    }
    return;
  }
  for (int q = int(threadIdx.x); q < rank; q += int(blockDim.x)) columns[q] = short(info[1 + q]);
  if (int(threadIdx.x) <= words) {
    int low = 0, high = rank;  // pivots before word threadIdx.x
    while (low < high) {
      const int middle = (low + high) / 2;
      if (info[1 + middle] < 64 * Index(threadIdx.x))
        low = middle + 1;
      else
        high = middle;
    }
    first[threadIdx.x] = short(low);
  }
  __syncthreads();
  for (Index i = first_item(); i < rows.count; i += item_stride()) {
    const Word* from = rows.data + rows.row(i) * rows.stride + word;
    Word* to = out.data + out.row(i) * out.stride;
    Word packed = 0;
    int filled = 0;
    for (int w = 0; w < words; ++w) {
      const Word bits = from[w];
      for (int q = first[w]; q < first[w + 1]; ++q) {
        packed |= ((bits >> (columns[q] & 63)) & 1) << (q & 63);
        if ((q & 63) == 63) {
          to[filled++] = packed;
          packed = 0;
        }
      }
    }
    for (; filled < words; packed = 0) to[filled++] = packed;
  }
}

// A warp looks at 32 rows and leaves a bit for each.
__global__ void nonzero_flags_kernel(BitRows<const Word, Cuda> rows, Index word, Index words,
                                     unsigned* flags) {
  const int lane = int(threadIdx.x) % 32;
  for (Index g = first_item() / 32; g < ceil_div(rows.count, 32); g += item_stride() / 32) {
    unsigned mine = 0;
    for (Index i = 32 * g; i < min(rows.count, 32 * g + 32); ++i) {
      const Word* from = rows.data + rows.row(i) * rows.stride + word;
      Word any = 0;
      for (Index w = lane; w < words; w += 32) any |= from[w];
      if (__any_sync(~0u, any != 0)) mine |= 1u << (i % 32);
    }
    if (lane == 0) flags[g] = mine;
  }
}

// One block, so that the list is ascending.
__global__ void __launch_bounds__(1024)
    nonzero_list_kernel(const unsigned* flags, Index groups, Index* list, Index* count) {
  __shared__ Index starts[32];
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  Index found = 0;
  for (Index base = 0; base < groups; base += blockDim.x) {
    const Index g = base + threadIdx.x;
    const unsigned mine = g < groups ? flags[g] : 0;
    int before = __popc(mine);
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int below = __shfl_up_sync(~0u, before, step);
      if (lane >= step) before += below;
    }
    if (lane == 31) starts[warp] = before;
    __syncthreads();
    Index at = found + before - __popc(mine);
    for (int u = 0; u < 32; ++u) {
      if (u < warp) at += starts[u];
      found += starts[u];
    }
    for (unsigned left = mine; left != 0; left &= left - 1)
      list[at++] = 32 * g + __ffs(int(left)) - 1;
    __syncthreads();
  }
  if (threadIdx.x == 0) *count = found;
}

__global__ void set_kernel(Index* result, Index value) { *result = value; }

// A warp reads a segment of a row, early segments first, up to the best word known so far.
constexpr Index segment_words = 512;
__global__ void first_nonzero_kernel(BitRows<const Word, Cuda> rows, Index from, Index to,
                                     Index* result) {
  const int lane = int(threadIdx.x) % 32;
  const Index segments = ceil_div(to - from, segment_words);
  for (Index x = first_item() / 32; x < rows.count * segments; x += item_stride() / 32) {
    const Word* row = rows.data + rows.row(x % rows.count) * rows.stride;
    const Index first = from + x / rows.count * segment_words;
    Index limit = lane == 0 ? *static_cast<volatile Index*>(result) : 0;
    limit = min(__shfl_sync(~0u, limit, 0), first + segment_words);
    for (Index w = first; w < limit; w += 128) {
      Word word[4];
#pragma unroll
      for (int u = 0; u < 4; ++u) word[u] = w + 32 * u + lane < limit ? row[w + 32 * u + lane] : 0;
      bool done = false;
#pragma unroll
      for (int u = 0; u < 4; ++u) {
        const unsigned ones = __ballot_sync(~0u, word[u] != 0);
        if (ones == 0 || done) continue;
        if (lane == 0)
          atomicMin(reinterpret_cast<long long*>(result), w + 32 * u + __ffs(int(ones)) - 1);
        done = true;
      }
      if (done) break;
    }
  }
}

// A warp takes words of one row, so that no thread divides.
__global__ void random_kernel(BitRows<Word, Cuda> out, const Index* numbers, RandomBits what,
                              Index words) {
  const Index pieces = ceil_div(words, 256), items = out.count * pieces;
  for (Index item = first_item() / 32; item < items; item += item_stride() / 32) {
    const Index i = item / pieces, first = item % pieces * 256, number = numbers[i];
    Word* row = out.data + out.row(i) * out.stride;
    for (Index j = first + threadIdx.x % 32; j < min(words, first + 256); j += 32)
      row[j] = detail::random_bits_word(what, number, j);
  }
}

}  // namespace

void copy_bits(const Stream<Cuda>& stream, BitRows<Word, Cuda> to, BitRows<const Word, Cuda> from,
               Index from_word, Index words) {
  if (to.count <= 0 || words <= 0) return;
  copy_kernel<<<blocks_for(to.count * words), block_threads, 0, native(stream)>>>(to, from,
                                                                                  from_word, words);
  check_launch();
}

void clear_bits(const Stream<Cuda>& stream, BitRows<Word, Cuda> rows, Index word, Index words) {
  if (rows.count <= 0 || words <= 0) return;
  clear_kernel<<<blocks_for(rows.count * words), block_threads, 0, native(stream)>>>(rows, word,
                                                                                     words);
  check_launch();
}

void add_bits(const Stream<Cuda>& stream, BitRows<Word, Cuda> out, Index words,
              BitRows<const Word, Cuda> a, Index a_words, BitRows<const Word, Cuda> b,
              Index b_words) {
  if (out.count <= 0 || words <= 0) return;
  unsigned wide = 4;
  while (wide < 128 && 2 * wide < words) wide *= 2;
  const dim3 threads(wide, block_threads / wide);
  const dim3 grid(
      unsigned(ceil_div(words, 2 * Index(wide))),
      unsigned(std::min(ceil_div(out.count, add_unroll * Index(threads.y)), Index(1) << 15)));
  add_kernel<<<grid, threads, 0, native(stream)>>>(out, words, a, a_words, b, b_words);
  check_launch();
}

void flip_bits(const Stream<Cuda>& stream, Word* data, Index stride, const Index* rows,
               const Index* columns, Index count) {
  if (count <= 0) return;
  flip_kernel<<<blocks_for(count), block_threads, 0, native(stream)>>>(data, stride, rows, columns,
                                                                       count);
  check_launch();
}

void extract_bits(const Stream<Cuda>& stream, BitRows<Word, Cuda> out,
                  BitRows<const Word, Cuda> rows, Index word, Index words, const Index* info) {
  if (rows.count <= 0 || words <= 0) return;
  extract_kernel<<<blocks_for(rows.count), block_threads, 0, native(stream)>>>(out, rows, word,
                                                                               int(words), info);
  check_launch();
}

void nonzero_rows(const Stream<Cuda>& stream, BitRows<const Word, Cuda> rows, Index word,
                  Index words, Index* list, Index* count) {
  auto* flags = reinterpret_cast<unsigned*>(list + rows.count);
  const Index groups = ceil_div(rows.count, 32);
  if (groups > 0)
    nonzero_flags_kernel<<<blocks_for(32 * groups), block_threads, 0, native(stream)>>>(
        rows, word, words, flags);
  nonzero_list_kernel<<<1, 1024, 0, native(stream)>>>(flags, groups, list, count);
  check_launch();
}

void first_nonzero_word(const Stream<Cuda>& stream, BitRows<const Word, Cuda> rows, Index from,
                        Index to, Index* result) {
  set_kernel<<<1, 1, 0, native(stream)>>>(result, to);
  check_launch();
  if (rows.count <= 0 || from >= to) return;
  const Index warps = rows.count * ceil_div(to - from, segment_words);
  first_nonzero_kernel<<<blocks_for(32 * warps), block_threads, 0, native(stream)>>>(rows, from, to,
                                                                                     result);
  check_launch();
}

void random_bits(const Stream<Cuda>& stream, BitRows<Word, Cuda> out, const Index* numbers,
                 RandomBits what) {
  const Index words = ceil_div(what.columns, 64);
  if (out.count <= 0 || words <= 0) return;
  random_kernel<<<blocks_for(32 * out.count * ceil_div(words, 256)), block_threads, 0,
                  native(stream)>>>(out, numbers, what, words);
  check_launch();
}

}  // namespace terrace::gf2
