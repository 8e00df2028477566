// CSR rows in strips times 8 or 16 vectors, row-major. Floor: 8 bytes per nonzero, 16 per row and vector
// for p and q, all from HBM once; per strip 16 bytes, and 4 per run. In L1, at 128 bytes per clock: a row
// of p per gather, and 32 bytes per value.
//
// Row by row the gathers bind (products_columns_csr.cuh). Here 8 lanes take a strip: the columns k to
// k + 2 of its first row are k to k + 5 in all 4, so 6 rows of p stand for 12 gathers. The next 6 are
// under way meanwhile. A warp beside them streams values, strips and runs.
#pragma once
#include "kernels/cg/cuda/column_sums.cuh"
#include "kernels/cg/cuda/products_csr.cuh"

namespace terrace::cg {
namespace strips {

constexpr int rows = 4, lanes = 8;  // of a strip
constexpr int warps = 15, together = warps * 32 / lanes, threads = 32 * warps + 32, stages = 2;
constexpr Index value_line = 16, run_line = 32;  // of 128 bytes, at which copies begin and end

/// What a block has of `together` strips: their values, themselves, and their runs.
struct Stage {
  Index strips, runs, bytes;  // where they begin, and the whole
  Stage(Index most_entries, Index most_runs)
      : strips(8 * most_entries), runs(strips + 1024), bytes(runs + 4 * most_runs) {}
};
static_assert((together + 1) * sizeof(CsrStrip) <= 1024);

/// Columns of a lane.
__device__ __forceinline__ double of_column(double v, int) { return v; }
__device__ __forceinline__ double of_column(double2 v, int c) { return c == 0 ? v.x : v.y; }
__device__ __forceinline__ void add_product(double& sum, double a, double x) { sum += a * x; }
__device__ __forceinline__ void add_product(double2& sum, double a, double2 x) {
  sum.x += a * x.x;
  sum.y += a * x.y;
}

/// A strip as a lane sees it; `value`: addresses in shared memory.
template <class V>
struct Lane {
  const V* p;  // of the first row
  int count, length;
  unsigned value[rows];
  V sum[rows];

  __device__ __forceinline__ Lane(const CsrStrip& own, const CsrStrip& next, unsigned first,
                                  const V* all)
      : p(all + Index(own.row) * lanes),
        count(next.row - own.row),
        length(int(next.entry - own.entry) / count) {
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      value[r] =
          first + 8 * length * min(r, count - 1);  // the last row's again where there is none
      sum[r] = V{};
    }
  }
  __device__ __forceinline__ void gather(V (&x)[rows + 2], int run) const {
    const int side_by_side = run & 3, last = count + side_by_side - 2;
    const V* const from = p + Index(run >> 2) * lanes;
#pragma unroll
    for (int j = 0; j < rows + 2; ++j)
      if (j < rows || side_by_side > j - rows + 1) x[j] = __ldg(from + min(j, last) * lanes);
  }
  /// Entries from `e` on; returns the first of the next run.
  __device__ __forceinline__ int add(const V (&x)[rows + 2], int run, int e) {
    const int side_by_side = run & 3;
#pragma unroll
    for (int u = 0; u < 3; ++u) {
      if (u > 0 && side_by_side <= u) continue;
      double a[rows];
#pragma unroll
      for (int r = 0; r < rows; ++r) a[r] = shared_double(value[r] + 8 * unsigned(e + u));
#pragma unroll
      for (int r = 0; r < rows; ++r) add_product(sum[r], a[r], x[u + r]);
    }
    return e + side_by_side;
  }
  /// runs: their address in shared memory, with room for one more to be read.
  __device__ __forceinline__ void multiply(unsigned runs) {
    if (length == 0) return;
    V near[rows + 2], coming[rows + 2];
    int run = shared_int(runs), e = 0;
    gather(near, run);
    for (;;) {
      const int next = shared_int(runs += 4);
      const bool more = e + (run & 3) < length;
      if (more) gather(coming, next);
      e = add(near, run, e);
      if (!more) return;
      run = shared_int(runs += 4);
      const bool again = e + (next & 3) < length;
      if (again) gather(near, run);
      e = add(coming, next, e);
      if (!again) return;
    }
  }
};

/// Copies of chunks `from`, `from` + gridDim.x ...; by one lane.
__device__ inline void stream(const CsrRows<Cuda>& m, const Stage& stage, unsigned char* memory,
                              Word* full, Word* empty, Index chunks) {
  const Index last = m.strip.size - 1;
  const auto bound = [&](Index chunk) { return m.strip.data[min(last, chunk * Index(together))]; };
  const Word policy = read_once();
  Ring<stages> ring;
  CsrStrip from = bound(blockIdx.x), to = bound(blockIdx.x + 1);
  for (Index c = blockIdx.x; c < chunks; c += gridDim.x) {
    unsigned char* const base = memory + ring.stage * stage.bytes;
    Word* const there = full + ring.stage;
    const Index entry = from.entry & ~(value_line - 1), run = from.run & ~(run_line - 1);
    const Index end = min((to.entry + value_line - 1) & ~(value_line - 1), m.value.size);
    const unsigned values = unsigned(end - entry) * 8, whole = values & ~15u;
    const unsigned strips = unsigned(min(last + 1 - c * together, Index(together) + 1)) * 16;
    const unsigned runs = unsigned(((to.run + run_line) & ~(run_line - 1)) - run) * 4;
    if (c + gridDim.x < chunks) from = bound(c + gridDim.x), to = bound(c + gridDim.x + 1);
    wait_for(empty + ring.stage, ring.emptied());
    if (whole < values)  // an odd number of values, of which the last one is the matrix's last
      *reinterpret_cast<double*>(base + whole) = m.value.data[end - 1];
    arrive_for_bytes(there, whole + strips + runs);
    if (whole > 0) copy_in_bulk(base, m.value.data + entry, whole, there, policy);
    copy_in_bulk(base + stage.strips, m.strip.data + c * together, strips, there, policy);
    copy_in_bulk(base + stage.runs, m.run.data + run, runs, there, policy);
    ring.next();
  }
}

/// Of 16 columns V is double2, of 8 double.
template <class V>
__global__ void __launch_bounds__(threads, 1)
    csr_strips_kernel(CsrRows<Cuda> m, Stage stage, const V* __restrict__ p, V* __restrict__ q,
                      SumTarget<Cuda> sums, const double* skip) {
  if (skip && *skip != 0) return;
  constexpr int each = int(sizeof(V) / sizeof(double));
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ Word full[stages], empty[stages];
  const Index count = m.strip.size - 1, chunks = (count + together - 1) / together;
  if (threadIdx.x == 0) {
    for (int s = 0; s < stages; ++s) make_barrier(full + s, 1), make_barrier(empty + s, warps);
    order_shared_copies();
  }
  __syncthreads();
  ColumnProducts<each> products;
  if (threadIdx.x == 32 * warps) {
    stream(m, stage, memory, full, empty, chunks);
  } else if (threadIdx.x < 32 * warps) {
    const int own = int(threadIdx.x) / lanes;
    p += threadIdx.x % lanes;
    q += threadIdx.x % lanes;
    Ring<stages> ring;
    for (Index c = blockIdx.x; c < chunks; c += gridDim.x) {
      unsigned char* const base = memory + ring.stage * stage.bytes;
      const auto* const strip = reinterpret_cast<const CsrStrip*>(base + stage.strips);
      wait_for(full + ring.stage, ring.filled());
      if (c * together + own < count) {
        const CsrStrip mine = strip[own];
        const CsrStrip first = strip[0];
        const auto value = unsigned(mine.entry - (first.entry & ~(value_line - 1)));
        const auto run = unsigned(mine.run - (first.run & ~(run_line - 1)));
        Lane<V> lane(mine, strip[own + 1], shared_address(base) + 8 * value, p);
        lane.multiply(shared_address(base + stage.runs) + 4 * run);
        V* const to = q + Index(mine.row) * lanes;
#pragma unroll
        for (int r = 0; r < rows; ++r) {
          if (r >= lane.count) break;
          const V x = __ldg(lane.p + r * lanes);
#pragma unroll
          for (int v = 0; v < each; ++v)
            products.add(v, of_column(x, v), of_column(lane.sum[r], v));
          to[r * lanes] = lane.sum[r];
        }
      }
      __syncwarp();
      if (threadIdx.x % 32 == 0) arrive(empty + ring.stage);
      ring.next();
    }
  }
  products.template finish<lanes, threads>(sums, each * lanes, each * lanes);
}

/// On the current device, in shared memory.
inline bool fits(Index most_entries, Index most_runs) {
  int device = 0, bytes = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  constexpr Index of_sums = 10 << 10;
  return stages * Stage(most_entries, most_runs).bytes + of_sums <= bytes;
}

/// By one block per multiprocessor. Not onto q.
template <class V>
void launch(cudaStream_t lane, const CsrRows<Cuda>& m, const double* p, double* q,
            const SumTarget<Cuda>& sums, const double* skip) {
  const auto kernel = csr_strips_kernel<V>;
  const Stage stage(m.strip_entries, m.strip_runs);
  const Index bytes = stages * stage.bytes, resident = resident_blocks(kernel, threads, bytes);
  const Index blocks = std::min(resident, ceil_div(m.strip.size - 1, Index(together)));
  kernel<<<unsigned(blocks), threads, std::size_t(bytes), lane>>>(
      m, stage, reinterpret_cast<const V*>(p), reinterpret_cast<V*>(q), sums, skip);
  check_launch();
}

}  // namespace strips
}  // namespace terrace::cg
