// Gauss-Jordan elimination on the GPU: pivots and the panel.
// One launch eliminates up to 32 columns with the rows in registers; blocks agree on each pivot
// through flags in L2, about 3 us a column, hidden behind the update; between them products of 32
// columns.
#include "kernels/base/cuda/barriers.cuh"
#include "kernels/dense/cuda/panel.cuh"

namespace terrace::dense {

namespace {

/// A candidate on the board: whoever sees the epoch sees it, and its row.
__device__ void post(double* mine, Bits key, int row, unsigned* flag, unsigned epoch) {
  __stcg(mine, __longlong_as_double((long long)key));
  __stcg(mine + 1, double(row));
  __threadfence();
  device::release_flag(flag, epoch);
}

/// The best candidate of this thread's share of the blocks, once they have posted this epoch.
__device__ __forceinline__ void best_of_blocks(const double* boards, const unsigned* flags,
                                               unsigned epoch, Bits& key, int& row) {
  key = 0;
  row = INT_MAX;
  for (unsigned b = threadIdx.x; b < gridDim.x; b += threads) {
    while (device::acquire_flag(flags + b) < epoch) {
    }
    const double* const other = boards + Index(b) * board_stride;
    const Bits k = Bits(__double_as_longlong(__ldcg(other)));
    const int r = int(__ldcg(other + 1));
    if (better(k, r, key, row)) {
      key = k;
      row = r;
    }
  }
}
/// One thread: column c of the panel has no pivot.
template <class Real>
__device__ __forceinline__ void pass_over(const StripOf<Real>& s, Index c, bool infinite,
                                          Index* pivot_slot) {
  pivot_slot[c] = -1;
  if (s.skip) return;
  s.info[0] = s.offset + c;
  s.info[1] = infinite ? 2 : 1;
}
template <class Real, int W, int R>
__device__ __forceinline__ void store_columns(const Real (&a)[R][W], const StripOf<Real>& s,
                                              int base, Index j0, int count) {
#pragma unroll
  for (int q = 0; q < R; ++q) {
    const int r = base + q * threads;
#pragma unroll
    for (int c = 0; c < W; ++c)
      if (r < s.slots && c < count) s.x[r + (j0 + c) * s.ld] = a[q][c];
  }
}

/// Columns [j0, j0 + count) of the strip, count <= W: partial pivoting, all rows eliminated. Every
/// thread keeps R rows in registers. All blocks must be resident. Column c posts epoch c + 1.
template <class Real, int W, int R>
__global__ void __launch_bounds__(threads, 2)
    pivot_kernel(StripOf<Real> s, Index j0, int count, double* board, unsigned* flags,
                 Index* pivot_slot) {
  __shared__ Bits own_key[threads / 32], all_key[threads / 32];
  __shared__ int own_row[threads / 32], all_row[threads / 32];
  __shared__ Real p[W];
  if (s.info[0] >= 0) return;
  const int base = int(blockIdx.x) * R * threads + int(threadIdx.x);
  Real a[R][W];
  bool open[R], frozen[R];
#pragma unroll
  for (int q = 0; q < R; ++q) {
    const int r = base + q * threads;
    open[q] = r < s.slots && s.column_of[r] == -1;
    frozen[q] = false;
#pragma unroll
    for (int c = 0; c < W; ++c)
      a[q][c] = r < s.slots && c < count ? s.x[r + (j0 + c) * s.ld] : Real(0);
  }
  bool stop = false;
#pragma unroll
  for (int j = 0; j < W; ++j) {
    if (j >= count || stop) continue;
    const unsigned epoch = unsigned(j0) + unsigned(j) + 1;
    double* const boards = board + (epoch & 1) * Index(most_blocks) * board_stride;
    // The block's best row.
    Bits key = 0;
    int row = INT_MAX;
#pragma unroll
    for (int q = 0; q < R; ++q)
      if (open[q] && key_of(a[q][j]) > key) {
        key = key_of(a[q][j]);
        row = base + q * threads;
      }
    block_best(key, row, own_key, own_row);
    double* const mine = boards + Index(blockIdx.x) * board_stride;
    bool posting = key == 0 && threadIdx.x == 0;
#pragma unroll
    for (int q = 0; q < R; ++q)
      if (key != 0 && row == base + q * threads) {
        posting = true;
#pragma unroll
        for (int c = 0; c < W; ++c) __stcg(mine + 2 + c, double(a[q][c]));
      }
    if (posting) post(mine, key, row, flags + blockIdx.x, epoch);
    // The best of all blocks.
    best_of_blocks(boards, flags, epoch, key, row);
    block_best(key, row, all_key, all_row);
    const double size = key == 0 ? 0.0 : value_of(key);
    const bool usable = size > 0 && size < INFINITY;
    if (usable && threadIdx.x < W)
      p[threadIdx.x] =
          Real(__ldcg(boards + Index(row / (R * threads)) * board_stride + 2 + threadIdx.x));
    __syncthreads();
    if (!usable) {
      if (blockIdx.x == 0 && threadIdx.x == 0) pass_over(s, j0 + j, size > 0, pivot_slot);
      stop = !s.skip;
    }
#pragma unroll
    for (int q = 0; q < R; ++q) {
      const int r = base + q * threads;
      if (key != 0 && r == row && (usable || (s.skip && size > 0))) {
        open[q] = false;
        s.column_of[r] = s.first + j0 + j;
        if (usable) {
          frozen[q] = true;
          s.pivots[j0 + j] = s.id[r];
          pivot_slot[j0 + j] = r;
        }
      }
      if (usable && !frozen[q]) {
        const Real l = a[q][j] / p[j];
        a[q][j] = l;
#pragma unroll
        for (int c = j + 1; c < W; ++c) a[q][c] -= l * p[c];
      }
    }
  }
  store_columns(a, s, base, j0, count);
}

/// Rows [j0, j0 + count) of LU: taken from the pivot rows in the strip when pivot_slot is given;
/// right of the block U := L^-1 U. One thread a column.
template <class Real>
__global__ void finish_block_kernel(StripOf<Real> s, Index j0, int count, const Index* pivot_slot) {
  __shared__ double l[widest][widest + 1];
  __shared__ Index slot[widest];
  if (s.info[0] >= 0) return;
  if (pivot_slot && int(threadIdx.x) < count) slot[threadIdx.x] = pivot_slot[j0 + threadIdx.x];
  __syncthreads();
  const auto raw = [&](int t, Index c) {
    if (!pivot_slot) return s.lu[(j0 + t) * s.block + c];
    if (slot[t] < 0) return c == j0 + t ? 1.0 : 0.0;
    return double(s.x[slot[t] + c * s.ld]);
  };
  for (int e = threadIdx.x; e < count * count; e += blockDim.x)
    l[e / count][e % count] = raw(e / count, j0 + e % count);
  __syncthreads();
  const Index c = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  if (c >= s.width) return;
  if (c < j0 + count) {
    if (pivot_slot)
      for (int t = 0; t < count; ++t) s.lu[(j0 + t) * s.block + c] = raw(t, c);
    return;
  }
  double v[widest];
#pragma unroll
  for (int t = 0; t < widest; ++t) v[t] = t < count ? raw(t, c) : 0.0;
#pragma unroll
  for (int t = 0; t < widest; ++t) {
    if (t >= count) break;
#pragma unroll
    for (int u = 0; u < widest; ++u)
      if (u < t) v[t] -= l[t][u] * v[u];
    s.lu[(j0 + t) * s.block + c] = v[t];
  }
}

/// out[t, c] = u[t, c], rows of `columns`.
__global__ void round_kernel(Index columns, const double* u, Index ld, float* out) {
  for (Index c = threadIdx.x; c < columns; c += blockDim.x)
    out[Index(blockIdx.x) * columns + c] = float(u[Index(blockIdx.x) * ld + c]);
}

/// Columns [to, to + columns) of the strip -= its columns [from, from + count) times u, row-major.
void subtract_right(const Stream<Cuda>& stream, const Strip& s, Index from, Index count, Index to,
                    Index columns, const double* u, float*) {
  const double minus = -1, one = 1;
  check(cublasDgemm_64(cublas(stream), CUBLAS_OP_N, CUBLAS_OP_T, s.slots, columns, count, &minus,
                       s.x + from * s.ld, s.ld, u, s.block, &one, s.x + to * s.ld, s.ld));
}
void subtract_right(const Stream<Cuda>& stream, const StripOf<float>& s, Index from, Index count,
                    Index to, Index columns, const double* u, float* upper) {
  round_kernel<<<unsigned(count), 256, 0, native(stream)>>>(columns, u, s.block, upper);
  check_launch();
  const float minus = -1, one = 1;
  check(cublasSgemm_64(cublas(stream), CUBLAS_OP_N, CUBLAS_OP_T, s.slots, columns, count, &minus,
                       s.x + from * s.ld, s.ld, upper, columns, &one, s.x + to * s.ld, s.ld));
}

}  // namespace

template <class Real>
void finish_block(const Stream<Cuda>& stream, const StripOf<Real>& s, Index j0, Index count,
                  const Index* pivot_slot, float* upper) {
  finish_block_kernel<<<grid_for(s.width, 128), 128, 0, native(stream)>>>(s, j0, int(count),
                                                                          pivot_slot);
  check_launch();
  const Index rest = s.width - j0 - count;
  if (rest == 0 || s.slots == 0) return;
  subtract_right(stream, s, j0, count, j0 + count, rest, s.lu + j0 * s.block + j0 + count, upper);
}
template void finish_block(const Stream<Cuda>&, const Strip&, Index, Index, const Index*, float*);

namespace {

/// Blocks of a kernel that are resident together.
template <class Kernel>
Index resident_blocks(Kernel kernel) {
  int device = 0, processors = 0, each = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, threads, 0));
  return std::min<Index>(most_blocks, Index(each) * processors);
}

/// True when R rows a thread are enough; then the strip is factored.
template <int W, int R, class Real>
bool factor_with(const Stream<Cuda>& stream, StripOf<Real> s, const Work& w, Index* pivot_slot) {
  static OncePerDevice<Index> once;
  const Index resident = once([] { return resident_blocks(pivot_kernel<Real, W, R>); });
  const Index blocks = ceil_div(s.slots, Index(threads) * R);
  if (blocks > resident) return false;
  check(cudaMemsetAsync(w.flags, 0, most_blocks * sizeof(unsigned), native(stream)));
  double* board = w.board;
  unsigned* flags = w.flags;
  for (Index j0 = 0; j0 < s.width; j0 += W) {
    int count = int(std::min<Index>(W, s.width - j0));
    void* arguments[] = {&s, &j0, &count, &board, &flags, &pivot_slot};
    check(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(pivot_kernel<Real, W, R>),
                                      dim3(unsigned(blocks)), dim3(threads), arguments, 0,
                                      native(stream)));
    finish_block(stream, s, j0, count, pivot_slot, w.upper);
  }
  if constexpr (std::is_same_v<Real, double>) set_pivot_rows(stream, s, w.inverse, inner);
  return true;
}

/// lu[t, 0 ... columns) := x[slot[t], 0 ... columns), which becomes zero.
template <class Real>
__global__ void move_lower_kernel(const Index* info, const Index* slot, Index columns, Real* x,
                                  Index ld, double* lu, Index ld_lu) {
  const Index r = slot[blockIdx.x];
  if (info[0] >= 0 || r < 0) return;
  for (Index c = threadIdx.x; c < columns; c += blockDim.x) {
    lu[Index(blockIdx.x) * ld_lu + c] = x[r + c * ld];
    x[r + c * ld] = 0;
  }
}

}  // namespace

namespace {

/// Columns [j0, j0 + width) of the strip have been factored: the same for [j0 + width, end).
template <class Real>
void update_right(const Stream<Cuda>& stream, const StripOf<Real>& s, Index j0, Index width,
                  Index end, const Index* slot, float* upper) {
  const Index j1 = j0 + width;
  if (end <= j1) return;
  const double* const lu = s.lu + j0 * (s.block + 1);
  double* const u = s.lu + j0 * s.block + j1;
  const PivotRowsOf<Real> rows{s.x + j1 * s.ld, 1, s.ld, slot + j0};
  solve_rows(stream, width, lu, s.block, rows, end - j1, u, s.block, s.info);
  subtract_right(stream, s, j0, width, j1, end - j1, u, upper);
}

/// Columns of one launch: its update right of them goes through the L2 cache of one cluster, and
/// grows with the bytes of the rows.
Index leaf_columns(Index slots, Index bytes) {
  slots = slots * bytes / 8;
  return slots <= 4096 ? 128 : slots <= 16384 ? 64 : 32;
}

}  // namespace

template <class Real>
void factor(const Stream<Cuda>& stream, const StripOf<Real>& s, const Work& w) {
  if (s.slots == 0) return;
  for (Index g0 = 0; g0 < s.width; g0 += inner) {
    const Index g1 = std::min(s.width, g0 + inner);
    for (Index j0 = g0; j0 < g1;) {
      StripOf<Real> t = s;
      Index* const slot = w.pivot_slot + j0;
      t.width = std::min(leaf_columns(s.slots, sizeof(Real)), g1 - j0);
      t.x += j0 * s.ld;
      t.lu += j0 * (s.block + 1);
      t.first += j0;
      t.pivots += j0;
      t.offset += j0;
      if (!factor_in_cluster(stream, t, slot, w.inverse)) {
        t.width = g1 - j0;
        if (!factor_with<32, 1>(stream, t, w, slot) && !factor_with<16, 2>(stream, t, w, slot) &&
            !factor_with<8, 4>(stream, t, w, slot))
          throw Error(Exit::resources,
                      "too many rows on one GPU for its panel kernel; use more ranks");
      }
      if (j0 > 0) {
        move_lower_kernel<<<unsigned(t.width), 128, 0, native(stream)>>>(
            s.info, slot, j0, s.x, s.ld, s.lu + j0 * s.block, s.block);
        check_launch();
      }
      update_right(stream, s, j0, t.width, g1, w.pivot_slot, w.upper);
      j0 += t.width;
    }
    update_right(stream, s, g0, g1 - g0, s.width, w.pivot_slot, w.upper);
  }
}
template void factor(const Stream<Cuda>&, const Strip&, const Work&);
template void factor(const Stream<Cuda>&, const StripOf<float>&, const Work&);

template <>
void factor_panel(const Stream<Cuda>& stream, const Rows<Cuda>& rows, const Panel<Cuda>& panel,
                  View<double, Cuda> work) {
  factor(stream, strip_of(rows, panel, false), cut(work, panel.block, 0));
}

}  // namespace terrace::dense
