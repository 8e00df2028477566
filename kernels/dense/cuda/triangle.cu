// x := U^-1 x and x := L^-1 x on the GPU, one launch each. Blocks take strips of 64 rows in turn, from
// the bottom (of L from the top); a strip takes away what the strips before it have solved for as it
// comes, then solves its own triangle by the inverses of blocks of 16 and says that it is there.
// Floor: the triangle once, 4 n^2 bytes at HBM's rate (of floats 2 n^2), and a chain of n / 64 steps:
// a flag and 64 x 32 numbers through the L2 cache, two products of 64 x 64 x 32 on the tensor cores.
#include <algorithm>

#include "kernels/base/cuda/barriers.cuh"
#include "kernels/base/cuda/dmma.cuh"
#include "kernels/dense/cuda/dense.cuh"
#include "kernels/dense/lu.hpp"

namespace terrace::dense {

namespace {

constexpr int strip = 64, inner = 16;  // rows of a strip, of a block that is inverted
constexpr int most_columns = 32;       // right-hand sides of a block of threads
constexpr int solve_threads = 256, stages = 3;
constexpr int ld_u = strip + 4, ld_x = most_columns + 4, ld_inverse = inner + 4;  // % 16 = 4
constexpr int u_size = strip * ld_u, x_size = strip * ld_x, inverse_size = inner * ld_inverse;
template <class T>
constexpr int shared_bytes = 8 * (x_size + strip / inner * inverse_size) +
                             int(sizeof(T)) * (stages + 1) * u_size;

template <class T>
struct Triangle {
  Index n, right;
  const T* u;
  Index ldu;
  double* x;
  Index ldx;
  unsigned* flags;  // one for every strip and 32 right-hand sides
};

/// Block (i, j) of U to shared memory, zeros outside: asynchronous copies.
__device__ __forceinline__ void fetch(const Triangle<double>& p, Index i, Index j, double* to) {
  for (int e = int(threadIdx.x); e < strip * strip; e += solve_threads) {
    const Index row = i * strip + e / strip, column = j * strip + e % strip;
    double* const at = to + e / strip * ld_u + e % strip;
    if (row < p.n && column < p.n)
      device::copy8(at, p.u + row * p.ldu + column);
    else
      *at = 0;
  }
}
__device__ __forceinline__ void fetch(const Triangle<float>& p, Index i, Index j, float* to) {
  constexpr int each = 4;  // in 16 bytes
  for (int e = int(threadIdx.x) * each; e < strip * strip; e += solve_threads * each) {
    const Index row = i * strip + e / strip, column = j * strip + e % strip;
    const Index left = row < p.n ? min(max(p.n - column, Index(0)), Index(each)) : 0;
    device::copy16(to + e / strip * ld_u + e % strip, left > 0 ? p.u + row * p.ldu + column : p.u,
                   int(left) * 4);
  }
}

/// Inverses of the blocks of 16 on the diagonal of `u`, row by row; a row past the end counts as one
/// of the identity. Threads 0 ... 63.
template <bool lower, class T>
__device__ __forceinline__ void invert_blocks(const T* u, int rows, double* inverse) {
  const int q = int(threadIdx.x) / inner, c = int(threadIdx.x) % inner;
  const T* const block = u + q * inner * (ld_u + 1);
  double v[inner];
#pragma unroll
  for (int step = 0; step < inner; ++step) {
    const int r = lower ? step : inner - 1 - step;
    double sum = r == c ? 1.0 : 0.0;
#pragma unroll
    for (int done = 0; done < step; ++done) {
      const int k = lower ? done : inner - 1 - done;
      sum = fma(-double(block[r * ld_u + k]), v[k], sum);
    }
    v[r] = !lower && q * inner + r < rows ? sum / double(block[r * ld_u + r]) : sum;
  }
#pragma unroll
  for (int r = 0; r < inner; ++r) inverse[q * inverse_size + r * ld_inverse + c] = v[r];
}

/// 16 rows of a row-major block as dmma() wants them, times `sign`.
template <class T>
__device__ __forceinline__ void load_a(double (&a)[8], const T* block, int ld, double sign,
                                       int lane) {
#pragma unroll
  for (int q = 0; q < 4; ++q)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      a[2 * q + h] = sign * double(block[(lane / 4 + 8 * h) * ld + 4 * q + lane % 4]);
}

/// One warp's part of a strip: 16 rows, 16 right-hand sides in two tiles.
struct Part {
  int row, column, lane;  // of the strip
  bool busy;              // it has right-hand sides
  double sum[2][4];

  template <class T, class Visit>
  __device__ __forceinline__ void each(const Triangle<T>& p, Index i, Index c0, Visit visit) {
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const Index r = i * strip + row + lane / 4 + 8 * (e / 2);
        const Index c = c0 + column + 8 * h + 2 * (lane % 4) + (e & 1);
        visit(sum[h][e], p.x + r * p.ldx + c, r < p.n && c < p.right);
      }
  }
  /// sum -= rows of `u` (columns k0 ... k1 of the block) times x.
  template <class T>
  __device__ __forceinline__ void subtract(const T* u, const double* x, int k0, int k1) {
    double a[8], b[4];
    for (int k = k0; k < k1; k += 16) {
      load_a(a, u + row * ld_u + k, ld_u, -1, lane);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        device::load_b(b, x + k * ld_x, ld_x, column + 8 * h, lane);
        device::dmma(sum[h], a, b);
      }
    }
  }
  __device__ __forceinline__ void put(double* x) const {
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        x[(row + lane / 4 + 8 * (e / 2)) * ld_x + column + 8 * h + 2 * (lane % 4) + (e & 1)] =
            sum[h][e];
  }
  /// sum := inverse sum, by way of x.
  __device__ __forceinline__ void apply(const double* inverse, double* x) {
    double a[8], b[4];
    put(x);
    __syncwarp();
    load_a(a, inverse, ld_inverse, 1, lane);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      device::load_b(b, x + row * ld_x, ld_x, column + 8 * h, lane);
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[h][e] = 0;
      device::dmma(sum[h], a, b);
    }
    __syncwarp();
    put(x);
  }
};

template <bool lower, class T>
__global__ void __launch_bounds__(solve_threads, 1) triangle_kernel(Triangle<T> p) {
  extern __shared__ double memory[];
  double* const x = memory;
  double* const inverse = x + x_size;
  T* const ring = reinterpret_cast<T*>(inverse + strip / inner * inverse_size);
  T* const diagonal = ring + stages * u_size;
  const int tid = int(threadIdx.x), warp = tid / 32;
  const Index strips = (p.n + strip - 1) / strip, c0 = Index(blockIdx.y) * most_columns;
  unsigned* const flags = p.flags + Index(blockIdx.y) * strips;
  Part part{warp / 2 * inner, warp % 2 * 16, tid % 32, c0 + warp % 2 * 16 < p.right, {}};
  // The k-th strip that is solved.
  const auto strip_at = [&](Index k) { return lower ? k : strips - 1 - k; };
  for (Index mine = Index(blockIdx.x); mine < strips; mine += gridDim.x) {
    const Index i = strip_at(mine);
    fetch(p, i, i, diagonal);
    device::commit_copies();
    for (int s = 0; s < stages - 1; ++s) {
      if (s < mine) fetch(p, i, strip_at(s), ring + s * u_size);
      device::commit_copies();
    }
    part.each(p, i, c0,
              [](double& sum, const double* at, bool inside) { sum = inside ? __ldcg(at) : 0.0; });
    device::wait_copies<stages - 1>();
    __syncthreads();
    if (tid < strip)
      invert_blocks<lower>(diagonal, int(min(Index(strip), p.n - i * strip)), inverse);
    int stage = 0;
    for (Index k = 0; k < mine; ++k) {
      const Index j = strip_at(k), next = k + (stages - 1);
      const int free = stage == 0 ? stages - 1 : stage - 1;
      if (next < mine) fetch(p, i, strip_at(next), ring + free * u_size);
      device::commit_copies();
      if (tid % 32 == 0)
        while (device::acquire_flag(flags + j) == 0) {
        }
      __syncwarp();
      double v[strip * most_columns / solve_threads];
#pragma unroll
      for (int q = 0; q < strip * most_columns / solve_threads; ++q) {
        const int e = tid + q * solve_threads;
        const Index r = j * strip + e / most_columns, c = c0 + e % most_columns;
        v[q] = r < p.n && c < p.right ? __ldcg(p.x + r * p.ldx + c) : 0.0;
      }
#pragma unroll
      for (int q = 0; q < strip * most_columns / solve_threads; ++q) {
        const int e = tid + q * solve_threads;
        x[e / most_columns * ld_x + e % most_columns] = v[q];
      }
      device::wait_copies<stages - 1>();
      __syncthreads();
      if (part.busy) part.subtract(ring + stage * u_size, x, 0, strip);
      __syncthreads();
      stage = stage + 1 == stages ? 0 : stage + 1;
    }
    __syncthreads();  // the inverses are there
    for (int k = 0; k < strip / inner; ++k) {
      const int s = lower ? k : strip / inner - 1 - k;
      if (part.row == s * inner && part.busy) part.apply(inverse + s * inverse_size, x);
      __syncthreads();
      const bool left = lower ? part.row > s * inner : part.row < s * inner;
      if (left && part.busy) part.subtract(diagonal, x, s * inner, (s + 1) * inner);
    }
    part.each(p, i, c0, [](double& sum, double* at, bool inside) {
      if (inside) __stcg(at, sum);
    });
    __threadfence();
    __syncthreads();
    if (tid == 0) device::release_flag(flags + i, 1);
  }
}

}  // namespace

template <bool lower, class T>
void solve_triangle(const Stream<Cuda>& stream, Index n, Index right, const T* t, Index ld,
                    double* x, Index ldx, View<double, Cuda> work) {
  if (n == 0 || right == 0) return;
  static OncePerDevice<int> once;
  const int processors = once([] {
    allow_shared(triangle_kernel<lower, T>, shared_bytes<T>);
    int device = 0, count = 0;
    check(cudaGetDevice(&device));
    check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
    return count;
  });
  const Index strips = ceil_div(n, Index(strip)), most = 8 * most_columns;
  for (Index c = 0; c < right; c += most) {
    const Index columns = std::min(right - c, most), across = ceil_div(columns, most_columns);
    Triangle<T> p{n, columns, t, ld, x + c, ldx, reinterpret_cast<unsigned*>(work.data)};
    check(cudaMemsetAsync(p.flags, 0, std::size_t(across * strips) * sizeof(unsigned),
                          native(stream)));
    // All blocks of threads are resident: they wait for each other.
    const dim3 grid(unsigned(std::min(strips, std::max<Index>(1, processors / across))),
                    unsigned(across));
    void* arguments[] = {&p};
    check(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(triangle_kernel<lower, T>), grid,
                                      dim3(solve_threads), arguments, shared_bytes<T>,
                                      native(stream)));
  }
}
template void solve_triangle<true>(const Stream<Cuda>&, Index, Index, const float*, Index, double*,
                                   Index, View<double, Cuda>);
template void solve_triangle<false>(const Stream<Cuda>&, Index, Index, const float*, Index, double*,
                                    Index, View<double, Cuda>);

template <>
void solve_upper(const Stream<Cuda>& stream, Index n, Index right, View<const double, Cuda> u,
                 Index ldu, View<double, Cuda> x, Index ldx, View<double, Cuda> work) {
  solve_triangle<false>(stream, n, right, u.data, ldu, x.data, ldx, work);
}

}  // namespace terrace::dense
