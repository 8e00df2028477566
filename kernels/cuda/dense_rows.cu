// Gauss-Jordan elimination on the GPU: pivot rows become L^-1 times themselves.
// One launch for up to 128 rows: gathered, zeroed where they stood, and solved with in slabs of 32
// columns, blocks of 32 rows of L inverted by every thread block for itself. 2 b length doubles
// moved, b^2 length flops on the tensor cores. Wider panels: products between such launches.
#include "kernels/cuda/dense_panel.cuh"
#include "kernels/cuda/dmma.cuh"

namespace terrace::dense {

namespace {

constexpr int side = 32;   // of a block of L, and columns of a slab
constexpr int most = 128;  // rows of one launch
constexpr int row_threads = 256;
constexpr int ld_x = side + 4, ld_l = side + 4;
constexpr int shared_doubles = most * ld_x + most / side * side * ld_l * 2;

/// Columns [column, column + width) of all `slots` rows of `a`: to be zeroed.
struct Strike {
  double* a = nullptr;
  Index lda = 0, slots = 0, column = 0, width = 0;
};

__global__ void __launch_bounds__(row_threads)
    lower_solve_kernel(int b, const double* lu, Index ld_lu, PivotRows in, Index length,
                       Index identity, double* out, Index ld_out, Strike strike,
                       const Index* info) {
  if (info && info[0] >= 0) return;
  extern __shared__ double memory[];
  double* const x = memory;                                // most x ld_x
  double* const inverse = x + most * ld_x;                 // blocks: column k at k * ld_l
  double* const l = inverse + most / side * side * ld_l;  // blocks, row-major
  const int tid = int(threadIdx.x), warp = tid / 32, lane = tid % 32;
  const Index c0 = Index(blockIdx.x) * side;
  const int blocks = (b + side - 1) / side;
  for (int e = tid; e < blocks * side * side; e += row_threads) {
    const int k = e / (side * side), r = e / side % side, c = e % side, row = k * side + r;
    l[(k * side + r) * ld_l + c] =
        c < r && row < b ? lu[Index(row) * ld_lu + k * side + c] : 0.0;
  }
  for (int e = tid; e < blocks * side * side; e += row_threads) {
    // Neighbouring threads read neighbouring elements of the input.
    const int t = in.step == 1 ? e / side : e % (blocks * side);
    const int c = in.step == 1 ? e % side : e / (blocks * side);
    double v = 0;
    if (t < b && c0 + c < length) {
      const Index slot = in.list ? in.list[t] : t;
      if (slot >= 0) {
        double* const from = in.data + slot * in.ld + (c0 + c) * in.step;
        v = *from;
        if (in.list) *from = 0;
      }
      const Index at = c0 + c - identity;
      if (identity >= 0 && at >= 0 && at < b) v = at == t ? 1.0 : 0.0;
    }
    x[t * ld_x + c] = v;
  }
  __syncthreads();
  if (tid < blocks * side) {
    const int k = tid / side, c = tid % side;
    const double* const block = l + k * side * ld_l;
    double v[side];
#pragma unroll
    for (int r = 0; r < side; ++r) v[r] = r == c ? 1.0 : 0.0;
#pragma unroll
    for (int i = 0; i < side - 1; ++i)
#pragma unroll
      for (int r = 0; r < side; ++r)
        if (r > i) v[r] = fma(-block[r * ld_l + i], v[i], v[r]);
#pragma unroll
    for (int r = 0; r < side; ++r) inverse[(k * side + c) * ld_l + r] = v[r];
  }
  const int m = warp / 4 * 16, n = warp % 4 * 8, g = lane / 4, t = lane % 4;
  for (int k = 0; k < blocks; ++k) {
    // x[k] -= L[k, 0 ... k) x[0 ... k), then x[k] := inverse x[k].
    double v[4];
    double* const mine = x + (k * side + m) * ld_x + n;
#pragma unroll
    for (int e = 0; e < 4; ++e) v[e] = mine[(g + 8 * (e / 2)) * ld_x + 2 * t + (e & 1)];
    const int row = k * side + m + g;
    for (int i = 0; i < k * side; i += 16) {
      double a[8], w[4];
#pragma unroll
      for (int q = 0; q < 4; ++q)
#pragma unroll
        for (int h = 0; h < 2; ++h)
          a[2 * q + h] =
              row + 8 * h < b ? -lu[Index(row + 8 * h) * ld_lu + i + 4 * q + t] : 0.0;
      device::load_b(w, x + i * ld_x, ld_x, n, lane);
      device::dmma(v, a, w);
    }
    if (k > 0) {
#pragma unroll
      for (int e = 0; e < 4; ++e) mine[(g + 8 * (e / 2)) * ld_x + 2 * t + (e & 1)] = v[e];
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < 4; ++e) v[e] = 0;
#pragma unroll
    for (int i = 0; i < side; i += 16) {
      double a[8], w[4];
      device::load_negated_a(a, inverse + (k * side + i) * ld_l, ld_l, m, lane);
      device::load_b(w, x + (k * side + i) * ld_x, ld_x, n, lane);
      device::dmma(v, a, w);
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < 4; ++e) mine[(g + 8 * (e / 2)) * ld_x + 2 * t + (e & 1)] = -v[e];
    __syncthreads();
  }
  for (int e = tid; e < b * side; e += row_threads) {
    const int r = e / side, c = e % side;
    if (c0 + c < length) out[r * ld_out + c0 + c] = x[r * ld_x + c];
  }
  for (Index s = Index(blockIdx.x) * (row_threads / 32) + warp; s < strike.slots;
       s += Index(gridDim.x) * (row_threads / 32))
    for (Index c = lane; c < strike.width; c += 32)
      strike.a[s * strike.lda + strike.column + c] = 0;
}

void launch_lower_solve(const Stream<Cuda>& stream, Index b, const double* lu, Index ld_lu,
                        const PivotRows& in, Index length, Index identity, double* out,
                        Index ld_out, const Strike& strike, const Index* info) {
  static const bool ready = [] {
    check(cudaFuncSetAttribute(lower_solve_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               shared_doubles * 8));
    return true;
  }();
  (void)ready;
  lower_solve_kernel<<<grid_for(length, side), row_threads, shared_doubles * 8, native(stream)>>>(
      int(b), lu, ld_lu, in, length, identity, out, ld_out, strike, info);
  check_launch();
}

__global__ void identity_columns_kernel(Index width, Index length, Index at, double* p) {
  const Index e = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  if (e < width * width)
    p[e / width * length + at + e % width] = e / width == e % width ? 1.0 : 0.0;
}

}  // namespace

void solve_rows(const Stream<Cuda>& stream, Index b, const double* lu, Index ld_lu,
                const PivotRows& in, Index length, double* out, Index ld_out, const Index* info) {
  if (length > 0) launch_lower_solve(stream, b, lu, ld_lu, in, length, -1, out, ld_out, {}, info);
}

template <>
void solve_lower(const Stream<Cuda>& stream, const Panel<Cuda>& panel, Index length, Index from,
                 bool inverse, View<double, Cuda> p) {
  const Index b = panel.width, ld = panel.block;
  if (length == 0) return;
  const double* const lu = panel.lu.data;
  const double minus = -1, one = 1;
  if (inverse) {
    identity_columns_kernel<<<grid_for(b * b, 256), 256, 0, native(stream)>>>(
        b, length, panel.first - from, p.data);
    check_launch();
  }
  for (Index j = 0; j < b; j += most) {
    const Index width = std::min<Index>(most, b - j);
    double* const y = p.data + j * length;
    if (j > 0)  // row-major Y_j -= L_j Y: column-major Y_j^T -= Y^T L_j^T
      check(cublasDgemm_64(cublas(stream), CUBLAS_OP_N, CUBLAS_OP_N, length, width, j, &minus,
                           p.data, length, lu + j * ld, ld, &one, y, length));
    launch_lower_solve(stream, width, lu + j * ld + j, ld, {y, length, 1, nullptr}, length, -1, y,
                       length, {}, nullptr);
  }
}

template <>
void take_rows(const Stream<Cuda>& stream, const Rows<Cuda>& rows, const Panel<Cuda>& panel,
               Index from, bool inverse, View<double, Cuda> y) {
  const Index length = rows.columns - from;
  const View<const Index, Cuda> list = panel.pivots.slice(0, panel.width);
  if (panel.width > most) {
    collect_rows(stream, rows, list, from, y);
    begin_update(stream, rows, panel, from, inverse);
    solve_lower(stream, panel, length, from, inverse, y);
    return;
  }
  if (length == 0) return;
  Strike strike;
  if (inverse) strike = {rows.a.data, rows.ld, rows.slots, panel.first, panel.width};
  launch_lower_solve(stream, panel.width, panel.lu.data, panel.block,
                     {rows.a.data + from, rows.ld, 1, list.data}, length,
                     inverse ? panel.first - from : -1, y.data, length, strike,
                     panel.info.data);
}

}  // namespace terrace::dense
