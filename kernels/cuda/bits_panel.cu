// factor_panel() on CUDA: one thread block, a candidate row and its transform in each thread's
// registers, one barrier a column.
//
// Roofline: none but latency: c columns times one barrier and one shared-memory row, about 0.2 us
// each; 512 columns take about 0.1 ms.
#include "kernels/bits.hpp"
#include "kernels/cuda/runtime.cuh"

namespace terrace {
namespace {

template <int W>
__global__ void __launch_bounds__(1024, 1)
    factor_kernel(BitRows<const Word, Cuda> rows, int words, PanelFactor<Cuda> out) {
  // What each warp offers for the column, in two copies in turn: who reads one copy is done before
  // the barrier that lets it be written again.
  __shared__ unsigned candidates[2][32];
  __shared__ Word offered[2][32][2 * W];
  const int thread = int(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int warps = int(blockDim.x) / 32;
  const bool exists = thread < rows.count;
  const Word* from = exists ? rows.data + rows.row(thread) * rows.stride : nullptr;
  Word v[W], t[W];
#pragma unroll
  for (int u = 0; u < W; ++u) {
    v[u] = exists && u < words ? from[u] : 0;
    t[u] = 0;
  }
  int pivot_number = -1, rank = 0;
#pragma unroll
  for (int w = 0; w < W; ++w) {
    if (w >= words) break;
#pragma unroll 1
    for (int bit = 0; bit < 64; ++bit) {
      const int copy = bit & 1;
      const bool one = (v[w] >> bit) & 1;
      const unsigned able = __ballot_sync(~0u, one && pivot_number < 0);
      if (lane == 0) candidates[copy][warp] = able;
      if (able && lane == __ffs(int(able)) - 1) {
#pragma unroll
        for (int u = 0; u < W; ++u) {
          if (u >= w) offered[copy][warp][u] = v[u];
          offered[copy][warp][W + u] = t[u] | (u == rank / 64 ? Word(1) << (rank % 64) : 0);
        }
      }
      __syncthreads();
      const unsigned seen = lane < warps ? candidates[copy][lane] : 0;
      const unsigned which = __ballot_sync(~0u, seen != 0);
      if (which == 0) continue;
      const int pivot_warp = __ffs(int(which)) - 1;
      const int pivot_lane = __ffs(int(__shfl_sync(~0u, seen, pivot_warp))) - 1;
      if (warp == pivot_warp && lane == pivot_lane) {
        pivot_number = rank;
#pragma unroll
        for (int u = 0; u < W; ++u) t[u] |= u == rank / 64 ? Word(1) << (rank % 64) : 0;
        out.info[1 + rank] = 64 * w + bit;
        out.info[1 + 64 * words + rank] = thread;
      } else if (one) {
#pragma unroll
        for (int u = 0; u < W; ++u) {
          if (u >= w) v[u] ^= offered[copy][pivot_warp][u];
          t[u] ^= offered[copy][pivot_warp][W + u];
        }
      }
      ++rank;
    }
  }
  if (thread == 0) out.info[0] = rank;
  if (pivot_number >= 0) {
#pragma unroll
    for (int u = 0; u < max_panel_words; ++u) {
      const bool used = u < W && u < words;
      out.reduced[pivot_number * max_panel_words + u] = used ? v[u < W ? u : 0] : 0;
      out.transform[pivot_number * max_panel_words + u] = used ? t[u < W ? u : 0] : 0;
    }
  }
  for (Index x = rank * max_panel_words + thread; x < 64 * words * max_panel_words; x += blockDim.x)
    out.reduced[x] = out.transform[x] = 0;
}

}  // namespace

void factor_panel(const Stream<Cuda>& stream, BitRows<const Word, Cuda> rows, Index words,
                  PanelFactor<Cuda> out) {
  const auto threads = unsigned(round_up(rows.count > 0 ? rows.count : 1, 32));
  const auto launch = [&](auto kernel) {
    kernel<<<1, threads, 0, native(stream)>>>(rows, int(words), out);
    check_launch();
  };
  if (words <= 1)
    launch(factor_kernel<1>);
  else if (words <= 2)
    launch(factor_kernel<2>);
  else if (words <= 4)
    launch(factor_kernel<4>);
  else
    launch(factor_kernel<8>);
}

}  // namespace terrace
