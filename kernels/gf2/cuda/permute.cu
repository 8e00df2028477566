// Kernels that gather single bits: permuted columns, rows of a kernel basis.
#include <algorithm>

#include "kernels/base/cuda/items.cuh"
#include "kernels/base/cuda/runtime.cuh"
#include "kernels/gf2/bits.hpp"

namespace terrace::gf2 {
namespace {

constexpr int permuted_rows = 8;             // of a block
constexpr Index permuted_bytes = 200 << 10;  // of shared memory for them

// Rows in shared memory; a warp gathers 1,024 bits of each of them, its lanes keeping 32 apiece.
// Roofline: a shared load a bit and row, a load of `from` a bit and eight rows.
__global__ void permute_rows_kernel(BitRows<Word, Cuda> out, BitRows<const Word, Cuda> in,
                                    const Index* from, Index columns, int rows) {
  extern __shared__ unsigned staged[];  // rows x 2 in.stride
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32,
            warps = int(blockDim.x) / 32;
  const int pitch = 2 * int(in.stride), words = int(ceil_div(columns, 64));
  const Index first = Index(blockIdx.x) * rows;
  const int count = int(min(Index(rows), out.count - first));
  for (int r = 0; r < count; ++r) {
    const Word* row = in.data + in.row(first + r) * in.stride;
    for (int w = int(threadIdx.x); w < int(in.stride); w += int(blockDim.x))
      reinterpret_cast<Word*>(staged)[r * int(in.stride) + w] = row[w];
  }
  __syncthreads();
  for (int group = warp; group * 32 < 2 * words; group += warps) {
    unsigned kept[permuted_rows] = {};
    for (int h = 0; h < 32; ++h) {
      const Index c = Index(group) * 1024 + 32 * h + lane;
      const int j = c < columns ? int(from[c]) : -1;
#pragma unroll
      for (int r = 0; r < permuted_rows; ++r) {
        const bool bit = j >= 0 && r < count && (staged[r * pitch + j / 32] >> (j % 32)) & 1;
        const unsigned bits = __ballot_sync(~0u, bit);
        if (lane == h) kept[r] = bits;
      }
    }
    const int at = group * 32 + lane;
#pragma unroll
    for (int r = 0; r < permuted_rows; ++r)
      if (r < count && at < 2 * words)
        reinterpret_cast<unsigned*>(out.data + out.row(first + r) * out.stride)[at] = kept[r];
  }
}

// For rows that shared memory does not hold.
__global__ void permute_kernel(BitRows<Word, Cuda> out, BitRows<const Word, Cuda> in,
                               const Index* from, Index columns, Index words) {
  for (Index x = first_item(); x < out.count * words; x += item_stride()) {
    const Index i = x / words, w = x % words;
    const Word* row = in.data + in.row(i) * in.stride;
    Word bits = 0;
    for (Index c = 0; c < 64 && 64 * w + c < columns; ++c) {
      const Index j = from[64 * w + c];
      bits |= ((row[j / 64] >> (j % 64)) & 1) << c;
    }
    out.data[out.row(i) * out.stride + w] = bits;
  }
}

// Neighbouring threads take neighbouring free columns: they read the same words of `reduced`.
__global__ void kernel_rows_kernel(BitRows<Word, Cuda> out, BitRows<const Word, Cuda> reduced,
                                   const Index* slots, Index columns, const Index* free_columns,
                                   bool add_unit, Index words) {
  for (Index x = first_item(); x < out.count * words; x += item_stride()) {
    const Index f = x % out.count, w = x / out.count, column = free_columns[f];
    Word bits = 0;
    for (Index c = 0; c < 64 && 64 * w + c < columns; ++c) {
      const Index slot = slots[64 * w + c];
      if (slot >= 0)
        bits |= ((reduced.data[slot * reduced.stride + column / 64] >> (column % 64)) & 1) << c;
    }
    if (add_unit && column / 64 == w) bits |= Word(1) << (column % 64);
    out.data[out.row(f) * out.stride + w] = bits;
  }
}

}  // namespace

void permute_bits(const Stream<Cuda>& stream, BitRows<Word, Cuda> out, BitRows<const Word, Cuda> in,
                  const Index* from, Index columns) {
  const Index words = ceil_div(columns, 64);
  if (out.count <= 0 || words <= 0) return;
  const Index rows = std::min<Index>(permuted_rows, permuted_bytes / (8 * in.stride));
  if (rows == 0) {
    permute_kernel<<<blocks_for(out.count * words), block_threads, 0, native(stream)>>>(
        out, in, from, columns, words);
    check_launch();
    return;
  }
  static OncePerDevice<bool> once;
  (void)once([] { return allow_shared(permute_rows_kernel, int(permuted_bytes)); });
  permute_rows_kernel<<<unsigned(ceil_div(out.count, rows)), 512, std::size_t(rows * in.stride * 8),
                        native(stream)>>>(out, in, from, columns, int(rows));
  check_launch();
}

void kernel_rows(const Stream<Cuda>& stream, BitRows<Word, Cuda> out,
                 BitRows<const Word, Cuda> reduced, const Index* slots, Index columns,
                 const Index* free_columns, bool add_unit) {
  const Index words = ceil_div(columns, 64);
  if (out.count <= 0 || words <= 0) return;
  kernel_rows_kernel<<<blocks_for(out.count * words), block_threads, 0, native(stream)>>>(
      out, reduced, slots, columns, free_columns, add_unit, words);
  check_launch();
}

}  // namespace terrace::gf2
