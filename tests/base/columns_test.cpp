// Products of a matrix and one vector, and triangles, beside long double; at every alignment.
#include "kernels/base/cpu/columns.hpp"

#include <cmath>
#include <cstring>

#include "kernels/base/buffer.hpp"
#include "kernels/base/random.hpp"
#include "tests/support/test.hpp"

using namespace terrace;

namespace {

constexpr Index offsets = 8;  // doubles: 64 bytes

/// `count` numbers whose address is `offset` doubles beyond a multiple of 64 bytes.
struct Numbers {
  std::vector<double> memory;
  double* data;
  Numbers(const std::vector<double>& of, Index offset) : memory(of.size() + 2 * offsets) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    data = memory.data() + (64 - address % 64) % 64 / 8 + offset;
    std::copy(of.begin(), of.end(), data);
  }
};
std::vector<double> numbers(Index count, Word seed) {
  std::vector<double> v(std::size_t(std::max<Index>(count, 0)));
  for (Index i = 0; i < count; ++i) v[std::size_t(i)] = random_uniform(seed, i, 0);
  return v;
}

struct Case {
  Index rows, columns, ld;
  std::vector<double> a, x, y;
  std::vector<long double> expected;
  double limit;
};

/// run(a, x, y) at all offsets of A, x and y gives the same bits, near what is expected.
template <class Run>
void check(const Case& c, Run&& run) {
  CAPTURE(c.rows, c.columns, c.ld);
  std::vector<double> first;
  for (Index offset = 0; offset < offsets; ++offset) {
    const Numbers a(c.a, offset), x(c.x, 3 * offset % offsets);
    Numbers y(c.y, 5 * offset % offsets);
    run(a.data, x.data, y.data);
    const std::vector<double> result(y.data, y.data + c.y.size());
    if (offset == 0) first = result;
    CHECK(std::memcmp(first.data(), result.data(), 8 * result.size()) == 0);
  }
  long double worst = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const long double error = std::fabs(first[i] - c.expected[i]);
    worst = error <= worst ? worst : error;  // a NaN stays
  }
  CHECK(worst <= c.limit);
}

Case product(Index rows, Index columns, Index ld, double alpha, bool transposed) {
  Case c{rows,
         columns,
         ld,
         numbers(ld * columns, 1),
         numbers(transposed ? rows : columns, 2),
         numbers(transposed ? columns : rows, 3),
         {},
         0};
  for (Index i = 0; i < Index(c.y.size()); ++i) {
    long double sum = 0;
    for (Index k = 0; k < Index(c.x.size()); ++k)
      sum +=
          (long double)c.a[std::size_t(transposed ? i * ld + k : k * ld + i)] * c.x[std::size_t(k)];
    c.expected.push_back(c.y[std::size_t(i)] + alpha * sum);
  }
  c.limit = 3e-16 * double(c.x.size() + 1);
  return c;
}

Case triangle(Index n, Index ld, bool transposed) {
  Case c{n, n, ld, numbers(ld * n, 4), {}, numbers(n, 5), {}, 0};
  for (Index j = 0; j < n; ++j) {
    for (Index i = 0; i < j; ++i) c.a[std::size_t(i + j * ld)] = 1e300;  // never read
    c.a[std::size_t(j + j * ld)] = 2 + c.a[std::size_t(j + j * ld)];
    for (Index i = j + 1; i < n; ++i) c.a[std::size_t(i + j * ld)] /= double(n);
  }
  std::vector<long double> x(c.y.begin(), c.y.end());
  for (Index step = 0; step < n; ++step) {
    const Index j = transposed ? n - 1 - step : step;
    for (Index k = transposed ? j + 1 : 0; k < (transposed ? n : j); ++k)
      x[std::size_t(j)] -=
          (long double)c.a[std::size_t(transposed ? k + j * ld : j + k * ld)] * x[std::size_t(k)];
    x[std::size_t(j)] /= c.a[std::size_t(j + j * ld)];
  }
  c.expected = x;
  c.limit = 1e-14;
  return c;
}

const std::vector<Index> sizes{0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65, 100};

}  // namespace

TEST_CASE("a matrix times a vector has the same bits at every address") {
  for (const Index rows : sizes)
    for (const Index columns : sizes)
      for (const Index ld : {rows, rows + 1, rows + 3}) {
        check(product(rows, columns, ld, -1, false), [&](double* a, double* x, double* y) {
          add_columns(rows, columns, -1, a, ld, x, y);
        });
        check(product(rows, columns, ld, 0.75, true),
              [&](double* a, double* x, double* y) { add_dots(rows, columns, 0.75, a, ld, x, y); });
      }
}

TEST_CASE("triangles are solved with the same bits at every address") {
  for (const Index n : sizes)
    for (const Index ld : {n, n + 1, n + 3}) {
      check(triangle(n, ld, false),
            [&](double* a, double*, double* y) { solve_lower(n, a, ld, y); });
      check(triangle(n, ld, true),
            [&](double* a, double*, double* y) { solve_lower_transposed(n, a, ld, y); });
    }
}
