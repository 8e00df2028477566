/* A matrix that nobody stores: -Laplace u + u on a grid of m x m points whose rows the ranks hold, by
 * a product of our own that fetches the neighbours' rows. mpirun -n 4 ./operator 100 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <terrace/c.h>

struct grid {
  int64_t m, rows;       /* points per row, and rows of this rank */
  int below, above;      /* neighbours, or MPI_PROC_NULL */
  double *lower, *upper; /* their rows next to ours */
};

static void product(const double* p, double* q, void* user) {
  const struct grid* g = user;
  const int64_t m = g->m, n = m * g->rows;
  MPI_Sendrecv(p + n - m, (int)m, MPI_DOUBLE, g->above, 0, g->lower, (int)m, MPI_DOUBLE, g->below,
               0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Sendrecv(p, (int)m, MPI_DOUBLE, g->below, 1, g->upper, (int)m, MPI_DOUBLE, g->above, 1,
               MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t x = i % m, y = i / m;
    double sum = 5 * p[i];
    if (x > 0) sum -= p[i - 1];
    if (x + 1 < m) sum -= p[i + 1];
    sum -= y > 0 ? p[i - m] : g->lower[x];
    sum -= y + 1 < g->rows ? p[i + m] : g->upper[x];
    q[i] = sum;
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int64_t m = argc > 1 ? atoll(argv[1]) : 100;
  const int64_t first = m * rank / size, rows = m * (rank + 1) / size - first, n = m * rows;
  struct grid g = {m,
                   rows,
                   rank > 0 ? rank - 1 : MPI_PROC_NULL,
                   rank + 1 < size ? rank + 1 : MPI_PROC_NULL,
                   calloc((size_t)m, sizeof(double)),
                   calloc((size_t)m, sizeof(double))};
  double *b = malloc((size_t)n * sizeof *b), *x = malloc((size_t)n * sizeof *x);
  double* diagonal = malloc((size_t)n * sizeof *diagonal);
  for (int64_t i = 0; i < n; ++i) b[i] = 1, diagonal[i] = 5;
  terrace_context* ranks;
  terrace_cg_operator* a;
  terrace_cg_result result;
  terrace_cg_options options;
  memset(&options, 0, sizeof options);
  options.rtol = 1e-10, options.max_iterations = -1, options.preconditioner = "jacobi";
  int failed = terrace_open(MPI_COMM_WORLD, NULL, &ranks);
  if (!failed) failed = terrace_cg_user(ranks, m * m, m * first, n, product, &g, diagonal, &a);
  if (!failed) failed = terrace_cg_solve(a, m * first, n, 1, b, 0, x, 0, &options, &result);
  if (failed) {
    if (rank == 0) fprintf(stderr, "%s\n", terrace_error());
    MPI_Finalize();
    return failed;
  }
  double sum = 0, all = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  MPI_Reduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0)
    printf("%s after %lld iterations, sum %.6f\n", result.converged ? "converged" : result.reason,
           (long long)result.iterations, all);
  terrace_cg_free(a);
  terrace_close(ranks);
  free(b), free(x), free(diagonal), free(g.lower), free(g.upper);
  MPI_Finalize();
  return 0;
}
