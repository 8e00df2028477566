// Sum and product of matrices as in the article behind jobs/cg_seed.sh: nothing blocked, nothing
// tuned. What kernels/base/matrix.hpp is held against.
#pragma once
#include <algorithm>
#include <cmath>

#include "kernels/base/buffer.hpp"

namespace terrace::dense::textbook {

enum class Product {
  element,          ///< a thread an element of C, blocks of 32 x 32, the sum in a register
  third_dimension,  ///< a thread a product, the grid's z runs over the k products; the sum in C
                    ///< itself, by atomic additions: without them threads race. Order not fixed
  block             ///< a block an element, the sum in shared memory; one product a thread up to
                    ///< k = 1,024, several beyond
};
/// On the CPU there is Product::element, in one thread.
constexpr bool has_product(Cpu, Product product) { return product == Product::element; }
constexpr bool has_product(Cuda, Product) { return true; }
/// Largest k of a product: the grid's z, or no bound.
constexpr Index most_products(Product product) {
  return product == Product::third_dimension ? 65535 : Index(1) << 62;
}

/// What a device lets a launch have: blocks along each axis of the grid, threads of a block.
struct GridLimits {
  Index x = 0, y = 0, z = 0, threads = 0;
};
GridLimits grid_limits(Cuda);

/// Largest order n of square matrices, of a launch whose grid covers them once: blocks of 32 x 32
/// (rows along y), k = n along z for the third dimension, n x n blocks of up to n threads.
constexpr Index most_order_of_sum(const GridLimits& g) { return std::min(g.x, g.y) * 32; }
constexpr Index most_order_of_product(const GridLimits& g, Product product) {
  const Index tiles = most_order_of_sum(g);
  return product == Product::third_dimension ? std::min(tiles, g.z)
         : product == Product::block         ? std::min({g.x, g.y, g.threads})
                                             : tiles;
}
/// Largest n of so many square matrices in `bytes`.
inline Index most_order_in(Index bytes, Index matrices) {
  auto n = Index(std::sqrt(double(bytes) / (8.0 * double(matrices))));
  while (n * n * 8 * matrices > bytes) --n;
  return n;
}

/// C = A + B, row-major rows x columns: a thread an element, blocks of 32 x 32; one thread on the
/// CPU. 24 bytes an element.
template <class B>
void add(const Stream<B>& stream, Index rows, Index columns,
         std::type_identity_t<View<const double, B>> a,
         std::type_identity_t<View<const double, B>> b, View<double, B> c);

/// C = A B, row-major A m x k, B k x n. 2 m n k flops.
template <class B>
void multiply(const Stream<B>& stream, Product product, Index m, Index n, Index k,
              std::type_identity_t<View<const double, B>> a,
              std::type_identity_t<View<const double, B>> b, View<double, B> c);

}  // namespace terrace::dense::textbook
