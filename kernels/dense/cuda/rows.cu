// Gauss-Jordan elimination on the GPU: pivot rows become L^-1 times themselves.
// One launch for up to 128 rows: gathered, zeroed where they stood, and solved with in slabs of 32
// columns, blocks of 32 rows of L inverted by every thread block for itself. 2 b length doubles
// moved, b^2 length flops on the tensor cores. Wider panels: products between such launches.
#include "kernels/base/cuda/dmma.cuh"
#include "kernels/dense/cuda/panel.cuh"

namespace terrace::dense {

namespace {

constexpr int side = 32;   // of a block of L, and columns of a slab
constexpr int most = 128;  // rows of one launch
constexpr int row_threads = 256, row_warps = row_threads / 32;
constexpr int ld_x = side + 4;  // % 16 = 4 keeps the banks apart
constexpr int block_size = side * ld_x;
constexpr int most_blocks_l = most / side * (most / side + 1) / 2;
constexpr int shared_doubles = (most / side * 2 + most_blocks_l) * block_size + most;

/// Columns [column, column + width) of all `slots` rows of `a`: to be zeroed.
struct Strike {
  double* a = nullptr;
  Index lda = 0, slots = 0, column = 0, width = 0;
};

/// Block (row block k, column block i <= k) of L, row-major.
__device__ int block_of(int k, int i) { return (k * (k + 1) / 2 + i) * block_size; }

/// inverse (column c at c * ld_x) := inverse of a unit lower block of 32 at l. One warp.
__device__ void invert_block(const double* l, double* inverse, int lane) {
  const int half = lane / 16 * 16, g = lane / 4, t = lane % 4;
  double v[16];
#pragma unroll
  for (int r = 0; r < 16; ++r) v[r] = r == lane % 16 ? 1.0 : 0.0;
#pragma unroll
  for (int i = 0; i < 15; ++i)
#pragma unroll
    for (int r = i + 1; r < 16; ++r) v[r] = fma(-l[(half + r) * ld_x + half + i], v[i], v[r]);
#pragma unroll
  for (int r = 0; r < 16; ++r) inverse[lane * ld_x + half + r] = v[r];
  __syncwarp();
  // Below the diagonal: -inverse[1] (L21 inverse[0]); the part above it holds the product.
  double a[8], b[4];
#pragma unroll
  for (int q = 0; q < 4; ++q)
#pragma unroll
    for (int h = 0; h < 2; ++h) a[2 * q + h] = l[(16 + g + 8 * h) * ld_x + 4 * q + t];
#pragma unroll
  for (int n = 0; n < 16; n += 8) {
    double c[4] = {0, 0, 0, 0};
#pragma unroll
    for (int q = 0; q < 4; ++q) b[q] = inverse[(n + g) * ld_x + 4 * q + t];
    device::dmma(c, a, b);
#pragma unroll
    for (int e = 0; e < 4; ++e) inverse[(16 + n + 2 * t + (e & 1)) * ld_x + g + 8 * (e / 2)] = c[e];
  }
  __syncwarp();
  device::load_negated_a(a, inverse + 16 * ld_x, ld_x, 16, lane);
  double out[2][4] = {};
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int q = 0; q < 4; ++q) b[q] = inverse[(16 + 8 * n + g) * ld_x + 4 * q + t];
    device::dmma(out[n], a, b);
  }
  __syncwarp();
#pragma unroll
  for (int n = 0; n < 2; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int column = 8 * n + 2 * t + (e & 1), row = g + 8 * (e / 2);
      inverse[column * ld_x + 16 + row] = out[n][e];
      inverse[(16 + column) * ld_x + row] = 0;
    }
}

/// L, unit lower, to its blocks: a warp loads a row of all its blocks.
__device__ __forceinline__ void load_factor(double* l, int b, const double* lu, Index ld_lu,
                                            int blocks, int warp, int lane) {
  for (int r = warp; r < blocks * side; r += row_warps * 4) {
    double v[4][most / side];
#pragma unroll
    for (int q = 0; q < 4; ++q)
#pragma unroll
      for (int i = 0; i < most / side; ++i) {
        const int row = r + q * row_warps, c = i * side + lane;
        v[q][i] = c < row && row < b ? lu[Index(row) * ld_lu + c] : 0.0;
      }
#pragma unroll
    for (int q = 0; q < 4; ++q)
#pragma unroll
      for (int i = 0; i < most / side; ++i) {
        const int row = r + q * row_warps;
        if (row < blocks * side && i <= row / side)
          l[block_of(row / side, i) + row % side * ld_x + lane] = v[q][i];
      }
  }
}

/// x[k] -= L[k, 0 ... k) x[0 ... k), then x[k] := inverse x[k]. A warp has 16 x 8 of a block.
__device__ __forceinline__ void solve_block(double* x, const double* l, const double* inverse,
                                            int k, int warp, int lane) {
  const int m = warp / 4 * 16, n = warp % 4 * 8, g = lane / 4, t = lane % 4;
  double* const mine = x + (k * side + m) * ld_x + n;
  double w[4], a[8], part[4];
  if (k > 0) {
#pragma unroll
    for (int e = 0; e < 4; ++e) w[e] = mine[(g + 8 * (e / 2)) * ld_x + 2 * t + (e & 1)];
    for (int i = 0; i < k * side; i += 16) {
      const double* const block = l + block_of(k, i / side) + m * ld_x + i % side;
#pragma unroll
      for (int q = 0; q < 4; ++q)
#pragma unroll
        for (int h = 0; h < 2; ++h) a[2 * q + h] = -block[(g + 8 * h) * ld_x + 4 * q + t];
      device::load_b(part, x + i * ld_x, ld_x, n, lane);
      device::dmma(w, a, part);
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) mine[(g + 8 * (e / 2)) * ld_x + 2 * t + (e & 1)] = w[e];
    __syncthreads();
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) w[e] = 0;
#pragma unroll
  for (int i = 0; i < side; i += 16) {
    device::load_negated_a(a, inverse + k * block_size + i * ld_x, ld_x, m, lane);
    device::load_b(part, x + (k * side + i) * ld_x, ld_x, n, lane);
    device::dmma(w, a, part);
  }
  __syncthreads();
#pragma unroll
  for (int e = 0; e < 4; ++e) mine[(g + 8 * (e / 2)) * ld_x + 2 * t + (e & 1)] = -w[e];
  __syncthreads();
}

template <class Real>
__global__ void __launch_bounds__(row_threads)
    lower_solve_kernel(int b, const double* lu, Index ld_lu, PivotRowsOf<Real> in, Index length,
                       Index identity, double* out, Index ld_out, Strike strike,
                       const Index* info) {
  extern __shared__ double memory[];
  if (info && info[0] >= 0) return;
  double* const x = memory;                              // most x ld_x
  double* const inverse = x + most / side * block_size;  // blocks
  double* const l = inverse + most / side * block_size;  // blocks
  Index* const slot_of = reinterpret_cast<Index*>(l + most_blocks_l * block_size);
  const int tid = int(threadIdx.x), warp = tid / 32, lane = tid % 32;
  const Index c0 = Index(blockIdx.x) * side;
  const int blocks = (b + side - 1) / side;
  if (tid < most) slot_of[tid] = tid < b ? (in.list ? in.list[tid] : tid) : -1;
  load_factor(l, b, lu, ld_lu, blocks, warp, lane);
  __syncthreads();
  double v[most / row_warps];  // neighbouring threads read neighbouring elements
#pragma unroll
  for (int i = 0; i < most / row_warps; ++i) {
    const int t = in.step == 1 ? warp + i * row_warps : i / 4 * 32 + lane;
    const int c = in.step == 1 ? lane : warp + i % 4 * row_warps;
    const Index slot = slot_of[t];
    v[i] = slot >= 0 && c0 + c < length ? double(in.data[slot * in.ld + (c0 + c) * in.step]) : 0.0;
  }
  if (warp < blocks) invert_block(l + block_of(warp, warp), inverse + warp * block_size, lane);
#pragma unroll
  for (int i = 0; i < most / row_warps; ++i) {
    const int t = in.step == 1 ? warp + i * row_warps : i / 4 * 32 + lane;
    const int c = in.step == 1 ? lane : warp + i % 4 * row_warps;
    if (in.list && slot_of[t] >= 0 && c0 + c < length)
      in.data[slot_of[t] * in.ld + (c0 + c) * in.step] = 0;
    const Index at = c0 + c - identity;
    if (identity >= 0 && at >= 0 && at < b) v[i] = at == t ? 1.0 : 0.0;
    x[t * ld_x + c] = v[i];
  }
  __syncthreads();
  for (int k = 0; k < blocks; ++k) solve_block(x, l, inverse, k, warp, lane);
  for (int r = warp; r < b; r += row_warps)
    if (c0 + lane < length) out[r * ld_out + c0 + lane] = x[r * ld_x + lane];
  for (Index s = Index(blockIdx.x) * row_warps + warp; s < strike.slots;
       s += Index(gridDim.x) * row_warps)
    for (Index c = lane; c < strike.width; c += 32)
      strike.a[s * strike.lda + strike.column + c] = 0;
}

template <class Real>
void launch_lower_solve(const Stream<Cuda>& stream, Index b, const double* lu, Index ld_lu,
                        const PivotRowsOf<Real>& in, Index length, Index identity, double* out,
                        Index ld_out, const Strike& strike, const Index* info) {
  static OncePerDevice<bool> once;
  (void)once([] { return allow_shared(lower_solve_kernel<Real>, shared_doubles * 8); });
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

template <class Real>
void solve_rows(const Stream<Cuda>& stream, Index b, const double* lu, Index ld_lu,
                const PivotRowsOf<Real>& in, Index length, double* out, Index ld_out,
                const Index* info) {
  if (length > 0) launch_lower_solve(stream, b, lu, ld_lu, in, length, -1, out, ld_out, {}, info);
}
template void solve_rows(const Stream<Cuda>&, Index, const double*, Index, const PivotRows&, Index,
                         double*, Index, const Index*);
template void solve_rows(const Stream<Cuda>&, Index, const double*, Index,
                         const PivotRowsOf<float>&, Index, double*, Index, const Index*);

template <>
void solve_lower(const Stream<Cuda>& stream, const Panel<Cuda>& panel, Index length, Index from,
                 bool inverse, View<double, Cuda> p, View<double, Cuda>) {
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
    launch_lower_solve(stream, width, lu + j * ld + j, ld, PivotRows{y, length, 1, nullptr}, length,
                       -1, y, length, {}, nullptr);
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
    solve_lower(stream, panel, length, from, inverse, y, y);
    return;
  }
  if (length == 0) return;
  Strike strike;
  if (inverse) strike = {rows.a.data, rows.ld, rows.slots, panel.first, panel.width};
  launch_lower_solve(stream, panel.width, panel.lu.data, panel.block,
                     PivotRows{rows.a.data + from, rows.ld, 1, list.data}, length,
                     inverse ? panel.first - from : -1, y.data, length, strike, panel.info.data);
}

}  // namespace terrace::dense
