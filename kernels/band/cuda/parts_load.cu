// Roofline: reversal and spikes move each entry once each way (16 bytes an entry, HBM); both are
// transpositions of a dense view, read and written in runs of 32. Inverses: 16 w^2 bytes a block.
#include <algorithm>

#include "kernels/band/parts.hpp"
#include "kernels/base/cuda/runtime.cuh"

namespace terrace::band {
namespace {

constexpr int kPatch = 32;  // side of a patch that goes through shared memory
constexpr int kRows = 4;    // rows of threads; a thread moves kPatch / kRows entries
constexpr int kWidth = 64;
constexpr int kWarps = 4;  // warps that invert one block

constexpr int kAtOnce = 48;  // the parameters of a launch hold 4 KiB
template <class T>
struct Several {
  T at[kAtOnce];
};
static_assert(sizeof(Several<BandSpike>) <= 4000 && sizeof(Several<BandDiagonal>) <= 4000);

/// patch[c][r] := entry (i0 + r, j0 + c) of the matrix, where there(row, column); a form's entry (i, j)
/// stands at j * column + (i - j) * diagonal. Reads along what lies side by side: a column, or a
/// diagonal. False: NaN or Inf was among them.
template <class There>
__device__ bool read_patch(double (&patch)[kPatch][kPatch + 1], const BandForm& from, Index i0,
                           Index j0, const There& there) {
  const int x = threadIdx.x % kPatch, y = threadIdx.x / kPatch;
  const Index step = from.column - from.diagonal;
  bool finite = true;
  const auto read = [&](int r, int c) {
    if (!there(i0 + r, j0 + c)) return;
    const double number = from.data[(j0 + c) * step + (i0 + r) * from.diagonal];
    patch[c][r] = number;
    finite = finite && isfinite(number);
  };
  if (from.column == 1) {
    for (int d = y - kPatch + 1; d < kPatch; d += kRows)
      if (x + d >= 0 && x + d < kPatch) read(x + d, x);
  } else {
#pragma unroll
    for (int c = y; c < kPatch; c += kRows) read(x, c);
  }
  return finite;
}

/// Seen with leading dimension ld - 1 (rows i, columns j of the whole matrix), entry (i, j) of
/// `from` becomes entry (n - 1 - j, n - 1 - i) of `to`; rows top <= i < n.
__global__ void __launch_bounds__(kPatch* kRows)
    reverse(Index n, Index top, Index first, Index count, Index height, BandForm from, double* to,
            Index to_ld, Index* not_finite) {
  __shared__ double patch[kPatch][kPatch + 1];
  const int x = threadIdx.x % kPatch, y = threadIdx.x / kPatch;
  const Index j0 = Index(blockIdx.x) * kPatch;
  bool finite = true;
  const auto there = [&](Index i, Index j) {  // counted from `first`
    return j < count && i >= j && i - j < height && first + i < n && first + i >= top;
  };
  for (Index strip = blockIdx.y;; strip += gridDim.y) {
    const Index i0 = j0 + strip * kPatch;
    if (i0 >= j0 + kPatch - 1 + height || first + i0 >= n) break;
    finite = read_patch(patch, from, i0, j0, there) && finite;
    __syncthreads();
#pragma unroll
    for (int r = y; r < kPatch; r += kRows) {
      const Index i = i0 + r, j = j0 + x;
      if (there(i, j)) to[(n - 1 - first - i) * (to_ld - 1) + (n - 1 - first - j)] = patch[x][r];
    }
    __syncthreads();
  }
  if (!finite && not_finite) *not_finite = 1;
}

/// Row q of the part and column c of the separator: spike[r0 + c + q arrow] := entry (q + gap, c);
/// blockIdx.z counts the spikes.
__global__ void __launch_bounds__(kPatch* kRows)
    spike_rows(const __grid_constant__ Several<BandSpike> spikes, Index height, Index arrow,
               Index* not_finite) {
  __shared__ double patch[kPatch][kPatch + 1];
  const BandSpike& s = spikes.at[blockIdx.z];
  const int x = threadIdx.x % kPatch, y = threadIdx.x / kPatch;
  const Index i0 = s.gap + Index(blockIdx.x) * kPatch;
  bool finite = true;
  const auto there = [&](Index i, Index c) {
    return c < s.count && i >= c && i - c < height && i - s.gap < s.end;
  };
  if (i0 - s.gap >= s.end || i0 >= s.count - 1 + height) return;
  for (Index c0 = Index(blockIdx.y) * kPatch; c0 < s.count; c0 += Index(gridDim.y) * kPatch) {
    finite = read_patch(patch, s.from, i0, c0, there) && finite;
    __syncthreads();
#pragma unroll
    for (int r = y; r < kPatch; r += kRows) {
      const Index i = i0 + r, c = c0 + x;
      if (there(i, c)) s.spike[s.r0 + c + (i - s.gap) * arrow] = patch[x][r];
    }
    __syncthreads();
  }
  if (!finite && not_finite) *not_finite = 1;
}

/// One diagonal block L = [A 0; C B]: [A^-1 0; -B^-1 C A^-1, B^-1]. Two warps invert A and B, a
/// lane a column; then all threads multiply.
__global__ void __launch_bounds__(32 * kWarps)
    invert_diagonals(const double* band, Index reach, Index ring, Index from, double* inverse) {
  constexpr int half = kWidth / 2, ld = half + 1;
  __shared__ double block[3][half][ld];  // A, B, C: column, row; A and B become inverses
  __shared__ double product[half][ld];   // C A^-1
  const Index slot = (from + Index(blockIdx.x)) % ring;
  const double* const tile = band + slot * kWidth * (reach + 1);
  double* const out = inverse + slot * kWidth * kWidth;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int j = warp; j < half; j += kWarps) {
    block[0][j][lane] = lane >= j ? tile[j * reach + lane] : 0.0;
    block[1][j][lane] = lane >= j ? tile[(half + j) * reach + half + lane] : 0.0;
    block[2][j][lane] = tile[j * reach + half + lane];
  }
  __syncthreads();
  if (warp < 2) {
    double(*const l)[ld] = block[warp];
    const double one_over = 1.0 / l[lane][lane];
    double x[half];
#pragma unroll
    for (int i = 0; i < half; ++i) {
      double sum = i == lane ? 1.0 : 0.0;
#pragma unroll
      for (int k = 0; k < i; ++k) sum -= l[k][i] * x[k];
      const double solved = sum * __shfl_sync(0xffffffffu, one_over, i);
      x[i] = i >= lane ? solved : 0.0;
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < half; ++i) l[lane][i] = x[i];
  }
  __syncthreads();
  for (int j = warp; j < half; j += kWarps) {
    double sum = 0.0;
    for (int k = j; k < half; ++k) sum += block[2][k][lane] * block[0][j][k];
    product[j][lane] = sum;
  }
  __syncthreads();
  for (int j = warp; j < half; j += kWarps) {
    double sum = 0.0;
    for (int k = 0; k < half; ++k) sum += block[1][k][lane] * product[j][k];
    out[j * kWidth + lane] = block[0][j][lane];
    out[j * kWidth + half + lane] = -sum;
    out[(half + j) * kWidth + lane] = 0.0;
    out[(half + j) * kWidth + half + lane] = block[1][j][lane];
  }
}

/// A block for each group; blockIdx.y counts the diagonals.
__global__ void __launch_bounds__(band_product_group)
    products(const __grid_constant__ Several<BandDiagonal> diagonals, double* __restrict__ out) {
  constexpr int warps = band_product_group / 32;
  __shared__ double mantissas[warps];
  __shared__ int exponents[warps];
  const BandDiagonal& a = diagonals.at[blockIdx.y];
  const Index i = Index(blockIdx.x) * band_product_group + threadIdx.x;
  if (i - threadIdx.x >= a.count) return;
  int exponent = 0;
  double mantissa = i < a.count ? frexp(fabs(a.first[i * a.ld]), &exponent) : 1.0;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    mantissa *= __shfl_xor_sync(0xffffffffu, mantissa, step);
    exponent += __shfl_xor_sync(0xffffffffu, exponent, step);
  }
  if (threadIdx.x % 32 == 0) {
    mantissas[threadIdx.x / 32] = mantissa;
    exponents[threadIdx.x / 32] = exponent;
  }
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int w = 1; w < warps; ++w) mantissa *= mantissas[w], exponent += exponents[w];
  Index group = blockIdx.x;
  for (unsigned before = 0; before < blockIdx.y; ++before)
    group += (diagonals.at[before].count + band_product_group - 1) / band_product_group;
  out[2 * group] = mantissa;
  out[2 * group + 1] = double(exponent);
}

unsigned at_most(Index blocks, Index most) { return unsigned(std::min(blocks, most)); }

/// launch(some of them, how many) for all of them.
template <class T, class Launch>
void at_once(std::span<const T> all, const Launch& launch) {
  while (!all.empty()) {
    const auto count = std::min<std::size_t>(all.size(), kAtOnce);
    Several<T> some{};
    std::copy_n(all.begin(), count, some.at);
    launch(some, all.first(count));
    all = all.subspan(count);
  }
}

}  // namespace

void band_reverse(const Stream<Cuda>& stream, Index n, Index first, Index count, Index height,
                  const BandForm& from, double* to, Index to_ld, Index top, Index* not_finite) {
  count = std::min(count, n - first);
  height = std::min(height, n - first);
  if (count <= 0 || height <= 0) return;
  const Index strips = ceil_div(height + kPatch - 1, kPatch);
  reverse<<<dim3(unsigned(ceil_div(count, kPatch)), at_most(strips, 65535)), kPatch * kRows, 0,
            native(stream)>>>(n, top, first, count, height, from, to, to_ld, not_finite);
  check_launch();
}

void band_spikes(const Stream<Cuda>& stream, std::span<const BandSpike> spikes, Index height,
                 Index arrow, Index* not_finite) {
  at_once(spikes, [&](const Several<BandSpike>& some, std::span<const BandSpike> these) {
    Index rows = 0, count = 0;
    for (const BandSpike& s : these) {
      rows = std::max(rows, std::min(s.end, s.count - 1 + height - s.gap));
      count = std::max(count, s.count);
    }
    if (count <= 0 || height <= 0 || rows <= 0) return;
    const dim3 grid(unsigned(ceil_div(rows, kPatch)), at_most(ceil_div(count, kPatch), 65535),
                    unsigned(these.size()));
    spike_rows<<<grid, kPatch * kRows, 0, native(stream)>>>(some, height, arrow, not_finite);
    check_launch();
  });
}

void band_products(const Stream<Cuda>& stream, std::span<const BandDiagonal> diagonals,
                   double* out) {
  at_once(diagonals, [&](const Several<BandDiagonal>& some, std::span<const BandDiagonal> these) {
    Index most = 0, all = 0;
    for (const BandDiagonal& a : these) {
      const Index groups = ceil_div(a.count, band_product_group);
      most = std::max(most, groups), all += groups;
    }
    if (most == 0) return;
    products<<<dim3(unsigned(most), unsigned(these.size())), band_product_group, 0,
               native(stream)>>>(some, out);
    check_launch();
    out += 2 * all;
  });
}

void band_invert_diagonals(const Stream<Cuda>& stream, BandShape s, const BandPart<Cuda>& part) {
  if (s.width != kWidth)
    throw Error(Exit::internal, "width of a part is not 64; kernels/band/cuda/parts_load.cu");
  const Index count = part.end() - part.from;
  if (count <= 0) return;
  invert_diagonals<<<unsigned(count), 32 * kWarps, 0, native(stream)>>>(
      part.band, s.reach, part.ring, part.from, part.inverse);
  check_launch();
}

}  // namespace terrace::band
