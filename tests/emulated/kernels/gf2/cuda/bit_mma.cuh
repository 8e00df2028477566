// In the place of kernels/gf2/cuda/bit_mma.cuh, after PTX: mma.m16n8k256 on bits, and, population
// count.
#pragma once
#include "tests/support/emulated_gpu.hpp"

namespace terrace::gf2 {

inline void add_bit_product(int (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  struct Parts {
    unsigned a[4], b[2];
  };
  const int lane = int(threadIdx.x) % 32;
  const auto& all = test::gpu().exchange(Parts{{a[0], a[1], a[2], a[3]}, {b0, b1}});
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
    for (int part = 0; part < 4; ++part)  // inner bits 32 part ... and 128 + 32 part ...
      for (int v = 0; v < 2; ++v)
        d[i] +=
            std::popcount(all[row % 8 * 4 + part].a[row / 8 + 2 * v] & all[column * 4 + part].b[v]);
  }
}

}  // namespace terrace::gf2
