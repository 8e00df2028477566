// The binary tensor core instruction of one warp, compute capability 8.0 and later.
#pragma once
#include <cuda_runtime.h>

namespace terrace::gf2 {

/// d (16 x 8 counts) += a (16 x 256 bits) and b (256 x 8 bits): d[2 h + e] is row lane / 4 + 8 h,
/// column 2 (lane % 4) + e. Bits: a[h + 2 v] of row lane / 4 + 8 h, b[v] of column lane / 4. Which
/// inner index a bit of a and of b has is the same: 64 to each of the four lanes of a row.
__device__ __forceinline__ void add_bit_product(int (&d)[4], const unsigned (&a)[4], unsigned b0,
                                                unsigned b1) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {%0, %1, %2, %3}, "
      "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

}  // namespace terrace::gf2
