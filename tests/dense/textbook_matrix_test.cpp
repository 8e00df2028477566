#include "kernels/dense/textbook_matrix.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/base/error.hpp"
#include "kernels/base/matrix.hpp"
#include "kernels/base/memory_use.hpp"
#include "kernels/base/random.hpp"
#include "src/bench/textbook_solvers.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::dense;

namespace {

std::vector<double> values(Index rows, Index columns, Word seed) {
  std::vector<double> v(std::size_t(rows * columns));
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < columns; ++j)
      v[std::size_t(i * columns + j)] = random_uniform(seed, i, j);
  return v;
}

template <class B>
void check_products() {
  Context<B>* c = test::context<B>();
  if (!c) return;
  for (const auto kind :
       {textbook::Product::element, textbook::Product::third_dimension, textbook::Product::block}) {
    if (!textbook::has_product(B{}, kind)) continue;
    for (const Index m : {1, 31, 33, 70})
      for (const Index n : {1, 32, 65})
        for (const Index k : {1, 2, 31, 32, 33, 100, 1023, 1024, 1025, 2500}) {
          CAPTURE(int(kind), m, n, k);
          const std::vector<double> u = values(m, k, 1), v = values(k, n, 2);
          const Matrix<B> a(c->bulk, m, k, u), b(c->bulk, k, n, v);
          Matrix<B> product(c->bulk, m, n, values(m, n, 3));  // overwritten
          textbook::multiply<B>(c->bulk, kind, m, n, k, a.view(), b.view(), product.view());
          const std::vector<double> found = product.values();
          double worst = 0;
          for (Index i = 0; i < m; ++i)
            for (Index j = 0; j < n; ++j) {
              long double sum = 0;
              for (Index l = 0; l < k; ++l)
                sum +=
                    static_cast<long double>(u[std::size_t(i * k + l)]) * v[std::size_t(l * n + j)];
              worst = std::max(worst, std::fabs(found[std::size_t(i * n + j)] - double(sum)));
            }
          CHECK(worst <= 1e-15 * double(k));
        }
  }
  for (const Index rows : {1, 31, 32, 33, 100})
    for (const Index columns : {1, 32, 33, 500}) {
      const std::vector<double> u = values(rows, columns, 4), v = values(rows, columns, 5);
      const Matrix<B> a(c->bulk, rows, columns, u), b(c->bulk, rows, columns, v);
      const Matrix<B> sum(c->bulk, rows, columns);
      textbook::add<B>(c->bulk, rows, columns, a.view(), b.view(), sum.view());
      const std::vector<double> found = sum.values();
      bool right = true;
      for (std::size_t i = 0; i < u.size(); ++i) right = right && found[i] == u[i] + v[i];
      CHECK(right);
    }
}

/// Beyond what a grid that covers the matrix once could take; sums of ones are exact.
template <class B>
void check_orders_at_the_grid_limits() {
  Context<B>* c = test::context<B>();
  if (!c) return;
  using textbook::Product;
  const textbook::GridLimits g = textbook::grid_limits(B{});
  REQUIRE(g.z == textbook::most_products(Product::third_dimension));
  const auto ones = [&](Index rows, Index columns) {
    return Matrix<B>(c->bulk, rows, columns, std::vector<double>(std::size_t(rows * columns), 1.0));
  };
  const auto all = [](const Matrix<B>& m, double value) {
    const std::vector<double> found = m.values();
    return std::all_of(found.begin(), found.end(), [=](double v) { return v == value; });
  };
  const Index tall = g.y * 32 + 40;
  const Matrix<B> a = ones(tall, 2), sum(c->bulk, tall, 2);
  textbook::add<B>(c->bulk, tall, 2, a.view(), a.view(), sum.view());
  CHECK(all(sum, 2.0));
  const auto product = [&](Product kind, Index m, Index k) {
    const Matrix<B> left = ones(m, k), right = ones(k, 3);
    const Matrix<B> made(c->bulk, m, 3);
    textbook::multiply<B>(c->bulk, kind, m, 3, k, left.view(), right.view(), made.view());
    return all(made, double(k));
  };
  CHECK(product(Product::element, tall, 2));
  CHECK(product(Product::third_dimension, 5, g.z));
  CHECK(product(Product::block, g.y + 100, 2));
  CHECK(product(Product::block, 3, 5 * g.threads + 1));
}

template <class B>
void check_gradients() {
  Context<B>* c = test::context<B>();
  if (!c) return;
  for (const Index n : {1, 2, 9, 64, 65}) {
    CAPTURE(n);
    std::vector<double> entries = values(n, n, 6), x = values(n, 1, 7), right(x.size(), 0.0);
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j <= i; ++j)
        entries[std::size_t(i * n + j)] = entries[std::size_t(j * n + i)] =
            i == j ? double(n) + 1 : entries[std::size_t(i * n + j)];
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < n; ++j)
        right[std::size_t(i)] += entries[std::size_t(i * n + j)] * x[std::size_t(j)];
    const Matrix<B> a(c->bulk, n, n, entries), b(c->bulk, n, 1, right);
    const auto outcome = textbook::conjugate_gradients(a, b, 1e-13, 10 * n + 10);
    CHECK(outcome.converged);
    CHECK(outcome.iterations <= n + 3);
    const std::vector<double> found = outcome.x.values();
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) worst = std::max(worst, std::fabs(found[i] - x[i]));
    CHECK(worst <= 1e-11);
    if (n > 2) CHECK(!textbook::conjugate_gradients(a, b, 1e-13, 1).converged);
    const Matrix<B> indefinite = -1.0 * a;
    CHECK(!textbook::conjugate_gradients(indefinite, b, 1e-13, 100).converged);
  }
}

template <class B>
void check_memory() {
  Context<B>* c = test::context<B>();
  if (!c) return;
  const Index n = 64, one = 8 * n * n, before = memory_use(B{}).now;
  const Matrix<B> a(c->bulk, n, n, values(n, n, 1)), b(c->bulk, n, n, values(n, n, 2));
  CHECK(memory_use(B{}).now == before + 2 * one);
  watch_memory(B{});
  CHECK(memory_use(B{}).most == before + 2 * one);
  {
    const Matrix<B> sum = a + b + a + b;  // one new matrix, whatever the length
    CHECK(memory_use(B{}).most == before + 3 * one);
    const Matrix<B> copy = sum;
    CHECK(memory_use(B{}).now == before + 4 * one);
  }
  CHECK(memory_use(B{}).now == before + 2 * one);
  CHECK(memory_use(B{}).most == before + 4 * one);
  watch_memory(B{});
  CHECK(memory_use(B{}).most == before + 2 * one);
}

}  // namespace

TEST_CASE("the textbook's sums and products are right") { check_products<Cpu>(); }
TEST_CASE("the textbook's kernels for sums and products are right", "[gpu]") {
  if constexpr (with_cuda) check_products<Cuda>();
}
TEST_CASE("the textbook's conjugate gradients solve, and stop where they must") {
  check_gradients<Cpu>();
}
TEST_CASE("the textbook's conjugate gradients on a device", "[gpu]") {
  if constexpr (with_cuda) check_gradients<Cuda>();
}
TEST_CASE("memory is counted where it is taken") { check_memory<Cpu>(); }
TEST_CASE("device memory is counted where it is taken", "[gpu]") {
  if constexpr (with_cuda) check_memory<Cuda>();
}

TEST_CASE("Cramer's rule by expansion") {
  const Stream<Cpu> lane;
  // Integers: exact. det = -14, x = (1, -2, 3).
  const Matrix<Cpu> a(lane, 3, 3, {2, 1, 0, 1, 3, 4, -1, 2, 1}),
      b(lane, 3, 1, {2 - 2, 1 - 6 + 12, -1 - 4 + 3});
  CHECK(textbook::expanded_determinant(a) == 2 * (3 - 8) - 1 * (1 + 4));
  CHECK(textbook::solve_by_expansion(a, b).values() == std::vector<double>{1, -2, 3});
  CHECK(textbook::expanded_determinant(Matrix<Cpu>(lane, 1, 1, {-7})) == -7);
  CHECK(textbook::expanded_determinant(Matrix<Cpu>(lane, 0, 0)) == 1);
  const Matrix<Cpu> singular(lane, 2, 2, {1, 2, 2, 4});
  CHECK(textbook::solve_by_expansion(singular, Matrix<Cpu>(lane, 2, 1, {1, 1})).rows() == 0);
  // A permutation of 7 rows with one exchange too many.
  std::vector<double> entries(49, 0.0);
  for (Index i = 0; i < 7; ++i) entries[std::size_t(i * 7 + (i < 2 ? 1 - i : i))] = double(i + 1);
  CHECK(textbook::expanded_determinant(Matrix<Cpu>(lane, 7, 7, entries)) == -5040);
  CHECK_THROWS_AS(textbook::expanded_determinant(Matrix<Cpu>(lane, 11, 11)), Error);
}

TEST_CASE("the largest orders of sums and products follow from the grid's limits") {
  using textbook::Product;
  constexpr textbook::GridLimits g{2147483647, 65535, 65535, 1024};
  CHECK(textbook::most_order_of_sum(g) == 2097120);
  CHECK(textbook::most_order_of_product(g, Product::element) == 2097120);
  CHECK(textbook::most_order_of_product(g, Product::third_dimension) == 65535);
  CHECK(textbook::most_order_of_product(g, Product::block) == 1024);
  CHECK(textbook::most_order_in(24, 3) == 1);
  CHECK(textbook::most_order_in(Index(8) * 3 * 25000 * 25000, 3) == 25000);
  CHECK(textbook::most_order_in(Index(8) * 3 * 25000 * 25000 - 1, 3) == 24999);
}

TEST_CASE("sums and products take orders at the limits of the grid and beyond", "[gpu]") {
  if constexpr (with_cuda) check_orders_at_the_grid_limits<Cuda>();
}
