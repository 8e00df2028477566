// Gauss-Jordan elimination on the GPU: pivots chosen among several ranks, and the end of a panel.
// One exchange a column costs four small launches and a collective call, about 25 us; the
// tournament one panel factorization more and one collective call a panel.
#include "kernels/dense/cuda/panel.cuh"

namespace terrace::dense {

namespace {

// --- one exchange a column
// -------------------------------------------------------------------------

/// The best unused row of column j as a record. One block of 1024 threads.
__global__ void candidate_kernel(Strip s, Index j, double* record) {
  __shared__ Bits shared_key[32];
  __shared__ int shared_row[32];
  Bits key = 0;
  int row = INT_MAX;
  for (Index r = threadIdx.x; r < s.slots; r += blockDim.x)
    if (s.column_of[r] == -1 && key_of(s.x[r + j * s.ld]) > key) {
      key = key_of(s.x[r + j * s.ld]);
      row = int(r);
    }
  block_best(key, row, shared_key, shared_row);
  if (threadIdx.x == 0) {
    record[0] = key == 0 ? -1.0 : value_of(key);
    record[1] = key == 0 ? -1.0 : double(s.id[row]);
    record[2] = key == 0 ? -1.0 : double(row);
  }
  if (key != 0)
    for (Index c = threadIdx.x; c < s.width; c += blockDim.x) record[3 + c] = s.x[row + c * s.ld];
}

/// Row j of LU from the best record. One block.
__global__ void winner_kernel(Strip s, Index j, Index count, const double* records, Index size,
                              Index mine) {
  if (s.info[0] >= 0) return;
  Index best = 0;
  for (Index r = 1; r < count; ++r)
    if (records[r * size] > records[best * size] ||
        (records[r * size] == records[best * size] &&
         records[r * size + 1] < records[best * size + 1]))
      best = r;
  const double* const record = records + best * size;
  if (!(record[0] > 0) || record[0] == INFINITY) {
    __syncthreads();  // everybody has looked at info
    if (threadIdx.x == 0) {
      s.info[1] = record[0] > 0 ? 2 : 1;
      s.info[0] = j;
    }
    return;
  }
  for (Index c = threadIdx.x; c < s.width; c += blockDim.x) s.lu[j * s.block + c] = record[3 + c];
  if (threadIdx.x != 0) return;
  s.pivots[j] = Index(record[1]);
  if (best == mine) s.column_of[Index(record[2])] = s.first + j;
}

/// Column j of all rows, within the block that ends at j1.
__global__ void eliminate_kernel(Strip s, Index j, Index j1) {
  const Index r = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  if (s.info[0] >= 0 || r >= s.slots) return;
  const double* const u = s.lu + j * s.block;
  const double l = s.x[r + j * s.ld] / u[j];
  s.x[r + j * s.ld] = l;
  for (Index c = j + 1; c < j1; ++c) s.x[r + c * s.ld] -= l * u[c];
}

// --- tournament
// ------------------------------------------------------------------------------------

__global__ void empty_records_kernel(Index count, Index size, double* records) {
  const Index t = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  if (t < count) records[t * size] = -1;
}

/// Rows of A[:, J] marked in column_of become records; the marks are cleared.
__global__ void pack_kernel(Index slots, Index* column_of, const Index* id, Index first,
                            Index width, const double* a, Index lda, double* records, Index size) {
  constexpr int group = 8;
  for (int q = 0; q < group; ++q) {
    const Index s = Index(blockIdx.x) * group + q;
    const Index t = s < slots ? place_in(column_of[s], first, width) : -1;
    __syncthreads();
    if (t < 0) continue;
    double* const record = records + t * size;
    for (Index c = threadIdx.x; c < width; c += blockDim.x) record[3 + c] = a[s * lda + first + c];
    if (threadIdx.x == 0) {
      record[0] = 1;
      record[1] = double(id[s]);
      record[2] = double(s);
      column_of[s] = -1;
    }
  }
}

__global__ void players_kernel(Index count, Index width, const double* records, Index size,
                               double* x, Index ld, Index* id, Index* column_of) {
  const Index i = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const double* const record = records + i * size;
  const bool plays = record[0] >= 0;
  id[i] = plays ? Index(record[1]) : -1;
  column_of[i] = plays ? -1 : -2;
  for (Index c = 0; c < width; ++c) x[i + c * ld] = plays ? record[3 + c] : 0.0;
}

__global__ void winners_kernel(Index count, const Index* player_column, const Index* id,
                               const double* records, Index size, Index slots,
                               const Index* global_row, Index* column_of) {
  const Index i = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count || player_column[i] < 0) return;
  const Index slot = Index(records[i * size + 2]);
  if (slot < slots && global_row[slot] == id[i]) column_of[slot] = player_column[i];
}

// --- the end of a panel
// ----------------------------------------------------------------------------

__global__ void identity_kernel(Index n, Index ld, double* x) {
  const Index e = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  if (e < n * n) x[e / n * ld + e % n] = e / n == e % n ? 1.0 : 0.0;
}

/// Rows of N that are pivot rows := rows of `upper` (-U^-1). A warp looks at 32 slots.
__global__ void pivot_rows_kernel(Index slots, const Index* column_of, Index first, Index width,
                                  const double* upper, Index block, double* n, Index ld) {
  const Index warp = (Index(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  const Index s = warp * 32 + lane;
  const Index t = s < slots ? place_in(column_of[s], first, width) : -1;
  for (unsigned found = __ballot_sync(~0u, t >= 0); found; found &= found - 1) {
    const int which = __ffs(int(found)) - 1;
    const Index row = __shfl_sync(~0u, t, which);
    for (Index c = lane; c < width; c += 32) n[warp * 32 + which + c * ld] = upper[row * block + c];
  }
}

__global__ void summary_kernel(Panel<Cuda> panel) {
  double* const out = panel.summary.data;
  if (threadIdx.x < 2) out[threadIdx.x] = double(panel.info.data[threadIdx.x]);
  for (Index t = threadIdx.x; t < panel.width; t += blockDim.x) {
    out[2 + t] = double(panel.pivots.data[t]);
    out[2 + panel.block + t] = panel.lu.data[t * panel.block + t];
  }
}

}  // namespace

BufferSizes sizes(Cuda, Index slots, Index, Index block, int ranks) {
  const Index players = Index(ranks) * block;
  return {panel_ld(slots) * block, fixed_work + block + 2 * players + panel_ld(players) * block, 1};
}

template <>
void first_candidate(const Stream<Cuda>& stream, const Rows<Cuda>& rows, const Panel<Cuda>& panel,
                     View<double, Cuda> record, View<double, Cuda>) {
  candidate_kernel<<<1, 1024, 0, native(stream)>>>(strip_of(rows, panel, false), 0, record.data);
  check_launch();
}

template <>
void eliminate_column(const Stream<Cuda>& stream, const Rows<Cuda>& rows, const Panel<Cuda>& panel,
                      Index j, View<const double, Cuda> records, Index mine,
                      View<double, Cuda> record, View<double, Cuda>) {
  const Strip s = strip_of(rows, panel, false);
  const Index size = record_size(panel.block);
  const Index j0 = j / widest * widest, j1 = std::min<Index>(s.width, j0 + widest);
  winner_kernel<<<1, 256, 0, native(stream)>>>(s, j, records.size / size, records.data, size, mine);
  check_launch();
  if (s.slots > 0) {
    eliminate_kernel<<<grid_for(s.slots, 128), 128, 0, native(stream)>>>(s, j, j1);
    check_launch();
  }
  if (j + 1 == s.width) return;
  if (j + 1 == j1) finish_block(stream, s, j0, j1 - j0, nullptr, nullptr);
  candidate_kernel<<<1, 1024, 0, native(stream)>>>(s, j + 1, record.data);
  check_launch();
}

template <>
void choose_candidates(const Stream<Cuda>& stream, const Rows<Cuda>& rows, const Panel<Cuda>& panel,
                       View<double, Cuda> records, View<double, Cuda> work) {
  const Index size = record_size(panel.block);
  empty_records_kernel<<<grid_for(panel.block, 128), 128, 0, native(stream)>>>(panel.block, size,
                                                                               records.data);
  check_launch();
  if (rows.slots == 0) return;
  factor(stream, strip_of(rows, panel, true), cut(work, panel.block, 0));
  pack_kernel<<<grid_for(rows.slots, 8), 128, 0, native(stream)>>>(
      rows.slots, rows.column_of.data, rows.global_row.data, panel.first, panel.width, rows.a.data,
      rows.ld, records.data, size);
  check_launch();
}

template <>
void play_final(const Stream<Cuda>& stream, const Rows<Cuda>& rows, const Panel<Cuda>& panel,
                View<const double, Cuda> records, View<double, Cuda> work) {
  const Index size = record_size(panel.block), count = records.size / size;
  const Work w = cut(work, panel.block, count);
  players_kernel<<<grid_for(count, 128), 128, 0, native(stream)>>>(
      count, panel.width, records.data, size, w.players, panel_ld(count), w.ids, w.columns);
  check_launch();
  Strip s = strip_of(rows, panel, false);
  s.x = w.players;
  s.ld = panel_ld(count);
  s.slots = count;
  s.id = w.ids;
  s.column_of = w.columns;
  factor(stream, s, w);
  winners_kernel<<<grid_for(count, 128), 128, 0, native(stream)>>>(
      count, w.columns, w.ids, records.data, size, rows.slots, rows.global_row.data,
      rows.column_of.data);
  check_launch();
}

template <>
void divide_by_upper(const Stream<Cuda>& stream, const Rows<Cuda>& rows, const Panel<Cuda>& panel,
                     View<double, Cuda>) {
  if (rows.slots == 0) return;
  const double one = 1;
  check(cublasDtrsm_64(cublas(stream), CUBLAS_SIDE_RIGHT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_T,
                       CUBLAS_DIAG_NON_UNIT, rows.slots, panel.width, &one, panel.lu.data,
                       panel.block, panel.n.data, panel_ld(rows.slots)));
}

void set_pivot_rows(const Stream<Cuda>& stream, const Strip& s, double* inverse, Index ld) {
  if (s.slots == 0) return;
  const Index b = s.width;
  const double minus = -1;
  // Row-major U is a column-major lower U^T: U^T X = -I gives X = -U^-T, row-major -U^-1.
  identity_kernel<<<grid_for(b * b, 256), 256, 0, native(stream)>>>(b, ld, inverse);
  check_launch();
  check(cublasDtrsm_64(cublas(stream), CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N,
                       CUBLAS_DIAG_NON_UNIT, b, b, &minus, s.lu, s.block, inverse, ld));
  pivot_rows_kernel<<<grid_for(s.slots, 256), 256, 0, native(stream)>>>(
      s.slots, s.column_of, s.first, b, inverse, ld, s.x, s.ld);
  check_launch();
}

template <>
void finish_panel(const Stream<Cuda>& stream, const Rows<Cuda>& rows, const Panel<Cuda>& panel,
                  bool final, View<double, Cuda>) {
  summary_kernel<<<1, 256, 0, native(stream)>>>(panel);
  check_launch();
  if (!final)
    set_pivot_rows(stream, strip_of(rows, panel, false), panel.lu.data + panel.block * panel.block,
                   panel.block);
}

}  // namespace terrace::dense
