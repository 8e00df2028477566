// LU in FP32 on the GPU, its update by the FP16 tensor cores.
// update: 6 m n b flops of FP16 (cuBLAS, 600 to 750 TFLOP/s) on 8 m n bytes: 3 b / 4 flop a byte, so
// from b = 256 on bound by the tensor cores. Panels: as in FP64 (cluster.cu), of floats. share:
// b (columns - from) doubles a few times, bound by HBM.
#include <cuda_fp16.h>

#include <algorithm>

#include "kernels/dense/cuda/panel.cuh"
#include "kernels/dense/float_lu.hpp"

namespace terrace::dense {

namespace {

constexpr float left_scale = 1024, right_scale = 8;  // what N and Y are multiplied by

/// What is cut out of the workspace.
struct Parts {
  double *panel, *lu, *y, *work, *summary;
  float* saved;
  half *left, *right;
  Index *column_of, *numbers, *pivots, *list;
  unsigned long long* sizes;  // of columns
  Index bytes = 0, work_size;
  Parts(const FloatLuShape& s, std::byte* at) {
    const auto take = [&](Index count) {
      std::byte* const here = at ? at + bytes : nullptr;
      bytes += round_up(count, 256);
      return here;
    };
    const auto doubles = [&](Index count) { return reinterpret_cast<double*>(take(8 * count)); };
    const auto indices = [&](Index count) { return reinterpret_cast<Index*>(take(8 * count)); };
    const BufferSizes sizes_of = dense::sizes(Cuda{}, s.n, s.block, s.block, 1);
    work_size = sizes_of.work;
    panel = doubles(sizes_of.panel);
    lu = doubles(2 * s.block * s.block);
    y = doubles(s.block * s.columns());
    work = doubles(work_size);
    summary = doubles(2 + 2 * s.block);
    saved = reinterpret_cast<float*>(take(4 * s.block * s.columns()));
    left = reinterpret_cast<half*>(take(2 * 3 * s.block * round_up(s.n, 8)));
    right = reinterpret_cast<half*>(take(2 * 3 * s.block * s.columns()));
    column_of = indices(s.n);
    numbers = indices(s.n);
    pivots = indices(s.block);
    list = indices(list_size(s.block));
    sizes = reinterpret_cast<unsigned long long*>(take(8 * s.n));
  }
};
Parts parts_of(const FloatLu<Cuda>& lu) { return {lu.shape, lu.work.data}; }

/// Rows and columns from panel k's first on, as FP64's kernels take them.
Rows<Cuda> rows_from(const FloatLu<Cuda>& lu, const Parts& parts, Index k) {
  const Index first = k * lu.shape.block, count = lu.shape.n - first;
  Rows<Cuda> rows;
  rows.slots = count;
  rows.columns = lu.shape.columns();
  rows.ld = lu.shape.ld();
  rows.global_row = {parts.numbers, count};
  rows.column_of = {parts.column_of + first, count};
  return rows;
}
Panel<Cuda> panel_at(const FloatLu<Cuda>& lu, const Parts& parts, Index k) {
  const FloatLuShape& s = lu.shape;
  Panel<Cuda> panel;
  panel.first = k * s.block;
  panel.width = s.width(k);
  panel.block = s.block;
  panel.n = {parts.panel, panel_ld(s.n) * s.block};
  panel.lu = {parts.lu, 2 * s.block * s.block};
  panel.pivots = {parts.pivots, s.block};
  panel.info = lu.info;
  panel.summary = {parts.summary, 2 + 2 * s.block};
  return panel;
}

// --- from FP64
// -------------------------------------------------------------------------------------

/// -e of x = f 2^e, 1/2 <= f < 1: what brings x below one. 0 where there is none.
__device__ int power_for(double x) {
  return x > 0 && x <= 0x1.fffffffffffffp1023 ? max(-1000, min(1000, -1 - ilogb(x))) : 0;
}
__device__ double power_of_two(int e) { return __hiloint2double((e + 1023) << 20, 0); }

/// One block a row.
__global__ void row_powers_kernel(Index n, const double* a, Index lda, int* powers) {
  __shared__ double of_warps[8];
  double most = 0;
  for (Index j = threadIdx.x; j < n; j += blockDim.x)
    most = fmax(most, fabs(a[Index(blockIdx.x) * lda + j]));
  for (int d = 16; d > 0; d /= 2) most = fmax(most, __shfl_xor_sync(~0u, most, d));
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = most;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < int(blockDim.x) / 32; ++w) most = fmax(most, of_warps[w]);
  powers[blockIdx.x] = power_for(most);
}

/// sizes[j] = max over these rows of |R a|, as bits: their order is the numbers'.
__global__ void column_sizes_kernel(Index n, Index rows, const double* a, Index lda,
                                    const int* powers, unsigned long long* sizes) {
  const Index j = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  const Index first = Index(blockIdx.y) * rows, end = min(n, first + rows);
  if (j >= n) return;
  double most = 0;
  for (Index i = first; i < end; ++i)
    most = fmax(most, fabs(a[i * lda + j] * power_of_two(powers[i])));
  atomicMax(sizes + j, (unsigned long long)__double_as_longlong(most));
}

__global__ void column_powers_kernel(Index n, const unsigned long long* sizes, int* powers,
                                     Index* column_of, Index* numbers, Index* row, Index block,
                                     Index* pivots, Index* info) {
  const Index j = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  if (j == 0) {
    info[0] = -1;
    info[1] = 0;
  }
  if (j >= n) return;
  powers[j] = power_for(__longlong_as_double((long long)sizes[j]));
  column_of[j] = -1;
  numbers[j] = row[j] = j;
  if (j < block) pivots[j] = j;
}

__global__ void to_floats_kernel(Index n, const double* a, Index lda, const int* row_powers,
                                 const int* column_powers, float* out, Index ld) {
  for (Index i = blockIdx.y; i < n; i += gridDim.y) {
    const double scale = power_of_two(row_powers[i]);
    for (Index j = Index(blockIdx.x) * blockDim.x + threadIdx.x; j < ld;
         j += Index(gridDim.x) * blockDim.x)
      out[i * ld + j] =
          j < n ? float(a[i * lda + j] * scale * power_of_two(column_powers[j])) : 0.0F;
  }
}

/// y[i, :] = a[pivots[i], :], rows of `length`.
__global__ void pivot_rows_kernel(const Index* info, const Index* pivots, Index length,
                                  const float* a, Index ld, double* y) {
  if (info[0] >= 0) return;
  const Index step = Index(gridDim.x) * blockDim.x, i = blockIdx.y;
  const float* const from = a + pivots[i] * ld;
  for (Index j = Index(blockIdx.x) * blockDim.x + threadIdx.x; j < length; j += step)
    y[i * length + j] = double(from[j]);
}

// --- to FP16
// ---------------------------------------------------------------------------------------

struct Halves {
  half high, low;
};
__device__ Halves halves_of(double x) {
  const float v = float(x);
  const half high = __float2half_rn(v);
  return {high, __float2half_rn(v - __half2float(high))};
}

/// left[i, t], 3 width columns: N_h, N_l, N_h of rows below the pivot rows; zero up to ld.
template <class P>
__global__ void left_halves_kernel(Index count, Index width, const P* n, Index ldn, half* left,
                                   Index ld) {
  const Index i = Index(blockIdx.x) * blockDim.x + threadIdx.x, t = blockIdx.y;
  if (i >= ld) return;
  const Halves x = halves_of(i < count ? double(n[i + t * ldn]) * left_scale : 0.0);
  left[i + t * ld] = left[i + (2 * width + t) * ld] = x.high;
  left[i + (width + t) * ld] = x.low;
}

/// right[t, j], 3 width rows: Y_l, Y_h, Y_h.
__global__ void right_halves_kernel(Index width, Index length, const double* y, half* right) {
  const Index t = blockIdx.y, step = Index(gridDim.x) * blockDim.x;
  for (Index j = Index(blockIdx.x) * blockDim.x + threadIdx.x; j < length; j += step) {
    const Halves x = halves_of(y[t * length + j] * double(right_scale));
    right[t * length + j] = x.low;
    right[(width + t) * length + j] = right[(2 * width + t) * length + j] = x.high;
  }
}

}  // namespace

Index float_lu_bytes(Cuda, const FloatLuShape& shape) { return Parts(shape, nullptr).bytes; }

template <>
void load_float_panel(const Stream<Cuda>& stream, const FloatLu<Cuda>& lu, Index k) {
  const FloatLuShape& s = lu.shape;
  const Index first = k * s.block, slots = s.n - first;
  const float* const a = lu.a.data + first * s.ld();
  load_columns(stream, slots, s.width(k), a, s.ld(), first,
               reinterpret_cast<float*>(parts_of(lu).panel), panel_ld(slots));
}

template <>
void begin_float_lu(const Stream<Cuda>& stream, const FloatLu<Cuda>& lu, View<const double, Cuda> a,
                    Index lda) {
  const Index n = lu.shape.n;
  const cudaStream_t on = native(stream);
  if (n == 0) return;
  const Parts parts = parts_of(lu);
  int* const rows = lu.powers.data;
  int* const columns = rows + n;
  row_powers_kernel<<<unsigned(n), 256, 0, on>>>(n, a.data, lda, rows);
  check_launch();
  check(cudaMemsetAsync(parts.sizes, 0, std::size_t(n) * 8, on));
  constexpr Index each = 512;
  column_sizes_kernel<<<dim3(grid_for(n, 256), grid_for(n, each)), 256, 0, on>>>(
      n, each, a.data, lda, rows, parts.sizes);
  check_launch();
  column_powers_kernel<<<grid_for(n, 256), 256, 0, on>>>(n, parts.sizes, columns, parts.column_of,
                                                         parts.numbers, lu.row.data, lu.shape.block,
                                                         parts.pivots, lu.info.data);
  check_launch();
  const Index ld = lu.shape.ld();
  to_floats_kernel<<<dim3(grid_for(ld, 256 * 8), unsigned(std::min<Index>(n, 65535))), 256, 0,
                     on>>>(n, a.data, lda, rows, columns, lu.a.data, ld);
  check_launch();
  load_float_panel(stream, lu, 0);
}

template <>
void factor_float_panel(const Stream<Cuda>& stream, const FloatLu<Cuda>& lu, Index k) {
  const Parts parts = parts_of(lu);
  const Rows<Cuda> rows = rows_from(lu, parts, k);
  const Panel<Cuda> panel = panel_at(lu, parts, k);
  StripOf<float> strip{};
  strip.x = reinterpret_cast<float*>(parts.panel);
  strip.ld = panel_ld(rows.slots);
  strip.slots = rows.slots;
  strip.width = panel.width;
  strip.id = rows.global_row.data;
  strip.column_of = rows.column_of.data;
  strip.first = panel.first;
  strip.lu = parts.lu;
  strip.block = panel.block;
  strip.pivots = parts.pivots;
  strip.info = lu.info.data;
  Work work = cut({parts.work, parts.work_size}, panel.block, 0);
  work.upper = reinterpret_cast<float*>(parts.lu + panel.block * panel.block);
  factor(stream, strip, work);
}

template <>
void share_float_panel(const Stream<Cuda>& stream, const FloatLu<Cuda>& lu, Index k) {
  const Parts parts = parts_of(lu);
  const Rows<Cuda> rows = rows_from(lu, parts, k);
  const Panel<Cuda> panel = panel_at(lu, parts, k);
  const Index first = panel.first, width = panel.width, ld = rows.ld;
  const Index from = std::min(lu.shape.n, first + width), length = rows.columns - from;
  float* const a = lu.a.data + first * ld;
  const View<const Index, Cuda> pivots{parts.pivots, width};
  const View<double, Cuda> y{parts.y, width * length};
  if (length > 0) {
    pivot_rows_kernel<<<dim3(grid_for(length, 256 * 8), unsigned(width)), 256, 0, native(stream)>>>(
        lu.info.data, pivots.data, length, a + from, ld, y.data);
    check_launch();
  }
  solve_lower<Cuda>(stream, panel, length, from, false, y, y);
  Retirement<Cuda> what;
  what.pivots = pivots;
  what.from = from;
  what.y = y;
  what.ids = lu.row.slice(first, rows.slots);
  what.list = {parts.list, list_size(lu.shape.block)};
  what.keep = true;
  const Index count = rows.slots - width, ldh = round_up(count, 8);
  auto* const n = reinterpret_cast<float*>(parts.panel);
  retire_rows_of(stream, rows, a, panel, n, what, parts.saved);
  if (count <= 0 || length <= 0) return;
  left_halves_kernel<<<dim3(grid_for(ldh, 256), unsigned(width)), 256, 0, native(stream)>>>(
      count, width, n + width, panel_ld(rows.slots), parts.left, ldh);
  check_launch();
  right_halves_kernel<<<dim3(grid_for(length, 256 * 4), unsigned(width)), 256, 0, native(stream)>>>(
      width, length, y.data, parts.right);
  check_launch();
}

template <>
void update_floats(const Stream<Cuda>& stream, const FloatLu<Cuda>& lu, Index k, Index c0,
                   Index c1) {
  const FloatLuShape& s = lu.shape;
  const Index width = s.width(k), end = k * s.block + width, count = s.n - end;
  const Index length = s.columns() - end, ldh = round_up(count, 8);
  if (c1 <= c0 || count <= 0) return;
  const Parts parts = parts_of(lu);
  const float minus = -1 / (left_scale * right_scale), one = 1;
  // Row-major A -= N Y is A^T -= Y^T N^T by columns.
  check(cublasGemmEx_64(cublas(stream), CUBLAS_OP_N, CUBLAS_OP_T, c1 - c0, count, 3 * width, &minus,
                        parts.right + (c0 - end), CUDA_R_16F, length, parts.left, CUDA_R_16F, ldh,
                        &one, lu.a.data + end * s.ld() + c0, CUDA_R_32F, s.ld(), CUBLAS_COMPUTE_32F,
                        CUBLAS_GEMM_DEFAULT));
}

template <>
void solve_float_lu(const Stream<Cuda>& stream, const FloatLu<Cuda>& lu, Index right,
                    View<double, Cuda> x) {
  const Parts parts = parts_of(lu);
  const View<double, Cuda> work{parts.work, parts.work_size};
  solve_triangle<true>(stream, lu.shape.n, right, static_cast<const float*>(lu.a.data),
                       lu.shape.ld(), x.data, right, work);
  solve_triangle<false>(stream, lu.shape.n, right, static_cast<const float*>(lu.a.data),
                        lu.shape.ld(), x.data, right, work);
}

}  // namespace terrace::dense
