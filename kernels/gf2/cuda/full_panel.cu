// A wide panel on CUDA without the host: per 512 columns one cluster that factors them, and one
// launch that updates all rows. Compute capability 9.0.
//
//   factor   a word of a candidate in each thread's register, 72 rows in each of 8 multiprocessors.
//            For 64 columns: each offers 12 rows, one warp of each makes the same choice among
//            these 96, the 64 pivot rows go to all, tables of every 4 of them clear the columns in
//            place
//   update   a block has 256 columns of 520 rows: T S for its columns, then its rows, by binary
//            tensor cores
//
// Roofline: latency. Of 64 columns: 64 dependent steps (about 45 clocks each, not measured yet), two
// meetings of the cluster and its messages (32 KB from a multiprocessor at most), 16 look-ups a
// word. The update: two products of 512 x 512 x 256 bits a multiprocessor, and 4 MB through L2.
#include <algorithm>

#include "kernels/base/cuda/items.cuh"
#include "kernels/base/cuda/runtime.cuh"
#include "kernels/gf2/cuda/full_panel.cuh"
#include "kernels/gf2/product.hpp"

namespace terrace::gf2 {
namespace {

__global__ void split_kernel(FullPanel<Cuda> p) {
  for (Index x = first_item(); x < max(p.count, full_candidates); x += item_stride()) {
    if (x < full_candidates) p.candidates[x] = x < p.count ? x : -1;
    if (x < p.count) p.numbers[x] = -1;
    if (x == 0) *p.done = 0;
  }
}

__global__ void __launch_bounds__(full::factor_threads, 1)
    full_factor_kernel(FullPanel<Cuda> p, Index k) {
#if __CUDA_ARCH__ >= 900
  __shared__ full::FactorMemory memory;
  full::factor(memory, p, k);
#endif
}

__global__ void __launch_bounds__(full::update_threads, 1)
    full_update_kernel(FullPanel<Cuda> p, Index k) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) unsigned char full_memory[];
  full::update(*reinterpret_cast<full::UpdateMemory*>(full_memory), p, k);
#endif
}

// A thread per word of the transform.
__global__ void finish_kernel(FullPanel<Cuda> p, Index words, PanelFactor<Cuda> out) {
  const Index rank = full_columns * *p.done;
  const bool all = rank == 64 * words;
  for (Index x = first_item(); x < rank * out.pitch; x += item_stride()) {
    const Index q = x / out.pitch, w = x % out.pitch, row = p.pivots[q];
    if (x == 0) out.info[0] = rank;
    if (w == 0) {
      out.info[1 + q] = q;
      out.info[1 + 64 * words + q] = row;
    }
    if (all) out.transform[x] = p.before(*p.done)[row * p.pitch + w];
  }
  if (rank == 0 && first_item() == 0) out.info[0] = 0;
}

}  // namespace

template <>
bool has_full_panels<Cuda>() {
  return has_bit_tensor_cores();
}

template <>
Index FullPanel<Cuda>::scratch_words(Index, Index) {
  return 0;
}

void split_candidates(const Stream<Cuda>& stream, FullPanel<Cuda> panel) {
  split_kernel<<<blocks_for(std::max(panel.count, full_candidates)), block_threads, 0,
                 native(stream)>>>(panel);
  check_launch();
}

void factor_full_panel(const Stream<Cuda>& stream, FullPanel<Cuda> panel, Index k) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(full::blocks);
  config.blockDim = dim3(full::factor_threads);
  config.stream = native(stream);
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {full::blocks, 1, 1};
  config.attrs = &cluster;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, full_factor_kernel, panel, k));
}

void update_full_panel(const Stream<Cuda>& stream, FullPanel<Cuda> panel, Index k) {
  constexpr int bytes = sizeof(full::UpdateMemory);
  static OncePerDevice<bool> once;
  (void)once([] { return allow_shared(full_update_kernel, bytes); });
  const Index units = ceil_div(panel.count, Index(full::unit_rows));
  const dim3 grid(unsigned(panel.pitch / full::strip_words),
                  unsigned(ceil_div(units, Index(full::update_warps))));
  full_update_kernel<<<grid, full::update_threads, bytes, native(stream)>>>(panel, k);
  check_launch();
}

void finish_full_panel(const Stream<Cuda>& stream, FullPanel<Cuda> panel, Index words,
                       PanelFactor<Cuda> out) {
  finish_kernel<<<blocks_for(64 * words * out.pitch), block_threads, 0, native(stream)>>>(
      panel, words, out);
  check_launch();
}

}  // namespace terrace::gf2
