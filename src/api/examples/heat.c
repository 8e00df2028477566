/* heat.cpp in C. mpirun -n 4 ./heat_c 40 50 10 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <terrace/c.h>

static void check(int code) {
  if (code == TERRACE_DONE) return;
  fprintf(stderr, "%s\n", terrace_error());
  MPI_Abort(MPI_COMM_WORLD, code);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int64_t nx = argc > 1 ? atoll(argv[1]) : 40, ny = argc > 2 ? atoll(argv[2]) : 50, n = nx * ny;
  const int steps = argc > 3 ? atoi(argv[3]) : 10;
  const double k = 0.4;
  terrace_context* ranks;
  check(terrace_open(MPI_COMM_WORLD, NULL, &ranks));
  const int64_t each = (n + terrace_size_of(ranks) - 1) / terrace_size_of(ranks);
  int64_t first = each * terrace_rank_of(ranks);
  if (first > n) first = n;
  const int64_t count = n - first < each ? n - first : each;
  double* ab = calloc((size_t)(count * (nx + 1)) + 1, sizeof *ab);
  double* u = malloc((size_t)(count + 1) * sizeof *u);
  for (int64_t c = 0; c < count; ++c) {
    const int64_t i = first + c, x = i % nx;
    ab[c * (nx + 1)] = 1 + 4 * k;
    if (x + 1 < nx) ab[c * (nx + 1) + 1] = -k;
    if (i + nx < n) ab[c * (nx + 1) + nx] = -k;
    u[c] = exp(-0.05 * (double)((x - nx / 2) * (x - nx / 2)));
  }
  terrace_band_factor* factor;
  terrace_report report;
  check(terrace_band_factor_make(ranks, n, nx, first, count, ab, 0, 1, 0, &factor, &report));
  for (int step = 0; step < steps; ++step)
    check(terrace_band_factor_solve(factor, first, count, 1, u, 0, NULL));
  double heat = 0, all = 0;
  for (int64_t c = 0; c < count; ++c) heat += u[c];
  MPI_Reduce(&heat, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (terrace_rank_of(ranks) == 0)
    printf("heat after %d steps: %.9f, log det %.6f\n", steps, all, report.log_abs_determinant);
  terrace_band_factor_free(factor);
  terrace_close(ranks);
  free(ab);
  free(u);
  MPI_Finalize();
  return 0;
}
