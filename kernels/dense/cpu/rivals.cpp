// LAPACK's inversion as a rival: 2 n^3 flops, bound by DGEMM.
#include "kernels/dense/rivals.hpp"

#include <cblas.h>
#include <lapacke.h>

#include <vector>

#include "kernels/base/clock.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/base/random.hpp"

namespace terrace::dense {

RivalInverse lapack_inverse(Index n, Word seed, View<double, Cpu> a) {
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
  return {seconds, info};
}

double lap_seconds(const Stream<Cpu>& stream, const std::function<void()>& work) {
  stream.synchronize();
  const auto start = Clock::now();
  work();
  stream.synchronize();
  return since(start);
}

}  // namespace terrace::dense
