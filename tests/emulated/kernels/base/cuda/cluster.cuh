// In the place of kernels/base/cuda/cluster.cuh: see tests/support/emulated_gpu.hpp.
#pragma once
#include "tests/support/emulated_gpu.hpp"

namespace terrace::device {

inline unsigned cluster_rank() { return test::gpu().cluster_rank(); }
template <class T>
T* in_block(T* here, unsigned rank) {
  return test::gpu().in_block(here, rank);
}
inline void meet_cluster() { test::gpu().meet_cluster(); }

}  // namespace terrace::device
