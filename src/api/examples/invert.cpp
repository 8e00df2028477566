// Inverts a matrix whose rows the ranks hold: mpirun -n 4 ./invert 1000
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <terrace/dense.hpp>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  {
    terrace::Context ranks(MPI_COMM_WORLD);  // terrace::Context() without MPI
    const std::int64_t n = argc > 1 ? std::atoll(argv[1]) : 1000;
    const std::int64_t each = (n + ranks.size() - 1) / ranks.size();
    const std::int64_t first = std::min(n, each * ranks.rank()), count = std::min(each, n - first);
    std::vector<double> a(count * n);
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        a[i * n + j] = std::sin(double((first + i) * n + j)) + (first + i == j ? double(n) : 0);
    try {
      const auto report =
          terrace::dense::invert(ranks, n, {a.data(), terrace::Rows::range(first, count), n});
      if (ranks.rank() == 0)
        std::printf("n = %lld, log |det A| = %.6f, residual %s\n", (long long)n,
                    report.log_abs_determinant, report.residual < 30 ? "good" : "bad");
    } catch (const terrace::Error& e) {  // on all ranks alike
      if (ranks.rank() == 0) std::fprintf(stderr, "%s\n", e.what());
    }
  }
  MPI_Finalize();
}
