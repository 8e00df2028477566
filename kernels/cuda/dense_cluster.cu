// Gauss-Jordan elimination on the GPU: up to 128 columns by one cluster of up to 16 processors.
//
// Every processor keeps its rows of W columns in registers. A column costs one exchange: each
// processor sends its candidate row to all others' shared memory (st.async on an mbarrier) and
// chooses among what came; no launch, no flag in L2. A pivot row goes on as -identity, so that it
// ends as a row of -U^-1. After W columns the rows of U right of them are made by every processor
// for itself, and its own rows are updated by the tensor cores.
// Floor per column: two block reductions, one hop between processors (about 200 cycles) and the
// row's bytes; n b^2 flops a panel on 16 processors.
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
__device__ unsigned remote_address(unsigned address, unsigned rank) {
  unsigned out;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(out) : "r"(address), "r"(rank));
  return out;
}
__device__ void send(unsigned to, double2 value, unsigned barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f64 [%0], {%1, %2}, [%3];" ::"r"(
          to),
      "d"(value.x), "d"(value.y), "r"(barrier)
      : "memory");
}
__device__ void cluster_barrier() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n\t"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}
__device__ void expect(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ void await(unsigned barrier, unsigned parity) {
  asm volatile(
      "{\n\t.reg .pred done;\n\t"
      "again:\n\t"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n\t"
      "@!done bra again;\n\t}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

/// Best (key, row) of a warp, the lowest row among equal keys.
__device__ void warp_best(Bits& key, int& row) {
  const unsigned high = unsigned(key >> 32), low = unsigned(key);
  const unsigned best_high = __reduce_max_sync(~0u, high);
  const unsigned best_low = __reduce_max_sync(~0u, high == best_high ? low : 0u);
  const bool mine = high == best_high && low == best_low;
  row = int(__reduce_min_sync(~0u, mine ? unsigned(row) : unsigned(INT_MAX)));
  key = Bits(best_high) << 32 | best_low;
}

__device__ double reciprocal(double p) {
  double r;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(p));
  r = fma(r, fma(-p, r, 1.0), r);
  return fma(r, fma(-p, r, 1.0), r);
}

/// Shared memory of one processor. Doubles first, all offsets multiples of 16 bytes.
template <int W>
struct Layout {
  int rows;  // of the processor, a multiple of 32
  __host__ __device__ int ld_n() const { return rows + 4; }
  static constexpr int ld_u = panel_most + 4;
  static constexpr int message = W + 2;  // key, row, row of the panel
  __host__ __device__ int n() const { return 0; }
  __host__ __device__ int u() const { return n() + W * ld_n(); }
  __host__ __device__ int l() const { return u() + W * ld_u; }
  __host__ __device__ int board() const { return l() + W * (W + 2); }
  __host__ __device__ int outgoing() const { return board() + 2 * most_processors * message; }
  __host__ __device__ int warps() const { return outgoing() + 2 * message; }  // keys, rows
  __host__ __device__ int barriers() const { return warps() + 2 * 2 * 32; }
  __host__ __device__ int slots() const { return barriers() + 2; }    // W ints
  __host__ __device__ int fresh() const { return slots() + W / 2; }  // a byte a row
  __host__ __device__ int bytes() const { return fresh() * 8 + rows; }
};

/// One column step's common data.
struct Place {
  Strip s;
  Index* pivot_slot;
  int processors, me, base, rows, j0;
};

template <int W, int R, int T>
struct Leaf {
  double a[R][W];
  unsigned open;  // bit q: row q may become a pivot row
  int step;       // columns since the kernel began
  bool stopped;

  /// One column: a[.][0]; LIVE columns are still wanted. Column j of the leaf.
  template <int LIVE>
  __device__ void column(const Place& at, const Layout<W>& layout, double* memory, int j) {
    const Strip& s = at.s;
    const int tid = int(threadIdx.x), warp = tid / 32, lane = tid % 32, parity = step & 1;
    constexpr int chunks = LIVE / 2 + 1;
    double* const board = memory + layout.board() + parity * most_processors * Layout<W>::message;
    Bits* const warp_key = reinterpret_cast<Bits*>(memory + layout.warps()) + parity * 64;
    int* const warp_row = reinterpret_cast<int*>(warp_key + 32);
    const unsigned barrier = shared_address(memory + layout.barriers() + parity);
    if (tid == 0) expect(barrier, unsigned(at.processors) * chunks * 16);
    Bits key = 0;
    int row = INT_MAX;
#pragma unroll
    for (int q = 0; q < R; ++q) {
      const Bits mine = key_of(a[q][0]);
      if ((open >> q & 1) && mine > key) {
        key = mine;
        row = at.base + q * T + tid;
      }
    }
    warp_best(key, row);
    if (lane == 0) {
      warp_key[warp] = key;
      warp_row[warp] = row;
    }
    __syncthreads();
    key = lane < T / 32 ? warp_key[lane] : 0;
    row = lane < T / 32 ? warp_row[lane] : INT_MAX;
    warp_best(key, row);
    const int local = row - at.base;
    if (warp == (key == 0 ? 0 : local % T / 32)) {
      double* const out = memory + layout.outgoing() + parity * Layout<W>::message;
#pragma unroll
      for (int q = 0; q < R; ++q)
        if (key == 0 ? q == 0 && lane == 0 : local == q * T + tid) {
          out[0] = __longlong_as_double((long long)key);
          out[1] = __longlong_as_double((long long)row);
#pragma unroll
          for (int c = 0; c < LIVE; ++c) out[2 + c] = a[q][c];
        }
      __syncwarp();
      const unsigned target = unsigned(lane) % unsigned(at.processors);
      const int each = 32 / at.processors;
      const unsigned to =
          remote_address(shared_address(board + at.me * Layout<W>::message), target);
      const unsigned signal = remote_address(barrier, target);
      for (int chunk = lane / at.processors; chunk < chunks; chunk += each)
        send(to + unsigned(chunk) * 16, reinterpret_cast<const double2*>(out)[chunk], signal);
    }
    await(barrier, unsigned(step >> 1) & 1u);
    ++step;
    const double* const theirs = board + lane * Layout<W>::message;
    key = lane < at.processors ? Bits(__double_as_longlong(theirs[0])) : 0;
    row = lane < at.processors ? int(__double_as_longlong(theirs[1])) : INT_MAX;
    const int own_row = row;
    warp_best(key, row);
    const int winner = __ffs(int(__ballot_sync(~0u, own_row == row))) - 1;
    const double* const p = board + winner * Layout<W>::message + 2;
    const double size = key == 0 ? 0.0 : value_of(key);
    const bool usable = size > 0 && size < INFINITY;
    const int column = at.j0 + j;
    if (tid == 0) reinterpret_cast<int*>(memory + layout.slots())[j] = usable ? row : -1;
    if (at.me == 0 && tid == 0 && !usable) {
      at.pivot_slot[column] = -1;
      if (!s.skip) {
        s.info[0] = column;
        s.info[1] = size > 0 ? 2 : 1;
      }
    }
    if (!usable && !s.skip) {
      stopped = true;
      return;
    }
    if (at.me == 0 && warp == 1 % (T / 32))
      for (int c = lane; c < LIVE && column + c < s.width && j + c < W; c += 32)
        s.lu[column * s.block + column + c] = usable ? p[c] : c == 0 ? 1.0 : 0.0;
    const double pivot = p[0], inverse = reciprocal(pivot);
    const bool divide = !(size > 1e-290 && size < 1e290);
#pragma unroll
    for (int q = 0; q < R; ++q) {
      const int lr = q * T + tid, r = at.base + lr;
      if (lr < at.rows && key != 0 && r == row && (usable || size > 0)) {
        open &= ~(1u << q);
        s.column_of[r] = s.first + column;
        if (usable) {
          s.pivots[column] = s.id[r];
          at.pivot_slot[column] = r;
          reinterpret_cast<unsigned char*>(memory + layout.fresh())[lr] = 1;
#pragma unroll
          for (int c = 1; c < LIVE; ++c) a[q][c] = 0;
          a[q][0] = -1;
        }
      }
      double l = 0;
      if (usable) l = divide ? a[q][0] / pivot : a[q][0] * inverse;
      if (lr < at.rows) {
        memory[layout.n() + j * layout.ld_n() + lr] = l;
        if (r < s.slots) s.x[r + column * s.ld] = l;
      }
#pragma unroll
      for (int c = 1; c < LIVE; ++c) a[q][c - 1] = usable ? fma(-l, p[c], a[q][c]) : a[q][c];
    }
  }

  template <int LIVE>
  __device__ void columns(const Place& at, const Layout<W>& layout, double* memory, int& j,
                          int count) {
    const int end = min(count, W - LIVE + W / 4);
#pragma unroll 1
    for (; j < end && !stopped; ++j) column<LIVE>(at, layout, memory, j);
  }
};

/// W x 8 products for K = 8.
__device__ void dmma8(double (&c)[4], const double (&a)[4], const double (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
}

/// Own rows, columns [c0, c0 + rest) of the strip -= N U; pivot rows of this leaf begin at zero.
template <int W, int T>
__device__ void update_rows(const Place& at, const Layout<W>& layout, const double* memory, int c0,
                            int rest) {
  constexpr int group = 4;  // of 8 columns
  const Strip& s = at.s;
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const int g = lane / 4, t = lane % 4;
  const double* const n = memory + layout.n();
  const double* const u = memory + layout.u();
  const unsigned char* const fresh =
      reinterpret_cast<const unsigned char*>(memory + layout.fresh());
  for (int r0 = warp * 16; r0 < at.rows && at.base + r0 < s.slots; r0 += T / 2) {
    double a[W / 4 * 2];
#pragma unroll
    for (int k = 0; k < W; k += 4)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        a[k / 2 + h] = -n[(k + t) * layout.ld_n() + r0 + g + 8 * h];
    const bool zero[2] = {fresh[r0 + g] != 0, fresh[r0 + g + 8] != 0};
    double* const x = s.x + at.base + r0 + g + Index(c0 + 2 * t) * s.ld;
    for (int c = 0; c < rest; c += 8 * group) {
      double v[group][4];
#pragma unroll
      for (int i = 0; i < group; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          v[i][e] = c + 8 * i + 2 * t + (e & 1) < rest && !zero[e / 2]
                        ? __ldcg(x + (c + 8 * i + (e & 1)) * s.ld + 8 * (e / 2))
                        : 0.0;
#pragma unroll
      for (int i = 0; i < group; ++i) {
        if (c + 8 * i >= rest) break;
        if constexpr (W == 8) {
          const double b[2] = {u[t * Layout<W>::ld_u + c + 8 * i + g],
                               u[(4 + t) * Layout<W>::ld_u + c + 8 * i + g]};
          dmma8(v[i], reinterpret_cast<const double(&)[4]>(a), b);
        } else {
#pragma unroll
          for (int k = 0; k < W; k += 16) {
            double b[4];
            device::load_b(b, u + k * Layout<W>::ld_u, Layout<W>::ld_u, c + 8 * i, lane);
            double part[8];
#pragma unroll
            for (int e = 0; e < 8; ++e) part[e] = a[k / 2 + e];
            device::dmma(v[i], part, b);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < group; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (c + 8 * i + 2 * t + (e & 1) < rest)
            x[(c + 8 * i + (e & 1)) * s.ld + 8 * (e / 2)] = v[i][e];
    }
  }
}

/// Factors the strip, width <= panel_most: N, LU, pivots, column_of, and rows of -U^-1.
template <int W, int R, int T>
__global__ void __launch_bounds__(T, 1)
    cluster_kernel(Strip s, Index* pivot_slot, int processors, int rows) {
  extern __shared__ double memory[];
  if (s.info[0] >= 0) return;
  const Layout<W> layout{rows};
  const int tid = int(threadIdx.x), warp = tid / 32, lane = tid % 32;
  Place at{s, pivot_slot, processors, int(blockIdx.x), int(blockIdx.x) * rows, rows, 0};
  unsigned char* const fresh = reinterpret_cast<unsigned char*>(memory + layout.fresh());
  int* const slot_of = reinterpret_cast<int*>(memory + layout.slots());
  for (int i = tid; i < rows; i += T) fresh[i] = 0;
  if (tid == 0) {
    for (int b = 0; b < 2; ++b)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(
                       shared_address(memory + layout.barriers() + b))
                   : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  cluster_barrier();
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
    int j = 0;
    leaf.template columns<W>(at, layout, memory, j, count);
    leaf.template columns<W * 3 / 4>(at, layout, memory, j, count);
    leaf.template columns<W / 2>(at, layout, memory, j, count);
    leaf.template columns<W / 4>(at, layout, memory, j, count);
    if (leaf.stopped) return;
    __syncthreads();
    // Pivot rows of this processor: their entries of L go to LU and become zero.
    for (int t = warp; t < count; t += T / 32) {
      const int r = slot_of[t], lr = r - at.base;
      if (r < 0 || lr < 0 || lr >= rows) continue;
      double* const lu = s.lu + (j0 + t) * s.block;
      for (int c = lane; c < j0 + t; c += 32) {
        double* const x = s.x + r + c * s.ld;
        if (c >= j0) {
          double* const n = memory + layout.n() + (c - j0) * layout.ld_n() + lr;
          lu[c] = *n;
          *n = 0;
        } else {
          lu[c] = __ldcg(x);
        }
        *x = 0;
      }
    }
    const int c0 = j0 + count, rest = int(s.width) - c0;
    if (rest == 0) break;
    // Rows of U right of the leaf.
    double* const u = memory + layout.u();
    double* const l = memory + layout.l();
    for (int e = tid; e < count * rest; e += T) {
      const int t = e / rest, c = e % rest, r = slot_of[t];
      u[t * Layout<W>::ld_u + c] = r < 0 ? 0.0 : __ldcg(s.x + r + (c0 + c) * s.ld);
    }
    cluster_barrier();  // LU of the leaf is complete; nobody reads the pivot rows any more
    for (int e = tid; e < W * W; e += T)
      l[e / W * (W + 2) + e % W] =
          e % W < e / W && slot_of[e / W] >= 0 ? __ldcg(s.lu + (j0 + e / W) * s.block + j0 + e % W)
                                               : 0.0;
    __syncthreads();
    if (tid < rest) {
      double v[W];
#pragma unroll
      for (int t = 0; t < W; ++t) v[t] = u[t * Layout<W>::ld_u + tid];
#pragma unroll
      for (int t = 0; t < W; ++t) {
#pragma unroll
        for (int i = 0; i < W; ++i)
          if (i > t) v[i] = fma(-l[i * (W + 2) + t], v[t], v[i]);
        u[t * Layout<W>::ld_u + tid] = v[t];
        if (at.me == 0) s.lu[(j0 + t) * s.block + c0 + tid] = v[t];
      }
    }
    __syncthreads();
    update_rows<W, T>(at, layout, memory, c0, rest);
    cluster_barrier();  // the next leaf's pivot rows are read by all
    for (int t = tid; t < count; t += T) {
      const int lr = slot_of[t] - at.base;
      if (slot_of[t] >= 0 && lr >= 0 && lr < rows) fresh[lr] = 0;
    }
    __syncthreads();
  }
}

template <int W, int R, int T>
bool launch(const Stream<Cuda>& stream, const Strip& s, Index* pivot_slot) {
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
  check(cudaLaunchKernelEx(&config, kernel, s, pivot_slot, processors, rows));
  return true;
}

}  // namespace

bool factor_in_cluster(const Stream<Cuda>& stream, const Strip& s, Index* pivot_slot) {
  if (s.width > panel_most || s.slots == 0) return false;
  return launch<32, 1, 256>(stream, s, pivot_slot) || launch<32, 1, 512>(stream, s, pivot_slot) ||
         launch<16, 2, 512>(stream, s, pivot_slot) || launch<8, 4, 512>(stream, s, pivot_slot);
}

#else

bool factor_in_cluster(const Stream<Cuda>&, const Strip&, Index*) { return false; }

#endif

}  // namespace terrace::dense
