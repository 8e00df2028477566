// A simulation that has its own ranks and arrays: heat in a plate of nx x ny points, implicit Euler,
// one band system per step, factored once. mpirun -n 4 ./heat 40 50 10
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <terrace/band.hpp>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const std::int64_t nx = argc > 1 ? std::atoll(argv[1]) : 40,
                     ny = argc > 2 ? std::atoll(argv[2]) : 50;
  const int steps = argc > 3 ? std::atoi(argv[3]) : 10;
  const double k = 0.4;  // diffusivity times the time step by the square of the grid's width
  {
    terrace::Context ranks(MPI_COMM_WORLD);
    const std::int64_t n = nx * ny, each = (n + ranks.size() - 1) / ranks.size();
    const std::int64_t first = std::min(n, each * ranks.rank()), count = std::min(each, n - first);
    const auto rows = terrace::Rows::range(first, count);
    std::vector<double> ab(count * (nx + 1), 0.0), u(count);  // LAPACK's lower form, by columns
    for (std::int64_t c = 0; c < count; ++c) {
      const std::int64_t i = first + c, x = i % nx;
      ab[c * (nx + 1)] = 1 + 4 * k;
      if (x + 1 < nx) ab[c * (nx + 1) + 1] = -k;
      if (i + nx < n) ab[c * (nx + 1) + nx] = -k;
      u[c] = std::exp(-0.05 * double((x - nx / 2) * (x - nx / 2)));
    }
    const terrace::band::Factor factor(ranks, n,
                                       {ab.data(), nx, rows, terrace::band::Matrix::by_columns});
    for (int step = 0; step < steps; ++step) factor.solve({u.data(), rows, 1});
    double heat = 0, all = 0;
    for (const double x : u) heat += x;
    MPI_Reduce(&heat, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (ranks.rank() == 0)
      std::printf("heat after %d steps: %.9f, log det %.6f\n", steps, all,
                  factor.log_determinant());
  }
  MPI_Finalize();
}
