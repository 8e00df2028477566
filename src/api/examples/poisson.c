/* Poisson's equation on a grid of m x m points as CSR, conjugate gradients; one process without MPI:
 * ./poisson 100 */
#define TERRACE_WITHOUT_MPI
#include <stdio.h>
#include <stdlib.h>
#include <terrace/c.h>

static int show(int64_t iteration, double residual, void* user) {
  if (iteration % 50 == 0) printf("%5lld  %.1e\n", (long long)iteration, residual);
  return 1; /* 0 would stop */
}

int main(int argc, char** argv) {
  const int64_t m = argc > 1 ? atoll(argv[1]) : 100, n = m * m;
  int64_t* start = malloc((size_t)(n + 1) * sizeof *start);
  int64_t* column = malloc((size_t)(5 * n) * sizeof *column);
  double* value = malloc((size_t)(5 * n) * sizeof *value);
  double *b = malloc((size_t)n * sizeof *b), *x = malloc((size_t)n * sizeof *x);
  int64_t at = start[0] = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t step[] = {-m, -1, 0, 1, m};
    for (int d = 0; d < 5; ++d) {
      const int64_t j = i + step[d];
      if (j < 0 || j >= n || (d == 1 && i % m == 0) || (d == 3 && j % m == 0)) continue;
      column[at] = j;
      value[at++] = d == 2 ? 4 : -1;
    }
    start[i + 1] = at;
    b[i] = 1;
  }
  terrace_context* here;
  terrace_cg_operator* a;
  terrace_cg_result result;
  const terrace_cg_options options = {1e-10, 0, -1, "ic", 0, 0, 0, show, NULL};
  if (terrace_open_alone(NULL, &here) || terrace_cg_csr(here, n, 0, n, start, column, value, &a) ||
      terrace_cg_solve(a, 0, n, 1, b, 0, x, 0, &options, &result)) {
    fprintf(stderr, "%s\n", terrace_error());
    return 1;
  }
  printf("%s after %lld iterations, middle %.6f\n", result.converged ? "converged" : result.reason,
         (long long)result.iterations, x[n / 2 + m / 2]);
  terrace_cg_free(a);
  terrace_close(here);
  free(start), free(column), free(value), free(b), free(x);
  return 0;
}
