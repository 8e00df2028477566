// Roofline: a substitution step reads one tile column once (2 flops a number and right-hand side),
// so HBM bounds it; in one step the chain of w columns in the diagonal block (about 3 us) is
// longer.
#include <algorithm>
#include <type_traits>

#include "kernels/band/band.hpp"
#include "kernels/base/cuda/runtime.cuh"
#include "kernels/base/problems.hpp"

namespace terrace::band {
namespace {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kWarps = 8;      // warps a block
constexpr Index kFewRhs = 8;   // up to here own kernels, above cuBLAS for the full rows
constexpr int kRhsAtOnce = 4;  // right-hand sides that share one read of the matrix

constexpr Index kMostGrid = 65535;
/// Blocks for right-hand sides in the y direction; kernels, or launches, loop over the rest.
unsigned grid_of(Index nrhs) { return unsigned(std::min<Index>(nrhs, kMostGrid)); }

__device__ double sum_of_warp(double value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kAll, value, step);
  return value;
}

/// x := L^-1 (x + arrived), or L^-T x when `transposed`, for the diagonal block; a warp takes one
/// right-hand side, a lane the rows lane, lane + 32, ... The diagonal is divided out beforehand
/// (column j of L by l_jj, or row j), so the chain of a column is a shuffle and a multiply-add.
template <int WP, bool transposed>
__global__ void __launch_bounds__(32 * kWarps)
    solve_diagonal(const double* tile, int w, Index reach, int nrhs, const double* arrived,
                   double* x) {
  constexpr int LD = WP + 1, parts = WP / 32;
  extern __shared__ __align__(16) double s[];  // WP columns of LD, then the inverse diagonal
  double* const inverse = s + WP * LD;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int j = threadIdx.x; j < WP; j += blockDim.x)
    inverse[j] = j < w ? 1.0 / tile[j * reach + j] : 1.0;
  __syncthreads();
  for (int at = threadIdx.x; at < WP * WP; at += blockDim.x) {
    const int j = at / WP, i = at % WP;
    const bool stored = i > j && i < w;
    s[j * LD + i] = stored ? tile[j * reach + i] * inverse[transposed ? i : j] : 0.0;
  }
  __syncthreads();
  const int v = blockIdx.x * kWarps + warp;
  if (v >= nrhs) return;
  double value[parts];
#pragma unroll
  for (int p = 0; p < parts; ++p) {
    const int i = 32 * p + lane;
    value[p] = i < w ? x[Index(i) * nrhs + v] : 0.0;
    if (!transposed && i < w) value[p] += arrived[Index(i) * nrhs + v];
  }
  if constexpr (!transposed) {
#pragma unroll
    for (int p = 0; p < parts; ++p)
#pragma unroll 8
      for (int j = 0; j < 32; ++j) {  // zeros on and above the diagonal leave finished rows alone
        const double known = __shfl_sync(kAll, value[p], j);
#pragma unroll
        for (int q = p; q < parts; ++q) value[q] -= s[(32 * p + j) * LD + 32 * q + lane] * known;
      }
  } else {
#pragma unroll
    for (int p = parts - 1; p >= 0; --p)
#pragma unroll 8
      for (int j = 31; j >= 0; --j) {
        const double known = __shfl_sync(kAll, value[p], j);
#pragma unroll
        for (int q = 0; q <= p; ++q) value[q] -= s[(32 * q + lane) * LD + 32 * p + j] * known;
      }
  }
#pragma unroll
  for (int p = 0; p < parts; ++p) {
    const int i = 32 * p + lane;
    if (i < w) x[Index(i) * nrhs + v] = value[p] * inverse[i];
  }
}

/// below -= panel y for the rows from `first` on: a block takes 32 rows, its warps share the
/// columns. The panel begins `start` rows below the first diagonal entry.
__global__ void __launch_bounds__(32 * kWarps)
    subtract_panel(const double* tile, int w, Index reach, Index start, Index first, Index rows,
                   Index nrhs, const double* y, double* below) {
  __shared__ double part[kRhsAtOnce][kWarps][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Index r = first + Index(blockIdx.x) * 32 + lane, v0 = Index(blockIdx.y) * kRhsAtOnce;
  const int count = int(min(Index(kRhsAtOnce), nrhs - v0));
  double sum[kRhsAtOnce] = {};
  if (r < rows) {
    const double* const a = tile + start + r;  // row r; column q is q * reach further
    const Index reached = start + r - reach;   // first column whose band reaches row r
#pragma unroll 4
    for (int q = warp; q < w; q += kWarps) {
      const double entry = q >= reached ? a[q * reach] : 0.0;
#pragma unroll
      for (int v = 0; v < kRhsAtOnce; ++v)
        if (v < count) sum[v] += entry * y[q * nrhs + v0 + v];
    }
  }
#pragma unroll
  for (int v = 0; v < kRhsAtOnce; ++v) part[v][warp][lane] = sum[v];
  __syncthreads();
  if (warp < count && r < rows) {
    double total = 0;
#pragma unroll
    for (int p = 0; p < kWarps; ++p) total += part[warp][p][lane];
    below[r * nrhs + v0 + warp] -= total;
  }
}

/// x -= panel^T below for the rows from `first` on: a block takes one column.
__global__ void __launch_bounds__(32 * kWarps)
    subtract_transposed_panel(const double* tile, Index reach, Index start, Index first, Index rows,
                              Index nrhs, const double* below, double* x) {
  __shared__ double part[kRhsAtOnce][kWarps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, q = blockIdx.x;
  const Index v0 = Index(blockIdx.y) * kRhsAtOnce, end = min(rows, reach - start + q + 1);
  const int count = int(min(Index(kRhsAtOnce), nrhs - v0));
  const double* const a = tile + start + q * reach;
  double sum[kRhsAtOnce] = {};
#pragma unroll 4
  for (Index r = first + threadIdx.x; r < end; r += 32 * kWarps) {
    const double entry = a[r];
#pragma unroll
    for (int v = 0; v < kRhsAtOnce; ++v)
      if (v < count) sum[v] += entry * below[r * nrhs + v0 + v];
  }
#pragma unroll
  for (int v = 0; v < kRhsAtOnce; ++v) {
    const double total = sum_of_warp(sum[v]);
    if (lane == 0) part[v][warp] = total;
  }
  __syncthreads();
  if (int(threadIdx.x) < count) {
    double total = 0;
#pragma unroll
    for (int p = 0; p < kWarps; ++p) total += part[threadIdx.x][p];
    x[q * nrhs + v0 + threadIdx.x] -= total;
  }
}

/// Row i of the product: neighbouring threads read neighbouring entries of each column.
__global__ void __launch_bounds__(256)
    times(BandColumns<Cuda> a, double alpha, int nrhs, const double* x, double* y) {
  const Index top = Index(blockIdx.x) * blockDim.x, i = top + threadIdx.x;
  const Index from = max(Index(0), top - a.height + 1), to = min(a.count, top + blockDim.x);
  for (int v = blockIdx.y; v < nrhs; v += gridDim.y) {
    double sum = 0;
#pragma unroll 4
    for (Index j = from; j < to; ++j) {
      const Index d = i - j;
      if (d < 0 || d >= a.height) continue;
      sum += a.data[j * a.ld + d] * x[j * nrhs + v];
    }
    if (i < a.count + a.height - 1) y[i * nrhs + v] += alpha * sum;
  }
}

/// One warp a column.
__global__ void __launch_bounds__(32 * kWarps)
    transposed_times(BandColumns<Cuda> a, double alpha, int nrhs, const double* x, double* y) {
  const Index j = Index(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (j >= a.count) return;
  for (int v = blockIdx.y; v < nrhs; v += gridDim.y) {
    double sum = 0;
#pragma unroll 4
    for (Index d = lane; d < a.height; d += 32) sum += a.data[j * a.ld + d] * x[(j + d) * nrhs + v];
    sum = sum_of_warp(sum);
    if (lane == 0) y[j * nrhs + v] += alpha * sum;
  }
}

/// The diagonal and what is below it, of band_symmetric_times(): a block takes 64 rows, four threads
/// each, which share the columns; blockIdx.y counts groups of V right-hand sides from `first` on.
template <int V>
__global__ void __launch_bounds__(256) lower_times(BandColumns<Cuda> a, int nrhs, int first,
                                                   const double* x, double* y, double* sums) {
  constexpr int rows = 64, groups = 4;
  __shared__ double parts[groups][V + 1][rows];
  const int r = threadIdx.x % rows, group = threadIdx.x / rows, v0 = first + blockIdx.y * V;
  const Index top = Index(blockIdx.x) * rows, i = top + r;
  const Index from = max(Index(0), top - a.height + 1), to = min(a.count, top + rows);
  double sum[V + 1] = {};
#pragma unroll 4
  for (Index j = from + group; j < to; j += groups) {
    const Index d = i - j;
    const double entry = d >= 0 && d < a.height ? a.data[j * a.ld + d] : 0.0;
    sum[V] += fabs(entry);
#pragma unroll
    for (int v = 0; v < V; ++v)
      if (v0 + v < nrhs) sum[v] += entry * x[j * nrhs + v0 + v];
  }
#pragma unroll
  for (int v = 0; v <= V; ++v) parts[group][v][r] = sum[v];
  __syncthreads();
  if (group > 0 || i >= a.count + a.height - 1) return;
#pragma unroll
  for (int v = 0; v <= V; ++v) {
    double total = 0;
#pragma unroll
    for (int g = 0; g < groups; ++g) total += parts[g][v][r];
    if (v < V && v0 + v < nrhs) y[i * nrhs + v0 + v] += total;
    if (v == V && v0 == 0) sums[i] += total;
  }
}

/// What is above the diagonal: a warp takes a column of what is below.
template <int V>
__global__ void __launch_bounds__(32 * kWarps)
    upper_times(BandColumns<Cuda> a, int nrhs, int first, const double* x, double* y,
                double* sums) {
  const Index j = Index(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int lane = threadIdx.x % 32, v0 = first + blockIdx.y * V;
  if (j >= a.count) return;
  double sum[V + 1] = {};
#pragma unroll 4
  for (Index d = 1 + lane; d < a.height; d += 32) {
    const double entry = a.data[j * a.ld + d];
    sum[V] += fabs(entry);
#pragma unroll
    for (int v = 0; v < V; ++v)
      if (v0 + v < nrhs) sum[v] += entry * x[(j + d) * nrhs + v0 + v];
  }
#pragma unroll
  for (int v = 0; v <= V; ++v) {
    const double total = sum_of_warp(sum[v]);
    if (lane > 0) continue;
    if (v < V && v0 + v < nrhs) y[j * nrhs + v0 + v] += total;
    if (v == V && v0 == 0) sums[j] += total;
  }
}

/// The larger one, what is not finite being infinite.
__device__ double larger(double most, double value) {
  const double size = isfinite(value) ? fabs(value) : HUGE_VAL;
  return size > most ? size : most;
}
/// blockIdx.y counts the columns from `first` on. Numbers that are not negative are in the order of
/// their bits.
__global__ void __launch_bounds__(32 * kWarps) raise_maxima(BandResidual<Cuda> r, int first) {
  __shared__ double parts[3][kWarps];
  const int v = first + blockIdx.y, nrhs = int(r.nrhs);
  double most[3] = {};
  for (Index i = Index(blockIdx.x) * blockDim.x + threadIdx.x; i < r.rows.count * r.rows.length;
       i += Index(gridDim.x) * blockDim.x) {
    const Index row = i / r.rows.length * r.rows.distance + i % r.rows.length;
    if (row >= r.rows.end) break;
    const double b = r.b ? r.b[i * nrhs + v] : 0.0;
    most[0] = larger(most[0], b - r.y[row * nrhs + v]);
    most[1] = larger(most[1], r.x[row * nrhs + v]);
    most[2] = larger(most[2], b);
  }
#pragma unroll
  for (int k = 0; k < 3; ++k) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
      most[k] = larger(most[k], __shfl_xor_sync(kAll, most[k], step));
    if (threadIdx.x % 32 == 0) parts[k][threadIdx.x / 32] = most[k];
  }
  __syncthreads();
  if (threadIdx.x >= 3) return;
  double all = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) all = larger(all, parts[threadIdx.x][w]);
  atomicMax(reinterpret_cast<unsigned long long*>(r.out + threadIdx.x * nrhs + v),
            static_cast<unsigned long long>(__double_as_longlong(all)));
}

__global__ void generate(Word seed, Index n, Index m, Index first, Index count, Index height,
                         Index ld, double* data) {
  const Index step = Index(gridDim.x) * blockDim.x;
  for (Index at = Index(blockIdx.x) * blockDim.x + threadIdx.x; at < count * height; at += step) {
    const Index j = at / height, d = at % height;
    data[j * ld + d] = band_spd_entry(seed, n, m, first + j + d, first + j);
  }
}

template <int WP, bool transposed>
void launch_diagonal(const Stream<Cuda>& stream, const BandShape& s, const double* tile, Index nrhs,
                     const double* arrived, double* x) {
  constexpr int bytes = (WP * (WP + 1) + WP) * int(sizeof(double));
  static OncePerDevice<bool> once;
  (void)once([] { return allow_shared(solve_diagonal<WP, transposed>, bytes); });
  solve_diagonal<WP, transposed>
      <<<unsigned(ceil_div(nrhs, kWarps)), 32 * kWarps, bytes, native(stream)>>>(
          tile, int(s.width), s.reach, int(nrhs), arrived, x);
  check_launch();
}

template <bool transposed>
void solve_with_diagonal(const Stream<Cuda>& stream, const BandShape& s, const double* tile,
                         Index nrhs, const double* arrived, double* x) {
  switch (round_up(s.width, 32)) {
    case 32:
      return launch_diagonal<32, transposed>(stream, s, tile, nrhs, arrived, x);
    case 64:
      return launch_diagonal<64, transposed>(stream, s, tile, nrhs, arrived, x);
    case 96:
      return launch_diagonal<96, transposed>(stream, s, tile, nrhs, arrived, x);
    case 128:
      return launch_diagonal<128, transposed>(stream, s, tile, nrhs, arrived, x);
    default:
      throw Error(Exit::internal, "half a band width above 128; kernels/band/cuda/solve.cu");
  }
}

/// Rows first .. rows - 1 of the panel that begins `start` rows below the first diagonal entry.
void subtract(const Stream<Cuda>& stream, const BandShape& s, const double* tile, Index start,
              Index first, Index rows, Index nrhs, const double* y, double* below) {
  const dim3 grid(unsigned(ceil_div(rows - first, 32)), unsigned(ceil_div(nrhs, kRhsAtOnce)));
  subtract_panel<<<grid, 32 * kWarps, 0, native(stream)>>>(tile, int(s.width), s.reach, start,
                                                           first, rows, nrhs, y, below);
  check_launch();
}
void subtract_transposed(const Stream<Cuda>& stream, const BandShape& s, const double* tile,
                         Index start, Index first, Index rows, Index nrhs, const double* below,
                         double* x) {
  const dim3 grid(unsigned(s.width), unsigned(ceil_div(nrhs, kRhsAtOnce)));
  subtract_transposed_panel<<<grid, 32 * kWarps, 0, native(stream)>>>(tile, s.reach, start, first,
                                                                      rows, nrhs, below, x);
  check_launch();
}

/// Rows of the panel that cuBLAS takes: those before the corner when there are many right-hand
/// sides.
Index library_rows(const BandShape& s, Index rows, Index nrhs) {
  return nrhs > kFewRhs ? std::min(rows, s.reach - s.width) : 0;
}

}  // namespace

void band_forward(const Stream<Cuda>& stream, BandShape s, Index rows,
                  View<const double, Cuda> tile, Index nrhs, View<const double, Cuda> arrived,
                  View<double, Cuda> y, View<double, Cuda> below) {
  const auto [a, b] = band_halves(s);
  solve_with_diagonal<false>(stream, a, tile.data, nrhs, arrived.data, y.data);
  if (b.width > 0) {
    double* const rest = y.data + a.width * nrhs;
    subtract(stream, a, tile.data, a.width, 0, b.width, nrhs, y.data, rest);
    solve_with_diagonal<false>(stream, b, tile.data + a.width * s.column(), nrhs,
                               arrived.data + a.width * nrhs, rest);
  }
  const Index full = library_rows(s, rows, nrhs);
  if (full > 0) {
    const double minus = -1, one = 1;
    check(cublasDgemm(cublas(stream), CUBLAS_OP_N, CUBLAS_OP_T, int(nrhs), int(full), int(s.width),
                      &minus, y.data, int(nrhs), tile.data + s.width, int(s.reach), &one,
                      below.data, int(nrhs)));
  }
  if (rows > full) subtract(stream, s, tile.data, s.width, full, rows, nrhs, y.data, below.data);
}

void band_backward(const Stream<Cuda>& stream, BandShape s, Index rows,
                   View<const double, Cuda> tile, Index nrhs, View<double, Cuda> x,
                   View<const double, Cuda> below) {
  const Index full = library_rows(s, rows, nrhs);
  if (full > 0) {
    const double minus = -1, one = 1;
    check(cublasDgemm(cublas(stream), CUBLAS_OP_N, CUBLAS_OP_N, int(nrhs), int(s.width), int(full),
                      &minus, below.data, int(nrhs), tile.data + s.width, int(s.reach), &one,
                      x.data, int(nrhs)));
  }
  if (rows > full)
    subtract_transposed(stream, s, tile.data, s.width, full, rows, nrhs, below.data, x.data);
  const auto [a, b] = band_halves(s);
  if (b.width > 0) {
    double* const rest = x.data + a.width * nrhs;
    solve_with_diagonal<true>(stream, b, tile.data + a.width * s.column(), nrhs, nullptr, rest);
    subtract_transposed(stream, a, tile.data, a.width, 0, b.width, nrhs, rest, x.data);
  }
  solve_with_diagonal<true>(stream, a, tile.data, nrhs, nullptr, x.data);
}

void band_times(const Stream<Cuda>& stream, BandColumns<Cuda> a, double alpha, Index nrhs,
                View<const double, Cuda> x, View<double, Cuda> y) {
  if (a.count == 0 || nrhs == 0) return;
  const dim3 grid(unsigned(ceil_div(a.count + a.height - 1, 256)), grid_of(nrhs));
  times<<<grid, 256, 0, native(stream)>>>(a, alpha, int(nrhs), x.data, y.data);
  check_launch();
}

void band_transposed_times(const Stream<Cuda>& stream, BandColumns<Cuda> a, double alpha,
                           Index nrhs, View<const double, Cuda> x, View<double, Cuda> y) {
  if (a.count == 0 || nrhs == 0) return;
  const dim3 grid(unsigned(ceil_div(a.count, kWarps)), grid_of(nrhs));
  transposed_times<<<grid, 32 * kWarps, 0, native(stream)>>>(a, alpha, int(nrhs), x.data, y.data);
  check_launch();
}

void band_symmetric_times(const Stream<Cuda>& stream, BandColumns<Cuda> a, Index nrhs,
                          View<const double, Cuda> x, View<double, Cuda> y,
                          View<double, Cuda> sums) {
  if (a.count == 0 || nrhs == 0) return;
  const auto launch = [&]<int V>(std::integral_constant<int, V>) {
    for (Index first = 0; first < nrhs; first += kMostGrid * V) {
      const unsigned groups = grid_of(ceil_div(nrhs - first, V));
      lower_times<V><<<dim3(unsigned(ceil_div(a.count + a.height - 1, 64)), groups), 256, 0,
                       native(stream)>>>(a, int(nrhs), int(first), x.data, y.data, sums.data);
      check_launch();
      upper_times<V>
          <<<dim3(unsigned(ceil_div(a.count, kWarps)), groups), 32 * kWarps, 0, native(stream)>>>(
              a, int(nrhs), int(first), x.data, y.data, sums.data);
      check_launch();
    }
  };
  if (nrhs == 1)
    launch(std::integral_constant<int, 1>());
  else
    launch(std::integral_constant<int, 4>());
}

void band_raise(const Stream<Cuda>& stream, const BandResidual<Cuda>& r) {
  const Index rows = r.rows.count * r.rows.length;
  if (rows == 0 || r.nrhs == 0) return;
  const Index blocks = std::min<Index>(ceil_div(rows, 32 * kWarps), 264);
  for (Index first = 0; first < r.nrhs; first += kMostGrid) {
    const dim3 grid(unsigned(blocks), grid_of(r.nrhs - first));
    raise_maxima<<<grid, 32 * kWarps, 0, native(stream)>>>(r, int(first));
    check_launch();
  }
}

void band_generate_spd(const Stream<Cuda>& stream, Word seed, Index n, Index m, Index first,
                       Index count, Index height, Index ld, View<double, Cuda> data) {
  if (count * height == 0) return;
  const Index blocks = std::min<Index>(ceil_div(count * height, 256), 8192);
  generate<<<unsigned(blocks), 256, 0, native(stream)>>>(seed, n, m, first, count, height, ld,
                                                         data.data);
  check_launch();
}

}  // namespace terrace::band
