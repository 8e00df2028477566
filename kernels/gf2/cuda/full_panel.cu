// A wide panel on CUDA without the host, in one launch. Compute capability 9.0.
//
//   factor   a word of a candidate in each thread's register, 72 rows in each of 8 multiprocessors of
//            a cluster. For 64 columns: each offers 12 rows, one warp of each makes the same choice
//            among these 96, the 64 pivot rows go to all, tables of every 4 of them clear the columns
//            in place. Then the cluster itself updates what it needs next: its candidates' words
//   update   all rows, by other blocks beside the next factorization: a block has 256 columns, T S for
//            them, then its rows, by binary tensor cores
//
// Blocks stay on their multiprocessors: kernels that come one by one would wait for room beside an
// update of the whole matrix each time (27 us, as long as its blocks run).
//
// Roofline: latency. Of 64 columns: 64 dependent steps (80 clocks each, measured), two meetings of the
// cluster and its messages (32 KB from a multiprocessor at most), 16 look-ups a word; 6 us in all. The
// update: two products of 512 x 512 x 256 bits a block, and 4 MB through L2.
//
// Tried, and no faster: look-ups beside the next choice; sums of pivot rows in other banks; choices of
// four columns at a time.
#include <algorithm>

#include "kernels/base/assumed.hpp"
#include "kernels/base/cuda/items.cuh"
#include "kernels/base/cuda/runtime.cuh"
#include "kernels/gf2/cuda/full_panel.cuh"
#include "kernels/gf2/product.hpp"

namespace terrace::gf2 {
namespace {

__global__ void __launch_bounds__(full::threads, 1)
    full_panel_kernel(FullPanel<Cuda> p, BitRows<const Word, Cuda> rows, int words,
                      PanelFactor<Cuda> out) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) unsigned char full_memory[];
  full::reduce(*reinterpret_cast<full::PanelMemory*>(full_memory), p, rows, words, out);
#endif
}

// Blocks beside the cluster. 32 take 30 us less for a panel of 4,096 columns, and as much from an
// update of the matrix.
constexpr unsigned updaters = 16;
constexpr unsigned all_blocks = full::blocks + updaters;

/// Clusters of one kernel that are there together, as its blocks wait for each other.
struct PanelLaunch {
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config{};
  explicit PanelLaunch(cudaStream_t stream) {
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim = {full::blocks, 1, 1};
    attributes[1].id = cudaLaunchAttributeCooperative;
    attributes[1].val.cooperative = 1;
    config.gridDim = dim3(all_blocks);
    config.blockDim = dim3(full::threads);
    config.dynamicSmemBytes = sizeof(full::PanelMemory);
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = 2;
  }
  PanelLaunch(const PanelLaunch&) = delete;
  PanelLaunch& operator=(const PanelLaunch&) = delete;
};

}  // namespace

template <>
bool has_full_panels<Cuda>() {
  if (!has_bit_tensor_cores()) return false;
  if (const AssumedDevice* const assumed = assumed_device())
    return assumed->info.multiprocessors >= int(all_blocks);
  static OncePerDevice<bool> once;
  return once([] {  // a slice of a device may have fewer multiprocessors
    allow_shared(full_panel_kernel, int(sizeof(full::PanelMemory)));
    const PanelLaunch launch(nullptr);
    int clusters = 0;
    check(cudaOccupancyMaxActiveClusters(&clusters, full_panel_kernel, &launch.config));
    return clusters * full::blocks >= int(all_blocks);
  });
}

template <>
Index FullPanel<Cuda>::scratch_words(Index, Index) {
  return full::scratch_words;
}

void reduce_full_panel(const Stream<Cuda>& stream, FullPanel<Cuda> panel,
                       BitRows<const Word, Cuda> rows, Index words, PanelFactor<Cuda> out) {
  const PanelLaunch launch(native(stream));
  check(cudaLaunchKernelEx(&launch.config, full_panel_kernel, panel, rows, int(words), out));
}

}  // namespace terrace::gf2
