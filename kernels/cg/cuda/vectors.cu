// Vector passes of conjugate gradients on CUDA. Bound by HBM: the classic iteration moves 64 bytes
// a row (8 more a pass with Jacobi); below about 10^5 rows by the launch, 2 to 3 us a pass.
#include "kernels/cg/vectors.hpp"

#include <algorithm>

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
  pass_kernel<k><<<unsigned(blocks), pass_threads, 0, native(stream)>>>(size, f, c);
  check_launch();
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

}  // namespace

TERRACE_VECTOR_PASSES(Cuda)

TERRACE_PREPARED(cg);

}  // namespace terrace::cg
