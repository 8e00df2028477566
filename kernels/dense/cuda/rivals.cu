// cuSOLVER as a rival, bound by DGEMM: the inverse by getrf + getrs on the identity, 8/3 n^3 flops; a
// solution, 2/3 n^3.
#include "kernels/base/random.hpp"
#include "kernels/dense/cuda/dense.cuh"
#include "kernels/dense/rivals.hpp"

namespace terrace::dense {

namespace {
__global__ void problem_kernel(Index n, double* a, double* b, Word seed) {
  const Index step = Index(gridDim.x) * blockDim.x;
  for (Index e = Index(blockIdx.x) * blockDim.x + threadIdx.x; e < n * n; e += step) {
    a[e] = random_uniform(seed, e / n, e % n);
    b[e] = e / n == e % n ? 1.0 : 0.0;
  }
}
/// LAPACK's columns: a (n x n), then b.
__global__ void system_kernel(Index n, Index right, double* a, double* b, Word seed) {
  const Index step = Index(gridDim.x) * blockDim.x;
  for (Index e = Index(blockIdx.x) * blockDim.x + threadIdx.x; e < n * (n + right); e += step)
    (e < n * n ? a[e] : b[e - n * n]) = random_uniform(seed, e % n, e / n);
}
/// getrf + getrs by columns: b (n x right) := a^-1 b.
RivalRun factor_and_solve(const Stream<Cuda>& stream, Index n, Index right, double* a, double* b) {
  const Buffer<std::int64_t, Cuda> pivots(n);
  const Buffer<int, Cuda> info(2);
  const cusolverDnHandle_t handle = cusolver(stream);
  cusolverDnParams_t params = nullptr;
  check(cusolverDnCreateParams(&params));
  std::size_t on_device = 0, on_host = 0;
  check(cusolverDnXgetrf_bufferSize(handle, params, n, n, CUDA_R_64F, a, n, CUDA_R_64F, &on_device,
                                    &on_host));
  const Buffer<char, Cuda> work(Index(on_device) + 1);
  const PinnedBuffer<char> host_work(Index(on_host) + 1);
  const double seconds = lap_seconds(stream, [&] {
    check(cusolverDnXgetrf(handle, params, n, n, CUDA_R_64F, a, n, pivots.data(), CUDA_R_64F,
                           work.data(), on_device, host_work.data(), on_host, info.data()));
    check(cusolverDnXgetrs(handle, params, CUBLAS_OP_N, n, right, CUDA_R_64F, a, n, pivots.data(),
                           CUDA_R_64F, b, n, info.data() + 1));
  });
  check(cusolverDnDestroyParams(params));
  int found[2];
  download(stream, found, info.view());
  stream.synchronize();
  return {seconds, found[0] != 0 ? found[0] : found[1], {}};
}

}  // namespace

double lap_seconds(const Stream<Cuda>& stream, const std::function<void()>& work) {
  const Event<Cuda> begin = stream.record();
  work();
  const Event<Cuda> end = stream.record();
  stream.synchronize();
  return seconds_between(begin, end);
}

// LAPACK's columns are our rows: of the transpose it finds the transposed inverse.
RivalRun cusolver_inverse(const Stream<Cuda>& stream, Index n, Word seed, View<double, Cuda> b) {
  if (n == 0) return {};
  const Buffer<double, Cuda> a(n * n);
  problem_kernel<<<1024, 256, 0, native(stream)>>>(n, a.data(), b.data, seed);
  check_launch();
  return factor_and_solve(stream, n, n, a.data(), b.data);
}

RivalRun cusolver_solution(const Stream<Cuda>& stream, Index n, Index right, Word seed,
                           View<double, Cuda> x, bool mixed) {
  if (n == 0) return {};
  const Buffer<double, Cuda> a(n * n), b(mixed ? n * right : 0);
  system_kernel<<<1024, 256, 0, native(stream)>>>(n, right, a.data(), mixed ? b.data() : x.data,
                                                  seed);
  check_launch();
  if (!mixed) return factor_and_solve(stream, n, right, a.data(), x.data);
  const cusolverDnHandle_t handle = cusolver(stream);
  const Buffer<int, Cuda> pivots(n), info(1);
  std::size_t bytes = 0;
  check(cusolverDnDXgesv_bufferSize(handle, int(n), int(right), nullptr, int(n), nullptr, nullptr,
                                    int(n), nullptr, int(n), nullptr, &bytes));
  const Buffer<char, Cuda> work(Index(bytes) + 1);
  RivalRun run;
  int steps = 0, found = 0;
  run.seconds = lap_seconds(stream, [&] {
    check(cusolverDnDXgesv(handle, int(n), int(right), a.data(), int(n), pivots.data(), b.data(),
                           int(n), x.data, int(n), work.data(), bytes, &steps, info.data()));
  });
  run.note = std::to_string(steps) + " steps of refinement";
  download(stream, &found, info.view());
  stream.synchronize();
  run.info = found;
  return run;
}

}  // namespace terrace::dense
