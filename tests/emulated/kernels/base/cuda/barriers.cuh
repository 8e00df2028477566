// In the place of kernels/base/cuda/barriers.cuh: see tests/support/emulated_gpu.hpp.
#pragma once
#include "tests/support/emulated_gpu.hpp"

namespace terrace::device {

inline void release_flag(unsigned* flag, unsigned value) { *flag = value; }
inline void add_release(unsigned* flag, unsigned by) { *flag += by; }
inline unsigned acquire_flag(const unsigned* flag) {
  test::gpu().give_way();
  return *flag;
}

}  // namespace terrace::device
