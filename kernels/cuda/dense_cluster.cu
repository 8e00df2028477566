// Gauss-Jordan elimination on the GPU: up to 128 columns by one cluster of up to 16 processors.
//
// Every processor keeps its rows of W columns in registers. A column costs one exchange: each
// processor stores its candidate row in all others' shared memory and chooses among what came. A
// pivot row goes on as -identity, so that it ends as a row of -U^-1. After W columns the rows of U
// right of them are made by every processor for itself, and its own rows are updated by the tensor
// cores.
// Floor per column: a block reduction, one hop between processors (about 200 cycles) and the row's
// bytes; n b^2 flops a panel on 16 processors.
#include "kernels/cuda/dense_panel.cuh"
#include "kernels/cuda/dmma.cuh"

namespace terrace::dense {

#ifdef TERRACE_SM90A

namespace {

constexpr int most_processors = 16;  // of a cluster
constexpr int panel_most = 128;      // columns of one launch

__device__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
/// 16 bytes of a message: a number and, beside it, which column it belongs to. What has come is
/// recognised by that, so that there is no flag, fence or reset. Counts on aligned stores of 16
/// bytes to come whole, as they do on compute capability 9.0; PTX promises 8.
struct Chunk {
  Bits value;
  unsigned row, tag;  ///< row only in the first chunk: bit 31 is the sign of the pivot
};
__device__ void send(unsigned to, unsigned processor, const Chunk& chunk) {
  asm volatile(
      "{\n\t.reg .u32 there;\n\t.reg .u64 two;\n\t"
      "mapa.shared::cluster.u32 there, %0, %1;\n\t"
      "mov.b64 two, {%3, %4};\n\t"
      "st.relaxed.cluster.shared::cluster.v2.u64 [there], {%2, two};\n\t}" ::"r"(to),
      "r"(processor), "l"(chunk.value), "r"(chunk.row), "r"(chunk.tag)
      : "memory");
}
/// The chunk at `from` of every lane that `wants` one, once they have come with `tag`.
__device__ Chunk receive(unsigned from, bool wants, unsigned tag) {
  Chunk chunk{0, 0, tag};
  do {
    if (wants)
      asm volatile(
          "{\n\t.reg .u64 two;\n\t"
          "ld.relaxed.cluster.shared::cta.v2.u64 {%0, two}, [%3];\n\t"
          "mov.b64 {%1, %2}, two;\n\t}"
          : "=l"(chunk.value), "=r"(chunk.row), "=r"(chunk.tag)
          : "r"(from)
          : "memory");
  } while (!__all_sync(~0u, chunk.tag == tag));
  return chunk;
}
__device__ void arrive_at_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ void wait_at_barrier() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// |value| as ordered bits, its exponent one up so that 0 means no candidate; not finite counts as
/// infinity.
__device__ Bits rank_of(double value) {
  const unsigned high = unsigned(__double2hiint(value)) & 0x7fffffffu;
  const bool finite = high < 0x7ff00000u;
  return Bits((finite ? high : 0x7ff00000u) + 1) << 32 |
         (finite ? unsigned(__double2loint(value)) : 0u);
}
__device__ bool is_usable(Bits key) { return key > Bits(1) << 32 && key < Bits(0x7ff00001u) << 32; }
__device__ bool is_infinite(Bits key) { return key == Bits(0x7ff00001u) << 32; }

/// One bit: the lane with the best (key, row), the largest key, the lowest row among equal ones.
__device__ unsigned best_lane(Bits key, int row) {
  const unsigned high = unsigned(key >> 32), best = __reduce_max_sync(~0u, high);
  unsigned mask = __ballot_sync(~0u, high == best);
  if (mask & (mask - 1)) {
    const unsigned low = unsigned(key);
    const unsigned best_low = __reduce_max_sync(~0u, high == best ? low : 0u);
    const bool equal = high == best && low == best_low;
    const unsigned lowest = __reduce_min_sync(~0u, equal ? unsigned(row) : unsigned(INT_MAX));
    mask = __ballot_sync(~0u, equal && unsigned(row) == lowest);
  }
  return mask & (0u - mask);
}

__device__ double reciprocal(double p) {
  double r;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(p));
  r = fma(r, fma(-p, r, 1.0), r);
  return fma(r, fma(-p, r, 1.0), r);
}

/// Shared memory of one processor, in doubles; everything begins at a multiple of 16 bytes.
template <int W>
struct Layout {
  int rows;  // of the processor, a multiple of 32
  static constexpr int ld_u = panel_most + 4, ld_l = W + 4;
  static constexpr int message = 2 * W;  // header, a[1], a[2] ... as chunks
  static constexpr int row = W + 2;      // key, row, unused, a[0], a[1] ...
  __host__ __device__ int ld_n() const { return rows + 4; }
  __host__ __device__ int n() const { return 0; }  // column by column
  __host__ __device__ int u() const { return n() + W * ld_n(); }
  __host__ __device__ int l() const { return u() + W * ld_u; }  // L, then its inverse blocks
  __host__ __device__ int board() const { return l() + 2 * W * ld_l; }
  __host__ __device__ int stage() const { return board() + 2 * most_processors * message; }
  __host__ __device__ int pivot() const { return stage() + 2 * 16 * row; }  // a row for every warp
  __host__ __device__ int warps() const { return pivot() + 16 * row; }      // 2 x 16 (key, row)
  __host__ __device__ int slots() const { return warps() + 2 * 16 * 2; }    // W ints
  __host__ __device__ int fresh() const { return slots() + W / 2; }         // a byte a row
  __host__ __device__ int bytes() const { return fresh() * 8 + rows; }
};

/// What all columns of a launch have in common.
struct Place {
  Strip s;
  Index* pivot_slot;
  double* raw;  // W x panel_most: pivot rows right of the leaf, for all processors
  int processors, me, base, rows, j0;
};

template <int W, int R, int T>
struct Leaf {
  static constexpr int warps = T / 32;
  double a[R][W];
  unsigned open;  // bit q: row q may become a pivot row
  int step;       // columns since the kernel began
  bool stopped;

  /// One column, a[.][0], number j of the leaf; LIVE columns are still wanted. Leaves a[.][c] one
  /// place to the left.
  template <int LIVE>
  __device__ void column(const Place& at, const Layout<W>& layout, double* memory, int j) {
    const Strip& s = at.s;
    const int tid = int(threadIdx.x), warp = tid / 32, lane = tid % 32;
    constexpr int slot = Layout<W>::message, size = Layout<W>::row;
    double* const board = memory + layout.board() + (step & 1) * most_processors * slot;
    double* const stages = memory + layout.stage() + (step & 1) * 16 * size;
    double* const stage = stages + warp * size;
    const unsigned tag = unsigned(step) + 1;
    ulonglong2* const found =
        reinterpret_cast<ulonglong2*>(memory + layout.warps()) + (step & 1) * 16;
    // The warp's best row goes to its stage.
    Bits key = 0;
    int row = INT_MAX, which = 0;
#pragma unroll
    for (int q = 0; q < R; ++q) {
      const Bits mine = rank_of(a[q][0]);
      if ((open >> q & 1) && mine > key) {
        key = mine;
        row = at.base + q * T + tid;
        which = q;
      }
    }
    if (best_lane(key, row) == 1u << lane) {
#pragma unroll
      for (int q = 0; q < R; ++q)
        if (q == which) {
          const unsigned sign = unsigned(__double2hiint(a[q][0])) & 0x80000000u;
          found[warp] = {key, Bits(unsigned(row) | sign)};
#pragma unroll
          for (int c = 1; c < LIVE; c += 2)
            *reinterpret_cast<double2*>(stage + 1 + c) = {a[q][c],
                                                          c + 1 < LIVE ? a[q][c + 1] : 0.0};
        }
    }
    __syncthreads();
    // The processor's best row goes to all.
    constexpr unsigned row_bits = 0x7fffffffu;
    const ulonglong2 other = lane < warps ? found[lane] : ulonglong2{0, INT_MAX};
    const int best = __ffs(int(best_lane(other.x, int(unsigned(other.y) & row_bits)))) - 1;
    if (lane < LIVE) {
      const unsigned to = shared_address(board + at.me * slot + lane * 2);
      const Chunk chunk =
          lane == 0 ? Chunk{found[best].x, unsigned(found[best].y), tag}
                    : Chunk{Bits(__double_as_longlong(stages[best * size + 1 + lane])), 0, tag};
      for (int processor = warp; processor < at.processors; processor += warps)
        send(to, unsigned(processor), chunk);
    }
    ++step;
    const Chunk head = receive(shared_address(board + lane * slot), lane < at.processors, tag);
    const int winner =
        __ffs(int(best_lane(lane < at.processors ? head.value : 0,
                            lane < at.processors ? int(head.row & row_bits) : INT_MAX))) -
        1;
    key = __shfl_sync(~0u, head.value, winner);
    const unsigned signed_row = __shfl_sync(~0u, head.row, winner);
    row = int(signed_row & row_bits);
    const bool usable = is_usable(key);
    const double pivot = __longlong_as_double(
        (long long)((key - (Bits(1) << 32)) | Bits(signed_row & ~row_bits) << 32));
    const double inverse = reciprocal(pivot);
    const Chunk mine =
        receive(shared_address(board + winner * slot + lane * 2), lane > 0 && lane < LIVE, tag);
    const double value = lane == 0 ? pivot : __longlong_as_double((long long)mine.value);
    double* const p = memory + layout.pivot() + warp * size + 1;
    if (lane < LIVE) p[lane] = value;
    __syncwarp();
    const int column = at.j0 + j;
    if (tid == 0) reinterpret_cast<int*>(memory + layout.slots())[j] = usable ? row : -1;
    if (!usable) {
      pass<LIVE>(at, layout, memory, j, row, is_infinite(key));
      return;
    }
    if (at.me == 0 && warp == 1 % warps && lane < LIVE && j + lane < W && column + lane < s.width)
      s.lu[column * s.block + column + lane] = value;
    const unsigned exponent =
        unsigned(key >> 52);  // one over what is too small or too large for 1/p
    const bool divide = exponent < 64 || exponent > 1982;
    double l[R];
#pragma unroll
    for (int q = 0; q < R; ++q) {
      const int lr = q * T + tid, r = at.base + lr;
      if (lr < at.rows && r == row) {
        open &= ~(1u << q);
        reinterpret_cast<unsigned char*>(memory + layout.fresh())[lr] = 1;
#pragma unroll
        for (int c = 1; c < LIVE; ++c) a[q][c] = 0;
        a[q][0] = -1;
      }
      l[q] = a[q][0] * inverse;
      if (divide) l[q] = a[q][0] / pivot;
    }
#pragma unroll
    for (int c = 1; c < LIVE; c += 2) {
      const double2 two = *reinterpret_cast<const double2*>(p + c);
#pragma unroll
      for (int q = 0; q < R; ++q) {
        a[q][c - 1] = fma(-l[q], two.x, a[q][c]);
        if (c + 1 < LIVE) a[q][c] = fma(-l[q], two.y, a[q][c + 1]);
      }
    }
    finish(at, layout, memory, j, l);
  }

  __device__ void finish(const Place& at, const Layout<W>& layout, double* memory, int j,
                         const double (&l)[R]) {
#pragma unroll
    for (int q = 0; q < R; ++q) {
      const int lr = q * T + int(threadIdx.x), r = at.base + lr;
      if (lr >= at.rows) continue;
      memory[layout.n() + j * layout.ld_n() + lr] = l[q];
      if (r < at.s.slots) at.s.x[r + (at.j0 + j) * at.s.ld] = l[q];
    }
  }

  /// A column without a usable pivot: the end, or, where columns are passed over, a row of the
  /// identity in LU.
  template <int LIVE>
  __device__ void pass(const Place& at, const Layout<W>& layout, double* memory, int j, int row,
                       bool infinite) {
    const Strip& s = at.s;
    const int column = at.j0 + j, tid = int(threadIdx.x);
    if (at.me == 0 && tid == 0) {
      at.pivot_slot[column] = -1;
      if (!s.skip) {
        s.info[0] = s.offset + column;
        s.info[1] = infinite ? 2 : 1;
      }
    }
    stopped = !s.skip;
    if (stopped) return;
    if (at.me == 0)
      for (int c = tid; c < W && j + c < W && column + c < s.width; c += T)
        s.lu[column * s.block + column + c] = c == 0 ? 1.0 : 0.0;
    double l[R];
#pragma unroll
    for (int q = 0; q < R; ++q) {
      const int lr = q * T + tid, r = at.base + lr;
      if (lr < at.rows && r == row && infinite) {  // not finite: let it show
        open &= ~(1u << q);
        s.column_of[r] = s.first + column;
      }
      l[q] = 0;
#pragma unroll
      for (int c = 1; c < LIVE; ++c) a[q][c - 1] = a[q][c];
    }
    finish(at, layout, memory, j, l);
  }

  template <int LIVE>
  __device__ void columns(const Place& at, const Layout<W>& layout, double* memory, int& j,
                          int count) {
    const int end = min(count, W - LIVE + W / 4);
#pragma unroll 1
    for (; j < end && !stopped; ++j) column<LIVE>(at, layout, memory, j);
  }
};

/// c (16 x 8) += a (16 x 8) b (8 x 8); the parts of device::dmma() for q < 2.
__device__ void dmma8(double (&c)[4], const double* a, const double (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
}

/// Own rows, columns [c0, c0 + rest) of the strip -= N U; pivot rows of this leaf begin at zero.
/// A warp takes 16 rows, 32 columns at a time, and loads the next while it multiplies.
template <int W, int T>
__device__ void update_rows(const Place& at, const Layout<W>& layout, const double* memory, int c0,
                            int rest) {
  const Strip& s = at.s;
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const int g = lane / 4, t = lane % 4;
  const double* const n = memory + layout.n();
  const double* const u = memory + layout.u();
  const unsigned char* const fresh =
      reinterpret_cast<const unsigned char*>(memory + layout.fresh());
  for (int r0 = warp * 16; r0 < at.rows && at.base + r0 < s.slots; r0 += T / 2) {
    double a[W / 2];
#pragma unroll
    for (int k = 0; k < W; k += 4)
#pragma unroll
      for (int h = 0; h < 2; ++h) a[k / 2 + h] = -n[(k + t) * layout.ld_n() + r0 + g + 8 * h];
    const bool zero[2] = {fresh[r0 + g] != 0, fresh[r0 + g + 8] != 0};
    double* const x = s.x + at.base + r0 + g + Index(c0 + 2 * t) * s.ld;
    double next[4][4];
    const auto load = [&](int c) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          next[i][e] = c + 8 * i + 2 * t + (e & 1) < rest && !zero[e / 2]
                           ? __ldcg(x + (c + 8 * i + (e & 1)) * s.ld + 8 * (e / 2))
                           : 0.0;
    };
    load(0);
    for (int c = 0; c < rest; c += 32) {
      double v[4][4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) v[i][e] = next[i][e];
      if (c + 32 < rest) load(c + 32);
#pragma unroll
      for (int k = 0; k < W; k += 16)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if constexpr (W == 8) {
            const double b[2] = {u[t * Layout<W>::ld_u + c + 8 * i + g],
                                 u[(4 + t) * Layout<W>::ld_u + c + 8 * i + g]};
            dmma8(v[i], a, b);
          } else {
            double b[4], part[8];
            device::load_b(b, u + k * Layout<W>::ld_u, Layout<W>::ld_u, c + 8 * i, lane);
#pragma unroll
            for (int e = 0; e < 8; ++e) part[e] = a[k / 2 + e];
            device::dmma(v[i], part, b);
          }
        }
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (c + 8 * i + 2 * t + (e & 1) < rest)
            x[(c + 8 * i + (e & 1)) * s.ld + 8 * (e / 2)] = v[i][e];
    }
  }
}

/// u := L^-1 u, `rest` columns of W rows. l: L (unit lower, row-major, zero above), then room for
/// the inverses of its blocks of 16. Ends with a block barrier.
template <int W, int T>
__device__ void solve_leaf(double* u, double* l, int rest) {
  constexpr int ld_u = Layout<W>::ld_u, ld_l = Layout<W>::ld_l;
  const int tid = int(threadIdx.x), warp = tid / 32, lane = tid % 32;
  if constexpr (W == 8) {
    if (tid < rest) {
      double v[W];
#pragma unroll
      for (int t = 0; t < W; ++t) v[t] = u[t * ld_u + tid];
#pragma unroll
      for (int t = 0; t < W; ++t)
#pragma unroll
        for (int i = t + 1; i < W; ++i) v[i] = fma(-l[i * ld_l + t], v[t], v[i]);
#pragma unroll
      for (int t = 0; t < W; ++t) u[t * ld_u + tid] = v[t];
    }
  } else {
    double* const inverse = l + W * ld_l;  // block k, column c: rows at (16 k + c) * ld_l
    if (tid < W) {
      const double* const block = l + tid / 16 * 16 * (ld_l + 1);
      double v[16];
#pragma unroll
      for (int r = 0; r < 16; ++r) v[r] = r == tid % 16 ? 1.0 : 0.0;
#pragma unroll
      for (int t = 0; t < 15; ++t)
#pragma unroll
        for (int r = t + 1; r < 16; ++r) v[r] = fma(-block[r * ld_l + t], v[t], v[r]);
#pragma unroll
      for (int r = 0; r < 16; ++r) inverse[tid * ld_l + r] = v[r];
    }
    __syncthreads();
    const int g = lane / 4, t = lane % 4;
    for (int c = warp * 8; c < rest; c += T / 4) {
#pragma unroll
      for (int k = 0; k < W / 16; ++k) {
        double a[8], b[4], v[4];
        double* const mine = u + k * 16 * ld_u + c;
        if (k > 0) {
#pragma unroll
          for (int e = 0; e < 4; ++e) v[e] = mine[(g + 8 * (e / 2)) * ld_u + 2 * t + (e & 1)];
#pragma unroll
          for (int i = 0; i < k; ++i) {
#pragma unroll
            for (int q = 0; q < 4; ++q)
#pragma unroll
              for (int h = 0; h < 2; ++h)
                a[2 * q + h] = -l[(16 * k + g + 8 * h) * ld_l + 16 * i + 4 * q + t];
            device::load_b(b, u + i * 16 * ld_u, ld_u, c, lane);
            device::dmma(v, a, b);
          }
          __syncwarp();
#pragma unroll
          for (int e = 0; e < 4; ++e) mine[(g + 8 * (e / 2)) * ld_u + 2 * t + (e & 1)] = v[e];
          __syncwarp();
        }
        device::load_negated_a(a, inverse + k * 16 * ld_l, ld_l, 0, lane);
        device::load_b(b, mine - c, ld_u, c, lane);
#pragma unroll
        for (int e = 0; e < 4; ++e) v[e] = 0;
        device::dmma(v, a, b);
        __syncwarp();
#pragma unroll
        for (int e = 0; e < 4; ++e) mine[(g + 8 * (e / 2)) * ld_u + 2 * t + (e & 1)] = -v[e];
        __syncwarp();
      }
    }
  }
  __syncthreads();
}

/// Factors the strip, width <= panel_most: N, LU, pivots, column_of, and rows of -U^-1.
/// `raw` holds W x panel_most.
template <int W, int R, int T>
__global__ void __launch_bounds__(T, 1)
    cluster_kernel(Strip s, Index* pivot_slot, double* raw, int processors, int rows) {
  extern __shared__ double memory[];
  if (s.info[0] >= 0) return;
  const Layout<W> layout{rows};
  const int tid = int(threadIdx.x), warp = tid / 32, lane = tid % 32;
  Place at{s, pivot_slot, raw, processors, int(blockIdx.x), int(blockIdx.x) * rows, rows, 0};
  unsigned char* const fresh = reinterpret_cast<unsigned char*>(memory + layout.fresh());
  int* const slot_of = reinterpret_cast<int*>(memory + layout.slots());
  for (int i = tid; i < rows; i += T) fresh[i] = 0;
  for (int i = tid; i < 2 * most_processors * Layout<W>::message; i += T)
    memory[layout.board() + i] = 0;  // no tag
  arrive_at_barrier();
  Leaf<W, R, T> leaf;
  leaf.step = 0;
  leaf.stopped = false;
  leaf.open = 0;
#pragma unroll
  for (int q = 0; q < R; ++q) {
    const int lr = q * T + tid, r = at.base + lr;
    if (lr < rows && r < s.slots && s.column_of[r] == -1) leaf.open |= 1u << q;
  }
  for (int j0 = 0; j0 < s.width; j0 += W) {
    const int count = min(W, int(s.width) - j0);
    at.j0 = j0;
#pragma unroll
    for (int q = 0; q < R; ++q) {
      const int lr = q * T + tid, r = at.base + lr;
#pragma unroll
      for (int c = 0; c < W; ++c)
        leaf.a[q][c] =
            lr < rows && r < s.slots && c < count ? __ldcg(s.x + r + (j0 + c) * s.ld) : 0.0;
    }
    wait_at_barrier();
    int j = 0;
    leaf.template columns<W>(at, layout, memory, j, count);
    leaf.template columns<W * 3 / 4>(at, layout, memory, j, count);
    leaf.template columns<W / 2>(at, layout, memory, j, count);
    leaf.template columns<W / 4>(at, layout, memory, j, count);
    __syncthreads();
    const int c0 = j0 + count, rest = int(s.width) - c0;
    if (leaf.stopped) break;
    // Pivot rows of this processor: entries of L to LU, zero instead of them; the rest to `raw`.
    for (int t = warp; t < count; t += T / 32) {
      const int r = slot_of[t], lr = r - at.base;
      if (r < 0) {
        if (at.me == 0)
          for (int c = lane; c < rest; c += 32) raw[t * panel_most + c] = 0;
        continue;
      }
      if (lr < 0 || lr >= rows) continue;
      if (lane == 0) {
        s.column_of[r] = s.first + j0 + t;
        s.pivots[j0 + t] = s.id[r];
        pivot_slot[j0 + t] = r;
      }
      double* const lu = s.lu + (j0 + t) * s.block;
      double v[panel_most / 32];
#pragma unroll
      for (int i = 0; i < panel_most / 32; ++i) {
        const int c = lane + 32 * i;
        v[i] = (c < j0 || c >= c0) && c < s.width ? __ldcg(s.x + r + c * s.ld) : 0.0;
      }
#pragma unroll
      for (int i = 0; i < panel_most / 32; ++i) {
        const int c = lane + 32 * i;
        if (c >= j0 && c < j0 + t) {
          double* const n = memory + layout.n() + (c - j0) * layout.ld_n() + lr;
          v[i] = *n;
          *n = 0;
        }
        if (c < j0 + t) {
          lu[c] = v[i];
          s.x[r + c * s.ld] = 0;
        } else if (c >= c0 && c < s.width) {
          raw[t * panel_most + c - c0] = v[i];
        }
      }
    }
    if (rest == 0) break;
    arrive_at_barrier();
    wait_at_barrier();
    double* const u = memory + layout.u();
    double* const l = memory + layout.l();
    {
      constexpr int of_l = (W * W + T - 1) / T, of_u = W * panel_most / T;
      double v[of_l + of_u];
#pragma unroll
      for (int i = 0; i < of_l; ++i) {
        const int t = (tid + i * T) / W, c = tid % W;
        v[i] = t < W && c < t && slot_of[t] >= 0 ? __ldcg(s.lu + (j0 + t) * s.block + j0 + c) : 0.0;
      }
#pragma unroll
      for (int i = 0; i < of_u; ++i)
        v[of_l + i] = tid % panel_most < rest ? __ldcg(raw + tid + i * T) : 0.0;
#pragma unroll
      for (int i = 0; i < of_l; ++i)
        if (tid + i * T < W * W) l[(tid + i * T) / W * Layout<W>::ld_l + tid % W] = v[i];
#pragma unroll
      for (int i = 0; i < of_u; ++i)
        u[(tid + i * T) / panel_most * Layout<W>::ld_u + tid % panel_most] = v[of_l + i];
    }
    __syncthreads();
    solve_leaf<W, T>(u, l, rest);
    if (at.me == processors - 1)
      for (int e = tid; e < W * panel_most; e += T)
        if (e % panel_most < rest)
          s.lu[(j0 + e / panel_most) * s.block + c0 + e % panel_most] =
              u[e / panel_most * Layout<W>::ld_u + e % panel_most];
    update_rows<W, T>(at, layout, memory, c0, rest);
    __syncthreads();
    arrive_at_barrier();  // the next leaf's pivot rows are read by all
    for (int t = tid; t < count; t += T) {
      const int lr = slot_of[t] - at.base;
      if (slot_of[t] >= 0 && lr >= 0 && lr < rows) fresh[lr] = 0;
    }
  }
  arrive_at_barrier();  // messages may be under way to a processor until all are here
  wait_at_barrier();
}

template <int W, int R, int T>
bool launch(const Stream<Cuda>& stream, const Strip& s, Index* pivot_slot, double* raw) {
  int processors = 1;
  while (processors < most_processors && Index(processors) * T * R < s.slots) processors *= 2;
  if (Index(processors) * T * R < s.slots) return false;
  const int rows = int(round_up(ceil_div(s.slots, Index(processors)), 32));
  const Layout<W> layout{rows};
  const auto kernel = cluster_kernel<W, R, T>;
  static const bool ready = [&] {
    const Layout<W> most{R * T};
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most.bytes()));
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    return true;
  }();
  (void)ready;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(unsigned(processors));
  config.blockDim = dim3(T);
  config.dynamicSmemBytes = std::size_t(layout.bytes());
  config.stream = native(stream);
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {unsigned(processors), 1, 1};
  config.attrs = &cluster;
  config.numAttrs = 1;
  if (processors > 8) {  // a device may have no room for 16
    static const bool fits = [&] {
      int clusters = 0;
      return cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) == cudaSuccess &&
             clusters > 0;
    }();
    if (!fits) {
      (void)cudaGetLastError();
      return false;
    }
  }
  check(cudaLaunchKernelEx(&config, kernel, s, pivot_slot, raw, processors, rows));
  return true;
}

}  // namespace

bool factor_in_cluster(const Stream<Cuda>& stream, const Strip& s, Index* pivot_slot, double* raw) {
  if (s.width > panel_most || s.slots == 0) return false;
  return launch<32, 1, 256>(stream, s, pivot_slot, raw) ||
         launch<32, 2, 256>(stream, s, pivot_slot, raw) ||
         launch<16, 2, 512>(stream, s, pivot_slot, raw) ||
         launch<8, 4, 512>(stream, s, pivot_slot, raw);
}

#else

bool factor_in_cluster(const Stream<Cuda>&, const Strip&, Index*, double*) { return false; }

#endif

}  // namespace terrace::dense
