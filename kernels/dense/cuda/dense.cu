// Gauss-Jordan elimination on the GPU: movement of rows and the rank-b update.
// update: 2 slots b (c1 - c0) flops on 16 slots (c1 - c0) bytes, b / 8 flop a byte: from b = 128 on
// bound by the FP64 tensor cores (DGEMM); the rest moves each panel a few times, bound by HBM.
#include <algorithm>

#include "kernels/base/random.hpp"
#include "kernels/dense/cuda/dense.cuh"

namespace terrace::dense {

namespace {

/// cuBLAS is a third slower where an odd number of rows is contiguous in a factor: one more, where
/// there is memory for it, whose numbers nobody reads.
Index even(const Rows<Cuda>& rows) {
  const Index count = rows.slots + rows.slots % 2;
  return rows.a.size >= count * rows.ld ? count : rows.slots;
}
/// The same of the rows that a panel does not leave alone.
Index updated(const Rows<Cuda>& rows, const Panel<Cuda>& panel) { return even(rows) - panel.skip; }

/// panel[:, c] := A[:, first + c], 32 x 32 tiles through shared memory; row i at place[i], or at i.
template <class T, class P>
__global__ void load_kernel(Index slots, Index width, const T* a, Index lda, Index first, P* panel,
                            Index ldp, const Index* place) {
  __shared__ P tile[32][33];
  const Index s0 = Index(blockIdx.x) * 32, c0 = Index(blockIdx.y) * 32;
  const int x = threadIdx.x;
  for (int y = threadIdx.y; y < 32; y += 8)
    if (s0 + y < slots && c0 + x < width) tile[y][x] = a[(s0 + y) * lda + first + c0 + x];
  __syncthreads();
  for (int y = threadIdx.y; y < 32; y += 8)
    if (s0 + x < slots && c0 + y < width)
      panel[(c0 + y) * ldp + (place ? place[s0 + x] : s0 + x)] = tile[x][y];
}

/// The way back.
template <class T, class P>
__global__ void store_kernel(Index slots, Index width, T* a, Index lda, Index first, const P* panel,
                             Index ldp, const Index* place) {
  __shared__ P tile[32][33];
  const Index s0 = Index(blockIdx.x) * 32, c0 = Index(blockIdx.y) * 32;
  const int x = threadIdx.x;
  for (int y = threadIdx.y; y < 32; y += 8)
    if (s0 + x < slots && c0 + y < width)
      tile[x][y] = panel[(c0 + y) * ldp + (place ? place[s0 + x] : s0 + x)];
  __syncthreads();
  for (int y = threadIdx.y; y < 32; y += 8)
    if (s0 + y < slots && c0 + x < width) a[(s0 + y) * lda + first + c0 + x] = T(tile[y][x]);
}

/// placed[place[i]] := marks[i], or the way back.
__global__ void place_marks_kernel(Index count, const Index* place, Index* marks, Index* placed,
                                   bool back) {
  const Index i = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  if (back)
    marks[i] = placed[place[i]];
  else
    placed[place[i]] = marks[i];
}

__global__ void no_bad_column_kernel(Index* info) {
  info[0] = -1;
  info[1] = 0;
}

__global__ void zero_pivot_rows_kernel(Index slots, const Index* column_of, Index first,
                                       Index width, double* a, Index lda, Index from,
                                       Index columns) {
  constexpr int group = 8;
  for (int q = 0; q < group; ++q) {
    const Index s = Index(blockIdx.x) * group + q;
    if (s >= slots || place_in(column_of[s], first, width) < 0) continue;
    for (Index j = from + threadIdx.x; j < columns; j += blockDim.x) a[s * lda + j] = 0;
  }
}

/// out[i, :] = in[list[i], :], rows of `length`.
__global__ void gather_rows_kernel(Index count, Index length, const Index* list, const double* in,
                                   Index ld_in, double* out) {
  const Index step = Index(gridDim.x) * blockDim.x;
  for (Index i = blockIdx.y; i < count; i += gridDim.y) {
    const double* const from = in + list[i] * ld_in;
    for (Index j = Index(blockIdx.x) * blockDim.x + threadIdx.x; j < length; j += step)
      out[i * length + j] = from[j];
  }
}

void gather_rows(const Stream<Cuda>& stream, View<const Index, Cuda> list, Index length,
                 const double* in, Index ld_in, double* out) {
  if (list.size == 0 || length == 0) return;
  const dim3 grid(grid_for(length, 256 * 8), unsigned(list.size < 65535 ? list.size : 65535));
  gather_rows_kernel<<<grid, 256, 0, native(stream)>>>(list.size, length, list.data, in, ld_in,
                                                       out);
  check_launch();
}

__global__ void scatter_columns_kernel(Index rows, Index n, const Index* target, const double* a,
                                       Index lda, double* out) {
  const Index step = Index(gridDim.x) * blockDim.x;
  for (Index r = blockIdx.y; r < rows; r += gridDim.y)
    for (Index k = Index(blockIdx.x) * blockDim.x + threadIdx.x; k < n; k += step)
      out[r * n + target[k]] = a[r * lda + k];
}

__global__ void invert_permutation_kernel(Index n, const Index* target, Index* source) {
  const Index k = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  if (k < n) source[target[k]] = k;
}

/// Every row through shared memory: a[r, j] := a[r, source[j]].
__global__ void __launch_bounds__(1024)
    gather_columns_kernel(Index rows, Index n, const Index* source, double* a, Index lda) {
  extern __shared__ double row[];
  for (Index r = blockIdx.x; r < rows; r += gridDim.x) {
    double* const x = a + r * lda;
#pragma unroll 4
    for (Index j = threadIdx.x; j < n; j += blockDim.x) row[j] = x[j];
    __syncthreads();
#pragma unroll 4
    for (Index j = threadIdx.x; j < n; j += blockDim.x) x[j] = row[source[j]];
    __syncthreads();
  }
}

__global__ void fill_random_kernel(Index slots, Index columns, const Index* global_row, double* a,
                                   Index lda, Word seed) {
  const Index step = Index(gridDim.x) * blockDim.x;
  for (Index s = blockIdx.y; s < slots; s += gridDim.y)
    for (Index j = Index(blockIdx.x) * blockDim.x + threadIdx.x; j < columns; j += step)
      a[s * lda + j] = random_uniform(seed, global_row[s], j);
}

}  // namespace

template <class T, class P>
void store_columns(const Stream<Cuda>& stream, Index slots, Index width, T* a, Index lda,
                   Index first, const P* panel, Index ldp, const Index* place) {
  if (width <= 0 || slots <= 0) return;
  const dim3 grid(grid_for(slots, 32), grid_for(width, 32));
  store_kernel<<<grid, dim3(32, 8), 0, native(stream)>>>(slots, width, a, lda, first, panel, ldp,
                                                         place);
  check_launch();
}
template <class T, class P>
void load_columns(const Stream<Cuda>& stream, Index slots, Index width, const T* a, Index lda,
                  Index first, P* panel, Index ldp, const Index* place) {
  if (width <= 0 || slots <= 0) return;
  const dim3 grid(grid_for(slots, 32), grid_for(width, 32));
  load_kernel<<<grid, dim3(32, 8), 0, native(stream)>>>(slots, width, a, lda, first, panel, ldp,
                                                        place);
  check_launch();
}
#define TERRACE_COLUMNS(T, P)                                                                      \
  template void store_columns(const Stream<Cuda>&, Index, Index, T*, Index, Index, const P*,       \
                              Index, const Index*);                                                \
  template void load_columns(const Stream<Cuda>&, Index, Index, const T*, Index, Index, P*, Index, \
                             const Index*);
TERRACE_COLUMNS(double, double)
TERRACE_COLUMNS(float, double)
TERRACE_COLUMNS(float, float)
#undef TERRACE_COLUMNS

template <>
void load_panel(const Stream<Cuda>& stream, const Rows<Cuda>& rows, const Panel<Cuda>& panel,
                bool fresh) {
  if (fresh) {
    no_bad_column_kernel<<<1, 1, 0, native(stream)>>>(panel.info.data);
    check_launch();
  }
  const double* const a = rows.a.data;
  load_columns(stream, rows.slots, panel.width, a, rows.ld, panel.first, panel.n.data,
               panel_ld(rows.slots));
}

template <>
void collect_rows(const Stream<Cuda>& stream, const Rows<Cuda>& rows, View<const Index, Cuda> list,
                  Index from, View<double, Cuda> out) {
  gather_rows(stream, list, rows.columns - from, rows.a.data + from, rows.ld, out.data);
}

template <>
void place_rows(const Stream<Cuda>& stream, Index length, View<const Index, Cuda> position,
                View<const double, Cuda> packed, View<double, Cuda> out) {
  gather_rows(stream, position, length, packed.data, length, out.data);
}

template <>
void begin_update(const Stream<Cuda>& stream, const Rows<Cuda>& rows, const Panel<Cuda>& panel,
                  Index from, bool inverse) {
  if (rows.slots == 0) return;
  zero_pivot_rows_kernel<<<grid_for(rows.slots, 8), 256, 0, native(stream)>>>(
      rows.slots, rows.column_of.data, panel.first, panel.width, rows.a.data, rows.ld, from,
      rows.columns);
  check_launch();
  if (inverse)
    check(cudaMemset2DAsync(rows.a.data + panel.first, std::size_t(rows.ld) * 8, 0,
                            std::size_t(panel.width) * 8, std::size_t(rows.slots), native(stream)));
}

template <>
void update(const Stream<Cuda>& stream, const Rows<Cuda>& rows, const Panel<Cuda>& panel,
            View<const double, Cuda> y, Index from, Index c0, Index c1) {
  if (c1 <= c0 || rows.slots <= panel.skip) return;
  // Row-major A[:, c0:c1) is a column-major (c1 - c0) x slots matrix: A^T -= Y^T N^T.
  const double minus = -1, one = 1;
  const Index length = rows.columns - from;
  check(cublasDgemm_64(cublas(stream), CUBLAS_OP_N, CUBLAS_OP_T, c1 - c0, updated(rows, panel),
                       panel.width, &minus, y.data + (c0 - from), length, panel.n.data + panel.skip,
                       panel_ld(rows.slots), &one, rows.a.data + panel.skip * rows.ld + c0,
                       rows.ld));
}

template <>
void update_panel(const Stream<Cuda>& stream, const Rows<Cuda>& rows, const Panel<Cuda>& panel,
                  View<const double, Cuda> y, Index from, const Panel<Cuda>& next) {
  if (next.width <= 0 || rows.slots <= panel.skip) return;
  const double minus = -1, one = 1;
  check(cublasDgemm_64(cublas(stream), CUBLAS_OP_N, CUBLAS_OP_T, updated(rows, panel), next.width,
                       panel.width, &minus, panel.n.data + panel.skip, panel_ld(rows.slots),
                       y.data + (next.first - from), rows.columns - from, &one, next.n.data,
                       panel_ld(rows.slots - panel.skip)));
}

template <>
void store_panel(const Stream<Cuda>& stream, const Rows<Cuda>& rows, const Panel<Cuda>& panel) {
  const double* const n = panel.n.data;
  store_columns(stream, rows.slots, panel.width, rows.a.data, rows.ld, panel.first, n,
                panel_ld(rows.slots));
}

template <>
void put_rows(const Stream<Cuda>& stream, const Rows<Cuda>& part, const Panel<Cuda>& panel,
              View<const Index, Cuda> place, Index standing, View<Index, Cuda> column_of) {
  if (part.slots == 0) return;
  const double* const a = part.a.data;
  load_columns(stream, part.slots, panel.width, a, part.ld, 0, panel.n.data, panel_ld(standing),
               place.data);
  if (part.column_of.size == 0) return;
  place_marks_kernel<<<grid_for(part.slots, 256), 256, 0, native(stream)>>>(
      part.slots, place.data, part.column_of.data, column_of.data, false);
  check_launch();
}

template <>
void get_rows(const Stream<Cuda>& stream, const Rows<Cuda>& part, const Panel<Cuda>& panel,
              View<const Index, Cuda> place, Index standing, View<Index, Cuda> column_of) {
  if (part.slots == 0) return;
  const double* const n = panel.n.data;
  store_columns(stream, part.slots, panel.width, part.a.data, part.ld, 0, n, panel_ld(standing),
                place.data);
  place_marks_kernel<<<grid_for(part.slots, 256), 256, 0, native(stream)>>>(
      part.slots, place.data, part.column_of.data, column_of.data, true);
  check_launch();
}

template <>
void begin_emulated(const Stream<Cuda>& stream, const Rows<Cuda>& rows, const Panel<Cuda>& panel,
                    const emulated::Shape& shape, View<std::byte, Cuda> workspace) {
  if (rows.slots == 0) return;
  emulated::set_left<Cuda>(stream, {rows.slots, shape.n, panel.width, shape.moduli}, panel.n,
                           panel_ld(rows.slots), workspace);
}

template <>
void update_emulated(const Stream<Cuda>& stream, const Rows<Cuda>& rows, const Panel<Cuda>& panel,
                     View<const double, Cuda> y, Index from, Index c0, Index c1,
                     const emulated::Shape& shape, View<std::byte, Cuda> workspace) {
  if (c1 <= c0 || rows.slots == 0) return;
  const Index length = rows.columns - from;
  emulated::subtract_product<Cuda>(stream, {rows.slots, c1 - c0, panel.width, shape.moduli},
                                   y.slice(c0 - from, y.size - (c0 - from)), length,
                                   rows.a.slice(c0, rows.a.size - c0), rows.ld, workspace);
}

template <>
void permute_columns(const Stream<Cuda>& stream, const Rows<Cuda>& rows,
                     View<const Index, Cuda> target, View<double, Cuda> work) {
  const Index n = target.size;
  if (n == 0 || rows.slots == 0) return;
  constexpr Index most = 28000;  // of a row in shared memory
  if (n <= most) {
    static OncePerDevice<bool> once;
    (void)once([] { return allow_shared(gather_columns_kernel, most * 8); });
    Index* const source = reinterpret_cast<Index*>(work.data);
    invert_permutation_kernel<<<grid_for(n, 256), 256, 0, native(stream)>>>(n, target.data, source);
    check_launch();
    const unsigned blocks = unsigned(std::min<Index>(rows.slots, 1056));
    const unsigned size = n > 2048 ? 1024 : 256;
    gather_columns_kernel<<<blocks, size, std::size_t(n) * 8, native(stream)>>>(
        rows.slots, n, source, rows.a.data, rows.ld);
    check_launch();
    return;
  }
  const Index batch = work.size / n;
  for (Index first = 0; first < rows.slots; first += batch) {
    const Index count = batch < rows.slots - first ? batch : rows.slots - first;
    double* const a = rows.a.data + first * rows.ld;
    const dim3 grid(grid_for(n, 256 * 4), unsigned(count < 65535 ? count : 65535));
    scatter_columns_kernel<<<grid, 256, 0, native(stream)>>>(count, n, target.data, a, rows.ld,
                                                             work.data);
    check_launch();
    check(cudaMemcpy2DAsync(a, std::size_t(rows.ld) * 8, work.data, std::size_t(n) * 8,
                            std::size_t(n) * 8, std::size_t(count), cudaMemcpyDeviceToDevice,
                            native(stream)));
  }
}

template <>
void fill_random(const Stream<Cuda>& stream, const Rows<Cuda>& rows, Index columns, Word seed) {
  if (rows.slots == 0 || columns == 0) return;
  const dim3 grid(grid_for(columns, 256 * 4), unsigned(rows.slots < 65535 ? rows.slots : 65535));
  fill_random_kernel<<<grid, 256, 0, native(stream)>>>(rows.slots, columns, rows.global_row.data,
                                                       rows.a.data, rows.ld, seed);
  check_launch();
}

}  // namespace terrace::dense
