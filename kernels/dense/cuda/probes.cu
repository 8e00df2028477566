// Probes of the condition: 16 numbers of each row, 128 bytes; what is slow is not the memory but a
// launch and a wait for the host, some 20 us.
#include <bit>

#include "kernels/base/cuda/runtime.cuh"
#include "kernels/dense/probes.hpp"

namespace terrace::dense {

namespace {

constexpr int probe_threads = 256, probe_lanes = int(condition_probes);
static_assert(32 % probe_lanes == 0);

/// One thread per element.
__global__ void probe_kernel(View<const Index, Cuda> row, double* a, Index ld) {
  const Index t = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  const Index s = t / probe_lanes, p = t % probe_lanes;
  if (s >= row.size) return;
  const double cauchy = tan(probe_angle(row.data[s], p));
  a[s * ld + p] = probe_scale * fmin(fmax(cauchy, -largest_probe), largest_probe);
}

/// One thread per element; out: bits of the largest estimate, which are in the order of doubles.
__global__ void probe_norm_kernel(Index rows, const double* y, Index ld, unsigned long long* out) {
  const Index t = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  const Index r = t / probe_lanes, p = t % probe_lanes;
  double logarithms = r < rows ? log(fmax(fabs(y[r * ld + p]), 4.9406564584124654e-324)) : 0.0;
  for (int d = probe_lanes / 2; d > 0; d /= 2)
    logarithms += __shfl_down_sync(~0u, logarithms, d, probe_lanes);
  if (p != 0 || r >= rows) return;
  const double found = exp(logarithms / double(condition_probes));
  if (found > 0) atomicMax(out, static_cast<unsigned long long>(__double_as_longlong(found)));
}

unsigned blocks_of(Index rows) { return unsigned(ceil_div(rows * probe_lanes, probe_threads)); }

}  // namespace

template <>
void put_probes(const Stream<Cuda>& stream, View<const Index, Cuda> row, View<double, Cuda> a,
                Index ld) {
  if (row.size == 0) return;
  probe_kernel<<<blocks_of(row.size), probe_threads, 0, native(stream)>>>(row, a.data, ld);
  check_launch();
}

template <>
double norm_from_probes(const Stream<Cuda>& stream, Index rows, View<const double, Cuda> y,
                        Index ld) {
  if (rows == 0) return 0;
  const Buffer<Word, Cuda> found(1);
  check(cudaMemsetAsync(found.data(), 0, sizeof(Word), native(stream)));
  probe_norm_kernel<<<blocks_of(rows), probe_threads, 0, native(stream)>>>(
      rows, y.data, ld, reinterpret_cast<unsigned long long*>(found.data()));
  check_launch();
  Word bits = 0;
  check(cudaMemcpyAsync(&bits, found.data(), sizeof bits, cudaMemcpyDeviceToHost, native(stream)));
  stream.synchronize();
  return std::bit_cast<double>(bits) / probe_scale;
}

}  // namespace terrace::dense
