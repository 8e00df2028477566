// Gauss-Jordan elimination on the GPU: pivots and the panel.
// One launch eliminates up to 32 columns with the rows in registers; blocks agree on each pivot
// through flags in L2, about 3 us a column, hidden behind the update; between them products of 32
// columns.
#include <algorithm>
#include <climits>
#include <cmath>

#include "kernels/cuda/dense.cuh"

namespace terrace::dense {

namespace {

constexpr int threads = 256;       // of a block of pivot_kernel
constexpr int most_blocks = 1024;  // of pivot_kernel
constexpr int widest = 32;         // columns of one pivot_kernel
constexpr int board_stride = widest + 2;
using Bits = unsigned long long;

/// Rows among which pivots are sought; column-major.
struct Strip {
  double* x;
  Index ld, slots, width;
  const Index* id;   // global row
  Index* column_of;  // -1: may become a pivot row
  Index first;       // global number of the strip's column 0
  double* lu;
  Index block;  // ld of lu
  Index* pivots;
  Index* info;
  bool skip;  // a column without a pivot is passed over (rounds of the tournament)
};

/// Device workspace cut out of `work`.
struct Work {
  double* board;      // 2 x most_blocks candidates: key, slot, row
  unsigned* flags;    // most_blocks
  Index* pivot_slot;  // block
  double* players;    // panel of ranks x block rows
  Index* ids;         // ranks x block
  Index* columns;     // ranks x block
};
constexpr Index fixed_work = 2 * most_blocks * board_stride + most_blocks;

Work cut(View<double, Cuda> work, Index block, Index count) {
  Work w{};
  w.board = work.data;
  w.flags = reinterpret_cast<unsigned*>(work.data + 2 * most_blocks * board_stride);
  w.pivot_slot = reinterpret_cast<Index*>(work.data + fixed_work);
  w.ids = w.pivot_slot + block;
  w.columns = w.ids + count;
  w.players = reinterpret_cast<double*>(w.columns + count);
  return w;
}

/// |value| as ordered bits plus one, so that 0 means no candidate; not finite counts as infinity.
__device__ Bits key_of(double value) {
  const Bits infinity = 0x7ff0000000000000ull;
  const Bits bits = Bits(__double_as_longlong(fabs(value)));
  return (bits < infinity ? bits : infinity) + 1;
}
__device__ double value_of(Bits key) { return __longlong_as_double((long long)(key - 1)); }

__device__ bool better(Bits key, int row, Bits other_key, int other_row) {
  return key > other_key || (key == other_key && row < other_row);
}

/// Best (key, row) of the block, for all its threads. `shared_*` hold one entry a warp.
__device__ void block_best(Bits& key, int& row, Bits* shared_key, int* shared_row) {
  for (int d = 16; d > 0; d /= 2) {
    const Bits k = __shfl_xor_sync(~0u, key, d);
    const int r = __shfl_xor_sync(~0u, row, d);
    if (better(k, r, key, row)) {
      key = k;
      row = r;
    }
  }
  if (threadIdx.x % 32 == 0) {
    shared_key[threadIdx.x / 32] = key;
    shared_row[threadIdx.x / 32] = row;
  }
  __syncthreads();
  for (int w = 0; w < int(blockDim.x) / 32; ++w)
    if (better(shared_key[w], shared_row[w], key, row)) {
      key = shared_key[w];
      row = shared_row[w];
    }
}

__device__ void post(unsigned* flag, unsigned epoch) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(epoch) : "memory");
}
__device__ unsigned posted(const unsigned* flag) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

/// Columns [j0, j0 + count) of the strip, count <= W: partial pivoting, all rows eliminated. Every
/// thread keeps R rows in registers. All blocks must be resident. Column c posts epoch c + 1.
template <int W, int R>
__global__ void __launch_bounds__(threads, 2)
    pivot_kernel(Strip s, Index j0, int count, double* board, unsigned* flags, Index* pivot_slot) {
  __shared__ Bits own_key[threads / 32], all_key[threads / 32];
  __shared__ int own_row[threads / 32], all_row[threads / 32];
  __shared__ double p[W];
  if (s.info[0] >= 0) return;
  const int base = int(blockIdx.x) * R * threads + int(threadIdx.x);
  double a[R][W];
  bool open[R], frozen[R];
#pragma unroll
  for (int q = 0; q < R; ++q) {
    const int r = base + q * threads;
    open[q] = r < s.slots && s.column_of[r] == -1;
    frozen[q] = false;
#pragma unroll
    for (int c = 0; c < W; ++c) a[q][c] = r < s.slots && c < count ? s.x[r + (j0 + c) * s.ld] : 0.0;
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
        for (int c = 0; c < W; ++c) __stcg(mine + 2 + c, a[q][c]);
      }
    if (posting) {
      __stcg(mine, __longlong_as_double((long long)key));
      __stcg(mine + 1, double(row));
      __threadfence();
      post(flags + blockIdx.x, epoch);
    }
    // The best of all blocks.
    key = 0;
    row = INT_MAX;
    for (unsigned b = threadIdx.x; b < gridDim.x; b += threads) {
      while (posted(flags + b) < epoch) {
      }
      const double* const other = boards + Index(b) * board_stride;
      const Bits k = Bits(__double_as_longlong(__ldcg(other)));
      const int r = int(__ldcg(other + 1));
      if (better(k, r, key, row)) {
        key = k;
        row = r;
      }
    }
    block_best(key, row, all_key, all_row);
    const double size = key == 0 ? 0.0 : value_of(key);
    const bool usable = size > 0 && size < INFINITY;
    if (usable && threadIdx.x < W)
      p[threadIdx.x] = __ldcg(boards + Index(row / (R * threads)) * board_stride + 2 + threadIdx.x);
    __syncthreads();
    if (!usable) {
      if (blockIdx.x == 0 && threadIdx.x == 0) {
        pivot_slot[j0 + j] = -1;
        if (!s.skip) {
          s.info[0] = j0 + j;
          s.info[1] = size > 0 ? 2 : 1;
        }
      }
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
        const double l = a[q][j] / p[j];
        a[q][j] = l;
#pragma unroll
        for (int c = j + 1; c < W; ++c) a[q][c] -= l * p[c];
      }
    }
  }
#pragma unroll
  for (int q = 0; q < R; ++q) {
    const int r = base + q * threads;
#pragma unroll
    for (int c = 0; c < W; ++c)
      if (r < s.slots && c < count) s.x[r + (j0 + c) * s.ld] = a[q][c];
  }
}

/// Rows [j0, j0 + count) of LU: taken from the pivot rows in the strip when pivot_slot is given;
/// right of the block U := L^-1 U. One thread a column.
__global__ void finish_block_kernel(Strip s, Index j0, int count, const Index* pivot_slot) {
  __shared__ double l[widest][widest + 1];
  __shared__ Index slot[widest];
  if (s.info[0] >= 0) return;
  if (pivot_slot && int(threadIdx.x) < count) slot[threadIdx.x] = pivot_slot[j0 + threadIdx.x];
  __syncthreads();
  const auto raw = [&](int t, Index c) {
    if (!pivot_slot) return s.lu[(j0 + t) * s.block + c];
    if (slot[t] < 0) return c == j0 + t ? 1.0 : 0.0;
    return s.x[slot[t] + c * s.ld];
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

/// LU rows done; the strip right of the block -= N[:, block] U[block, :].
void finish_block(const Stream<Cuda>& stream, const Strip& s, Index j0, Index count,
                  const Index* pivot_slot) {
  finish_block_kernel<<<grid_for(s.width, 128), 128, 0, native(stream)>>>(s, j0, int(count),
                                                                          pivot_slot);
  check_launch();
  const Index rest = s.width - j0 - count;
  if (rest == 0 || s.slots == 0) return;
  const double minus = -1, one = 1;
  check(cublasDgemm_64(cublas(stream), CUBLAS_OP_N, CUBLAS_OP_T, s.slots, rest, count, &minus,
                       s.x + j0 * s.ld, s.ld, s.lu + j0 * s.block + j0 + count, s.block, &one,
                       s.x + (j0 + count) * s.ld, s.ld));
}

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
template <int W, int R>
bool factor_with(const Stream<Cuda>& stream, Strip s, const Work& w) {
  static const Index resident = resident_blocks(pivot_kernel<W, R>);
  const Index blocks = ceil_div(s.slots, Index(threads) * R);
  if (blocks > resident) return false;
  check(cudaMemsetAsync(w.flags, 0, most_blocks * sizeof(unsigned), native(stream)));
  double* board = w.board;
  unsigned* flags = w.flags;
  Index* pivot_slot = w.pivot_slot;
  for (Index j0 = 0; j0 < s.width; j0 += W) {
    int count = int(std::min<Index>(W, s.width - j0));
    void* arguments[] = {&s, &j0, &count, &board, &flags, &pivot_slot};
    check(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(pivot_kernel<W, R>),
                                      dim3(unsigned(blocks)), dim3(threads), arguments, 0,
                                      native(stream)));
    finish_block(stream, s, j0, count, pivot_slot);
  }
  return true;
}

void factor(const Stream<Cuda>& stream, const Strip& s, const Work& w) {
  if (s.slots == 0) return;
  if (factor_with<32, 1>(stream, s, w) || factor_with<16, 2>(stream, s, w) ||
      factor_with<8, 4>(stream, s, w) || factor_with<4, 8>(stream, s, w))
    return;
  throw Error(Exit::resources, "too many rows on one GPU for its panel kernel; use more ranks");
}

Strip strip_of(const Rows<Cuda>& rows, const Panel<Cuda>& panel, bool skip) {
  return {panel.n.data,         panel_ld(rows.slots), rows.slots,      panel.width,
          rows.global_row.data, rows.column_of.data,  panel.first,     panel.lu.data,
          panel.block,          panel.pivots.data,    panel.info.data, skip};
}

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

Sizes sizes(Cuda, Index slots, Index, Index block, int ranks) {
  const Index players = Index(ranks) * block;
  return {panel_ld(slots) * block, fixed_work + block + 2 * players + panel_ld(players) * block, 1,
          true};
}

template <>
void factor_panel(const Stream<Cuda>& stream, const Rows<Cuda>& rows, const Panel<Cuda>& panel,
                  View<double, Cuda> work) {
  factor(stream, strip_of(rows, panel, false), cut(work, panel.block, 0));
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
  if (j + 1 == j1) finish_block(stream, s, j0, j1 - j0, nullptr);
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

template <>
void finish_panel(const Stream<Cuda>& stream, const Rows<Cuda>& rows, const Panel<Cuda>& panel,
                  View<double, Cuda>) {
  const cudaStream_t lane = native(stream);
  const Index b = panel.width, ld = panel_ld(rows.slots);
  double* const lu = panel.lu.data;
  double* const inverse = lu + panel.block * panel.block;
  const double one = 1, minus = -1;
  summary_kernel<<<1, 256, 0, lane>>>(panel);
  check_launch();
  if (rows.slots == 0) return;
  // Row-major U is a column-major lower U^T: U^T X = -I gives X = -U^-T, row-major -U^-1.
  identity_kernel<<<grid_for(b * b, 256), 256, 0, lane>>>(b, panel.block, inverse);
  check_launch();
  check(cublasDtrsm_64(cublas(stream), CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N,
                       CUBLAS_DIAG_NON_UNIT, b, b, &minus, lu, panel.block, inverse, panel.block));
  pivot_rows_kernel<<<grid_for(rows.slots, 256), 256, 0, lane>>>(
      rows.slots, rows.column_of.data, panel.first, b, inverse, panel.block, panel.n.data, ld);
  check_launch();
  // L^T X = I, row-major X = L^-1, for solve_lower().
  identity_kernel<<<grid_for(b * b, 256), 256, 0, lane>>>(b, panel.block, inverse);
  check_launch();
  check(cublasDtrsm_64(cublas(stream), CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_N,
                       CUBLAS_DIAG_UNIT, b, b, &one, lu, panel.block, inverse, panel.block));
}

}  // namespace terrace::dense
