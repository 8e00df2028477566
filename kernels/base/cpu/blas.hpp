// OpenBLAS and the LAPACK in it, loaded at the first call. Linked, it cost every start 5 ms and, on
// each of the other cores, a thread that spins for 28 ms; GF(2), files and plans call none of it.
#pragma once
#include <cblas.h>

#include <cstddef>

#include "kernels/base/late.hpp"

namespace terrace {

/// As late_function; OpenBLAS is on one thread from then on, as ours call it side by side.
void* blas_function(const char* library, const char* function);

#define TERRACE_CBLAS(function)                                 \
  inline constinit const Late<decltype(&::function)> function { \
    TERRACE_OPENBLAS, #function, blas_function                  \
  }
TERRACE_CBLAS(cblas_daxpy);
TERRACE_CBLAS(cblas_ddot);
TERRACE_CBLAS(cblas_dgemm);
TERRACE_CBLAS(cblas_dgemv);
TERRACE_CBLAS(cblas_dscal);
TERRACE_CBLAS(cblas_dsymv);
TERRACE_CBLAS(cblas_dsyrk);
TERRACE_CBLAS(cblas_dtbmv);
TERRACE_CBLAS(cblas_dtrsm);
TERRACE_CBLAS(cblas_dtrsv);
TERRACE_CBLAS(cblas_sgemm);
TERRACE_CBLAS(cblas_sgemv);
TERRACE_CBLAS(cblas_ssyrk);
TERRACE_CBLAS(cblas_strsm);
TERRACE_CBLAS(cblas_strsv);
TERRACE_CBLAS(openblas_get_config);
TERRACE_CBLAS(openblas_get_num_threads);
TERRACE_CBLAS(openblas_set_num_threads);
#undef TERRACE_CBLAS

/// Column-major, as LAPACK has them (netlib.org/lapack); they return its info.
namespace lapack {

using Size = const blasint*;
using Length = std::size_t;  // of a string, as Fortran passes it
template <class T>
using Dtrf = Late<void (*)(const char*, Size, T*, Size, blasint*, Length)>;
template <class T>
using Getrf = Late<void (*)(Size, Size, T*, Size, blasint*, blasint*)>;

#define TERRACE_LAPACK(function) \
  { TERRACE_OPENBLAS, #function "_", blas_function }
namespace late {
inline constinit const Dtrf<double> dpotrf TERRACE_LAPACK(dpotrf), dpotri TERRACE_LAPACK(dpotri);
inline constinit const Dtrf<float> spotrf TERRACE_LAPACK(spotrf);
inline constinit const Late<void (*)(const char*, const char*, Size, double*, Size, blasint*,
                                     Length, Length)>
    dtrtri TERRACE_LAPACK(dtrtri);
inline constinit const Late<void (*)(const char*, Size, Size, double*, Size, blasint*, Length)>
    dpbtrf TERRACE_LAPACK(dpbtrf);
inline constinit const Late<void (*)(const char*, Size, Size, Size, const double*, Size, double*,
                                     Size, blasint*, Length)>
    dpbtrs TERRACE_LAPACK(dpbtrs);
inline constinit const Getrf<double> dgetrf TERRACE_LAPACK(dgetrf);
inline constinit const Getrf<float> sgetrf TERRACE_LAPACK(sgetrf);
inline constinit const Late<void (*)(Size, double*, Size, const blasint*, double*, Size, blasint*)>
    dgetri TERRACE_LAPACK(dgetri);
inline constinit const Late<void (*)(const char*, Size, Size, const double*, Size, const blasint*,
                                     double*, Size, blasint*, Length)>
    dgetrs TERRACE_LAPACK(dgetrs);
}  // namespace late
#undef TERRACE_LAPACK

/// Lower triangles.
inline blasint potrf(blasint n, double* a, blasint ld) {
  blasint info = 0;
  late::dpotrf("L", &n, a, &ld, &info, 1);
  return info;
}
inline blasint potrf(blasint n, float* a, blasint ld) {
  blasint info = 0;
  late::spotrf("L", &n, a, &ld, &info, 1);
  return info;
}
inline blasint potri(blasint n, double* a, blasint ld) {
  blasint info = 0;
  late::dpotri("L", &n, a, &ld, &info, 1);
  return info;
}
inline blasint trtri(blasint n, double* a, blasint ld) {
  blasint info = 0;
  late::dtrtri("L", "N", &n, a, &ld, &info, 1, 1);
  return info;
}
inline blasint pbtrf(blasint n, blasint m, double* ab, blasint ld) {
  blasint info = 0;
  late::dpbtrf("L", &n, &m, ab, &ld, &info, 1);
  return info;
}
inline blasint pbtrs(blasint n, blasint m, blasint right, const double* ab, blasint ld, double* x,
                     blasint ldx) {
  blasint info = 0;
  late::dpbtrs("L", &n, &m, &right, ab, &ld, x, &ldx, &info, 1);
  return info;
}
inline blasint getrf(blasint rows, blasint columns, double* a, blasint ld, blasint* pivots) {
  blasint info = 0;
  late::dgetrf(&rows, &columns, a, &ld, pivots, &info);
  return info;
}
inline blasint getrf(blasint rows, blasint columns, float* a, blasint ld, blasint* pivots) {
  blasint info = 0;
  late::sgetrf(&rows, &columns, a, &ld, pivots, &info);
  return info;
}
/// `work`: at least n numbers; 64 n are as fast as any.
inline blasint getri(blasint n, double* a, blasint ld, const blasint* pivots, double* work,
                     blasint size) {
  blasint info = 0;
  late::dgetri(&n, a, &ld, pivots, work, &size, &info);
  return info;
}
inline blasint getrs(blasint n, blasint right, const double* a, blasint ld, const blasint* pivots,
                     double* x, blasint ldx) {
  blasint info = 0;
  late::dgetrs("N", &n, &right, a, &ld, pivots, x, &ldx, &info, 1);
  return info;
}

}  // namespace lapack
}  // namespace terrace
