// CSR times vector on CUDA. Floor: 8 bytes a nonzero (4 from its head) and 4 for its column (1 or 2
// from short_columns()), 8 a row pointer, 16 a row (p and q), all
// from HBM once; p is gathered through L1 and L2.
//
// An iteration on 256^3, one H200, whole entries and heads: 27 points 1.39 and 1.02 ms, 7 points 0.68
// and 0.59 (jobs/results/cg.md).
//
// A warp takes chunks of consecutive rows (chunks_of()), streams their values, columns and row
// pointers through shared memory by bulk copies, and adds up with one lane a row: neighbouring
// lanes then gather neighbouring entries of p. Fewer rows a chunk get several lanes each; a row
// longer than a chunk is cut into pieces, whose sums a second kernel adds in order.
#pragma once
#include "kernels/base/cuda/barriers.cuh"
#include "kernels/cg/cuda/products.cuh"

namespace terrace::cg {
using namespace device;

/// What a chunk holds: rows [row, row_end), entries [from, to). Of a piece of a long row: row < 0,
/// ~row is the row.
struct CsrChunk {
  Index row, row_end, from, to;
};
__device__ inline CsrChunk csr_chunk(const Index* chunk, Index c) {
  const longlong2 a = __ldg(reinterpret_cast<const longlong2*>(chunk) + c);
  const longlong2 b = __ldg(reinterpret_cast<const longlong2*>(chunk) + c + 1);
  return {a.x, b.x < 0 ? ~b.x : b.x, a.y, b.y};
}

/// Bytes of shared memory a warp and stage: values, columns, row pointers, each with room for
/// copies that begin and end on lines of 128 bytes (at 16 bytes they are a tenth slower).
template <int room, class T, class C>
__host__ __device__ constexpr int csr_stage_bytes() {
  return int(sizeof(T) + sizeof(C)) * room + 512 + 8 * (csr_chunk_rows + 32);
}

// Loads that keep their order, so that those of a batch are under way together.
__device__ __forceinline__ double shared_double(unsigned at) {
  double v;
  asm volatile("ld.shared.f64 %0, [%1];" : "=d"(v) : "r"(at));
  return v;
}
__device__ __forceinline__ std::int32_t shared_int(unsigned at) {
  std::int32_t v;
  asm volatile("ld.shared.s32 %0, [%1];" : "=r"(v) : "r"(at));
  return v;
}
/// How far a column is from its row, as it is stored in one byte, in two, and in four from row 0.
template <class C>
__device__ __forceinline__ std::int32_t shared_column(unsigned at, unsigned distances) {
  std::int32_t v;
  if constexpr (sizeof(C) == 4) {
    v = shared_int(at);
  } else if constexpr (sizeof(C) == 2) {
    asm volatile("ld.shared.u16 %0, [%1];" : "=r"(v) : "r"(at));
    v -= 1 << 15;
  } else {
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v) : "r"(at));
    v = shared_int(distances + 4 * v);
  }
  return v;
}
/// A double, or a head, at address `at`.
template <bool absolute, class T>
__device__ __forceinline__ double shared_entry(unsigned at) {
  if constexpr (sizeof(T) == 4)
    return entry<absolute>(std::uint32_t(shared_int(at)));
  else
    return entry<absolute>(shared_double(at));
}
__device__ __forceinline__ double gathered_double(const double* at) {
  double v;
  asm volatile("ld.global.nc.f64 %0, [%1];" : "=d"(v) : "l"(at));
  return v;
}

/// Sum of v[e] p[c[e]] over e = from, from + step, ... < to; v, c and `distances` are addresses in
/// shared memory; p is where c counts from. Begins `turn` entries later and comes back to them at the end. Past the end the last
/// entry is loaded again, and counts as zero.
template <int batch, bool absolute, bool turned, class T, class C>
__device__ __forceinline__ double csr_dot(unsigned v, unsigned c, unsigned distances, int from,
                                          int to, int step, int turn,
                                          const double* __restrict__ p) {
  double sum = 0;
  for (int e = from; e < to; e += batch * step) {
    double x[batch];
    int at[batch];
#pragma unroll
    for (int u = 0; u < batch; ++u) {
      at[u] = min(e + u * step, to - 1);
      if constexpr (turned) {
        at[u] += turn;
        at[u] -= at[u] >= to ? to - from : 0;
      }
      x[u] = gathered_double(p + shared_column<C>(c + unsigned(sizeof(C)) * at[u], distances));
    }
#pragma unroll
    for (int u = 0; u < batch; ++u) {
      const double w = shared_entry<absolute, T>(v + unsigned(sizeof(T)) * at[u]);
      if (e + u * step < to) sum += w * x[u];
    }
  }
  return sum;
}
/// Where lane `lane` begins in its row of `count` entries, so that lanes whose rows lie a multiple
/// of 4, 8 or 16 entries apart read different banks.
__device__ __forceinline__ int csr_turn(int count, int lane) {
  const int shift = __ffs(count | 16) - 1;
  return shift < 2 ? 0 : (lane & 15) >> (4 - shift);
}
/// The same of entries in global memory, for the few chunks whose copies would pass an array's end.
template <bool absolute, class T>
__device__ double csr_dot_plain(const T* v, const std::int32_t* c, Index from, Index to, int step,
                                const double* __restrict__ p) {
  double sum = 0;
#pragma unroll 1
  for (Index e = from; e < to; e += step) sum += entry<absolute>(v[e]) * p[c[e]];
  return sum;
}

/// A warp's stages in shared memory.
template <int room, class T, class C>
struct CsrStages {
  static constexpr Index v_line = 128 / sizeof(T), c_line = 128 / sizeof(C);
  const CsrRows<Cuda>& m;
  const T* const value;
  const C* const column;
  unsigned char* const base;
  Word* const full;
  CsrChunk* const held;
  const Word policy = read_once();

  __device__ __forceinline__ T* values(int s) const {
    return reinterpret_cast<T*>(base + s * csr_stage_bytes<room, T, C>());
  }
  __device__ __forceinline__ C* columns(int s) const {
    return reinterpret_cast<C*>(values(s) + room + 2 * v_line);
  }
  __device__ __forceinline__ Index* starts(int s) const {
    return reinterpret_cast<Index*>(columns(s) + room + 2 * c_line);
  }
  /// Addresses of a chunk's first entry.
  __device__ __forceinline__ unsigned first_value(const CsrChunk& k, int s) const {
    return shared_address(values(s)) + unsigned(sizeof(T)) * unsigned(k.from & (v_line - 1));
  }
  __device__ __forceinline__ unsigned first_column(const CsrChunk& k, int s) const {
    return shared_address(columns(s)) + unsigned(sizeof(C)) * unsigned(k.from & (c_line - 1));
  }
  /// The rounded copies stay inside the arrays; short columns have room behind.
  __device__ __forceinline__ bool staged(const CsrChunk& k) const {
    return ((k.to + 31) & ~Index(31)) <= m.value.size &&
           (k.row < 0 || k.row_end + 17 <= m.start.size);
  }
  /// By one lane.
  __device__ __forceinline__ void issue(const CsrChunk& k, int s) const {
    held[s] = k;
    if (!staged(k)) return;
    const Index v0 = k.from & ~(v_line - 1), c0 = k.from & ~(c_line - 1), r0 = k.row & ~Index(15);
    const unsigned vb = unsigned((k.to - v0 + v_line - 1) & ~(v_line - 1)) * unsigned(sizeof(T));
    const unsigned cb = unsigned((k.to - c0 + c_line - 1) & ~(c_line - 1)) * unsigned(sizeof(C));
    const unsigned rb = k.row < 0 ? 0 : unsigned((k.row_end + 1 - r0 + 15) & ~Index(15)) * 8;
    arrive_for_bytes(full + s, vb + cb + rb);
    if (vb > 0) copy_in_bulk(values(s), value + v0, vb, full + s, policy);
    if (cb > 0) copy_in_bulk(columns(s), column + c0, cb, full + s, policy);
    if (rb > 0) copy_in_bulk(starts(s), m.start.data + r0, rb, full + s, policy);
  }
};

/// A chunk as its lanes find it: its entries in shared memory from addresses `v` and `c`, or where
/// they were.
template <class T, class C>
struct CsrStaged {
  const CsrRows<Cuda>& m;
  const T* const value;
  const CsrChunk k;
  const bool in_shared;
  const unsigned v, c, distances;
  const Index* const starts;

  /// The lane's part of entries [from, to) of row `row`, each `step`-th.
  template <int batch, bool absolute>
  __device__ __forceinline__ double dot(Index row, Index from, Index to, int sub, int step,
                                        int turn, const double* __restrict__ p) const {
    if (!in_shared) return csr_dot_plain<absolute>(value, m.column.data, from + sub, to, step, p);
    const int begin = int(from - k.from), end = int(to - k.from);
    if (sizeof(C) < 4) p += row;
    return turn == 0
               ? csr_dot<batch, absolute, false, T, C>(v, c, distances, begin + sub, end, step, 0,
                                                       p)
               : csr_dot<batch, absolute, true, T, C>(v, c, distances, begin, end, 1, turn, p);
  }
  /// By a warp: q of the chunk's rows, or the sum of a piece into m.partial; onto pq and pp.
  template <int batch, bool absolute>
  __device__ __forceinline__ void multiply(Index chunk, const double* __restrict__ p,
                                           double* __restrict__ q, bool add, double& pq,
                                           double& pp) const {
    const int lane = threadIdx.x & 31;
    if (k.row < 0) {
      double sum = dot<batch, absolute>(~k.row, k.from, k.to, lane, 32, 0, p);
#pragma unroll
      for (int offset = 16; offset > 0; offset >>= 1)
        sum += __shfl_down_sync(0xffffffffu, sum, offset);
      if (lane == 0) m.partial.data[chunk] = sum;
      return;
    }
    const int count = int(k.row_end - k.row);
    int width = 1;
    while (width < 32 && width * 2 * count <= 32) width *= 2;
    const int sub = lane & (width - 1), step = 32 / width;
    for (int r = lane / width; r < ((count + step - 1) / step) * step; r += step) {
      double sum = 0;
      if (r < count) {
        const Index from = starts[r], to = starts[r + 1];
        const int turn = width == 1 ? csr_turn(int(to - from), lane) : 0;
        sum = dot<batch, absolute>(k.row + r, from, to, sub, width, turn, p);
      }
      for (int offset = width / 2; offset > 0; offset >>= 1)
        sum += __shfl_down_sync(0xffffffffu, sum, offset);
      if (r < count && sub == 0) {
        const Index i = m.row.size > 0 ? m.row.data[k.row + r] : k.row + r;
        const double mine = __ldg(p + i);
        q[i] = add ? q[i] + sum : sum;
        pq += mine * sum;
        if (!add) pp += mine * mine;
      }
    }
  }
};

/// `value`, `column`: of m, or its heads, or short columns (of all rows).
template <int warps, int blocks, int stages, int batch, int room, bool absolute, class T, class C>
__global__ void __launch_bounds__(32 * warps, blocks)
    csr_stream_kernel(CsrRows<Cuda> m, const T* __restrict__ value, const C* __restrict__ column,
                      const double* __restrict__ p, double* __restrict__ q, SumTarget<Cuda> sums,
                      const double* skip) {
  if (skip && *skip != 0) return;
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ Word full[warps][stages];
  __shared__ CsrChunk held[warps][stages];
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const Index chunks = m.chunk.size / 2 - 1, stride = Index(gridDim.x) * warps;
  const Index own = Index(blockIdx.x) * warps + warp;
  const CsrStages<room, T, C> ring{
      m,          value,     column, memory + warp * stages * csr_stage_bytes<room, T, C>(),
      full[warp], held[warp]};
  if (lane == 0) {
    for (int s = 0; s < stages; ++s) make_barrier(&full[warp][s], 1);
    order_shared_copies();
    for (int s = 0; s < stages; ++s)
      if (own + s * stride < chunks) ring.issue(csr_chunk(m.chunk.data, own + s * stride), s);
  }
  __syncwarp();

  __shared__ std::int32_t distances[sizeof(C) == 1 ? csr_most_distances : 1];
  if constexpr (sizeof(C) == 1) {
    for (int k = int(threadIdx.x); k < int(m.distance.size); k += 32 * warps)
      distances[k] = m.distance.data[k];
    __syncthreads();
  }

  double pq = 0, pp = 0;
  unsigned parity = 0;  // bit s: of stage s
  int s = 0;
  for (Index c = own; c < chunks; c += stride) {
    const Index next = c + stages * stride;
    CsrChunk coming{};
    if (lane == 0 && next < chunks) coming = csr_chunk(m.chunk.data, next);
    const CsrChunk k = held[warp][s];
    const bool in_shared = ring.staged(k);
    if (in_shared) {
      wait_for(&full[warp][s], (parity >> s) & 1);
      parity ^= 1u << s;
    }
    const CsrStaged<T, C> here{m,
                               value,
                               k,
                               in_shared,
                               ring.first_value(k, s),
                               ring.first_column(k, s),
                               shared_address(distances),
                               in_shared ? ring.starts(s) + (k.row & 15) : m.start.data + k.row};
    here.template multiply<batch, absolute>(c, p, q, sums.add, pq, pp);
    __syncwarp();
    if (lane == 0 && next < chunks) ring.issue(coming, s);
    __syncwarp();
    if (++s == stages) s = 0;
  }
  finish_sums(pq, pp, sums);
}

}  // namespace terrace::cg
