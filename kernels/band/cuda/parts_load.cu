// Roofline: reversal and spikes move each entry once each way (16 bytes an entry, HBM); both are
// transpositions of a dense view, read and written in runs of 32. Inverses: 16 w^2 bytes a block.
#include <algorithm>

#include "kernels/band/parts.hpp"
#include "kernels/base/cuda/runtime.cuh"

namespace terrace::band {
namespace {

constexpr int kPatch = 32;  // side of a patch that goes through shared memory
constexpr int kRows = 8;    // rows of threads; a thread moves kPatch / kRows entries
constexpr int kWidth = 64;
constexpr int kWarps = 4;  // warps that invert one block

/// Seen with leading dimension ld - 1 (rows i, columns j of the whole matrix), entry (i, j) of
/// `from` becomes entry (n - 1 - j, n - 1 - i) of `to`; rows top <= i < n.
__global__ void __launch_bounds__(kPatch* kRows)
    reverse(Index n, Index top, Index first, Index count, Index height, const double* from,
            Index from_ld, double* to, Index to_ld) {
  __shared__ double patch[kPatch][kPatch + 1];
  const int x = threadIdx.x % kPatch, y = threadIdx.x / kPatch;
  const Index j0 = Index(blockIdx.x) * kPatch;
  const auto there = [&](Index i, Index j) {  // counted from `first`
    return j < count && i >= j && i - j < height && first + i < n && first + i >= top;
  };
  for (Index strip = blockIdx.y;; strip += gridDim.y) {
    const Index i0 = j0 + strip * kPatch;
    if (i0 >= j0 + kPatch - 1 + height || first + i0 >= n) return;
#pragma unroll
    for (int r = y; r < kPatch; r += kRows) {
      const Index i = i0 + x, j = j0 + r;
      if (there(i, j)) patch[r][x] = from[j * (from_ld - 1) + i];
    }
    __syncthreads();
#pragma unroll
    for (int r = y; r < kPatch; r += kRows) {
      const Index i = i0 + r, j = j0 + x;
      if (there(i, j)) to[(n - 1 - first - i) * (to_ld - 1) + (n - 1 - first - j)] = patch[x][r];
    }
    __syncthreads();
  }
}

/// Row q of the part and column c of the separator: spike[r0 + c + q arrow] := from(q + gap, c) of
/// the dense view.
__global__ void __launch_bounds__(kPatch* kRows)
    spike_rows(Index count, Index height, Index gap, Index rows, const double* from, Index from_ld,
               Index r0, Index arrow, double* spike) {
  __shared__ double patch[kPatch][kPatch + 1];
  const int x = threadIdx.x % kPatch, y = threadIdx.x / kPatch;
  const Index q0 = Index(blockIdx.x) * kPatch;
  const auto there = [&](Index q, Index c) {
    return c < count && q < rows && q + gap >= c && q + gap - c < height;
  };
  for (Index c0 = Index(blockIdx.y) * kPatch; c0 < count; c0 += Index(gridDim.y) * kPatch) {
#pragma unroll
    for (int r = y; r < kPatch; r += kRows) {
      const Index q = q0 + x, c = c0 + r;
      if (there(q, c)) patch[r][x] = from[c * (from_ld - 1) + q + gap];
    }
    __syncthreads();
#pragma unroll
    for (int r = y; r < kPatch; r += kRows) {
      const Index q = q0 + r, c = c0 + x;
      if (there(q, c)) spike[r0 + c + q * arrow] = patch[x][r];
    }
    __syncthreads();
  }
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

/// A thread for each group.
__global__ void products(const double* __restrict__ first, Index ld, Index count,
                         double* __restrict__ out) {
  const Index group = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  const Index from = group * band_product_group, to = min(count, from + band_product_group);
  if (from >= count) return;
  double mantissa = 1;
  Index exponent = 0;
#pragma unroll 8
  for (Index i = from; i < to; ++i) {
    int of_number = 0;
    mantissa *= frexp(fabs(first[i * ld]), &of_number);
    exponent += of_number;
  }
  out[2 * group] = mantissa;
  out[2 * group + 1] = double(exponent);
}

unsigned at_most(Index blocks, Index most) { return unsigned(std::min(blocks, most)); }

}  // namespace

void band_reverse(const Stream<Cuda>& stream, Index n, Index first, Index count, Index height,
                  const double* from, Index from_ld, double* to, Index to_ld, Index top) {
  count = std::min(count, n - first);
  height = std::min(height, n - first);
  if (count <= 0 || height <= 0) return;
  const Index strips = ceil_div(height + kPatch - 1, kPatch);
  reverse<<<dim3(unsigned(ceil_div(count, kPatch)), at_most(strips, 65535)), kPatch * kRows, 0,
            native(stream)>>>(n, top, first, count, height, from, from_ld, to, to_ld);
  check_launch();
}

void band_spike(const Stream<Cuda>& stream, Index count, Index height, Index gap, Index end,
                const double* from, Index from_ld, Index r0, Index arrow, double* spike) {
  const Index rows = std::min(end, count - 1 + height - gap);
  if (count <= 0 || height <= 0 || rows <= 0) return;
  spike_rows<<<dim3(unsigned(ceil_div(rows, kPatch)), at_most(ceil_div(count, kPatch), 65535)),
               kPatch * kRows, 0, native(stream)>>>(count, height, gap, rows, from, from_ld, r0,
                                                    arrow, spike);
  check_launch();
}

void band_products(const Stream<Cuda>& stream, const double* first, Index ld, Index count,
                   double* out) {
  if (count <= 0) return;
  constexpr int threads = 64;
  products<<<unsigned(ceil_div(ceil_div(count, band_product_group), threads)), threads, 0,
             native(stream)>>>(first, ld, count, out);
  check_launch();
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
