// The usual building blocks in a chain, as a user of cuSOLVER and cuBLAS would write dpbtrf.
#include <algorithm>
#include <vector>

#include "kernels/band/rivals.hpp"
#include "kernels/base/cuda/runtime.cuh"

namespace terrace::band {
namespace {

/// The corner (rows x w, upper triangle inside the band) to a dense block and back.
__global__ void expand_corner(const double* corner, Index ld, int rows, int w, double* dense) {
  for (int at = threadIdx.x + blockIdx.x * blockDim.x; at < rows * w;
       at += gridDim.x * blockDim.x) {
    const int i = at % rows, j = at / rows;
    dense[i + Index(j) * w] = i <= j ? corner[i + j * ld] : 0.0;
  }
}
__global__ void store_corner(const double* dense, Index ld, int rows, int w, double* corner) {
  for (int at = threadIdx.x + blockIdx.x * blockDim.x; at < rows * w;
       at += gridDim.x * blockDim.x) {
    const int i = at % rows, j = at / rows;
    if (i <= j) corner[i + j * ld] = dense[i + Index(j) * w];
  }
}

}  // namespace

Index band_rival(const Stream<Cuda>& stream, Index n, Index m, Index w, View<double, Cuda> ab) {
  const cublasHandle_t blas = cublas(stream);
  const cusolverDnHandle_t solver = cusolver(stream);
  const double one = 1, minus = -1;
  const int ld = int(m), width = int(w);
  int work_size = 0;
  check(
      cusolverDnDpotrf_bufferSize(solver, CUBLAS_FILL_MODE_LOWER, width, ab.data, ld, &work_size));
  const Buffer<double, Cuda> work(work_size), corner(w * w);
  const Buffer<int, Cuda> info(ceil_div(n, w));  // one of every block: none hides another
  for (Index k = 0; k < n; k += w) {
    const int b = int(std::min(w, n - k));
    double* const diagonal = ab.data + k * (m + 1);
    double* const below = diagonal + b;
    const int full = int(std::clamp<Index>(m - b, 0, n - k - b));
    const int last = int(std::clamp<Index>(n - k - m, 0, b));  // rows of the corner
    check(cusolverDnDpotrf(solver, CUBLAS_FILL_MODE_LOWER, b, diagonal, ld, work.data(), work_size,
                           info.data() + k / w));
    const auto trsm = [&](int rows, double* x, int ldx) {
      check(cublasDtrsm(blas, CUBLAS_SIDE_RIGHT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_T,
                        CUBLAS_DIAG_NON_UNIT, rows, b, &one, diagonal, ld, x, ldx));
    };
    if (full > 0) {
      trsm(full, below, ld);
      check(cublasDsyrk(blas, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, full, b, &minus, below, ld, &one,
                        diagonal + Index(b) * (m + 1), ld));
    }
    if (last > 0) {
      double* const tip = diagonal + m;
      expand_corner<<<32, 256, 0, native(stream)>>>(tip, m, last, b, corner.data());
      trsm(last, corner.data(), b);
      if (full > 0)
        check(cublasDgemm(blas, CUBLAS_OP_N, CUBLAS_OP_T, last, full, b, &minus, corner.data(), b,
                          below, ld, &one, diagonal + Index(b) * (m + 1) + m - b, ld));
      check(cublasDsyrk(blas, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, last, b, &minus, corner.data(),
                        b, &one, diagonal + m * (m + 1), ld));
      store_corner<<<32, 256, 0, native(stream)>>>(corner.data(), m, last, b, tip);
      check_launch();
    }
  }
  std::vector<int> found(std::size_t(info.size()));
  download(stream, found.data(), info.view());
  stream.synchronize();
  for (std::size_t i = 0; i < found.size(); ++i)
    if (found[i] != 0) return found[i] < 0 ? found[i] : Index(i) * w + found[i];
  return 0;
}

void band_rival_times(const Stream<Cuda>& stream, Index n, Index m, View<const double, Cuda> ab,
                      View<double, Cuda> v) {
  for (const cublasOperation_t side : {CUBLAS_OP_T, CUBLAS_OP_N})
    check(cublasDtbmv(cublas(stream), CUBLAS_FILL_MODE_LOWER, side, CUBLAS_DIAG_NON_UNIT, int(n),
                      int(m), ab.data, int(m + 1), v.data, 1));
  stream.synchronize();
}

}  // namespace terrace::band
