// Vector passes of conjugate gradients on CUDA. Bound by HBM: cg_step moves 48 bytes a row,
// cg_direction 24 (8 more each with Jacobi); below about 10^5 rows by the launch, 3 us.
#include "kernels/vectors.hpp"

#include <algorithm>

#include "kernels/cuda/sums.cuh"

namespace terrace {
namespace {

constexpr Index most_blocks = 1056;  // 8 a multiprocessor of an H200

unsigned blocks_for(Index n) { return sum_blocks(ceil_div(n, Index(sum_threads)), most_blocks); }

__device__ double step_length(const double* before, const double* now, CgLimits limits) {
  return cg_step_length(before[cg_row::rr], before[cg_row::rz], now[cg_row::pq], now[cg_row::pp],
                        limits);
}

__global__ void __launch_bounds__(sum_threads)
    restart_kernel(Index n, const double* __restrict__ b, const double* __restrict__ q,
                   const double* __restrict__ d, double* __restrict__ r, double* __restrict__ p,
                   SumTarget<Cuda> sums) {
  double rr = 0, rz = 0;
  const Index stride = Index(gridDim.x) * blockDim.x;
  for (Index i = Index(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
    const double value = b[i] - q[i];
    const double z = d ? d[i] * value : value;
    r[i] = value;
    p[i] = z;
    rr += value * value;
    rz += value * z;
  }
  finish_sums(rr, rz, sums);
}

__global__ void __launch_bounds__(sum_threads)
    step_kernel(Index n, const double* before, const double* now, CgLimits limits,
                const double* __restrict__ p, const double* __restrict__ q,
                const double* __restrict__ d, double* __restrict__ x, double* __restrict__ r,
                SumTarget<Cuda> sums) {
  const double alpha = step_length(before, now, limits);
  double rr = 0, rz = 0;
  const Index stride = Index(gridDim.x) * blockDim.x;
#pragma unroll 2
  for (Index i = Index(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
    double value = r[i];
    if (alpha != 0) {
      x[i] += alpha * p[i];
      value -= alpha * q[i];
      r[i] = value;
    }
    rr += value * value;
    rz += d ? value * (d[i] * value) : value * value;
  }
  finish_sums(rr, rz, sums);
}

__global__ void __launch_bounds__(sum_threads)
    direction_kernel(Index n, const double* before, const double* now, CgLimits limits,
                     const double* __restrict__ r, const double* __restrict__ d,
                     double* __restrict__ p) {
  if (step_length(before, now, limits) == 0 || !cg_active(now[cg_row::rr], now[cg_row::rz], limits))
    return;
  const double beta = now[cg_row::rz] / before[cg_row::rz];
  const Index stride = Index(gridDim.x) * blockDim.x;
#pragma unroll 2
  for (Index i = Index(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride)
    p[i] = (d ? d[i] * r[i] : r[i]) + beta * p[i];
}

__global__ void __launch_bounds__(sum_threads)
    gather_kernel(Index n, const Index* __restrict__ index, const double* __restrict__ from,
                  double* __restrict__ to) {
  const Index stride = Index(gridDim.x) * blockDim.x;
  for (Index i = Index(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride)
    to[i] = from[index[i]];
}

}  // namespace

void cg_restart(const Stream<Cuda>& stream, View<const double, Cuda> b, View<const double, Cuda> q,
                View<const double, Cuda> inverse_diagonal, View<double, Cuda> r,
                View<double, Cuda> p, View<double, Cuda> row, const SumSpace<Cuda>& space) {
  restart_kernel<<<blocks_for(r.size), sum_threads, 0, native(stream)>>>(
      r.size, b.data, q.data, inverse_diagonal.data, r.data, p.data,
      sums_to(space, row.slice(cg_row::rr, 2)));
  check_launch();
}

void cg_step(const Stream<Cuda>& stream, View<const double, Cuda> before, View<double, Cuda> now,
             CgLimits limits, View<const double, Cuda> p, View<const double, Cuda> q,
             View<const double, Cuda> inverse_diagonal, View<double, Cuda> x, View<double, Cuda> r,
             const SumSpace<Cuda>& space) {
  step_kernel<<<blocks_for(r.size), sum_threads, 0, native(stream)>>>(
      r.size, before.data, now.data, limits, p.data, q.data, inverse_diagonal.data, x.data, r.data,
      sums_to(space, now.slice(cg_row::rr, 2)));
  check_launch();
}

void cg_direction(const Stream<Cuda>& stream, View<const double, Cuda> before,
                  View<const double, Cuda> now, CgLimits limits, View<const double, Cuda> r,
                  View<const double, Cuda> inverse_diagonal, View<double, Cuda> p) {
  if (r.size == 0) return;
  direction_kernel<<<blocks_for(r.size), sum_threads, 0, native(stream)>>>(
      r.size, before.data, now.data, limits, r.data, inverse_diagonal.data, p.data);
  check_launch();
}

void gather(const Stream<Cuda>& stream, View<const Index, Cuda> index,
            View<const double, Cuda> from, View<double, Cuda> to) {
  if (index.size == 0) return;
  gather_kernel<<<blocks_for(index.size), sum_threads, 0, native(stream)>>>(index.size, index.data,
                                                                            from.data, to.data);
  check_launch();
}

}  // namespace terrace
