#include "kernels/base/matrix.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/base/error.hpp"
#include "kernels/base/random.hpp"
#include "kernels/base/rows.hpp"
#include "tests/support/test.hpp"

using namespace terrace;

namespace {

std::vector<double> values(Index rows, Index columns, Word seed) {
  std::vector<double> v(std::size_t(rows * columns));
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < columns; ++j)
      v[std::size_t(i * columns + j)] = random_uniform(seed, i, j);
  return v;
}

template <class B>
void check_container() {
  Context<B>* context = test::context<B>();
  if (!context) return;
  const Stream<B>& lane = context->bulk;
  for (const Index rows : {1, 3, 64, 130})
    for (const Index columns : {1, 5, 63, 65, 700}) {
      INFO(rows << " x " << columns);
      const std::vector<double> u = values(rows, columns, 1), v = values(rows, columns, 2);
      const Matrix<B> a(lane, rows, columns, u), b(lane, rows, columns, v);
      REQUIRE(a.values() == u);

      const std::vector<double> sum = (a + b).values(), difference = (a - b).values(),
                                chain = (a + b + a).values(), mixed = (a - (b + a)).values(),
                                both = ((a + b) - (b - a)).values(), scaled = (2.5 * a).values();
      bool right = true;
      double product = 0, squares = 0, most = 0;
      std::vector<double> by_column(std::size_t(columns), 0.0), by_row(std::size_t(rows), 0.0),
          by_row_product(std::size_t(rows), 0.0);
      for (std::size_t i = 0; i < u.size(); ++i) {
        right = right && sum[i] == u[i] + v[i] && difference[i] == u[i] - v[i];
        right = right && std::fabs(chain[i] - (u[i] + v[i] + u[i])) < 1e-15;
        right = right && std::fabs(mixed[i] + v[i]) < 1e-15;
        right = right && std::fabs(both[i] - 2 * u[i]) < 1e-15 && scaled[i] == 2.5 * u[i];
        product += u[i] * v[i];
        squares += u[i] * u[i];
        most = std::max(most, std::fabs(u[i]));
        by_column[i % std::size_t(columns)] += std::fabs(u[i]);
        by_row[i / std::size_t(columns)] += std::fabs(u[i]);
        by_row_product[i / std::size_t(columns)] += u[i] * v[i];
      }
      CHECK(right);
      CHECK(dot(a, b) == Approx(product).margin(1e-10));
      const std::vector<double> dots = row_dots(a, b);
      for (std::size_t r = 0; r < dots.size(); ++r)
        CHECK(dots[r] == Approx(by_row_product[r]).margin(1e-11));
      CHECK(norm_max(a) == most);
      CHECK(norm_one(a) == Approx(*std::max_element(by_column.begin(), by_column.end())));
      CHECK(norm_infinity(a) == Approx(*std::max_element(by_row.begin(), by_row.end())));
      CHECK(norm_frobenius(a) == Approx(std::sqrt(squares)));

      const std::vector<double> turned = [&] {
        Matrix<B> t(lane, columns, rows);
        transpose<B>(lane, rows, columns, a.view(), columns, t.view(), rows);
        return t.values();
      }();
      double largest = 0, least = std::numeric_limits<double>::infinity();
      bool right_turned = true;
      for (Index i = 0; i < rows; ++i)
        for (Index j = 0; j < columns; ++j) {
          const double x = u[std::size_t(i * columns + j)];
          right_turned = right_turned && turned[std::size_t(j * rows + i)] == x;
          largest = std::max(largest, std::fabs(x));
          if (x != 0) least = std::min(least, std::fabs(x));
        }
      CHECK(right_turned);
      const Sizes sizes = sizes_of<B>(lane, rows, columns, a.view(), columns);
      CHECK(sizes.largest == largest);
      CHECK(sizes.least == least);

      for (const Index inner : {1, 17, 64}) {
        const std::vector<double> w = values(columns, inner, 3);
        const std::vector<double> c = (a * Matrix<B>(lane, columns, inner, w)).values();
        double worst = 0;
        for (Index i = 0; i < rows; ++i)
          for (Index j = 0; j < inner; ++j) {
            double exact = 0;
            for (Index k = 0; k < columns; ++k)
              exact += u[std::size_t(i * columns + k)] * w[std::size_t(k * inner + j)];
            worst = std::max(worst, std::fabs(exact - c[std::size_t(i * inner + j)]));
          }
        CHECK(worst < 1e-12 * double(columns));
      }
    }
}

template <class B>
void check_values() {
  Context<B>* context = test::context<B>();
  if (!context) return;
  const Stream<B>& lane = context->bulk;
  const std::vector<double> u = values(4, 6, 5);
  const Sizes gaps = sizes_of<B>(lane, 2, 2, Matrix<B>(lane, 2, 2, {0, -3, 0.5, 0}).view(), 2);
  CHECK((gaps.largest == 3 && gaps.least == 0.5));
  Matrix<B> a(lane, 4, 6, u);
  Matrix<B> b = a;  // deep copy
  b *= 2;
  CHECK(a.values() == u);
  const double* const memory = a.data();
  Matrix<B> c = std::move(a);  // the memory moves
  CHECK(c.data() == memory);
  CHECK(c.values() == u);
  Matrix<B> d = std::move(c) + b;  // a temporary's memory is used again
  CHECK(d.data() == memory);
  a = d;
  CHECK(a.values() == d.values());
  CHECK(a.data() != d.data());
  a = Matrix<B>();
  CHECK(a.rows() == 0);
  const Stream<Cpu> host;
  const Matrix<Cpu> on_host = [&] {
    if constexpr (std::is_same_v<B, Cpu>)
      return d;
    else
      return Matrix<Cpu>(host, d);
  }();
  CHECK(on_host.values() == d.values());
  if constexpr (!std::is_same_v<B, Cpu>) CHECK(Matrix<B>(lane, on_host).values() == d.values());
  const Matrix<B> empty(lane, 0, 5);
  CHECK(norm_one(empty) == 0.0);
  const Matrix<B> none = empty * Matrix<B>(lane, 5, 2, values(5, 2, 1));
  CHECK(none.rows() == 0);
  CHECK_THROWS_AS(d + Matrix<B>(lane, 6, 4, u), Error);
  CHECK_THROWS_AS(d * d, Error);
  const Matrix<B> huge(lane, 1, 2, {3e300, 4e300});
  CHECK(norm_frobenius(huge) == Approx(5e300));
  const Matrix<B> tiny(lane, 1, 2, {3e-300, 4e-300});
  CHECK(norm_frobenius(tiny) == Approx(5e-300));
  const Matrix<B> broken(lane, 1, 3, {1.0, std::nan(""), 2.0});
  CHECK(std::isinf(norm_max(broken)));
}

template <class B>
void check_largest() {
  Context<B>* context = test::context<B>();
  if (!context) return;
  const Stream<B>& lane = context->bulk;
  for (const Index rows : {0, 1, 7, 1000, 40000})
    for (const Index columns : {1, 2, 3, 16, 255, 257}) {
      const Index ld = columns + rows % 2;
      if (rows * ld > 1000000) continue;
      INFO(rows << " x " << columns);
      std::vector<double> u = values(rows, ld, 3), expected(std::size_t(columns), 0.0);
      if (rows == 7 && columns > 2) {
        u[std::size_t(6 * ld + 1)] = -std::nan("");
        u[std::size_t(2 * ld + 2)] = -INFINITY;
      }
      for (Index r = 0; r < rows; ++r)
        for (Index j = 0; j < columns; ++j) {
          const double size = std::fabs(u[std::size_t(r * ld + j)]);
          double& most = expected[std::size_t(j)];
          most = std::isnan(size) ? INFINITY : std::max(most, size);
        }
      const Matrix<B> a(lane, rows, ld, u);
      CHECK(largest_of_columns<B>(lane, rows, columns, a.view(), ld) == expected);
    }
}

/// 150 blocks, more than two launches, next to each other in one array; some are turned over, some are
/// sums, some empty. What lies between them stays.
template <class B>
void check_blocks() {
  Context<B>* context = test::context<B>();
  if (!context) return;
  const Stream<B>& lane = context->bulk;
  const Index room = 3000;
  const std::vector<double> u = values(150, room, 4), v = values(150, room, 5);
  std::vector<double> want = values(150, room, 6);
  const Matrix<B> from(lane, 150, room, u), plus(lane, 150, room, v), to(lane, 150, room, want);
  std::vector<BlockCopy> blocks;
  for (Index k = 0; k < 150; ++k) {
    const Index rows = k % 7 == 3 ? 0 : 1 + k * 5 % 40, columns = k % 11 == 4 ? 0 : 1 + k * 3 % 60;
    const Index from_ld = columns + k % 3, to_ld = columns + k % 5, at = k * room;
    const bool turned = k % 2 == 1 && rows > 0, adds = k % 3 == 1;
    const Index first = at + (turned ? (rows - 1) * from_ld : 0), ld = turned ? -from_ld : from_ld;
    blocks.push_back({from.data() + first, ld, to.data() + at, to_ld, rows, columns,
                      adds ? plus.data() + first : nullptr});
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < columns; ++j) {
        const auto source = std::size_t(at + (turned ? rows - 1 - i : i) * from_ld + j);
        want[std::size_t(at + i * to_ld + j)] = adds ? u[source] + v[source] : u[source];
      }
  }
  copy_blocks(lane, blocks);
  CHECK((to.values() == want));  // not printed
  copy_blocks(lane, {});
  lane.synchronize();
}

}  // namespace

TEMPLATE_TEST_CASE("many blocks are copied at once", "", TERRACE_BACKENDS) {
  check_blocks<TestType>();
}
TEMPLATE_TEST_CASE("the largest number of each column", "", TERRACE_BACKENDS) {
  check_largest<TestType>();
}
TEMPLATE_TEST_CASE("Matrices add, subtract, multiply and measure as textbooks say", "",
                   TERRACE_BACKENDS) {
  check_container<TestType>();
}
TEMPLATE_TEST_CASE("Matrices are values: copies are deep, moves keep the memory", "",
                   TERRACE_BACKENDS) {
  check_values<TestType>();
}
