/* The program's files in C: as <terrace/hdf5.hpp>, which says what each call does. Arrays and codes as
 * in <terrace/c.h>. A location is "FILE:/path/of/dataset".
 *
 *   terrace_shape shape;
 *   if (terrace_hdf5_look(ranks, "system.h5:/A", &shape)) puts(terrace_error());
 *   terrace_hdf5_read(ranks, "system.h5:/A", first, count, shape.columns, a, 0);
 *   terrace_hdf5_output* file;
 *   terrace_hdf5_create(ranks, "result.h5", 0, &file);
 *   terrace_hdf5_write(file, "x", n, first, count, 1, x, 0, 1);
 *   terrace_hdf5_commit(file);
 *   terrace_hdf5_close(file); */
#ifndef TERRACE_HDF5_H
#define TERRACE_HDF5_H
#include <terrace/c.h>

#ifdef __cplusplus
extern "C" {
#endif

enum terrace_kind { TERRACE_DENSE = 0, TERRACE_BAND = 1, TERRACE_CSR = 2, TERRACE_BITS = 3 };

typedef struct {
  int kind;              /* enum terrace_kind */
  int is_vector;         /* one dimension; `columns` is 1 */
  int64_t rows, columns; /* of the matrix */
  int64_t half_bandwidth, nonzeros;
} terrace_shape;
TERRACE_C int terrace_hdf5_look(terrace_context*, const char* location, terrace_shape* shape);

/* a := this rank's rows of a dense matrix, or of bits: `columns` is the matrix's. */
TERRACE_C int terrace_hdf5_read(terrace_context*, const char* location, int64_t first,
                                int64_t count, int64_t columns, double* a, int64_t lda);
TERRACE_C int terrace_hdf5_read_bits(terrace_context*, const char* location, int64_t first,
                                     int64_t count, int64_t columns, uint64_t* a, int64_t lda);
/* Columns first .. of a band by columns, lower: m + 1 numbers each, in host memory. */
TERRACE_C int terrace_hdf5_read_band(terrace_context*, const char* location, int64_t first,
                                     int64_t count, double* ab);
/* Rows first .. of a CSR matrix: count + 1 of *start; terrace_free() gives each of the three back. */
TERRACE_C int terrace_hdf5_read_csr(terrace_context*, const char* location, int64_t first,
                                    int64_t count, int64_t** start, int64_t** column,
                                    double** value);
/* L and U that terrace_hdf5_write_factor() or `terrace dense factor` wrote. `a`: rows of the matrix of
 * order n, for the check of solutions; with n 0 there is none, and solutions go unchecked. */
TERRACE_C int terrace_hdf5_read_factor(terrace_context*, const char* location, int64_t n,
                                       int64_t first, int64_t count, const double* a, int64_t lda,
                                       terrace_dense_factor** out, terrace_report* report);

/* A file, or a group "FILE:/group", that appears with terrace_hdf5_commit(). */
typedef struct terrace_hdf5_output terrace_hdf5_output;
TERRACE_C int terrace_hdf5_create(terrace_context*, const char* target, int overwrite,
                                  terrace_hdf5_output** out);
/* `vector` 1: one column, in one dimension. */
TERRACE_C int terrace_hdf5_write(terrace_hdf5_output*, const char* name, int64_t rows,
                                 int64_t first, int64_t count, int64_t columns, const double* a,
                                 int64_t lda, int vector);
TERRACE_C int terrace_hdf5_write_bits(terrace_hdf5_output*, const char* name, int64_t rows,
                                      int64_t first, int64_t count, int64_t columns,
                                      const uint64_t* a, int64_t lda);
TERRACE_C int terrace_hdf5_write_band(terrace_hdf5_output*, const char* name, int64_t n, int64_t m,
                                      int64_t first, int64_t count, const double* ab, int64_t ldab,
                                      int layout, int upper);
TERRACE_C int terrace_hdf5_write_csr(terrace_hdf5_output*, const char* name, int64_t n,
                                     int64_t first, int64_t count, const int64_t* start,
                                     const int64_t* column, const double* value);
/* `matrix`: where the matrix stands, for people; or NULL. */
TERRACE_C int terrace_hdf5_write_factor(terrace_hdf5_output*, const char* name,
                                        const terrace_dense_factor* factor, const char* matrix);
TERRACE_C int terrace_hdf5_commit(terrace_hdf5_output*);
/* Collective; nothing is left of a file that was not committed. NULL is nothing. */
TERRACE_C void terrace_hdf5_close(terrace_hdf5_output*);

#ifdef __cplusplus
}
#endif
#endif
