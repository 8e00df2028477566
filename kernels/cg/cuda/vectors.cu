// Vector passes of conjugate gradients on CUDA. Bound by HBM: the classic iteration moves 64 bytes
// a row (8 more a pass with Jacobi); below about 10^5 rows by the launch, 2 to 3 us a pass.
#include "kernels/cg/vectors.hpp"

#include <algorithm>

#include "kernels/base/cuda/cluster.cuh"
#include "kernels/base/cuda/early.cuh"
#include "kernels/cg/cuda/column_sums.cuh"
#include "kernels/cg/vector_passes.hpp"

namespace terrace::cg {
namespace {

constexpr int pass_threads = 256;
constexpr Index most_blocks = 1056;  // 8 per multiprocessor of an H200

/// Where a thread has 4 elements under way, 4 or 3 blocks per multiprocessor of an H200 do, and leave the
/// last one fewer sums.
template <class F>
constexpr Index blocks_of = 4 > F::ahead   ? most_blocks
                            : F::sums == 0 ? 396
                                           : 528;

/// Ends the iteration's row and adds it to the history; by the first block.
template <int k, class F>
__device__ void end_iteration(const F& f, const CgPass<Cuda>& c, const vector_passes::Scalars& s) {
  const int v = int(threadIdx.x);
  double* const now = c.now.data;
  bool on = false;
  if (v < k) {
    const vector_passes::Step step = f.column(s, v);
    now[cg_row::alpha * k + v] = step.alpha;
    now[cg_row::den * k + v] = step.den;
    now[cg_row::dd * k + v] = step.dd;
    on = step.on;
  }
  const bool any = __syncthreads_or(on);
  const Index finished = *c.finished.data, size = cg_row::size(k);
  if (v == 0) now[cg_row::halted(k)] = any ? 0 : 1;
  __syncthreads();
  if (v < size) c.history.data[finished % (c.history.size / size) * size + v] = now[v];
  if (v == 0) *c.finished.data = finished + 1;
}

template <int k, class F>
__global__ void __launch_bounds__(pass_threads) pass_kernel(Index size, F f, CgPass<Cuda> c) {
  let_next_begin();
  wait_for_launch_ahead();
  if constexpr (F::iterates) {
    if (*c.skip() != 0) {
      if (F::ends && blockIdx.x == 0 && threadIdx.x == 0) c.now.data[cg_row::halted(k)] = 1;
      return;
    }
  }
  const vector_passes::Scalars s(c);
  const auto column = f.column(s, Index(threadIdx.x) % k);
  double sum[F::sums > 0 ? F::sums : 1] = {};
  const Index stride = Index(gridDim.x) * pass_threads;
  for (Index e = Index(blockIdx.x) * pass_threads + threadIdx.x; e < size; e += F::ahead * stride) {
    typename F::Element held[F::ahead];
#pragma unroll
    for (int u = 0; u < F::ahead; ++u) held[u] = f.load(min(e + u * stride, size - 1));
#pragma unroll
    for (int u = 0; u < F::ahead; ++u) {
      const Index at = e + u * stride;
      if (at < size) f.use(held[u], at, at / k, column, sum);
    }
  }
  if constexpr (F::ends) {
    if (blockIdx.x == 0) end_iteration<k>(f, c, s);
  }
  if constexpr (F::sums > 0) {
    double* const row = F::target == vector_passes::Target::now ? c.now.data : c.next.data;
    double* const target = row + F::first * k;
    finish_columns<k, int(F::sums), pass_threads>(
        sum, c.partials.data, c.ticket.data,
        [&](int what, int v, double total) { target[what * k + v] = total; });
  }
}

template <int k, class F>
void launch(const Stream<Cuda>& stream, const CgPass<Cuda>& c, Index size, const F& f) {
  const Index blocks = std::clamp<Index>(ceil_div(size, pass_threads), 1, blocks_of<F>);
  launch_early(pass_kernel<k, F>, unsigned(blocks), pass_threads, 0, native(stream), size, f, c);
}

template <class F>
void run(const Stream<Cuda>& stream, const CgPass<Cuda>& c, Index size, const F& f) {
  static_assert(most_blocks * F::sums * cg_most_columns <= CgPass<Cuda>::partial_count);
  switch (c.columns) {
    case 1:
      return launch<1>(stream, c, size, f);
    case 2:
      return launch<2>(stream, c, size, f);
    case 4:
      return launch<4>(stream, c, size, f);
    case 8:
      return launch<8>(stream, c, size, f);
    default:
      return launch<16>(stream, c, size, f);
  }
}

// The rest of a classic iteration: a cluster holds the vectors in registers, its blocks add sums up
// in each other's shared memory. 5 us in place of three passes' 10, at 8,192 rows.
constexpr int finish_blocks = 8, finish_threads = 1024, finish_rows = 4;
static_assert(finish_blocks * finish_threads * finish_rows == cg_few_rows);

/// Sums over the cluster, by all its threads; slots: of this block, a place for each block.
template <int count>
__device__ void cluster_sums(double (&sum)[count], double (&slots)[finish_blocks][count]) {
  __shared__ double of_warps[finish_threads / 32][count];
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const auto over_lanes = [](double v) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) v += __shfl_xor_sync(0xffffffffu, v, mask);
    return v;
  };
#pragma unroll
  for (int n = 0; n < count; ++n) {
    const double mine = over_lanes(sum[n]);
    if (lane == 0) of_warps[warp][n] = mine;
  }
  __syncthreads();
  if (warp == 0) {
#pragma unroll
    for (int n = 0; n < count; ++n) {
      const double mine = over_lanes(of_warps[lane][n]);
      if (lane < finish_blocks)
        *device::in_block(&slots[device::cluster_rank()][n], unsigned(lane)) = mine;
    }
  }
  device::meet_cluster();
#pragma unroll
  for (int n = 0; n < count; ++n) {
    sum[n] = 0;
#pragma unroll
    for (int block = 0; block < finish_blocks; ++block) sum[n] += slots[block][n];
  }
}

/// Ends the iteration's row and adds it to the history; by all threads of a block.
__device__ inline void write_row(const double (&now)[cg_row::count], bool on,
                                 const CgPass<Cuda>& c) {
  __shared__ double row[cg_row::size(1)];
  if (threadIdx.x == 0) {
#pragma unroll
    for (int what = 0; what < cg_row::count; ++what) row[what] = now[what];
    row[cg_row::halted(1)] = on ? 0 : 1;
  }
  __syncthreads();
  const Index finished = *c.finished.data, length = cg_row::size(1), v = threadIdx.x;
  __syncthreads();
  if (v < length) {
    c.now.data[v] = row[v];
    c.history.data[finished % (c.history.size / length) * length + v] = row[v];
  }
  if (v == 0) *c.finished.data = finished + 1;
}

/// Rows of a thread: R, one in each of R stretches of the vectors.
template <int R>
__global__ void __launch_bounds__(finish_threads)
    finish_kernel(Index size, const double* q, const double* d, double* r, double* x, double* p,
                  CgPass<Cuda> c) {
  __shared__ double dots[finish_blocks][2], squares[finish_blocks][3];
  device::meet_cluster();  // all blocks are there
  const auto at = [&](int k) {
    return (Index(k) * finish_blocks + blockIdx.x) * finish_threads + threadIdx.x;
  };
  // The launch ahead began when the iteration before was over: these are as that one left them.
  double held_p[R], held_r[R], held_x[R], held_d[R];
#pragma unroll
  for (int k = 0; k < R; ++k) {
    const bool has = at(k) < size;
    held_p[k] = has ? p[at(k)] : 0.0;
    held_r[k] = has ? r[at(k)] : 0.0;
    held_x[k] = has ? x[at(k)] : 0.0;
    held_d[k] = has && d ? d[at(k)] : 1.0;
  }
  const bool skip = *c.skip() != 0;
  const double stop = *c.stop.data;
  double before[cg_row::count] = {}, now[cg_row::count] = {};
#pragma unroll
  for (const Index what : {cg_row::rr, cg_row::rz, cg_row::zz}) before[what] = c.before.data[what];
  vector_passes::Scalars s(c);
  s.before = {before, 1};
  s.now = {now, 1};
  s.stop = &stop;

  wait_for_launch_ahead();
  if (skip) {
    if (blockIdx.x == 0 && threadIdx.x == 0) c.now.data[cg_row::halted(1)] = 1;
    return;
  }
  double held_q[R], dot[2] = {};
#pragma unroll
  for (int k = 0; k < R; ++k) held_q[k] = at(k) < size ? q[at(k)] : 0.0;
#pragma unroll
  for (int k = 0; k < R; ++k) {
    dot[0] += held_p[k] * held_q[k];
    dot[1] += held_p[k] * held_p[k];
  }
  let_next_begin();  // earlier or later loses: the next product's first copies delay what is left
  cluster_sums(dot, dots);
  now[cg_row::pq] = dot[0];
  now[cg_row::pp] = dot[1];
  const double alpha = vector_passes::classic_alpha(s, 0);
  double square[3] = {};
#pragma unroll
  for (int k = 0; k < R; ++k) {
    if (alpha != 0) held_r[k] -= alpha * held_q[k];
    const double z = held_d[k] * held_r[k];
    square[0] += held_r[k] * held_r[k];
    square[1] += held_r[k] * z;
    square[2] += z * z;
  }
  cluster_sums(square, squares);
  now[cg_row::rr] = square[0];
  now[cg_row::rz] = square[1];
  now[cg_row::zz] = square[2];
  const vector_passes::Step step = vector_passes::classic_step(s, 0);
#pragma unroll
  for (int k = 0; k < R; ++k) {
    if (at(k) >= size || step.alpha == 0) continue;
    r[at(k)] = held_r[k];
    x[at(k)] = held_x[k] + step.alpha * held_p[k];
    if (step.on) p[at(k)] = held_d[k] * held_r[k] + step.beta * held_p[k];
  }
  if (blockIdx.x != 0) return;
  now[cg_row::alpha] = step.alpha;
  now[cg_row::den] = step.den;
  now[cg_row::dd] = step.dd;
  write_row(now, step.on, c);
}

template <int R>
void launch_finish(const Stream<Cuda>& stream, const CgPass<Cuda>& c, View<const double, Cuda> q,
                   View<const double, Cuda> d, View<double, Cuda> r, View<double, Cuda> x,
                   View<double, Cuda> p) {
  launch_early<finish_blocks>(finish_kernel<R>, finish_blocks, finish_threads, 0, native(stream),
                              p.size, q.data, d.data, r.data, x.data, p.data, c);
}

}  // namespace

TERRACE_VECTOR_PASSES(Cuda)

bool cg_finishes(const Stream<Cuda>&, Index rows) {
  return rows <= cg_few_rows && compiled_for_hopper();
}
void cg_finish(const Stream<Cuda>& stream, const CgPass<Cuda>& c, View<const double, Cuda> q,
               View<const double, Cuda> d, View<double, Cuda> r, View<double, Cuda> x,
               View<double, Cuda> p) {
  const Index rows = ceil_div(p.size, Index(finish_blocks * finish_threads));
  rows <= 1   ? launch_finish<1>(stream, c, q, d, r, x, p)
  : rows <= 2 ? launch_finish<2>(stream, c, q, d, r, x, p)
              : launch_finish<4>(stream, c, q, d, r, x, p);
}

TERRACE_PREPARED(cg);

}  // namespace terrace::cg
