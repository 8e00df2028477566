// Some ranks solve, the last one does something else meanwhile: mpirun -n 4 ./subgroup
#include <algorithm>
#include <cstdio>
#include <terrace/dense.hpp>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const bool solves = rank < std::max(1, size - 1);
  MPI_Comm ours;
  MPI_Comm_split(MPI_COMM_WORLD, solves ? 0 : 1, rank, &ours);
  double found[2] = {0, 0};
  if (solves) {
    terrace::Context ranks(ours);
    const std::int64_t n = 200, each = (n + ranks.size() - 1) / ranks.size();
    const std::int64_t first = std::min(n, each * ranks.rank()), count = std::min(each, n - first);
    const auto rows = terrace::Rows::range(first, count);
    std::vector<double> a(count * n, 1.0), b(count, 1.0);  // all ones: of rank 1
    try {
      terrace::dense::solve(ranks, n, {a.data(), rows, n}, {b.data(), rows, 1});
    } catch (const terrace::Error& e) {  // on all ranks that solve, which go on
      if (rank == 0 && e.code() == terrace::Code::outcome)
        std::printf("singular in column %lld\n", (long long)e.position());
    }
    for (std::int64_t i = 0; i < count; ++i) a[i * n + first + i] += 1;  // 1 / (n + 1), of b = 1
    terrace::dense::solve(ranks, n, {a.data(), rows, n}, {b.data(), rows, 1});
    double sum = 0;
    for (const double x : b) sum += x;
    MPI_Reduce(&sum, &found[0], 1, MPI_DOUBLE, MPI_SUM, 0, ours);
  } else {
    for (int i = 1; i <= 1000; ++i) found[1] += 1.0 / i;
  }
  double all[2];
  MPI_Reduce(found, all, 2, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) std::printf("sum of the solution %.9f, of the other rank %.6f\n", all[0], all[1]);
  MPI_Comm_free(&ours);
  MPI_Finalize();
}
