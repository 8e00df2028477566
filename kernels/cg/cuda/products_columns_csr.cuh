// CSR times 2, 4, 8 or 16 vectors, row-major. Floor: 8 bytes a nonzero and 1, 2 or 4 for its column,
// 16 columns a row for p and q, all from HBM once; the gathers of p go through L1, 8 columns bytes a
// nonzero at 128 bytes a clock, which is the more: `lanes` lanes take a row of p as one piece.
//
// A team of two warps streams chunks of rows as products_csr.cuh does; lanes take two columns of a
// row each. Blocks take turns with as many neighbouring chunks as they have teams: rows of p which
// neighbouring rows share are in L1 then, and those of the next lines and planes of a mesh in L2.
#pragma once
#include "kernels/cg/cuda/column_sums.cuh"
#include "kernels/cg/cuda/products_csr.cuh"

namespace terrace::cg {

/// sum += `batch` entries of a row from e on, of those before `to`; v, c and `distances` are
/// addresses in shared memory.
template <int lanes, int batch, bool whole, class C>
__device__ __forceinline__ void csr_columns_batch(double2& sum, unsigned v, unsigned c,
                                                  unsigned distances, int e, int to,
                                                  const double2* __restrict__ p) {
  double2 x[batch];
#pragma unroll
  for (int u = 0; u < batch; ++u) {
    const int at = whole ? e + u : min(e + u, to - 1);
    x[u] = __ldg(p + Index(shared_column<C>(c + unsigned(sizeof(C)) * at, distances)) * lanes);
  }
#pragma unroll
  for (int u = 0; u < batch; ++u) {
    if (!whole && e + u >= to) break;
    const double a = shared_double(v + 8 * (e + u));
    sum.x += a * x[u].x;
    sum.y += a * x[u].y;
  }
}
/// The row's entries [from, to) in shared memory times rows of p, two columns.
template <int lanes, int batch, class C>
__device__ __forceinline__ double2 csr_columns_dot(unsigned v, unsigned c, unsigned distances,
                                                   int from, int to,
                                                   const double2* __restrict__ p) {
  double2 sum = make_double2(0, 0);
  int e = from;
  for (; e + batch <= to; e += batch)
    csr_columns_batch<lanes, batch, true, C>(sum, v, c, distances, e, to, p);
  for (; e < to; e += 4) csr_columns_batch<lanes, 4, false, C>(sum, v, c, distances, e, to, p);
  return sum;
}
/// The same of entries in global memory, for the few chunks whose copies would pass an array's end.
__device__ inline double2 csr_columns_dot_plain(const CsrRows<Cuda>& m, Index from, Index to,
                                                const double2* __restrict__ p, int lanes) {
  double2 sum = make_double2(0, 0);
#pragma unroll 1
  for (Index e = from; e < to; ++e) {
    const double a = m.value.data[e];
    const double2 x = p[Index(m.column.data[e]) * lanes];
    sum.x += a * x.x;
    sum.y += a * x.y;
  }
  return sum;
}

/// 2 lanes columns. Pieces of long rows are left out. `column`: of m, or short columns.
template <int teams, int lanes, int batch, class C>
__global__ void __launch_bounds__(64 * teams, 1)
    csr_columns_stream_kernel(CsrRows<Cuda> m, const C* __restrict__ column,
                              const double2* __restrict__ p, double2* __restrict__ q,
                              SumTarget<Cuda> sums, const double* skip) {
  if (skip && *skip != 0) return;
  constexpr int team_threads = 64, groups = team_threads / lanes, room = csr_chunk_entries;
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ Word full[teams];
  __shared__ CsrChunk held[teams];
  const int team = threadIdx.x / team_threads, thread = threadIdx.x % team_threads;
  const Index end = m.chunk.size / 2 - 1, stride = Index(gridDim.x) * teams;
  const Index own = Index(blockIdx.x) * teams + team;
  const CsrStages<room, double, C> ring{
      m,           m.value.data, column, memory + team * csr_stage_bytes<room, double, C>(),
      full + team, held + team};
  if (thread == 0) {
    make_barrier(&full[team], 1);
    order_shared_copies();
    if (own < end) ring.issue(csr_chunk(m.chunk.data, own), 0);
  }
  constexpr bool is_short = sizeof(C) < 4;
  __shared__ std::int32_t distances[sizeof(C) == 1 ? csr_most_distances : 1];
  const unsigned far = shared_address(distances);
  if constexpr (sizeof(C) == 1)
    for (int k = int(threadIdx.x); k < int(m.distance.size); k += team_threads * teams)
      distances[k] = m.distance.data[k];
  __syncthreads();

  p += thread % lanes;
  q += thread % lanes;
  ColumnProducts<2> products;
  unsigned parity = 0;
  for (Index c = own; c < end; c += stride) {
    const Index next = c + stride;
    CsrChunk coming{};
    if (thread == 0 && next < end) coming = csr_chunk(m.chunk.data, next);
    const CsrChunk k = held[team];
    const bool in_shared = ring.staged(k);
    if (in_shared) {
      wait_for(&full[team], parity);
      parity ^= 1;
    }
    const unsigned v = ring.first_value(k, 0), cs = ring.first_column(k, 0);
    const Index* const st = in_shared ? ring.starts(0) + (k.row & 15) : m.start.data + k.row;
    const int count = k.row < 0 ? 0 : int(k.row_end - k.row);
    for (int r = thread / lanes; r < count; r += groups) {
      double2 sum = in_shared ? csr_columns_dot<lanes, batch, C>(
                                    v, cs, far, int(st[r] - k.from), int(st[r + 1] - k.from),
                                    is_short ? p + (k.row + r) * lanes : p)
                              : csr_columns_dot_plain(m, st[r], st[r + 1], p, lanes);
      const Index row = m.row.size > 0 ? m.row.data[k.row + r] : k.row + r;
      const double2 mine = __ldg(p + row * lanes);
      products.add(0, mine.x, sum.x, !sums.add);
      products.add(1, mine.y, sum.y, !sums.add);
      double2* const to = q + row * lanes;
      if (sums.add) {
        const double2 old = *to;
        sum.x += old.x, sum.y += old.y;
      }
      *to = sum;
    }
    meet(1 + team, team_threads);
    if (thread == 0 && next < end) ring.issue(coming, 0);
    meet(1 + team, team_threads);
  }
  products.template finish<lanes, team_threads * teams>(sums, 2 * lanes, 2 * lanes);
}

}  // namespace terrace::cg
