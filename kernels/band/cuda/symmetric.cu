// Roofline: 8 bytes an entry of the lower band, read once, for 4 flops and right-hand side: HBM
// bounds it (the strips add 1/32 a right-hand side, written and read again).
//
// A block takes a tile column, a warp 32 or 64 neighbouring rows of some of its columns; each
// thread keeps one or two rows' sums and the transposed sums of all of its columns in registers:
//
//   warp   columns 0..C-1   C..2C-1   ...
//   rows   0 .. R-1  | w0 |  w1 |         the sums of a row over the column groups meet in shared
//   rows   R .. 2R-1 | w2 |  w3 |         memory, chunk by chunk; those of a column at the end
#include <algorithm>

#include "kernels/band/symmetric.hpp"
#include "kernels/base/cuda/runtime.cuh"

namespace terrace::band {
namespace {

constexpr int kWidth = int(band_symmetric_width);
constexpr int kThreads = 256;
constexpr unsigned kAll = 0xffffffffu;

/// How the threads of a block share a tile column with V right-hand sides.
template <int V>
struct Cut {
  static constexpr int columns = V == 1 ? 32 : V == 2 ? 16 : 8;  // of a thread
  static constexpr int groups = kWidth / columns;                // column groups
  static constexpr int warps = kThreads / 32 / groups;           // of a column group
  static constexpr int chunk = warps * 64;                       // rows of a pass, two a thread
  static_assert(groups * warps * 32 == kThreads && chunk * V <= kThreads);
};

struct Product {
  BandShape s;
  const double* a;
  bool absolute;
  Index nrhs;       // numbers a row of x and y
  const double* x;  // first right-hand side of the group
  double* y;
  double* strips;
};

/// Sums over a warp of N values a lane: lane l ends with the sum of value l * N / 32 (N <= 32) in
/// values[0]. 31 shuffles for N = 32. A fixed tree.
template <int N>
__device__ void sum_transposed(double (&values)[N], int lane) {
  int left = N;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    if (left > 1) {
      left /= 2;
      const bool upper = lane & step;
#pragma unroll
      for (int i = 0; i < N / 2; ++i)
        if (i < left) {
          const double give = upper ? values[i] : values[i + left];
          const double keep = upper ? values[i + left] : values[i];
          values[i] = keep + __shfl_xor_sync(kAll, give, step);
        }
    } else {
      values[0] += __shfl_xor_sync(kAll, values[0], step);
    }
  }
}

/// Rows `row`, row + 1 of the warp's columns at `from`: u += A x_top, t += A^T mine. `inside`: all
/// of the warp's rows are between the diagonal's block and the corner.
template <int V>
__device__ __forceinline__ void take_rows(const Product& p, const double* from, const double* x_top,
                                          const double (&mine)[2][V], int row, int group,
                                          bool inside, double (&u)[2][V],
                                          double (&t)[Cut<V>::columns * V]) {
  using C = Cut<V>;
  const int reach = int(p.s.reach);
  if (inside && !p.absolute) {
#pragma unroll
    for (int c = 0; c < C::columns; ++c) {
      const double2 entry = __ldcs(reinterpret_cast<const double2*>(from + Index(c) * reach));
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const double other = x_top[(group * C::columns + c) * V + v];
        u[0][v] += entry.x * other;
        u[1][v] += entry.y * other;
        t[c * V + v] += entry.x * mine[0][v] + entry.y * mine[1][v];
      }
    }
  } else {
#pragma unroll
    for (int c = 0; c < C::columns; ++c) {
      const int column = group * C::columns + c;
      double2 entry = *reinterpret_cast<const double2*>(from + Index(c) * reach);
      if (p.absolute) entry = {fabs(entry.x), fabs(entry.y)};
      // Other columns' entries lie above the diagonal, and below the corner.
      if (row < column || row > column + reach) entry.x = 0;
      if (row + 1 < column || row + 1 > column + reach) entry.y = 0;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const double other = x_top[column * V + v];
        u[0][v] += entry.x * other;
        u[1][v] += entry.y * other;
        t[c * V + v] += (row == column ? 0.0 : entry.x * mine[0][v]) +
                        (row + 1 == column ? 0.0 : entry.y * mine[1][v]);
      }
    }
  }
}

/// The warp's transposed sums, over its lanes.
template <int V>
__device__ __forceinline__ void store_crossed(double (&t)[Cut<V>::columns * V], double* crossed,
                                              int lane) {
  constexpr int count = Cut<V>::columns * V;
  static_assert(count == 32 || count == 24);
  if constexpr (count == 32) {
    sum_transposed(t, lane);
    crossed[lane] = t[0];
  } else {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      double value = t[i];
#pragma unroll
      for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kAll, value, step);
      if (lane == 0) crossed[i] = value;
    }
  }
}

template <int V>
__global__ void __launch_bounds__(kThreads, 2) strip_kernel(Product p) {
  using C = Cut<V>;
  __shared__ double x_top[kWidth * V];                 // x of the tile column's own rows
  __shared__ double meet[2][C::groups][C::chunk * V];  // two, so that one barrier a chunk does
  __shared__ double top[kWidth * V];                   // row sums of the diagonal block's rows
  __shared__ double crossed[C::warps][kWidth * V];     // transposed sums

  const Index k = blockIdx.x;
  const int reach = int(p.s.reach), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int group = warp % C::groups, at = warp / C::groups;
  const int rows = int(min(p.s.reach + kWidth, p.s.padded() - k * kWidth));
  const double* const x = p.x + k * kWidth * p.nrhs;
  double* const strip = p.strips + k * (p.s.reach + kWidth) * V;
  const double* const tile = p.a + k * p.s.tile() + Index(group) * C::columns * reach;

  for (int i = threadIdx.x; i < kWidth * V; i += kThreads) x_top[i] = x[i / V * p.nrhs + i % V];
  __syncthreads();

  double t[C::columns * V] = {};
  int turn = 0;
  for (int first = 0; first < rows; first += C::chunk, turn ^= 1) {
    const int row = first + at * 64 + 2 * lane, begin = first + at * 64;
    double u[2][V] = {};
    if (row < rows) {
      double mine[2][V];
#pragma unroll
      for (int v = 0; v < V; ++v) {
        mine[0][v] = x[row * p.nrhs + v];
        mine[1][v] = x[(row + 1) * p.nrhs + v];
      }
      const bool inside = begin >= kWidth && begin + 64 <= reach;
      take_rows<V>(p, tile + row, x_top, mine, row, group, inside, u, t);
    }
#pragma unroll
    for (int v = 0; v < V; ++v) {
      meet[turn][group][(at * 64 + 2 * lane) * V + v] = u[0][v];
      meet[turn][group][(at * 64 + 2 * lane + 1) * V + v] = u[1][v];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < C::chunk * V; i += kThreads) {
      double sum = 0;
#pragma unroll
      for (int g = 0; g < C::groups; ++g) sum += meet[turn][g][i];
      const int r = first + i / V;
      if (r < kWidth)
        top[r * V + i % V] = sum;
      else if (r < rows)
        strip[Index(first) * V + i] = sum;
    }
  }

  store_crossed<V>(t, crossed[at] + group * C::columns * V, lane);
  __syncthreads();
  for (int i = threadIdx.x; i < kWidth * V; i += kThreads) {
    double sum = top[i];
#pragma unroll
    for (int w = 0; w < C::warps; ++w) sum += crossed[w][i];
    strip[i] = sum;
  }
}

/// y := sums over the strips, in their order.
template <int V>
__global__ void __launch_bounds__(kThreads) sum_kernel(Product p) {
  const Index length = p.s.reach + kWidth, all = p.s.padded() * V;
  for (Index e = Index(blockIdx.x) * kThreads + threadIdx.x; e < all;
       e += Index(gridDim.x) * kThreads) {
    const Index i = e / V, v = e % V;
    const Index from = i + 1 > length ? (i + 1 - length + kWidth - 1) / kWidth : 0;
    double sum = 0;
#pragma unroll 4
    for (Index k = from; k <= i / kWidth; ++k)
      sum += p.strips[(k * length + i - k * kWidth) * V + v];
    p.y[i * p.nrhs + v] = sum;
  }
}

template <int V>
void launch(const Stream<Cuda>& stream, const Product& p) {
  strip_kernel<V><<<unsigned(p.s.tiles()), kThreads, 0, native(stream)>>>(p);
  check_launch();
  const Index blocks = ceil_div(p.s.padded() * V, Index(kThreads));
  sum_kernel<V><<<unsigned(std::min<Index>(blocks, 8192)), kThreads, 0, native(stream)>>>(p);
  check_launch();
}

}  // namespace

void band_symmetric_times(const Stream<Cuda>& stream, BandShape s, View<const double, Cuda> a,
                          bool absolute, Index nrhs, View<const double, Cuda> x,
                          View<double, Cuda> y, View<double, Cuda> scratch) {
  if (s.tiles() == 0) return;
  for (Index v = 0; v < nrhs;) {
    // 5 as 3 + 2, not 4 + 1.
    const Index left = nrhs - v, group = ceil_div(left, ceil_div(left, band_symmetric_group));
    const Product p{s, a.data, absolute, nrhs, x.data + v, y.data + v, scratch.data};
    if (group == 1)
      launch<1>(stream, p);
    else if (group == 2)
      launch<2>(stream, p);
    else if (group == 3)
      launch<3>(stream, p);
    else
      launch<4>(stream, p);
    v += group;
  }
}

}  // namespace terrace::band
