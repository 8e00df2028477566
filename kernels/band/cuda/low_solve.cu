// Roofline: the factor is read once a direction, 2 bytes for 2 flops a right-hand side: HBM,
// 4.3 TB/s. A chain of steps stands against it: the way solved rows -> worker -> chain (about 2 us)
// every fourth step, and 48 KiB a step that one multiprocessor brings.
//
// The two launches of kernels/band/cuda/parts_few.cu in single precision. A chain block solves the
// steps one after the other,
//   solved(t) = gathered(t) - sum_{d = 1..3} (D T_d) solved(t - d),
// and worker blocks, dealt the steps round-robin, send it
//   gathered(t) = D (b - sum_{d >= 4} T_d solved(t - d)).
// Step t is tile column t going forward, count - 1 - t going backward, where T_d and D are
// transposed. Numbers travel with a tag in their own word: no fence, no flag. All blocks are
// resident, and each takes its steps in order, so none waits for ever. Sums have a fixed order.
#include "kernels/band/cuda/low_worker.cuh"

namespace terrace::band {
namespace low {

Index factor_scratch(const Factor& f);

namespace {

using namespace substitution;

// ---- D T_d

/// near: [direction][step][d - 1] as the chain reads it: piece (a, thread) of four numbers is row
/// thread / 4, columns 16 a + 4 (thread % 4) on. One product a block: x = step, y = d - 1, z =
/// direction.
__global__ void __launch_bounds__(256) near_kernel(Factor f) {
  __shared__ float left[kW][kW + 1], right[kW][kW + 1];
  const Index t = blockIdx.x;
  const int d = int(blockIdx.y) + 1, backward = int(blockIdx.z), thread = int(threadIdx.x);
  float* const out = f.near + ((backward * f.count + t) * kNear + d - 1) * kTile;
  if (t - d < 0 || d > f.reach_tiles) {
    for (int at = thread; at < kTile; at += 256) out[at] = 0.0f;
    return;
  }
  const Index j = backward ? f.count - 1 - t : t;
  const __half* const inverse = f.tile(j, 0);
  const __half* const rest = f.rest + j * kTile;
  const __half* const tile = backward ? tile_of<true>(f, t, d) : tile_of<false>(f, t, d);
  for (int at = thread; at < kTile; at += 256) {
    const int r = at / kW, c = at % kW, from = place(r, c);
    const float value = __half2float(inverse[from]) + __half2float(rest[from]);
    (backward ? left[c][r] : left[r][c]) = value;
    (backward ? right[c][r] : right[r][c]) = __half2float(tile[from]);
  }
  __syncthreads();
  const int r = thread / 4, g = thread % 4;
#pragma unroll
  for (int a = 0; a < 4; ++a) {
    float sum[4] = {};
    for (int k = 0; k < kW; ++k)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[e] = fmaf(left[r][k], right[k][16 * a + 4 * g + e], sum[e]);
    reinterpret_cast<float4*>(out)[a * 256 + thread] = make_float4(sum[0], sum[1], sum[2], sum[3]);
  }
}

// ---- the launch

/// Block 0 is the chain, the rest workers.
template <bool transposed, int V>
__global__ void __launch_bounds__(kThreads, 1) solve_kernel(const __grid_constant__ Solve s) {
  if (blockIdx.x == 0)
    Chain<transposed, V>{s}.run();
  else
    Worker<transposed, V>{s, int(blockIdx.x) - 1, int(gridDim.x) - 1}.run();
}

template <bool transposed, int V>
void launch(cudaStream_t stream, Solve s) {
  constexpr int bytes = shared_size(V);
  static OncePerDevice<int> once;
  const int resident =
      once([] { return resident_blocks(solve_kernel<transposed, V>, kThreads, bytes); });
  if (resident < 2)
    throw Error(Exit::resources, "too few multiprocessors; kernels/band/cuda/low_solve.cu");
  const Index blocks = std::min<Index>(resident, 1 + s.f.count);
  void* arguments[] = {&s};
  check(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(solve_kernel<transposed, V>),
                                    dim3(unsigned(blocks)), dim3(kThreads), arguments,
                                    std::size_t(bytes), stream));
}
template <int V>
void substitute(cudaStream_t stream, const Solve& s) {
  const std::size_t board = std::size_t(2 * s.f.count * kW * V) * sizeof(Word);
  check(cudaMemsetAsync(s.solved, 0, board, stream));
  launch<false, V>(stream, s);
  check(cudaMemsetAsync(s.solved, 0, board, stream));
  launch<true, V>(stream, s);
}

// ---- in and out

/// largest[v] := the bits of max_i |scale_i r_iv|; NaN counts as more than all numbers.
__global__ void __launch_bounds__(256)
    largest_kernel(Index padded_rows, Index stride, int columns, const double* scale,
                   const double* r, unsigned long long* largest) {
  __shared__ unsigned long long of_block[kMost];
  if (threadIdx.x < kMost) of_block[threadIdx.x] = 0;
  __syncthreads();
  const Index step = Index(gridDim.x) * 256;
  for (int v = 0; v < columns; ++v) {
    unsigned long long most = 0;
    for (Index i = Index(blockIdx.x) * 256 + threadIdx.x; i < padded_rows; i += step) {
      const double s = scale[i];
      const double value = s == 0.0 ? 0.0 : fabs(s * r[i * stride + v]);
      most = max(most, (unsigned long long)__double_as_longlong(value));
    }
    atomicMax(&of_block[v], most);
  }
  __syncthreads();
  if (int(threadIdx.x) < columns) atomicMax(largest + threadIdx.x, of_block[threadIdx.x]);
}
/// Power of two that the largest number is divided by.
__device__ inline int exponent_of(unsigned long long largest) {
  const double value = __longlong_as_double((long long)largest);
  return value > 0.0 && value < INFINITY ? ilogb(value) : 0;
}
template <int V>
__global__ void __launch_bounds__(256)
    in_kernel(Index padded_rows, Index stride, int columns, const double* scale, const double* r,
              const unsigned long long* largest, float* rows) {
  const Index at = Index(blockIdx.x) * 256 + threadIdx.x, i = at / V;
  const int v = int(at % V);
  if (i >= padded_rows) return;
  const double s = scale[i];
  rows[at] = v < columns && s != 0.0
                 ? float(scalbn(s * r[i * stride + v], -exponent_of(largest[v])))
                 : 0.0f;
}
template <int V>
__global__ void __launch_bounds__(256)
    out_kernel(Index padded_rows, Index stride, int columns, const double* scale,
               const unsigned long long* largest, const float* rows, double* z) {
  const Index at = Index(blockIdx.x) * 256 + threadIdx.x, i = at / V;
  const int v = int(at % V);
  if (i >= padded_rows || v >= columns) return;
  const double s = scale[i];
  z[i * stride + v] = s == 0.0 ? 0.0 : s * scalbn(double(rows[at]), exponent_of(largest[v]));
}

struct Places {
  Index largest = 0, rows = 0, solved = 0, gathered = 0, size = 0;
  Places(const Factor& f, Index nrhs) {
    const Index each = f.count * kW * padded(std::min<Index>(nrhs, kMost));
    rows = largest + kMost + kMost % 2;
    solved = rows + round_up(ceil_div(each, 2), 2);
    gathered = solved + each;
    size = gathered + each;
  }
};

template <int V>
void solve(cudaStream_t stream, const Factor& f, Index stride, int columns, const double* scale,
           const double* r, double* z, Word* scratch) {
  const Places places(f, columns);
  auto* const largest = reinterpret_cast<unsigned long long*>(scratch + places.largest);
  const Solve s{f, reinterpret_cast<float*>(scratch + places.rows), scratch + places.solved,
                scratch + places.gathered};
  const Index n = f.count * kW;
  const unsigned blocks = unsigned(ceil_div(n * V, 256));
  check(cudaMemsetAsync(largest, 0, kMost * sizeof(Word), stream));
  largest_kernel<<<unsigned(std::min<Index>(ceil_div(n, 256), 1024)), 256, 0, stream>>>(
      n, stride, columns, scale, r, largest);
  check_launch();
  in_kernel<V><<<blocks, 256, 0, stream>>>(n, stride, columns, scale, r, largest, s.rows);
  check_launch();
  substitute<V>(stream, s);
  out_kernel<V><<<blocks, 256, 0, stream>>>(n, stride, columns, scale, largest, s.rows, z);
  check_launch();
}

}  // namespace

void form_near(cudaStream_t stream, const Factor& f) {
  near_kernel<<<dim3(unsigned(f.count), kNear, 2), 256, 0, stream>>>(f);
  check_launch();
}

}  // namespace low

using namespace device;
using namespace low;

Index band_low_scratch(Cuda, BandShape s, Index nrhs) {
  const Factor f(s, nullptr);
  return std::max(factor_scratch(f), Places(f, std::max<Index>(nrhs, 1)).size);
}

void band_low_solve(const Stream<Cuda>& stream, BandShape s, View<const Word, Cuda> low,
                    View<const double, Cuda> scale, Index nrhs, View<const double, Cuda> r,
                    View<double, Cuda> z, View<Word, Cuda> scratch) {
  const Factor f(s, low.data);
  if (s.width != kW || low.size < f.words() || scale.size < s.padded() ||
      r.size < s.padded() * nrhs || z.size < s.padded() * nrhs ||
      (nrhs > 0 && scratch.size < Places(f, nrhs).size))
    throw Error(Exit::internal, "sizes of a solve; kernels/band/cuda/low_solve.cu");
  if (f.count == 0) return;
  for (Index first = 0; first < nrhs; first += kMost) {
    const int columns = int(std::min<Index>(kMost, nrhs - first));
    switch (padded(columns)) {
      case 1:
        solve<1>(native(stream), f, nrhs, columns, scale.data, r.data + first, z.data + first,
                 scratch.data);
        break;
      case 2:
        solve<2>(native(stream), f, nrhs, columns, scale.data, r.data + first, z.data + first,
                 scratch.data);
        break;
      case 4:
        solve<4>(native(stream), f, nrhs, columns, scale.data, r.data + first, z.data + first,
                 scratch.data);
        break;
      default:
        solve<8>(native(stream), f, nrhs, columns, scale.data, r.data + first, z.data + first,
                 scratch.data);
    }
  }
}

}  // namespace terrace::band
