#include "kernels/cg_rivals.hpp"

#include <vector>

#include "kernels/cuda/runtime.cuh"

namespace terrace {

bool is_cg_rival(Cuda, const std::string& name) {
  return name == "cublas" || name == "cublas-symv";
}

double cg_rival(const Stream<Cuda>& stream, const std::string& name, Index n, Index ld,
                View<const double, Cuda> a, Index iterations) {
  const cublasHandle_t handle = cublas(stream);
  const int count = int(n);
  const Buffer<double, Cuda> x(n), r(n), p(n), q(n);
  const std::vector<double> ones(std::size_t(n), 1.0);
  fill_zero(stream, x.view());
  upload(stream, r.view(), ones.data());
  upload(stream, p.view(), ones.data());
  check(cublasSetAtomicsMode(handle, CUBLAS_ATOMICS_ALLOWED));
  const double one = 1, zero = 0;
  double rr = 0, pq = 0, next = 0;
  stream.synchronize();
  const Event<Cuda> start = stream.record();
  check(cublasDdot(handle, count, r.data(), 1, r.data(), 1, &rr));
  for (Index k = 0; k < iterations; ++k) {
    if (name == "cublas-symv")
      check(cublasDsymv(handle, CUBLAS_FILL_MODE_LOWER, count, &one, a.data, int(ld), p.data(), 1,
                        &zero, q.data(), 1));
    else
      check(cublasDgemv(handle, CUBLAS_OP_T, count, count, &one, a.data, int(ld), p.data(), 1,
                        &zero, q.data(), 1));
    check(cublasDdot(handle, count, p.data(), 1, q.data(), 1, &pq));
    const double alpha = rr / pq, minus = -alpha;
    check(cublasDaxpy(handle, count, &alpha, p.data(), 1, x.data(), 1));
    check(cublasDaxpy(handle, count, &minus, q.data(), 1, r.data(), 1));
    check(cublasDdot(handle, count, r.data(), 1, r.data(), 1, &next));
    const double beta = next / rr;
    check(cublasDscal(handle, count, &beta, p.data(), 1));
    check(cublasDaxpy(handle, count, &one, r.data(), 1, p.data(), 1));
    rr = next;
  }
  const Event<Cuda> end = stream.record();
  stream.synchronize();
  check(cublasSetAtomicsMode(handle, CUBLAS_ATOMICS_NOT_ALLOWED));
  return seconds_between(start, end);
}

}  // namespace terrace
