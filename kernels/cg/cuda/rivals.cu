#include "kernels/cg/rivals.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "kernels/base/cuda/runtime.cuh"

namespace terrace::cg {
namespace {

/// The textbook's loop with the scalars on the host; product(p, q) is q = A p.
double textbook_loop(const Stream<Cuda>& stream, Index n, Index iterations,
                     const std::function<void(const double*, double*)>& product, const double* p_at,
                     double* q_at, View<double, Cuda> x, View<double, Cuda> r, View<double, Cuda> p,
                     CgRivalAnswer& answer) {
  const cublasHandle_t handle = cublas(stream);
  const int count = int(n);
  const std::vector<double> ones(std::size_t(n), 1.0);
  fill_zero(stream, x);
  upload(stream, r, ones.data());
  upload(stream, p, ones.data());
  const double one = 1;
  double rr = 0, pq = 0, next = 0;
  stream.synchronize();
  const Event<Cuda> start = stream.record();
  check(cublasDdot(handle, count, r.data, 1, r.data, 1, &rr));
  for (Index k = 0; k < iterations; ++k) {
    product(p_at, q_at);
    check(cublasDdot(handle, count, p.data, 1, q_at, 1, &pq));
    const double alpha = rr > 0 ? rr / pq : 0, minus = -alpha;
    check(cublasDaxpy(handle, count, &alpha, p.data, 1, x.data, 1));
    check(cublasDaxpy(handle, count, &minus, q_at, 1, r.data, 1));
    check(cublasDdot(handle, count, r.data, 1, r.data, 1, &next));
    const double beta = rr > 0 ? next / rr : 0;
    check(cublasDscal(handle, count, &beta, p.data, 1));
    check(cublasDaxpy(handle, count, &one, r.data, 1, p.data, 1));
    rr = next;
  }
  const Event<Cuda> end = stream.record();
  answer.x.resize(std::size_t(n));
  download(stream, answer.x.data(), x);
  stream.synchronize();
  answer.residual = std::sqrt(rr / double(std::max<Index>(1, n)));
  return seconds_between(start, end);
}

}  // namespace

bool is_cg_rival(Cuda, const std::string& name) {
  return name == "cublas" || name == "cublas-symv" || name == "cublas-symv-default";
}

double cg_rival(const Stream<Cuda>& stream, const std::string& name, Index n, Index ld,
                View<const double, Cuda> a, Index iterations, CgRivalAnswer& answer) {
  const cublasHandle_t handle = cublas(stream);
  const int count = int(n);
  const Buffer<double, Cuda> x(n), r(n), p(n), q(n);
  if (name == "cublas-symv") check(cublasSetAtomicsMode(handle, CUBLAS_ATOMICS_ALLOWED));
  const double one = 1, zero = 0;
  const auto product = [&](const double* from, double* to) {
    if (name == "cublas")
      check(cublasDgemv(handle, CUBLAS_OP_T, count, count, &one, a.data, int(ld), from, 1, &zero,
                        to, 1));
    else
      check(cublasDsymv(handle, CUBLAS_FILL_MODE_LOWER, count, &one, a.data, int(ld), from, 1,
                        &zero, to, 1));
  };
  const double seconds = textbook_loop(stream, n, iterations, product, p.data(), q.data(), x.view(),
                                       r.view(), p.view(), answer);
  check(cublasSetAtomicsMode(handle, CUBLAS_ATOMICS_NOT_ALLOWED));
  return seconds;
}

bool is_csr_rival(Cuda, const std::string& name) { return name == "cusparse"; }

double cg_rival(const Stream<Cuda>& stream, const std::string&, const CsrRows<Cuda>& a,
                Index iterations, CgRivalAnswer& answer) {
  // cuSPARSE wants row pointers and columns of one type: 32 bits where the entries fit.
  const Index n = a.rows(), entries = a.value.size;
  const bool narrow = entries <= std::numeric_limits<std::int32_t>::max();
  Buffer<std::int32_t, Cuda> start32;
  Buffer<Index, Cuda> column64;
  if (narrow) {
    std::vector<Index> start(std::size_t(n) + 1);
    download(stream, start.data(), a.start);
    stream.synchronize();
    const std::vector<std::int32_t> host(start.begin(), start.end());
    start32 = Buffer<std::int32_t, Cuda>(n + 1);
    upload(stream, start32.view(), host.data());
  } else {
    std::vector<std::int32_t> column(static_cast<std::size_t>(entries));
    download(stream, column.data(), a.column);
    stream.synchronize();
    const std::vector<Index> host(column.begin(), column.end());
    column64 = Buffer<Index, Cuda>(entries);
    upload(stream, column64.view(), host.data());
  }
  stream.synchronize();
  const Buffer<double, Cuda> x(n), r(n), p(n), q(n);
  const cusparseHandle_t handle = cusparse(stream);
  const cusparseIndexType_t type = narrow ? CUSPARSE_INDEX_32I : CUSPARSE_INDEX_64I;
  cusparseConstSpMatDescr_t matrix;
  cusparseDnVecDescr_t from, to;
  check(cusparseCreateConstCsr(&matrix, n, n, entries,
                               narrow ? static_cast<const void*>(start32.data()) : a.start.data,
                               narrow ? static_cast<const void*>(a.column.data) : column64.data(),
                               a.value.data, type, type, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_64F));
  check(cusparseCreateDnVec(&from, n, p.data(), CUDA_R_64F));
  check(cusparseCreateDnVec(&to, n, q.data(), CUDA_R_64F));
  const double one = 1, zero = 0;
  constexpr auto plain = CUSPARSE_OPERATION_NON_TRANSPOSE;
  constexpr auto algorithm = CUSPARSE_SPMV_CSR_ALG1;
  std::size_t bytes = 0;
  check(cusparseSpMV_bufferSize(handle, plain, &one, matrix, from, &zero, to, CUDA_R_64F, algorithm,
                                &bytes));
  const Buffer<Word, Cuda> space(Index(bytes / sizeof(Word)) + 1);
  check(cusparseSpMV_preprocess(handle, plain, &one, matrix, from, &zero, to, CUDA_R_64F, algorithm,
                                space.data()));
  const auto product = [&](const double*, double*) {
    check(cusparseSpMV(handle, plain, &one, matrix, from, &zero, to, CUDA_R_64F, algorithm,
                       space.data()));
  };
  const double seconds = textbook_loop(stream, n, iterations, product, p.data(), q.data(), x.view(),
                                       r.view(), p.view(), answer);
  check(cusparseDestroyDnVec(from));
  check(cusparseDestroyDnVec(to));
  check(cusparseDestroySpMat(matrix));
  return seconds;
}

}  // namespace terrace::cg
