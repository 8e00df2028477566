// LU in FP32 on one device: L U beside R A C, its pivots, and what it solves.
#include <algorithm>
#include <cmath>
#include <limits>

#include "src/dense/float_elimination.hpp"
#include "tests/support/dense.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::dense;
using namespace terrace::test;

namespace {

struct Solved {
  std::string why;
  std::vector<double> x;
};

template <class B>
Solved solved(Context<B>& context, Index n, Index right, Index block, const Entry& a,
              const std::vector<double>& b) {
  const Index lda = n + 3;
  std::vector<double> rows(std::size_t(n * lda), std::nan(""));
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < n; ++j) rows[std::size_t(i * lda + j)] = a(i, j);
  const Buffer<double, B> there(n * lda);
  upload(context.ahead, there.view(), static_cast<const double*>(rows.data()));
  context.ahead.synchronize();
  FloatElimination<B> method(context, {n, float_block(n, block)}, right);
  Progress silent(false, false);
  Solved found;
  found.why = method.factor(there.view(), lda, silent, {});
  if (found.why.empty()) found.x = method.solve(right, b);
  return found;
}

/// Largest |B - A X| / (|A| |X|), infinity norms.
double error_of(Index n, Index right, const Entry& a, const std::vector<double>& b,
                const std::vector<double>& x) {
  double worst = 0;
  for (Index c = 0; c < right; ++c) {
    double residual = 0, norm = 0, size = 0;
    for (Index i = 0; i < n; ++i) {
      double sum = b[std::size_t(i * right + c)], row = 0;
      for (Index j = 0; j < n; ++j) {
        sum -= a(i, j) * x[std::size_t(j * right + c)];
        row += std::fabs(a(i, j));
      }
      residual = std::max(residual, std::fabs(sum));
      norm = std::max(norm, row);
      size = std::max(size, std::fabs(x[std::size_t(i * right + c)]));
    }
    worst = std::max(worst, residual / (norm * size));
  }
  return worst;
}

const Entry uniform = [](Index i, Index j) { return random_uniform(3, i, j); };

std::vector<double> sides(Index n, Index right) {
  std::vector<double> b;
  for (Index e = 0; e < n * right; ++e) b.push_back(random_uniform(5, e, 1));
  return b;
}

template <class B>
void check_sizes(Context<B>& context) {
  if (context.size() > 1) return;
  for (const Index n : {1, 2, 31, 32, 33, 63, 64, 65, 96, 97, 129, 200, 257, 385})
    for (const Index block : {32, 64, 128})
      for (const Index right : {1, 2, 33}) {
        INFO("n " << n << ", block " << block << ", right " << right);
        const std::vector<double> b = sides(n, right);
        const Solved one = solved(context, n, right, block, uniform, b);
        REQUIRE(one.why.empty());
        const double error = error_of(n, right, uniform, b, one.x);
        CHECK(error < 2e-6);
        if (n > 96) CHECK(error > 1e-12);  // of low precision it is
        CHECK(solved(context, n, right, block, uniform, b).x == one.x);
      }
}

/// Entry (i, j) of a permutation, with no other number: the pivots are known, and X has B's bits.
template <class B>
void check_permutation(Context<B>& context) {
  if (context.size() > 1) return;
  const Index n = 150;
  const Entry a = [n](Index i, Index j) { return j == (7 * i + 3) % n ? 2.0 : 0.0; };
  const std::vector<double> b = sides(n, 2);
  const Solved found = solved(context, n, 2, 32, a, b);
  REQUIRE(found.why.empty());
  Index different = 0;
  for (Index i = 0; i < n; ++i)
    for (Index c = 0; c < 2; ++c)
      different += 2 * found.x[std::size_t((7 * i + 3) % n * 2 + c)] != b[std::size_t(i * 2 + c)];
  CHECK(different == 0);
}

/// Rows and columns far from one.
template <class B>
void check_scales(Context<B>& context) {
  if (context.size() > 1) return;
  const Index n = 130;
  const Entry a = [](Index i, Index j) {
    return std::ldexp(uniform(i, j), int(i % 7) * 60 - int(j % 5) * 70);
  };
  std::vector<double> b = sides(n, 1), x;
  const Solved found = solved(context, n, 1, 32, a, b);
  REQUIRE(found.why.empty());
  // Row by row, against the sizes of what is summed.
  double worst = 0;
  for (Index i = 0; i < n; ++i) {
    double sum = b[std::size_t(i)], size = 0;
    for (Index j = 0; j < n; ++j) {
      const double product = a(i, j) * found.x[std::size_t(j)];
      sum -= product;
      size = std::max(size, std::fabs(product));
    }
    worst = std::max(worst, std::fabs(sum) / size);
  }
  CHECK(worst < 1e-2);
}

template <class B>
void check_failures(Context<B>& context) {
  if (context.size() > 1) return;
  const Index n = 100;
  const std::vector<double> b = sides(n, 1);
  for (const Index column : {0, 31, 32, 70, 99}) {
    const Entry zero = [=](Index i, Index j) { return j == column ? 0.0 : uniform(i, j); };
    CHECK(solved(context, n, 1, 32, zero, b).why == "a pivot is zero");
    const Entry broken = [=](Index i, Index j) {
      return j == column && i == 50 ? std::numeric_limits<double>::infinity() : uniform(i, j);
    };
    CHECK(solved(context, n, 1, 32, broken, b).why == "a number is not finite");
  }
}

}  // namespace

TEST_CASE("the factor in FP32 solves", "[cpu]") {
  on<Cpu>([](auto& context) { check_sizes(context); });
}
TEST_CASE("the factor in FP32 solves, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { check_sizes(context); });
}
TEST_CASE("the factor in FP32 of a permutation is exact", "[cpu]") {
  on<Cpu>([](auto& context) { check_permutation(context); });
}
TEST_CASE("the factor in FP32 of a permutation is exact, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { check_permutation(context); });
}
TEST_CASE("rows and columns are scaled before FP32", "[cpu]") {
  on<Cpu>([](auto& context) { check_scales(context); });
}
TEST_CASE("rows and columns are scaled before FP32, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { check_scales(context); });
}
TEST_CASE("what has no factor in FP32 is found", "[cpu]") {
  on<Cpu>([](auto& context) { check_failures(context); });
}
TEST_CASE("what has no factor in FP32 is found, CUDA", "[gpu]") {
  on<Cuda>([](auto& context) { check_failures(context); });
}
