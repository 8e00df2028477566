// Gaussian elimination on the GPU: pivot rows come to rest at the top.
// A panel moves its pivot rows once and as many rows at most that make room: 32 b (columns - from)
// bytes, bound by HBM.
#include <algorithm>

#include "kernels/dense/cuda/dense.cuh"
#include "kernels/dense/lu.hpp"

namespace terrace::dense {

namespace {

constexpr int pairing_threads = 1024;

/// The parts of retire_rows()'s list, `count` pivot rows.
struct List {
  Index count;
  Index *place, *from, *to, *pivot_id, *moved_id;
  double *pivot_size, *moved_size;
  Index* moves;
};
List cut_list(View<Index, Cuda> list, Index count) {
  Index* const p = list.data;
  double* const sizes = reinterpret_cast<double*>(p + 5 * count);
  return {count,         p,     p + count,     p + 2 * count, p + 3 * count,
          p + 4 * count, sizes, sizes + count, p + 7 * count};
}

/// Number of threads before this one with `flag`; `total` of all. One block; ends with a barrier.
__device__ int rank_among(bool flag, int* of_warps, int& total) {
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const unsigned mask = __ballot_sync(~0u, flag);
  if (lane == 0) of_warps[warp] = __popc(mask);
  __syncthreads();
  int before = 0;
  total = 0;
  for (int w = 0; w < pairing_threads / 32; ++w) {
    if (w < warp) before += of_warps[w];
    total += of_warps[w];
  }
  __syncthreads();
  return before + __popc(mask & ((1u << lane) - 1));
}

/// moves_of(), and what goes with the rows: column_of, ids, the summary. One block.
__global__ void __launch_bounds__(pairing_threads)
    pair_kernel(Panel<Cuda> panel, const Index* pivots, Index top, Index* column_of, Index* ids,
                double* sizes, List list) {
  __shared__ int of_warps[pairing_threads / 32];
  if (panel.info.data[0] >= 0) {
    if (threadIdx.x == 0) *list.moves = 0;
    return;
  }
  Index froms = 0, tos = 0;
  for (Index i0 = 0; i0 < list.count; i0 += pairing_threads) {
    const Index i = i0 + threadIdx.x;
    const bool mine = i < list.count;
    const Index p = mine ? pivots[i] : 0;
    const bool in_the_way = mine && place_in(column_of[top + i], panel.first, panel.width) < 0;
    const bool down = mine && p >= top + list.count;
    int total = 0;
    const Index f = froms + rank_among(in_the_way, of_warps, total);
    froms += total;
    const Index t = tos + rank_among(down, of_warps, total);
    tos += total;
    if (mine) {
      list.place[i] = column_of[p] - panel.first;
      list.pivot_id[i] = ids[p];
      if (sizes) list.pivot_size[i] = sizes[p];
    }
    if (in_the_way) {
      list.from[f] = top + i;
      list.moved_id[f] = ids[top + i];
      if (sizes) list.moved_size[f] = sizes[top + i];
    }
    if (down) list.to[t] = p;
  }
  __syncthreads();
  for (Index m = threadIdx.x; m < froms; m += pairing_threads) {
    column_of[list.to[m]] = -1;
    ids[list.to[m]] = list.moved_id[m];
    if (sizes) sizes[list.to[m]] = list.moved_size[m];
  }
  for (Index i = threadIdx.x; i < list.count; i += pairing_threads) {
    column_of[top + i] = panel.first + list.place[i];
    ids[top + i] = list.pivot_id[i];
    if (sizes) sizes[top + i] = list.pivot_size[i];
    panel.summary.data[2 + list.place[i]] = double(list.pivot_id[i]);
  }
  if (threadIdx.x == 0) *list.moves = froms;
}

/// a[to[m], left ...) = a[from[m], left ...).
template <class T>
__global__ void move_rows_kernel(List list, T* a, Index lda, Index left, Index columns) {
  const Index moves = *list.moves, step = Index(gridDim.x) * blockDim.x;
  for (Index m = blockIdx.y; m < moves; m += gridDim.y) {
    T* const to = a + list.to[m] * lda;
    const T* const from = a + list.from[m] * lda;
    for (Index j = left + Index(blockIdx.x) * blockDim.x + threadIdx.x; j < columns; j += step)
      to[j] = from[j];
  }
}

/// The same of N, by columns.
template <class P>
__global__ void move_panel_kernel(List list, Index width, P* n, Index ld) {
  const Index moves = *list.moves;
  const Index m = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  if (m >= moves) return;
  const Index to = list.to[m], from = list.from[m];
  for (Index c = blockIdx.y; c < width; c += gridDim.y) n[to + c * ld] = n[from + c * ld];
}

/// saved[i, 0 ... first) = a[pivots[i], 0 ... first).
template <class T>
__global__ void save_kernel(Panel<Cuda> panel, const Index* pivots, const T* a, Index lda,
                            Index first, T* saved, Index ld) {
  if (panel.info.data[0] >= 0) return;
  for (Index j = threadIdx.x; j < first; j += blockDim.x)
    saved[Index(blockIdx.x) * ld + j] = a[pivots[blockIdx.x] * lda + j];
}

/// Rows top ... of A: `saved` (or nothing), LU, Y.
template <class T>
__global__ void rest_kernel(List list, Panel<Cuda> panel, T* a, Index lda, Index top, Index from,
                            Index columns, const double* y, const T* saved, Index ld_saved) {
  if (panel.info.data[0] >= 0) return;
  const Index i = blockIdx.y, t = list.place[i], length = columns - from;
  T* const out = a + (top + i) * lda;
  const double* const lu = panel.lu.data + t * panel.block;
  const Index step = Index(gridDim.x) * blockDim.x;
  for (Index j = Index(blockIdx.x) * blockDim.x + threadIdx.x; j < columns; j += step) {
    if (j >= from)
      out[j] = T(y[t * length + j - from]);
    else if (j >= panel.first)
      out[j] = T(lu[j - panel.first]);
    else if (saved)
      out[j] = saved[i * ld_saved + j];
  }
}

}  // namespace

template <class T, class P>
void retire_rows_of(const Stream<Cuda>& stream, const Rows<Cuda>& rows, T* a,
                    const Panel<Cuda>& panel, P* n, const Retirement<Cuda>& what, T* room) {
  const Index* const pivots = what.pivots.data;
  const Index count = what.pivots.size, top = what.top, ldn = panel_ld(rows.slots);
  const Index below = top + count;
  const cudaStream_t on = native(stream);
  if (count > 0) {
    const List list = cut_list(what.list, count);
    const Index left = room ? 0 : panel.first;
    if (room && panel.first > 0) {
      save_kernel<<<unsigned(count), 256, 0, on>>>(panel, pivots, a, rows.ld, panel.first, room,
                                                   rows.columns);
      check_launch();
    }
    pair_kernel<<<1, pairing_threads, 0, on>>>(panel, pivots, top, rows.column_of.data,
                                               what.ids.data, what.sizes.data, list);
    check_launch();
    const unsigned across = grid_for(rows.columns - left, 256 * 8);
    move_rows_kernel<<<dim3(across, unsigned(std::min<Index>(count, 65535))), 256, 0, on>>>(
        list, a, rows.ld, left, rows.columns);
    check_launch();
    move_panel_kernel<<<dim3(grid_for(count, 128), unsigned(std::min<Index>(panel.width, 256))),
                        128, 0, on>>>(list, panel.width, n, ldn);
    check_launch();
    rest_kernel<<<dim3(across, unsigned(count)), 256, 0, on>>>(
        list, panel, a, rows.ld, top, what.from, rows.columns, what.y.data, room, rows.columns);
    check_launch();
  }
  if (below > panel.skip)
    check(cudaMemset2DAsync(n + panel.skip, std::size_t(ldn) * sizeof(P), 0,
                            std::size_t(below - panel.skip) * sizeof(P), std::size_t(panel.width),
                            on));
  if (room && rows.slots > below)
    store_columns(stream, rows.slots - below, panel.width, a + below * rows.ld, rows.ld,
                  panel.first, static_cast<const P*>(n + below), ldn);
}
template void retire_rows_of(const Stream<Cuda>&, const Rows<Cuda>&, float*, const Panel<Cuda>&,
                             float*, const Retirement<Cuda>&, float*);

template <>
void retire_rows(const Stream<Cuda>& stream, const Rows<Cuda>& rows, const Panel<Cuda>& panel,
                 const Retirement<Cuda>& what) {
  retire_rows_of(stream, rows, rows.a.data, panel, panel.n.data, what,
                 what.keep ? what.room.data : nullptr);
}

// Row-major L X = B is X^T L^T = B^T by columns.
template <>
void solve_unit_lower(const Stream<Cuda>& stream, Index n, Index right, View<const double, Cuda> l,
                      Index ldl, View<double, Cuda> x, Index ldx) {
  if (right == 0) return;
  const double one = 1, minus = -1;
  constexpr Index step = 128;
  for (Index q = 0; q < n; q += step) {
    const Index width = std::min(step, n - q), rest = n - q - width;
    check(cublasDtrsm_64(cublas(stream), CUBLAS_SIDE_RIGHT, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_N,
                         CUBLAS_DIAG_UNIT, right, width, &one, l.data + q * (ldl + 1), ldl,
                         x.data + q * ldx, ldx));
    if (rest > 0)
      check(cublasDgemm_64(cublas(stream), CUBLAS_OP_N, CUBLAS_OP_N, right, rest, width, &minus,
                           x.data + q * ldx, ldx, l.data + (q + width) * ldl + q, ldl, &one,
                           x.data + (q + width) * ldx, ldx));
  }
}

template <>
void subtract_product_of(const Stream<Cuda>& stream, const Rows<Cuda>& rows,
                         const Panel<Cuda>& panel, Index from, Index right,
                         View<const double, Cuda> x, Index ldx, View<double, Cuda>) {
  if (rows.slots == 0 || right == 0) return;
  const double one = 1, minus = -1;
  check(cublasDgemm_64(cublas(stream), CUBLAS_OP_N, CUBLAS_OP_N, right, rows.slots, panel.width,
                       &minus, x.data, ldx, rows.a.data + panel.first, rows.ld, &one,
                       rows.a.data + from, rows.ld));
}

}  // namespace terrace::dense
