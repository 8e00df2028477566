// cuBLAS, cuSOLVER and cuSPARSE, loaded when first called.
#pragma once
#include <cublas_v2.h>
#include <cusolverDn.h>
#include <cusparse.h>

#include "kernels/base/late.hpp"

namespace terrace {

#define TERRACE_BLAS(function) TERRACE_LATE(TERRACE_SONAME("cublas", CUBLAS_VER_MAJOR), function)
TERRACE_BLAS(cublasCreate_v2);
TERRACE_BLAS(cublasDaxpy_v2);
TERRACE_BLAS(cublasDdot_v2);
TERRACE_BLAS(cublasDestroy_v2);
TERRACE_BLAS(cublasDgemmStridedBatched_64);
TERRACE_BLAS(cublasDgemm_v2);
TERRACE_BLAS(cublasDgemm_v2_64);
TERRACE_BLAS(cublasDgemv_v2);
TERRACE_BLAS(cublasDscal_v2);
TERRACE_BLAS(cublasDsymv_v2);
TERRACE_BLAS(cublasDsyrk_v2);
TERRACE_BLAS(cublasDtbmv_v2);
TERRACE_BLAS(cublasDtrsm_v2);
TERRACE_BLAS(cublasDtrsm_v2_64);
TERRACE_BLAS(cublasGemmEx_64);
TERRACE_BLAS(cublasGetProperty);
TERRACE_BLAS(cublasGetStatusString);
TERRACE_BLAS(cublasSetAtomicsMode);
TERRACE_BLAS(cublasSetSmCountTarget);
TERRACE_BLAS(cublasSetStream_v2);
TERRACE_BLAS(cublasSgemm_v2_64);
#undef TERRACE_BLAS

#define TERRACE_SOLVER(function) \
  TERRACE_LATE(TERRACE_SONAME("cusolver", CUSOLVER_VER_MAJOR), function)
TERRACE_SOLVER(cusolverDnCreate);
TERRACE_SOLVER(cusolverDnCreateParams);
TERRACE_SOLVER(cusolverDnDestroy);
TERRACE_SOLVER(cusolverDnDestroyParams);
TERRACE_SOLVER(cusolverDnDXgesv);
TERRACE_SOLVER(cusolverDnDXgesv_bufferSize);
TERRACE_SOLVER(cusolverDnDpotrf);
TERRACE_SOLVER(cusolverDnDpotrf_bufferSize);
TERRACE_SOLVER(cusolverDnSetStream);
TERRACE_SOLVER(cusolverDnXgetrf);
TERRACE_SOLVER(cusolverDnXgetrf_bufferSize);
TERRACE_SOLVER(cusolverDnXgetrs);
TERRACE_SOLVER(cusolverGetProperty);
#undef TERRACE_SOLVER

#define TERRACE_SPARSE(function) \
  TERRACE_LATE(TERRACE_SONAME("cusparse", CUSPARSE_VER_MAJOR), function)
TERRACE_SPARSE(cusparseCreate);
TERRACE_SPARSE(cusparseCreateConstCsr);
TERRACE_SPARSE(cusparseCreateDnVec);
TERRACE_SPARSE(cusparseDestroy);
TERRACE_SPARSE(cusparseDestroyDnVec);
TERRACE_SPARSE(cusparseDestroySpMat);
TERRACE_SPARSE(cusparseGetErrorString);
TERRACE_SPARSE(cusparseGetProperty);
TERRACE_SPARSE(cusparseSetStream);
TERRACE_SPARSE(cusparseSpMV);
TERRACE_SPARSE(cusparseSpMV_bufferSize);
TERRACE_SPARSE(cusparseSpMV_preprocess);
#undef TERRACE_SPARSE

}  // namespace terrace
