// Gauss-Jordan elimination on the GPU: up to 128 columns by one cluster of up to 16 processors.
//
// Every processor keeps its rows of W columns in registers. A column costs one exchange: each
// processor stores its best row in all others' shared memory and chooses among what came. A pivot row
// goes on as -identity, so that it ends as a row of -U^-1. After W columns the rows of U right of
// them are made by every processor for itself, and its own rows are updated by the tensor cores.
// Floor per column: the chain that cluster.cuh states, about 610 cycles; n b^2 flops a panel on 16
// processors.
#include "kernels/dense/cuda/cluster_update.cuh"

namespace terrace::dense {

#ifdef TERRACE_SM90A

namespace cluster {
namespace {

/// Pivot rows of this processor: entries of L to LU, zero instead of them; the rest to `raw`.
template <class Real, int W, int T>
__device__ __forceinline__ void move_pivot_rows(const Place<Real>& at,
                                                const Layout<Real, W, T>& layout, double* memory,
                                                const int* slot_of, int count) {
  const StripOf<Real>& s = at.s;
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const int j0 = at.j0, c0 = j0 + count, rest = int(s.width) - c0;
  for (int t = warp; t < count; t += T / 32) {
    const int r = slot_of[t], lr = r - at.base;
    if (r < 0) {
      if (at.me == 0)
        for (int c = lane; c < rest; c += 32) at.raw[t * panel_most + c] = 0;
      continue;
    }
    if (lr < 0 || lr >= at.rows) continue;
    if (lane == 0) {
      s.column_of[r] = s.first + j0 + t;
      s.pivots[j0 + t] = s.id[r];
      at.pivot_slot[j0 + t] = r;
    }
    double* const lu = s.lu + (j0 + t) * s.block;
    double v[panel_most / 32];
#pragma unroll
    for (int i = 0; i < panel_most / 32; ++i) {
      const int c = lane + 32 * i;
      v[i] = (c < j0 || c >= c0) && c < s.width ? double(__ldcg(s.x + r + c * s.ld)) : 0.0;
    }
#pragma unroll
    for (int i = 0; i < panel_most / 32; ++i) {
      const int c = lane + 32 * i;
      if (c >= j0 && c < j0 + t) {
        Real* const n =
            reinterpret_cast<Real*>(memory + layout.n()) + (c - j0) * layout.ld_n() + lr;
        v[i] = double(*n);
        *n = 0;
      }
      if (c < j0 + t) {
        lu[c] = v[i];
        s.x[r + c * s.ld] = 0;
      } else if (c >= c0 && c < s.width) {
        at.raw[t * panel_most + c - c0] = v[i];
      }
    }
  }
}

/// L of the leaf, and the rows of U right of it.
template <class Real, int W, int T>
__device__ __forceinline__ void load_leaf(const Place<Real>& at, const int* slot_of, int rest,
                                          double* l, double* u) {
  const int tid = int(threadIdx.x);
  constexpr int of_l = (W * W + T - 1) / T, of_u = W * panel_most / T;
  double v[of_l + of_u];
#pragma unroll
  for (int i = 0; i < of_l; ++i) {
    const int t = (tid + i * T) / W, c = tid % W;
    v[i] = t < W && c < t && slot_of[t] >= 0
               ? __ldcg(at.s.lu + (at.j0 + t) * at.s.block + at.j0 + c)
               : 0.0;
  }
#pragma unroll
  for (int i = 0; i < of_u; ++i)
    v[of_l + i] = tid % panel_most < rest ? __ldcg(at.raw + tid + i * T) : 0.0;
#pragma unroll
  for (int i = 0; i < of_l; ++i)
    if (tid + i * T < W * W) l[(tid + i * T) / W * Layout<Real, W, T>::ld_l + tid % W] = v[i];
#pragma unroll
  for (int i = 0; i < of_u; ++i)
    u[(tid + i * T) / panel_most * Layout<Real, W, T>::ld_u + tid % panel_most] = v[of_l + i];
}

/// Factors the strip, width <= panel_most: N, LU, pivots, column_of, and rows of -U^-1.
/// `raw` holds W x panel_most.
template <class Real, int W, int R, int T>
__global__ void __launch_bounds__(T, 1)
    cluster_kernel(StripOf<Real> s, Index* pivot_slot, double* raw, int processors, int rows) {
  extern __shared__ double memory[];
  if (s.info[0] >= 0) return;
  const Layout<Real, W, T> layout{rows};
  const int tid = int(threadIdx.x);
  Place<Real> at{s, pivot_slot, raw, processors, int(blockIdx.x), int(blockIdx.x) * rows, rows, 0};
  unsigned char* const fresh = reinterpret_cast<unsigned char*>(memory + layout.fresh());
  int* const slot_of = reinterpret_cast<int*>(memory + layout.slots());
  for (int i = tid; i < rows; i += T) fresh[i] = 0;
  for (int i = layout.heads() + tid; i < layout.found(); i += T) memory[i] = 0;  // no tag
  arrive_at_barrier();
  Leaf<Real, W, R, T> leaf;
  leaf.prepare(at, layout, memory);
  for (int j0 = 0; j0 < s.width; j0 += W) {
    const int count = min(W, int(s.width) - j0);
    at.j0 = j0;
    leaf.begin(at, layout, memory, count);
    wait_at_barrier();
    int j = 0;
    leaf.template columns<W>(at, layout, memory, j, count);
    leaf.template columns<W * 3 / 4>(at, layout, memory, j, count);
    leaf.template columns<W / 2>(at, layout, memory, j, count);
    leaf.template columns<W / 4>(at, layout, memory, j, count);
    const int c0 = j0 + count, rest = int(s.width) - c0;
    if (leaf.stopped) break;
    leaf.store(layout, s.ld);
    __syncthreads();
    move_pivot_rows<Real, W, T>(at, layout, memory, slot_of, count);
    if (rest == 0) break;
    arrive_at_barrier();
    wait_at_barrier();
    double* const u = memory + layout.u();
    double* const l = memory + layout.l();
    load_leaf<Real, W, T>(at, slot_of, rest, l, u);
    __syncthreads();
    solve_leaf<W, T>(u, l, rest);
    if (at.me == processors - 1)
      for (int e = tid; e < W * panel_most; e += T)
        if (e % panel_most < rest)
          s.lu[(j0 + e / panel_most) * s.block + c0 + e % panel_most] =
              u[e / panel_most * Layout<Real, W, T>::ld_u + e % panel_most];
    update_rows<Real, W, T>(at, layout, memory, c0, rest);
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

template <int W, int R, int T, class Real>
bool launch(const Stream<Cuda>& stream, const StripOf<Real>& s, Index* pivot_slot, double* raw) {
  int processors = 1;
  while (processors < most_processors && Index(processors) * T * R < s.slots) processors *= 2;
  if (Index(processors) * T * R < s.slots) return false;
  const int rows = int(round_up(ceil_div(s.slots, Index(processors)), 32));
  const Layout<Real, W, T> layout{rows};
  const auto kernel = cluster_kernel<Real, W, R, T>;
  static OncePerDevice<bool> once;
  (void)once([&] {
    const Layout<Real, W, T> most{R * T};
    allow_shared(kernel, most.bytes());
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    return true;
  });
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
    static OncePerDevice<bool> once;
    const bool fits = once([&] {
      int clusters = 0;
      return cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) == cudaSuccess &&
             clusters > 0;
    });
    if (!fits) {
      (void)cudaGetLastError();
      return false;
    }
  }
  check(cudaLaunchKernelEx(&config, kernel, s, pivot_slot, raw, processors, rows));
  return true;
}

}  // namespace
}  // namespace cluster

template <class Real>
bool factor_in_cluster(const Stream<Cuda>& stream, const StripOf<Real>& s, Index* pivot_slot,
                       double* raw) {
  if (s.width > cluster::panel_most || s.slots == 0) return false;
  if (cluster::launch<32, 1, 256>(stream, s, pivot_slot, raw) ||
      cluster::launch<32, 2, 256>(stream, s, pivot_slot, raw))
    return true;
  if constexpr (std::is_same_v<Real, double>)
    return cluster::launch<16, 2, 512>(stream, s, pivot_slot, raw) ||
           cluster::launch<8, 4, 512>(stream, s, pivot_slot, raw);
  else
    return cluster::launch<32, 2, 512>(stream, s, pivot_slot, raw) ||
           cluster::launch<16, 4, 512>(stream, s, pivot_slot, raw) ||
           cluster::launch<8, 8, 512>(stream, s, pivot_slot, raw);
}

#else

template <class Real>
bool factor_in_cluster(const Stream<Cuda>&, const StripOf<Real>&, Index*, double*) {
  return false;
}

#endif

template bool factor_in_cluster(const Stream<Cuda>&, const Strip&, Index*, double*);
template bool factor_in_cluster(const Stream<Cuda>&, const StripOf<float>&, Index*, double*);

}  // namespace terrace::dense
