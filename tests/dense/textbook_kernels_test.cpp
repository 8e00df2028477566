#include "kernels/dense/textbook.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/base/random.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::dense;
using textbook::Launch;

namespace {

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

/// A system in the memory of B, with values that come from the host and go back to it.
template <class B>
struct Held {
  const Stream<B>& lane;
  Index n;
  Buffer<double, B> a, x, pivot;
  Buffer<Index, B> pivot_row, info;
  textbook::System<B> system;

  Held(const Stream<B>& stream, Index order, Launch launch)
      : lane(stream), n(order), a(n * n), x(n * n), pivot(n), pivot_row(n), info(2) {
    system = {n, a.view(), x.view(), pivot_row.view(), pivot.view(), info.view(), launch};
    textbook::begin(lane, system);
  }
  void put(const Buffer<double, B>& to, const std::vector<double>& values) const {
    upload(lane, to.view(), values.data());
    lane.synchronize();
  }
  template <class T>
  [[nodiscard]] std::vector<T> get(const Buffer<T, B>& from) const {
    std::vector<T> values(static_cast<std::size_t>(from.size()));
    download(lane, values.data(), from.view());
    lane.synchronize();
    return values;
  }
};

std::vector<double> random_values(Index n, Word seed) {
  std::vector<double> values(static_cast<std::size_t>(n * n));
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < n; ++j) values[std::size_t(i * n + j)] = random_uniform(seed, i, j);
  return values;
}

/// The same to a rounding: a fused multiply-add rounds once.
void check_close(const std::vector<double>& found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  double worst = 0;
  for (std::size_t e = 0; e < found.size(); ++e) {
    const double error = std::fabs(found[e] - expected[e]) / (1 + std::fabs(expected[e]));
    worst = error <= worst ? worst : error;
  }
  CHECK(worst < 1e-13);
}

const std::vector<Launch> shapes{{8, 16}, {16, 16}, {32, 16}, {8, 32}, {16, 32}, {32, 32}};
// Around a block, around a whole grid of 8 x 16 threads a side, and several strides of it.
const std::vector<Index> orders{1, 2, 15, 16, 17, 31, 32, 33, 127, 128, 129, 300};

}  // namespace

TEMPLATE_TEST_CASE("A pivot is the largest of its column below the diagonal", "",
                   TERRACE_BACKENDS) {
  Context<TestType>* context = test::context<TestType>();
  if (!context) return;
  const Index n = 5;
  Held<TestType> held(context->ahead, n, {});
  const auto chosen = [&](const std::vector<double>& column, Index k) {
    std::vector<double> values(25, 7.0);
    for (Index i = 0; i < n; ++i) values[std::size_t(i * n + k)] = column[std::size_t(i)];
    held.put(held.a, values);
    textbook::begin(held.lane, held.system);
    textbook::choose_pivot(held.lane, held.system, k);
    return held.get(held.pivot_row)[std::size_t(k)];
  };
  CHECK(chosen({1, 2, -9, 4, 8}, 0) == 2);
  CHECK(held.get(held.pivot)[0] == -9);
  CHECK(held.get(held.info)[0] == -1);
  CHECK(chosen({100, 2, -3, 3, -3}, 1) == 2);  // row 0 is done; ties to the lowest row
  CHECK(chosen({1, 1, 1, 1, 5}, 4) == 4);
  CHECK(chosen({9, 9, 9, -1e-308, 0}, 3) == 3);
  CHECK(held.get(held.info)[0] == -1);
  CHECK(chosen({1, 2, nan_value, 9, INFINITY}, 0) == 2);
  CHECK(held.get(held.info) == std::vector<Index>{0, 2});
  CHECK(chosen({nan_value, 1, 2, 3, 4}, 0) == 0);
  CHECK(held.get(held.info) == std::vector<Index>{0, 2});
  CHECK(chosen({1, 2, 3, -INFINITY, 4}, 2) == 3);
  CHECK(held.get(held.info) == std::vector<Index>{2, 2});
  CHECK(chosen({3, 3, 0, -0.0, 0}, 2) == 2);
  CHECK(held.get(held.info) == std::vector<Index>{2, 1});
  textbook::choose_pivot(held.lane, held.system, 2);  // a later one does not hide the first
  held.put(held.a, std::vector<double>(25, 0.0));
  textbook::choose_pivot(held.lane, held.system, 4);
  CHECK(held.get(held.info) == std::vector<Index>{2, 1});
}

TEMPLATE_TEST_CASE("Every shape of a launch does each step on the whole matrix", "",
                   TERRACE_BACKENDS) {
  Context<TestType>* context = test::context<TestType>();
  if (!context) return;
  for (const Launch launch : shapes)
    for (const Index n : orders)
      for (const Index k : {Index(0), n / 2, n - 1}) {
        INFO("grid " << launch.grid << ", threads " << launch.threads << ", n " << n << ", k "
                     << k);
        Held<TestType> held(context->ahead, n, launch);
        const auto at = [n](Index i, Index j) { return std::size_t(i * n + j); };
        std::vector<double> a = random_values(n, 3), x = held.get(held.x);
        for (Index i = 0; i < n; ++i)
          for (Index j = 0; j < n; ++j)
            if (x[at(i, j)] != (i == j ? 1.0 : 0.0)) FAIL("begin: (" << i << ", " << j << ")");
        x = random_values(n, 4);
        a[at(n - 1, k)] = 5;  // the pivot
        held.put(held.a, a);
        held.put(held.x, x);

        textbook::choose_pivot(held.lane, held.system, k);
        textbook::exchange_rows(held.lane, held.system, k);
        for (Index j = 0; j < n; ++j) {
          std::swap(a[at(k, j)], a[at(n - 1, j)]);
          std::swap(x[at(k, j)], x[at(n - 1, j)]);
        }
        CHECK(held.get(held.a) == a);
        CHECK(held.get(held.x) == x);

        textbook::subtract_below(held.lane, held.system, k);
        for (Index i = k + 1; i < n; ++i)
          for (Index j = 0; j < n; ++j) {
            const double factor = a[at(i, k)] / a[at(k, k)];
            if (j > k) a[at(i, j)] -= factor * a[at(k, j)];
            x[at(i, j)] -= factor * x[at(k, j)];
          }
        check_close(held.get(held.a), a);
        check_close(held.get(held.x), x);
        textbook::clear_below(held.lane, held.system, k);
        for (Index i = k + 1; i < n; ++i) a[at(i, k)] = 0;
        check_close(held.get(held.a), a);

        textbook::subtract_above(held.lane, held.system, k);
        for (Index i = 0; i < k; ++i)
          for (Index j = 0; j < n; ++j) {
            const double factor = a[at(i, k)] / a[at(k, k)];
            if (j < k) a[at(i, j)] -= factor * a[at(k, j)];
            x[at(i, j)] -= factor * x[at(k, j)];
          }
        check_close(held.get(held.a), a);
        check_close(held.get(held.x), x);
        textbook::clear_above(held.lane, held.system, k);
        for (Index i = 0; i < k; ++i) a[at(i, k)] = 0;
        check_close(held.get(held.a), a);

        for (Index i = 0; i < n; ++i) a[at(i, i)] = 2.0 + double(i % 3);
        held.put(held.a, a);
        textbook::divide_inverse(held.lane, held.system);
        for (Index i = 0; i < n; ++i)
          for (Index j = 0; j < n; ++j) x[at(i, j)] /= a[at(i, i)];
        check_close(held.get(held.x), x);
        textbook::divide_matrix(held.lane, held.system);
        for (Index i = 0; i < n; ++i) a[at(i, i)] = 1;
        CHECK(held.get(held.a) == a);
      }
}
