// Solves with incomplete Cholesky factors on CUDA: 24 bytes an entry of the factor and 64 bytes a
// row against HBM, and about a microsecond for each level in each direction, whichever is longer.
#include "kernels/cuda/triangular_solve.cuh"

namespace terrace {

bool wants_levels(Cuda, Index, Index) { return true; }

void prepare_solve(const Stream<Cuda>& stream, const FactorView<Cuda>& factor) {
  check(cudaMemsetAsync(factor.y.data, 0xff, std::size_t(8 * factor.y.size), native(stream)));
  check(cudaMemsetAsync(factor.x.data, 0xff, std::size_t(8 * factor.x.size), native(stream)));
  fill_zero(stream, factor.tickets);
}

void solve_factor(const Stream<Cuda>& stream, const FactorView<Cuda>& factor, Index columns,
                  View<const double, Cuda> r, View<double, Cuda> z, const double* skip) {
  if (factor.rows() == 0 || columns == 0) return;
  launch_triangular_solves<4, 20>(native(stream), factor, columns, r.data, z.data, skip, 4, 2112);
  check_launch();
}

}  // namespace terrace
