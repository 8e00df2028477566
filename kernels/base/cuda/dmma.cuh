// FP64 tensor cores: one warp multiplies 16 x 16 by 16 x 8 from shared memory.
#pragma once
#include <cuda_runtime.h>

namespace terrace::device {

/// c (16 x 8) += a (16 x 16) b (16 x 8). With g = lane / 4, t = lane % 4:
///   a[2 q + h] is row g + 8 h, column 4 q + t;  b[q] is row 4 q + t, column g;
///   c[2 h + e] is row g + 8 h, column 2 t + e.
__device__ inline void dmma(double (&c)[4], const double (&a)[8], const double (&b)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, "
      "{%4,%5,%6,%7,%8,%9,%10,%11}, {%12,%13,%14,%15}, {%0,%1,%2,%3};"
      : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]),
        "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]));
#elif __CUDA_ARCH__ >= 800
#pragma unroll
  for (int q = 0; q < 4; ++q)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                   : "+d"(c[2 * h]), "+d"(c[2 * h + 1])
                   : "d"(a[2 * q + h]), "d"(b[q]));
#endif
}

/// -(16 rows from `row` on) of 16 columns at `columns`, stored column by column with `ld`.
/// ld % 16 = 4 keeps the banks apart.
__device__ inline void load_negated_a(double (&a)[8], const double* columns, int ld, int row,
                                      int lane) {
#pragma unroll
  for (int q = 0; q < 4; ++q)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      a[2 * q + h] = -columns[(4 * q + lane % 4) * ld + row + lane / 4 + 8 * h];
}

/// Transpose of 8 rows from `row` on of 16 columns at `columns`.
__device__ inline void load_b(double (&b)[4], const double* columns, int ld, int row, int lane) {
#pragma unroll
  for (int q = 0; q < 4; ++q) b[q] = columns[(4 * q + lane % 4) * ld + row + lane / 4];
}

/// Asynchronous copies of 16 (or 8) bytes to shared memory; `bytes` of them are read, the rest is
/// 0.
__device__ inline void copy16(void* shared, const void* global, int bytes) {
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(bytes)
               : "memory");
}
__device__ inline void copy8(double* shared, const double* global) {
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(global) : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int pending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

}  // namespace terrace::device
