// Deterministic sums of columns in .cu files: block sums land in `partials`, the last block to finish
// adds them in order.
#pragma once
#include "kernels/base/cuda/sums.cuh"

namespace terrace::cg {

/// Last statement of a kernel, by all of its `threads` threads, a multiple of 32: for what < sums and
/// v < k, to(what, v, total) with the total over the grid of s[what] of the threads with threadIdx.x
/// % k == v, in a fixed order. k: a power of two, at most 32. partials: sums k numbers a block;
/// *ticket is zero between launches.
template <int k, int sums, int threads, class To>
__device__ void finish_columns(const double (&s)[sums], double* partials, Word* ticket,
                               const To& to) {
  constexpr auto power_of_two = [](int v, bool above) {
    int p = 1;
    while (above ? p < v : 2 * p <= v) p *= 2;
    return p;
  };
  constexpr int values = k * sums, lanes = power_of_two(values, true), warps = threads / 32;
  constexpr int adding = power_of_two(threads, false), groups = adding / lanes;
  static_assert(groups > 0);
  __shared__ double parts[warps][values];
  __shared__ double tree[adding];
  __shared__ bool last;
  const int thread = int(threadIdx.x), warp = thread >> 5, lane = thread & 31;
#pragma unroll
  for (int what = 0; what < sums; ++what) {
    double value = s[what];
#pragma unroll
    for (int offset = 16; offset >= k; offset >>= 1)
      value += __shfl_down_sync(0xffffffffu, value, offset);
    if (lane < k) parts[warp][what * k + lane] = value;
  }
  __syncthreads();
  if (thread < values) {
    double value = 0;
#pragma unroll
    for (int w = 0; w < warps; ++w) value += parts[w][thread];
    if (gridDim.x == 1)
      to(thread / k, thread % k, value);
    else
      partials[Index(blockIdx.x) * values + thread] = value;
    __threadfence();
  }
  if (gridDim.x == 1) return;
  __syncthreads();
  if (thread == 0) {
    last = atomicAdd(reinterpret_cast<unsigned long long*>(ticket), 1ull) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (!last) return;
  const int value_of = thread % lanes, group = thread / lanes;
  double value = 0;
  if (value_of < values && group < groups)
    add_in_batches<16>(
        group, int(gridDim.x), groups,
        [&](int block) { return __ldcg(partials + Index(block) * values + value_of); },
        [&](double part) { value += part; });
  if (thread < adding) tree[thread] = value;
  for (int half = groups / 2; half > 0; half >>= 1) {
    __syncthreads();
    if (group < half) tree[thread] += tree[thread + half * lanes];
  }
  if (thread < values) to(thread / k, thread % k, tree[thread]);
  if (thread == 0) *ticket = 0;
}

/// p.q and p.p of columns each v, each v + 1, ... as thread v = threadIdx.x % k finds them.
template <int each>
struct ColumnProducts {
  double s[2 * each] = {};  // p.q of the columns, then p.p

  __device__ __forceinline__ void add(int column, double p, double q, bool add_pp = true) {
    s[column] += p * q;
    if (add_pp) s[each + column] += p * p;
  }
  /// As finish_columns(): of `columns` columns; from p.q to p.p of one are `ld` numbers.
  template <int k, int threads>
  __device__ __forceinline__ void finish(const SumTarget<Cuda>& target, int columns, int ld) const {
    double* const result = target.result.data;
    finish_columns<k, 2 * each, threads>(s, target.partials.data, target.ticket.data,
                                         [&](int what, int v, double total) {
                                           const int column = each * v + what % each;
                                           if (column >= columns) return;
                                           double* const to = result + what / each * ld + column;
                                           *to = target.add ? *to + total : total;
                                         });
  }
};

}  // namespace terrace::cg
