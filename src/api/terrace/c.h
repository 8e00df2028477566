/* Terrace in C, and through it in other languages. As <terrace/terrace.hpp>, which says what each
 * call does; here arrays, in host memory or a CUDA device's, are contiguous rows of each rank: rows
 * first .. first + count - 1, row-major, element (i, j) at data[i * ld + j]; ld 0: as few as a row has.
 * With count TERRACE_CYCLIC they are dealt in blocks of `first` rows, block k to rank k % size, as
 * ScaLAPACK deals them to a column of processes (not columns of a band, not rows of CSR).
 *
 *   terrace_context* ranks;
 *   if (terrace_open(MPI_COMM_WORLD, NULL, &ranks)) ...;
 *   if (terrace_dense_solve(ranks, n, first, count, a, 0, 1, b, 0, NULL)) puts(terrace_error());
 *   terrace_close(ranks);
 *
 * Every function with a context is collective over its ranks, and returns 0 or a code below, the same
 * on all ranks. The last error's text and position are kept for each thread. */
#ifndef TERRACE_C_H
#define TERRACE_C_H
#include <stdint.h>
#ifndef TERRACE_WITHOUT_MPI /* define it where there is no mpi.h */
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif
#define TERRACE_C __attribute__((visibility("default")))

enum terrace_code {
  TERRACE_DONE = 0,
  TERRACE_USAGE = 2,     /* arguments that do not fit together */
  TERRACE_INPUT = 3,     /* NaN, infinite, not symmetric */
  TERRACE_OUTCOME = 4,   /* singular, not positive definite, inconsistent */
  TERRACE_RESOURCES = 5, /* memory, devices */
  TERRACE_FAULT = 6,     /* a device, the network or memory failed */
  TERRACE_INTERNAL = 70, /* a bug of ours */
  TERRACE_STOPPED = 75   /* progress() returned 0 */
};
#define TERRACE_CYCLIC (-1) /* as `count` */
enum terrace_backend { TERRACE_AUTOMATIC = 0, TERRACE_CPU = 1, TERRACE_CUDA = 2 };

typedef struct terrace_context terrace_context;

typedef struct {
  int backend;   /* enum terrace_backend */
  int threads;   /* 0: TERRACE_THREADS, or a fair share of the cores */
  int unchecked; /* 1: results are not held against the input */
  int guard;     /* 1: look for flipped bits of memory */
  /* Called now and then with the part done; 0 stops the run. May be NULL. */
  int (*progress)(double done, void* user);
  void* user;
  void* stream; /* a cudaStream_t whose work comes before each call; NULL: all of the device's */
} terrace_options;

/* All results beside the arrays; members that a call has no value for are 0. */
typedef struct {
  double residual, reciprocal_condition;
  double log_abs_determinant, log_abs_determinant_error;
  int64_t determinant_sign;
  int64_t rank;      /* over GF(2) */
  int64_t certified; /* over GF(2): 1 where the certificate was checked */
  double seconds_prepare, seconds_solve, seconds_check, seconds_give;
  char warning[256]; /* the first one; empty: none */
} terrace_report;

TERRACE_C const char* terrace_version(void);
/* Of the last call of this thread that failed. */
TERRACE_C const char* terrace_error(void);
TERRACE_C int64_t terrace_error_position(void); /* zero-based, as Error::position(); -1: none */

#ifndef TERRACE_WITHOUT_MPI
TERRACE_C int terrace_open(MPI_Comm comm, const terrace_options* options, terrace_context** out);
#endif
/* The communicator as Fortran holds it: MPI_Comm_c2f(comm). */
TERRACE_C int terrace_open_fortran(int comm, const terrace_options* options, terrace_context** out);
/* This process alone, without MPI. */
TERRACE_C int terrace_open_alone(const terrace_options* options, terrace_context** out);
TERRACE_C void terrace_close(terrace_context* context); /* collective; NULL is nothing */
TERRACE_C int terrace_rank_of(const terrace_context* context);
TERRACE_C int terrace_size_of(const terrace_context* context);
/* Gives back the memory that this process keeps for calls to come. Not collective. */
TERRACE_C void terrace_release_memory(terrace_context* context);
/* For the calls to come. */
TERRACE_C int terrace_set_options(terrace_context* context, const terrace_options* options);

/* a := its inverse; b := X with A X = B; the determinant alone. `report` may be NULL. */
TERRACE_C int terrace_dense_invert(terrace_context*, int64_t n, int64_t first, int64_t count,
                                   double* a, int64_t lda, terrace_report* report);
TERRACE_C int terrace_dense_solve(terrace_context*, int64_t n, int64_t first, int64_t count,
                                  const double* a, int64_t lda, int64_t nrhs, double* b,
                                  int64_t ldb, terrace_report* report);
/* As terrace_dense_solve, of a matrix that may be symmetric positive definite: by Cholesky, and by LU
 * with a warning where it is not; TERRACE_LOOKS_SPD: tried where a few rows look so. */
enum terrace_assume { TERRACE_GENERAL = 0, TERRACE_SPD = 1, TERRACE_LOOKS_SPD = 2 };
TERRACE_C int terrace_dense_solve_assuming(terrace_context*, int assume, int64_t n, int64_t first,
                                           int64_t count, const double* a, int64_t lda,
                                           int64_t nrhs, double* b, int64_t ldb,
                                           terrace_report* report);
TERRACE_C int terrace_dense_determinant(terrace_context*, int64_t n, int64_t first, int64_t count,
                                        const double* a, int64_t lda, terrace_report* report);

/* L and U, or Cholesky's L, kept; the matrix is not needed any more. Any number of right-hand sides, none too. */
typedef struct terrace_dense_factor terrace_dense_factor;
TERRACE_C int terrace_dense_factor_make(terrace_context*, int64_t n, int64_t first, int64_t count,
                                        const double* a, int64_t lda, terrace_dense_factor** out,
                                        terrace_report* report);
/* By Cholesky where that is assumed (enum terrace_assume), by LU with a warning where it does not hold. */
TERRACE_C int terrace_dense_factor_make_assuming(terrace_context*, int assume, int64_t n,
                                                 int64_t first, int64_t count, const double* a,
                                                 int64_t lda, terrace_dense_factor** out,
                                                 terrace_report* report);
/* 1: the factor is Cholesky's; 0: it is LU's. */
TERRACE_C int terrace_dense_factor_is_cholesky(const terrace_dense_factor*);
TERRACE_C int terrace_dense_factor_solve(terrace_dense_factor*, int64_t first, int64_t count,
                                         int64_t nrhs, double* b, int64_t ldb,
                                         terrace_report* report);
TERRACE_C void terrace_dense_factor_free(terrace_dense_factor*); /* NULL is nothing */

/* A band of m + 1 numbers for each column, columns first .. first + count - 1 of this rank; `layout`
 * 0: rows of diagonals, as SciPy; 1: by columns, as LAPACK. `upper` 1 or 0. */
TERRACE_C int terrace_band_solve(terrace_context*, int64_t n, int64_t m, int64_t first,
                                 int64_t count, const double* ab, int64_t ldab, int layout,
                                 int upper, int mixed, int64_t nrhs, double* b, int64_t ldb,
                                 terrace_report* report);
typedef struct terrace_band_factor terrace_band_factor;
TERRACE_C int terrace_band_factor_make(terrace_context*, int64_t n, int64_t m, int64_t first,
                                       int64_t count, const double* ab, int64_t ldab, int layout,
                                       int upper, terrace_band_factor** out,
                                       terrace_report* report);
TERRACE_C int terrace_band_factor_solve(terrace_band_factor*, int64_t first, int64_t count,
                                        int64_t nrhs, double* b, int64_t ldb,
                                        terrace_report* report);
/* This rank's columns of L by columns, m + 1 numbers each; lives as long as the factor. Collective; the
 * first call may factor once more. NULL where a rank has no columns, and on an error: terrace_error(). */
TERRACE_C const double* terrace_band_factor_columns(const terrace_band_factor*);
TERRACE_C void terrace_band_factor_free(terrace_band_factor*);

/* Bits, packed in words: column j of a row is bit j % 64 of word j / 64; ld in words. `pivots`: room
 * for min(rows, columns) numbers, or NULL. */
TERRACE_C int terrace_gf2_reduce(terrace_context*, int64_t rows, int64_t columns, int64_t first,
                                 int64_t count, uint64_t* a, int64_t lda, int echelon,
                                 int64_t* pivots, uint64_t* transform /* or NULL */, int64_t ldt,
                                 terrace_report* report);
TERRACE_C int terrace_gf2_rank(terrace_context*, int64_t rows, int64_t columns, int64_t first,
                               int64_t count, const uint64_t* a, int64_t lda, int64_t* pivots,
                               terrace_report* report);
/* x: rows x_first .. of the columns of A. */
TERRACE_C int terrace_gf2_solve(terrace_context*, int64_t rows, int64_t columns, int64_t first,
                                int64_t count, const uint64_t* a, int64_t lda, int64_t nrhs,
                                const uint64_t* b, int64_t ldb, int64_t x_first, int64_t x_count,
                                uint64_t* x, int64_t ldx, terrace_report* report);
TERRACE_C int terrace_gf2_inverse(terrace_context*, int64_t n, int64_t first, int64_t count,
                                  uint64_t* a, int64_t lda, terrace_report* report);
/* A basis of the kernel: *dimension rows in all, this rank's *basis_first .. of *basis_count, packed
 * without gaps at *basis, which terrace_free() gives back. */
TERRACE_C int terrace_gf2_kernel(terrace_context*, int64_t rows, int64_t columns, int64_t first,
                                 int64_t count, const uint64_t* a, int64_t lda, int64_t* dimension,
                                 int64_t* basis_first, int64_t* basis_count, uint64_t** basis,
                                 terrace_report* report);
/* C := A B; B has `inner` rows, this rank's b_first .. */
TERRACE_C int terrace_gf2_multiply(terrace_context*, int64_t rows, int64_t inner, int64_t columns,
                                   int64_t first, int64_t count, const uint64_t* a, int64_t lda,
                                   int64_t b_first, int64_t b_count, const uint64_t* b, int64_t ldb,
                                   uint64_t* c, int64_t ldc, terrace_report* report);
TERRACE_C void terrace_free(void* memory);

/* Conjugate gradients. Arrays of a CSR matrix are host memory. */
typedef struct terrace_cg_operator terrace_cg_operator;
typedef struct {
  double rtol, atol;          /* ||b - A x|| <= max(rtol ||b||, atol) */
  int64_t max_iterations;     /* negative: 10 n + 1000 */
  const char* preconditioner; /* NULL: none; jacobi, block-jacobi, ic, chebyshev, amg */
  int64_t block, degree;      /* 0: 32 and 8 */
  int start_given;            /* 1: x holds a start */
  /* After each iteration; 0 stops the run. May be NULL. */
  int (*observe)(int64_t iteration, double relative_residual, void* user);
  void* user;
  /* Of amg: vectors that A takes near zero, rows as those of b, on the host; NULL: constants. */
  const double* near_null_space;
  int64_t near_columns, near_ld; /* near_ld 0: near_columns */
  int mixed;                     /* 1: iterations read half of each entry, of csr and band */
} terrace_cg_options;
typedef struct {
  int converged;
  int64_t iterations;
  double residual, scaled_residual;
  char reason[32];
  double setup_seconds; /* of the preconditioner; 0 where it was there from the solve before */
} terrace_cg_result;
TERRACE_C int terrace_cg_csr(terrace_context*, int64_t n, int64_t first, int64_t count,
                             const int64_t* start, const int64_t* column, const double* value,
                             terrace_cg_operator** out);
TERRACE_C int terrace_cg_csr32(terrace_context*, int64_t n, int64_t first, int64_t count,
                               const int32_t* start, const int32_t* column, const double* value,
                               terrace_cg_operator** out);
TERRACE_C int terrace_cg_dense(terrace_context*, int64_t n, int64_t first, int64_t count,
                               const double* a, int64_t lda, terrace_cg_operator** out);
TERRACE_C int terrace_cg_band(terrace_context*, int64_t n, int64_t m, int64_t first, int64_t count,
                              const double* ab, int64_t ldab, int layout, int upper,
                              terrace_cg_operator** out);
/* Your own product, on the host: q := this rank's rows of A p. `diagonal` may be NULL. */
TERRACE_C int terrace_cg_user(terrace_context*, int64_t n, int64_t first, int64_t count,
                              void (*product)(const double* p, double* q, void* user), void* user,
                              const double* diagonal, terrace_cg_operator** out);
/* x := the solution; `results`: one for each right-hand side. Not converged is a result, and 0. */
TERRACE_C int terrace_cg_solve(terrace_cg_operator*, int64_t first, int64_t count, int64_t nrhs,
                               const double* b, int64_t ldb, double* x, int64_t ldx,
                               const terrace_cg_options* options, terrace_cg_result* results);
/* Other values in the same places: of csr (of rows with ascending columns, none twice), dense, band. */
TERRACE_C int terrace_cg_update_csr(terrace_cg_operator*, const double* value);
TERRACE_C int terrace_cg_update_dense(terrace_cg_operator*, int64_t n, int64_t first, int64_t count,
                                      const double* a, int64_t lda);
TERRACE_C int terrace_cg_update_band(terrace_cg_operator*, int64_t m, int64_t first, int64_t count,
                                     const double* ab, int64_t ldab, int layout, int upper);
TERRACE_C void terrace_cg_free(terrace_cg_operator*);

#ifdef __cplusplus
}
#endif
#endif
