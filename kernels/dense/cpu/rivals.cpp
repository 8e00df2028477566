// LAPACK's inversion and solution as rivals: 2 n^3 and 2/3 n^3 flops, bound by DGEMM.
#include "kernels/dense/rivals.hpp"

#include <cblas.h>
#include <lapacke.h>

#include <vector>

#include "kernels/base/clock.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/base/random.hpp"

namespace terrace::dense {

RivalRun lapack_inverse(Index n, Word seed, View<double, Cpu> a) {
  parallel_ranges(n, 32, [&](Index from, Index to) {
    for (Index i = from; i < to; ++i)
      for (Index j = 0; j < n; ++j) a.data[i * n + j] = random_uniform(seed, i, j);
  });
  std::vector<lapack_int> pivots(static_cast<std::size_t>(n));
  openblas_set_num_threads(thread_count());
  const auto start = Clock::now();
  lapack_int info = LAPACKE_dgetrf(LAPACK_COL_MAJOR, lapack_int(n), lapack_int(n), a.data,
                                   lapack_int(n), pivots.data());
  if (info == 0)
    info = LAPACKE_dgetri(LAPACK_COL_MAJOR, lapack_int(n), a.data, lapack_int(n), pivots.data());
  const double seconds = since(start);
  openblas_set_num_threads(1);
  return {seconds, info, {}};
}

RivalRun lapack_solution(Index n, Index right, Word seed, View<double, Cpu> x) {
  std::vector<double> a(static_cast<std::size_t>(n * n));
  parallel_ranges(n + right, 32, [&](Index from, Index to) {
    for (Index j = from; j < to; ++j) {
      double* const column = j < n ? a.data() + j * n : x.data + (j - n) * n;
      for (Index i = 0; i < n; ++i) column[i] = random_uniform(seed, i, j);
    }
  });
  std::vector<lapack_int> pivots(static_cast<std::size_t>(n));
  openblas_set_num_threads(thread_count());
  const auto start = Clock::now();
  lapack_int info = LAPACKE_dgetrf(LAPACK_COL_MAJOR, lapack_int(n), lapack_int(n), a.data(),
                                   lapack_int(n), pivots.data());
  if (info == 0)
    info = LAPACKE_dgetrs(LAPACK_COL_MAJOR, 'N', lapack_int(n), lapack_int(right), a.data(),
                          lapack_int(n), pivots.data(), x.data, lapack_int(n));
  const double seconds = since(start);
  openblas_set_num_threads(1);
  return {seconds, info, {}};
}

double lap_seconds(const Stream<Cpu>& stream, const std::function<void()>& work) {
  stream.synchronize();
  const auto start = Clock::now();
  work();
  stream.synchronize();
  return since(start);
}

}  // namespace terrace::dense
