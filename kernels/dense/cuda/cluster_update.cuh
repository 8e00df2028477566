// For dense_cluster.cu: rows of U right of a leaf, and a processor's own rows with them.
#pragma once
#include "kernels/dense/cuda/cluster.cuh"

#ifdef TERRACE_SM90A

namespace terrace::dense::cluster {

/// c (16 x 8) += a (16 x 8) b (8 x 8); the parts of device::dmma() for q < 2.
__device__ inline void dmma8(double (&c)[4], const double* a, const double (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
}

/// Own rows, columns [c0, c0 + rest) of the strip -= N U; pivot rows of this leaf begin at zero.
/// A warp takes 16 rows, 32 columns at a time, and loads the next while it multiplies.
template <class Real, int W, int T>
__device__ void update_rows(const Place<Real>& at, const Layout<Real, W, T>& layout,
                            const double* memory, int c0, int rest) {
  const StripOf<Real>& s = at.s;
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const int g = lane / 4, t = lane % 4;
  const Real* const n = reinterpret_cast<const Real*>(memory + layout.n());
  const double* const u = memory + layout.u();
  const unsigned char* const fresh =
      reinterpret_cast<const unsigned char*>(memory + layout.fresh());
  for (int r0 = warp * 16; r0 < at.rows && at.base + r0 < s.slots; r0 += T / 2) {
    double a[W / 2];
#pragma unroll
    for (int k = 0; k < W; k += 4)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        a[k / 2 + h] = -double(n[(k + t) * layout.ld_n() + r0 + g + 8 * h]);
    const bool zero[2] = {fresh[r0 + g] != 0, fresh[r0 + g + 8] != 0};
    Real* const x = s.x + at.base + r0 + g + Index(c0 + 2 * t) * s.ld;
    Real next[4][4];
    const auto load = [&](int c) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          next[i][e] = c + 8 * i + 2 * t + (e & 1) < rest && !zero[e / 2]
                           ? __ldcg(x + (c + 8 * i + (e & 1)) * s.ld + 8 * (e / 2))
                           : Real(0);
    };
    load(0);
    for (int c = 0; c < rest; c += 32) {
      double v[4][4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) v[i][e] = next[i][e];
      if (c + 32 < rest) load(c + 32);
#pragma unroll
      for (int k = 0; k < W; k += 16)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if constexpr (W == 8) {
            const double b[2] = {u[t * Layout<Real, W, T>::ld_u + c + 8 * i + g],
                                 u[(4 + t) * Layout<Real, W, T>::ld_u + c + 8 * i + g]};
            dmma8(v[i], a, b);
          } else {
            double b[4], part[8];
            device::load_b(b, u + k * Layout<Real, W, T>::ld_u, Layout<Real, W, T>::ld_u, c + 8 * i,
                           lane);
#pragma unroll
            for (int e = 0; e < 8; ++e) part[e] = a[k / 2 + e];
            device::dmma(v[i], part, b);
          }
        }
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (c + 8 * i + 2 * t + (e & 1) < rest)
            x[(c + 8 * i + (e & 1)) * s.ld + 8 * (e / 2)] = Real(v[i][e]);
    }
  }
}

/// u := L^-1 u, `rest` columns of W rows. l: L (unit lower, row-major, zero above), then room for
/// the inverses of its blocks of 16. Ends with a block barrier.
template <int W, int T>
__device__ void solve_leaf(double* u, double* l, int rest) {
  constexpr int ld_u = Layout<double, W, T>::ld_u, ld_l = Layout<double, W, T>::ld_l;
  const int tid = int(threadIdx.x), warp = tid / 32, lane = tid % 32;
  if constexpr (W == 8) {
    if (tid < rest) {
      double v[W];
#pragma unroll
      for (int t = 0; t < W; ++t) v[t] = u[t * ld_u + tid];
#pragma unroll
      for (int t = 0; t < W; ++t)
#pragma unroll
        for (int i = t + 1; i < W; ++i) v[i] = fma(-l[i * ld_l + t], v[t], v[i]);
#pragma unroll
      for (int t = 0; t < W; ++t) u[t * ld_u + tid] = v[t];
    }
  } else {
    double* const inverse = l + W * ld_l;  // block k, column c: rows at (16 k + c) * ld_l
    if (tid < W) {
      const double* const block = l + tid / 16 * 16 * (ld_l + 1);
      double v[16];
#pragma unroll
      for (int r = 0; r < 16; ++r) v[r] = r == tid % 16 ? 1.0 : 0.0;
#pragma unroll
      for (int t = 0; t < 15; ++t)
#pragma unroll
        for (int r = t + 1; r < 16; ++r) v[r] = fma(-block[r * ld_l + t], v[t], v[r]);
#pragma unroll
      for (int r = 0; r < 16; ++r) inverse[tid * ld_l + r] = v[r];
    }
    __syncthreads();
    const int g = lane / 4, t = lane % 4;
    for (int c = warp * 8; c < rest; c += T / 4) {
#pragma unroll
      for (int k = 0; k < W / 16; ++k) {
        double a[8], b[4], v[4];
        double* const mine = u + k * 16 * ld_u + c;
        if (k > 0) {
#pragma unroll
          for (int e = 0; e < 4; ++e) v[e] = mine[(g + 8 * (e / 2)) * ld_u + 2 * t + (e & 1)];
#pragma unroll
          for (int i = 0; i < k; ++i) {
#pragma unroll
            for (int q = 0; q < 4; ++q)
#pragma unroll
              for (int h = 0; h < 2; ++h)
                a[2 * q + h] = -l[(16 * k + g + 8 * h) * ld_l + 16 * i + 4 * q + t];
            device::load_b(b, u + i * 16 * ld_u, ld_u, c, lane);
            device::dmma(v, a, b);
          }
          __syncwarp();
#pragma unroll
          for (int e = 0; e < 4; ++e) mine[(g + 8 * (e / 2)) * ld_u + 2 * t + (e & 1)] = v[e];
          __syncwarp();
        }
        device::load_negated_a(a, inverse + k * 16 * ld_l, ld_l, 0, lane);
        device::load_b(b, mine - c, ld_u, c, lane);
#pragma unroll
        for (int e = 0; e < 4; ++e) v[e] = 0;
        device::dmma(v, a, b);
        __syncwarp();
#pragma unroll
        for (int e = 0; e < 4; ++e) mine[(g + 8 * (e / 2)) * ld_u + 2 * t + (e & 1)] = -v[e];
        __syncwarp();
      }
    }
  }
  __syncthreads();
}

}  // namespace terrace::dense::cluster

#endif
