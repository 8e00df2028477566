// Launches that begin before the one ahead of them on the stream has ended: on compute capability 9,
// "programmatic dependent launch" in CUDA's programming guide. What they can do before they wait is
// hidden, and so is their start.
//
// A launch begins early where all blocks of the one ahead have called let_next_begin() or ended.
// Blocks that wait for another process call it behind that: the next launch could take the place that
// the other process's blocks need.
#pragma once
#include <type_traits>

#include "kernels/base/cuda/runtime.cuh"

namespace terrace {

/// Before a block reads or writes anything that changes: until the launch ahead has ended.
__device__ inline void wait_for_launch_ahead() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ inline void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/// A kernel that calls wait_for_launch_ahead() in every block that does anything. cluster: blocks of
/// one, on compute capability 9.
template <int cluster = 1, class... Parameters>
void launch_early(void (*kernel)(Parameters...), unsigned blocks, int threads, int bytes,
                  cudaStream_t stream, const std::type_identity_t<Parameters>&... parameters) {
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = unsigned(threads);
  config.dynamicSmemBytes = std::size_t(bytes);
  config.stream = stream;
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {unsigned(cluster), 1, 1};
  config.attrs = attributes;
  config.numAttrs = !compiled_for_hopper() ? 0 : cluster > 1 ? 2 : 1;
  check(cudaLaunchKernelEx(&config, kernel, parameters...));
}

}  // namespace terrace
