// Roofline: the update does rows^2 w flops on the FP64 tensor cores and moves rows^2 8 bytes of C
// through L2; the diagonal block is a chain of w columns (about 0.1 us each) and must be hidden.
//
// Widths are multiples of 16. Up to 128 the diagonal block fits into shared memory, padded to WP, a
// multiple of 32, with a unit diagonal. Wider tile columns (up to 256) are two of these, a and b,
// side by side, which have the same reach and leading dimension:
//
//      a    b
//    +----+---+ 0             diagonal block: factor a's, then L_ba := A_ba L_aa^-T, then
//    |\aa |   |               A_bb -= L_ba L_ba^T, then factor b's
//    | \  |   | a.width
//    | ba |\bb|               panel: X_a := X_a L_aa^-T, X_b -= X_a L_ba^T,
//    |    | \ | w             X_b := X_b L_bb^-T
//    | Xa | Xb| reach
#include "kernels/band/band.hpp"

#include <cfloat>

#include "kernels/base/cuda/dmma.cuh"
#include "kernels/base/cuda/runtime.cuh"

namespace terrace::band {
namespace {

using namespace device;

constexpr unsigned kAll = 0xffffffffu;

/// x (one row of 32 numbers, a thread each) := x L^-T with the 32 x 32 block of L at `block`
/// (column by column, ld) and the inverses of its diagonal.
__device__ void solve_row(double (&x)[32], const double* block, int ld, const double* inverse) {
#pragma unroll
  for (int j = 0; j < 32; ++j) {
    x[j] *= inverse[j];
#pragma unroll
    for (int c = j + 1; c < 32; ++c) x[c] -= x[j] * block[j * ld + c];
  }
}

/// One warp: the 32 x 32 block at `block` := L, the inverses of the diagonal beside it. A lane
/// holds a row. Returns 0 or the one-based number of the first pivot that is not positive and
/// finite. The chain of a column is shuffle, reciprocal, product, multiply-add; roots are off the
/// chain.
__device__ int factor_block(double* block, int ld, double* inverse, double (*column)[32]) {
  const int lane = threadIdx.x % 32;
  double a[32];
#pragma unroll
  for (int j = 0; j < 32; ++j) a[j] = j <= lane ? block[j * ld + lane] : 0.0;
  int failed = 0;
#pragma unroll
  for (int j = 0; j < 32; ++j) {
    const double pivot = __shfl_sync(kAll, a[j], j);
    if (!(pivot > 0.0 && pivot <= DBL_MAX) && failed == 0) failed = j + 1;
    column[j % 2][lane] = a[j];
    const double scaled = a[j] * __drcp_rn(pivot);
    __syncwarp();
#pragma unroll
    for (int c = j + 1; c < 32; ++c) a[c] -= scaled * column[j % 2][c];
    const double root = rsqrt(pivot);
    if (lane >= j) block[j * ld + lane] = a[j] * root;
    if (lane == j) inverse[j] = root;
  }
  __syncwarp();
  return failed;
}

/// The lower triangle of the diagonal block into shared memory: cp.async, not yet waited for.
template <int WP>
__device__ void load_diagonal(double* s, int ld, const double* tile, int w, Index reach) {
  for (int at = threadIdx.x; at < WP * (WP / 2); at += blockDim.x) {
    const int j = at / (WP / 2), i = at % (WP / 2) * 2;  // rows i, i + 1 of column j
    if (j < w && i < w) {
      if (i >= j)
        copy16(s + j * ld + i, tile + j * reach + i, 16);
      else if (i + 1 == j)
        copy8(s + j * ld + i + 1, tile + j * reach + i + 1);
    } else {
      s[j * ld + i] = i == j ? 1.0 : 0.0;
      s[j * ld + i + 1] = i + 1 == j ? 1.0 : 0.0;
    }
  }
  commit_copies();
}

template <int WP>
__global__ void __launch_bounds__(256)
    factor_diagonal(double* tile, int w, Index reach, Index before, bool second, double* status) {
  constexpr int LD = WP + 4;
  extern __shared__ __align__(16) double shared[];
  double* const s = shared;                  // WP columns of LD
  double* const inverse = shared + WP * LD;  // WP
  __shared__ double column[2][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  load_diagonal<WP>(s, LD, tile, w, reach);
  wait_copies<0>();
  __syncthreads();
  int failed = 0;
#pragma unroll 1
  for (int o = 0; o < WP; o += 32) {
    if (warp == 0) {
      const int here = factor_block(s + o * LD + o, LD, inverse + o, column);
      if (here != 0 && failed == 0) failed = o + here;
    }
    __syncthreads();
    const int first = o + 32, rest = WP - first;
    if (rest == 0) break;
    if (int(threadIdx.x) < rest) {  // rows below: one thread a row
      double x[32];
      double* const row = s + o * LD + first + threadIdx.x;
#pragma unroll
      for (int j = 0; j < 32; ++j) x[j] = row[j * LD];
      solve_row(x, s + o * LD + o, LD, inverse + o);
#pragma unroll
      for (int j = 0; j < 32; ++j) row[j * LD] = x[j];
    }
    __syncthreads();
    // Trailing update in 16 x 16 blocks of the lower triangle, dealt to the warps.
    const int blocks = rest / 16;
    for (int p = warp; p < blocks * blocks; p += warps) {
      const int r0 = first + p % blocks * 16, c0 = first + p / blocks * 16;
      if (r0 < c0) continue;
      double c[2][4];
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          c[n][e] = s[(c0 + 8 * n + lane % 4 * 2 + e % 2) * LD + r0 + lane / 4 + e / 2 * 8];
#pragma unroll
      for (int k = 0; k < 32; k += 16) {
        double a[8], b[4];
        load_negated_a(a, s + (o + k) * LD, LD, r0, lane);
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          load_b(b, s + (o + k) * LD, LD, c0 + 8 * n, lane);
          dmma(c[n], a, b);
        }
      }
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          s[(c0 + 8 * n + lane % 4 * 2 + e % 2) * LD + r0 + lane / 4 + e / 2 * 8] = c[n][e];
    }
    __syncthreads();
  }
  for (int at = threadIdx.x; at < WP * WP; at += blockDim.x) {
    const int j = at / WP, i = at % WP;
    if (i >= j && i < w) tile[j * reach + i] = s[j * LD + i];
  }
  if (threadIdx.x == 0 && !(second && status[0] != 0))
    status[0] = failed == 0 ? 0.0 : double(before + failed);
}

/// R rows of the panel: X := X L^-T in blocks of 32 columns, by substitution and tensor cores. The
/// rows begin `below` the first diagonal entry; without `panel` they go to the tile alone.
template <int WP, int R>
__global__ void __launch_bounds__(R == 64 ? 256 : 128)
    solve_panel(double* tile, int w, Index reach, Index below, Index rows, double* panel) {
  constexpr int LD = WP + 4, LX = R + 4;
  extern __shared__ __align__(16) double shared[];
  double* const l = shared;             // WP columns of LD: the diagonal block
  double* const x = l + WP * LD;        // WP columns of LX: these rows of the panel
  double* const inverse = x + WP * LX;  // WP
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const Index first = Index(blockIdx.x) * R;
  load_diagonal<WP>(l, LD, tile, w, reach);
  for (int at = threadIdx.x; at < WP * (R / 2); at += blockDim.x) {
    const int q = at / (R / 2), r = at % (R / 2) * 2;
    const Index inside =
        q < w ? min(rows, reach - below + q + 1) - (first + r) : 0;  // rows in the band
    const int bytes = inside >= 2 ? 16 : inside == 1 ? 8 : 0;
    copy16(x + q * LX + r, bytes > 0 ? tile + below + q * reach + first + r : tile, bytes);
  }
  commit_copies();
  wait_copies<0>();
  __syncthreads();
  for (int j = threadIdx.x; j < WP; j += blockDim.x) inverse[j] = 1.0 / l[j * LD + j];
  __syncthreads();
#pragma unroll 1
  for (int o = 0; o < WP; o += 32) {
    if (int(threadIdx.x) < R) {
      double v[32];
      double* const row = x + o * LX + threadIdx.x;
#pragma unroll
      for (int j = 0; j < 32; ++j) v[j] = row[j * LX];
      solve_row(v, l + o * LD + o, LD, inverse + o);
#pragma unroll
      for (int j = 0; j < 32; ++j) row[j * LX] = v[j];
    }
    __syncthreads();
    const int next = o + 32;
    for (int p = warp; p < (R / 16) * ((WP - next) / 8); p += warps) {
      const int r0 = p % (R / 16) * 16, c0 = next + p / (R / 16) * 8;
      double c[4];
#pragma unroll
      for (int e = 0; e < 4; ++e)
        c[e] = x[(c0 + lane % 4 * 2 + e % 2) * LX + r0 + lane / 4 + e / 2 * 8];
#pragma unroll
      for (int k = o; k < o + 32; k += 16) {
        double a[8], b[4];
        load_negated_a(a, x + k * LX, LX, r0, lane);
        load_b(b, l + k * LD, LD, c0, lane);
        dmma(c, a, b);
      }
#pragma unroll
      for (int e = 0; e < 4; ++e)
        x[(c0 + lane % 4 * 2 + e % 2) * LX + r0 + lane / 4 + e / 2 * 8] = c[e];
    }
    __syncthreads();
  }
  for (int at = threadIdx.x; at < WP * R; at += blockDim.x) {
    const int q = at / R;
    const Index r = first + at % R;
    if (q >= w || r >= rows) continue;
    const double value = x[q * LX + at % R];
    if (panel != nullptr) panel[q * reach + r] = value;
    if (r <= reach - below + q) tile[below + q * reach + r] = value;
  }
}

constexpr int kDepth = 16;  // columns of the panel in one stage
constexpr int kStages = 3;

/// One TM x TN block of the lower part of one tile column: C -= P_rows P_columns^T. WM x WN warps.
/// P has `depth` columns; its rows from `top` on, or from the diagonal on, are in `left`, those of
/// the columns in `right`: one matrix, unless tile columns are halves.
template <int TM, int TN, int WM, int WN>
__global__ void __launch_bounds__(32 * WM * WN, TM == 64 ? 3 : 1)
    update(double* tiles, int w, int depth, Index reach, Index rows, Index top, const double* left,
           const double* right, Index first, Index step) {
  constexpr int LA = TM + 4, LB = TN + 4, stage = kDepth * (LA + LB), threads = 32 * WM * WN;
  constexpr int MT = TM / WM / 16, NT = TN / WN / 8;  // tensor-core tiles of a warp
  extern __shared__ __align__(16) double shared[];
  const int strips = (w + TN - 1) / TN;
  const Index number = blockIdx.y / strips;
  const int offset = int(blockIdx.y % strips) * TN;  // first column in the tile column
  const Index c0 = (first + number * step - 1) * w + offset;
  const Index r0 = max(c0, top) + Index(blockIdx.x) * TM;
  if (c0 >= rows || r0 >= rows) return;
  const int ld = int(reach);
  const int height = int(min(Index(TM), rows - r0)), span = int(min(Index(TN), rows - c0));
  const int columns = min(w - offset, span);
  const int below = int(r0 - c0);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = warp % WM * (TM / WM) + lane / 4, column = warp / WM * (TN / WN) + lane % 4 * 2;
  double* const c =
      tiles + number * w * (reach + 1) + offset * (reach + 1) + below + row + Index(column) * reach;

  const auto load = [&](int chunk) {
    double* const a = shared + chunk % kStages * stage;
    double* const b = a + kDepth * LA;
    for (int at = threadIdx.x; at < kDepth * TM / 2; at += threads) {
      const int k = at / (TM / 2), i = at % (TM / 2) * 2;
      const int from = i < height ? (chunk * kDepth + k) * ld + i : 0;
      copy16(a + k * LA + i, left + r0 + from, i < height ? 16 : 0);
    }
    for (int at = threadIdx.x; at < kDepth * TN / 2; at += threads) {
      const int k = at / (TN / 2), i = at % (TN / 2) * 2;
      const int from = i < span ? (chunk * kDepth + k) * ld + i : 0;
      copy16(b + k * LB + i, right + c0 + from, i < span ? 16 : 0);
    }
  };
  const int chunks = depth / kDepth;
#pragma unroll
  for (int chunk = 0; chunk < kStages - 1; ++chunk) {
    if (chunk < chunks) load(chunk);
    commit_copies();
  }

  double sum[MT][NT][4];
  const auto for_each_sum = [&](auto take) {  // take(sum, where in C, whether that is inside)
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
      for (int n = 0; n < NT; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int i = 16 * m + e / 2 * 8, j = 8 * n + e % 2;
          take(sum[m][n][e], j * ld + i,
               row + i < height && column + j < columns && below + row + i >= column + j);
        }
  };
  for_each_sum([&](double& mine, int at, bool inside) { mine = inside ? c[at] : 0.0; });

#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    wait_copies<kStages - 2>();
    __syncthreads();  // this stage has arrived; everybody has left the one before
    if (chunk + kStages - 1 < chunks) load(chunk + kStages - 1);
    commit_copies();
    const double* const a = shared + chunk % kStages * stage;
    const double* const b = a + kDepth * LA;
    double across[NT][4];
#pragma unroll
    for (int n = 0; n < NT; ++n) load_b(across[n], b, LB, warp / WM * (TN / WN) + 8 * n, lane);
#pragma unroll
    for (int m = 0; m < MT; ++m) {
      double down[8];
      load_negated_a(down, a, LA, warp % WM * (TM / WM) + 16 * m, lane);
#pragma unroll
      for (int n = 0; n < NT; ++n) dmma(sum[m][n], down, across[n]);
    }
  }
  for_each_sum([&](double mine, int at, bool inside) {
    if (inside) c[at] = mine;
  });
}

template <int WP>
void launch_diagonal(const Stream<Cuda>& stream, const BandShape& s, Index before, bool second,
                     double* tile, double* status) {
  constexpr int bytes = (WP * (WP + 4) + WP) * int(sizeof(double));
  static OncePerDevice<bool> once;
  (void)once([] { return allow_shared(factor_diagonal<WP>, bytes); });
  factor_diagonal<WP>
      <<<1, 256, bytes, native(stream)>>>(tile, int(s.width), s.reach, before, second, status);
  check_launch();
}

template <int WP, int R>
void launch_panel(const Stream<Cuda>& stream, const BandShape& s, Index below, Index rows,
                  double* tile, double* panel) {
  constexpr int bytes = (WP * (WP + 4) + WP * (R + 4) + WP) * int(sizeof(double));
  static OncePerDevice<bool> once;
  (void)once([] { return allow_shared(solve_panel<WP, R>, bytes); });
  solve_panel<WP, R><<<unsigned(ceil_div(rows, R)), R == 64 ? 256 : 128, bytes, native(stream)>>>(
      tile, int(s.width), s.reach, below, rows, panel);
  check_launch();
}

/// P_rows and P_columns of an update, as update() takes them.
struct Factors {
  const double *left, *right;
  Index depth, top = 0;
};

template <int TM, int TN, int WM, int WN>
void launch_update(const Stream<Cuda>& stream, const BandShape& s, Index rows, const Factors& p,
                   Index first, Index step, Index count, double* tiles) {
  constexpr int bytes = kStages * kDepth * (TM + TN + 8) * int(sizeof(double));
  static OncePerDevice<bool> once;
  (void)once([] { return allow_shared(update<TM, TN, WM, WN>, bytes); });
  // Rows of the tallest tile column.
  const Index left = rows - std::max((first - 1) * s.width, p.top);
  const dim3 grid(unsigned(ceil_div(left, TM)), unsigned(count * ceil_div(s.width, TN)));
  update<TM, TN, WM, WN><<<grid, 32 * WM * WN, bytes, native(stream)>>>(
      tiles, int(s.width), int(p.depth), s.reach, rows, p.top, p.left, p.right, first, step);
  check_launch();
}

/// Calls body with the padded width as a constant.
template <class Body>
void with_padded_width(Index width, Body&& body) {
  switch (round_up(width, 32)) {
    case 32:
      return body.template operator()<32>();
    case 64:
      return body.template operator()<64>();
    case 96:
      return body.template operator()<96>();
    case 128:
      return body.template operator()<128>();
    default:
      throw Error(Exit::internal, "half a band width above 128; kernels/band/cuda/band.cu");
  }
}

void factor_one(const Stream<Cuda>& stream, const BandShape& s, Index before, bool second,
                double* tile, double* status) {
  with_padded_width(
      s.width, [&]<int WP>() { launch_diagonal<WP>(stream, s, before, second, tile, status); });
}

void solve_one(const Stream<Cuda>& stream, const BandShape& s, Index below, Index rows,
               double* tile, double* panel) {
  with_padded_width(s.width, [&]<int WP>() {
    if (rows <= 16 * 132)  // one wave of short blocks on an H200
      launch_panel<WP, 16>(stream, s, below, rows, tile, panel);
    else
      launch_panel<WP, 64>(stream, s, below, rows, tile, panel);
  });
}

}  // namespace

void band_factor_diagonal(const Stream<Cuda>& stream, BandShape s, Index k, View<double, Cuda> tile,
                          View<double, Cuda> status) {
  const auto [a, b] = band_halves(s);
  const Index before = k * s.width;
  factor_one(stream, a, before, false, tile.data, status.data);
  if (b.width == 0) return;
  double* const second = tile.data + a.width * s.column();
  double* const across = tile.data + a.width;  // L_ba, leading dimension reach as in a panel
  solve_one(stream, a, a.width, b.width, tile.data, nullptr);
  launch_update<64, 64, 2, 2>(stream, b, b.width, {across, across, a.width}, 1, 1, 1, second);
  factor_one(stream, b, before + a.width, true, second, status.data);
}

void band_solve_panel(const Stream<Cuda>& stream, BandShape s, Index rows, View<double, Cuda> tile,
                      View<double, Cuda> panel) {
  if (rows == 0) return;
  const auto [a, b] = band_halves(s);
  solve_one(stream, a, s.width, rows, tile.data, panel.data);
  if (b.width == 0) return;
  double* const second = tile.data + a.width * s.column();
  // X_a has nothing below row reach - b.width: it would be outside the band.
  if (const Index full = std::min(rows, s.reach - b.width); full > 0)
    launch_update<64, 64, 2, 2>(stream, b, b.width + full,
                                {panel.data - b.width, tile.data + a.width, a.width, b.width}, 1, 1,
                                1, second);
  solve_one(stream, b, b.width, rows, second, panel.data + a.width * s.reach);
}

void band_update(const Stream<Cuda>& stream, BandShape s, Index rows,
                 View<const double, Cuda> panel, Index first, Index step, Index count,
                 View<double, Cuda> tiles) {
  if (count == 0 || rows <= (first - 1) * s.width) return;
  const Factors p{panel.data, panel.data, s.width};
  if (rows >= 3000 && count > 1)
    launch_update<128, 128, 2, 4>(stream, s, rows, p, first, step, count, tiles.data);
  else
    launch_update<64, 64, 2, 2>(stream, s, rows, p, first, step, count, tiles.data);
}

}  // namespace terrace::band
