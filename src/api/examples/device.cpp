// Arrays that live on a GPU, and work of ours that is queued there: the inverse of a matrix, in place.
// One process without MPI: ./device 1000. Compile it with the CUDA runtime.
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <terrace/dense.hpp>
#include <vector>

int main(int argc, char** argv) {
  const std::int64_t n = argc > 1 ? std::atoll(argv[1]) : 1000;
  cudaStream_t stream;
  double* a;
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess ||
      cudaMalloc(reinterpret_cast<void**>(&a), n * n * sizeof(double)) != cudaSuccess) {
    std::printf("there is no GPU here\n");
    return 0;
  }
  std::vector<double> host(n * n);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      host[i * n + j] = std::sin(double(i * n + j)) + (i == j) * n;
  try {
    terrace::Context here;
    here.options().stream = stream;  // what is queued on it comes first
    const terrace::Local<double> matrix{a, terrace::Rows::all(n), n, n, terrace::Where::device};
    cudaMemcpyAsync(a, host.data(), n * n * sizeof(double), cudaMemcpyHostToDevice, stream);
    terrace::dense::invert(here, n, matrix);
    terrace::dense::invert(here, n, matrix);  // the matrix again
    std::vector<double> back(n * n);
    cudaMemcpyAsync(back.data(), a, n * n * sizeof(double), cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);
    double most = 0;
    for (std::int64_t i = 0; i < n * n; ++i) most = std::fmax(most, std::fabs(back[i] - host[i]));
    std::printf("inverted twice: %s\n", most < 1e-9 * n ? "the same matrix" : "something else");
  } catch (const terrace::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return int(e.code());
  }
  cudaFree(a);
  cudaStreamDestroy(stream);
}
