// Solves with incomplete Cholesky factors on CUDA: 24 bytes an entry of the factor and 64 bytes a
// row against HBM, and a microsecond or less for each level in each direction, which is what
// counts. On an H200 both solves of Laplace's 7 points take 0.27 ms on 64^3 (190 levels) and 0.62
// ms on 128^3, of 27 points on 96^3 (666 levels) 1.24 ms; cuSPARSE SpSV 0.64, 1.60 and 2.48 ms.
#include "kernels/cg/cuda/triangular_solve.cuh"

namespace terrace::cg {

bool wants_levels(Cuda, Index, Index) { return true; }

void prepare_solve(const Stream<Cuda>& stream, const FactorView<Cuda>& factor) {
  check(cudaMemsetAsync(factor.y.data, 0xff, std::size_t(8 * factor.y.size), native(stream)));
  check(cudaMemsetAsync(factor.x.data, 0xff, std::size_t(8 * factor.x.size), native(stream)));
  fill_zero(stream, factor.tickets);
}

void solve_factor(const Stream<Cuda>& stream, const FactorView<Cuda>& factor, Index columns,
                  View<const double, Cuda> r, View<double, Cuda> z, const double* skip) {
  const Index rows = factor.rows();
  if (rows == 0 || columns == 0) return;
  constexpr Index ahead = 8;  // levels
  const auto launch = [&](auto batch) {
    launch_triangular_solves<batch()>(native(stream), factor, columns, r.data, z.data, skip, ahead,
                                      batch() > 8 ? 2112 : 4224);
  };
  // All of a row of average width in one batch.
  const Index width = ceil_div(factor.lower.column.size, rows);
  if (width <= 2)
    launch(std::integral_constant<int, 2>());
  else if (width <= 4)
    launch(std::integral_constant<int, 4>());
  else if (width <= 8)
    launch(std::integral_constant<int, 8>());
  else
    launch(std::integral_constant<int, 16>());
  check_launch();
}

}  // namespace terrace::cg
