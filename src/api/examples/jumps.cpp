// A simulation with a dense matrix: a walker on a line jumps any distance, more often to the right.
// Implicit Euler of its master equation, factored once: mpirun -n 4 ./jumps 400 10
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <terrace/dense.hpp>
#include <vector>

// Jumps from place j to place i in a unit of time.
static double rate(std::int64_t i, std::int64_t j) {
  return i == j ? 0 : (i > j ? 1.0 : 0.7) * std::exp(-0.05 * double(std::llabs(i - j)));
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const std::int64_t n = argc > 1 ? std::atoll(argv[1]) : 400;
  const int steps = argc > 2 ? std::atoi(argv[2]) : 10;
  const double dt = 0.1;
  {
    terrace::Context ranks(MPI_COMM_WORLD);
    const std::int64_t each = (n + ranks.size() - 1) / ranks.size();
    const std::int64_t first = std::min(n, each * ranks.rank()), count = std::min(each, n - first);
    const auto rows = terrace::Rows::range(first, count);
    std::vector<double> a(count * n), p(count);  // a = 1 - dt Q
    for (std::int64_t r = 0; r < count; ++r) {
      const std::int64_t i = first + r;
      for (std::int64_t j = 0; j < n; ++j) {
        a[r * n + j] -= dt * rate(i, j);
        a[r * n + i] += dt * rate(j, i);
      }
      a[r * n + i] += 1;
      p[r] = i == n / 2 ? 1 : 0;
    }
    const terrace::dense::Factor factor(ranks, n, {a.data(), rows, n});
    for (int step = 0; step < steps; ++step) factor.solve({p.data(), rows, 1});
    double mine[2] = {0, 0}, all[2] = {0, 0};
    for (std::int64_t r = 0; r < count; ++r) {
      mine[0] += p[r];
      mine[1] += p[r] * double(first + r - n / 2);
    }
    MPI_Reduce(mine, all, 2, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (ranks.rank() == 0)
      std::printf("after %d steps: probability %.9f, drift %.6f, log |det| %.6f\n", steps, all[0],
                  all[1], factor.report().log_abs_determinant);
  }
  MPI_Finalize();
}
