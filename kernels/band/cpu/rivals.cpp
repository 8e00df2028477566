#include <cblas.h>
#include <lapacke.h>

#include "kernels/band/rivals.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace::band {

Index band_rival(const Stream<Cpu>& stream, Index n, Index m, Index, View<double, Cpu> ab) {
  stream.synchronize();
  openblas_set_num_threads(thread_count());
  const int info =
      LAPACKE_dpbtrf_work(LAPACK_COL_MAJOR, 'L', static_cast<lapack_int>(n),
                          static_cast<lapack_int>(m), ab.data, static_cast<lapack_int>(m + 1));
  openblas_set_num_threads(1);
  return info;
}

Index band_rival_solve(const Stream<Cpu>& stream, Index n, Index m, View<const double, Cpu> ab,
                       View<double, Cpu> x) {
  stream.synchronize();
  openblas_set_num_threads(thread_count());
  const int info = LAPACKE_dpbtrs_work(
      LAPACK_COL_MAJOR, 'L', static_cast<lapack_int>(n), static_cast<lapack_int>(m), 1, ab.data,
      static_cast<lapack_int>(m + 1), x.data, static_cast<lapack_int>(n));
  openblas_set_num_threads(1);
  return info;
}

void band_rival_times(const Stream<Cpu>& stream, Index n, Index m, View<const double, Cpu> ab,
                      View<double, Cpu> v) {
  stream.synchronize();
  for (const CBLAS_TRANSPOSE side : {CblasTrans, CblasNoTrans})
    cblas_dtbmv(CblasColMajor, CblasLower, side, CblasNonUnit, int(n), int(m), ab.data, int(m + 1),
                v.data, 1);
}

}  // namespace terrace::band
