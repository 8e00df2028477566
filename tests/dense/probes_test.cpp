#include "kernels/dense/probes.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/test.hpp"

using namespace terrace;

namespace {

constexpr Index count = dense::condition_probes;

template <class B>
std::vector<double> host(const Stream<B>& lane, const Buffer<double, B>& from) {
  std::vector<double> all(static_cast<std::size_t>(from.size()));
  download(lane, all.data(), from.view());
  lane.synchronize();
  return all;
}

}  // namespace

TEMPLATE_TEST_CASE("probes are the rows' Cauchy numbers, and nothing beside them is written", "",
                   TERRACE_BACKENDS) {
  test::on<TestType>([]<class B>(Context<B>& context) {
    const Stream<B>& lane = context.ahead;
    for (const Index rows : {0, 1, 15, 16, 17, 257, 1000}) {
      const Index ld = count + 3;
      std::vector<Index> numbers;
      for (Index s = 0; s < rows; ++s) numbers.push_back((7 * s + 5) % 1009);
      const Buffer<Index, B> row(rows);
      const Buffer<double, B> a(rows * ld);
      fill_zero(lane, a.view());
      if (rows > 0) upload(lane, row.view(), numbers.data());
      dense::put_probes<B>(lane, row, a.view(), ld);
      const std::vector<double> found = host<B>(lane, a);
      bool right = true;
      double least = 0, most = 0;
      for (Index s = 0; s < rows; ++s)
        for (Index p = 0; p < ld; ++p) {
          const double value = found[std::size_t(s * ld + p)];
          // tan(pi u / 2), u uniform in (-1, 1)
          const double u = random_uniform(0xc0de, numbers[std::size_t(s)], p);
          const double cauchy = 0x1p-20 * std::tan(std::acos(-1.0) / 2 * u);
          right = right &&
                  (p < count ? std::fabs(value - cauchy) <= 1e-9 * std::fabs(cauchy) : value == 0);
          least = std::min(least, value);
          most = std::max(most, value);
        }
      CHECK(right);
      if (rows >= 16) CHECK((least < 0 && most > 0));
    }
  });
}

TEMPLATE_TEST_CASE("the norm is the largest geometric mean of a row", "", TERRACE_BACKENDS) {
  test::on<TestType>([]<class B>(Context<B>& context) {
    const Stream<B>& lane = context.ahead;
    for (const Index rows : {0, 1, 2, 15, 16, 17, 33, 1000})
      for (const Index ld : {count, count + 5}) {
        std::vector<double> y(std::size_t(rows * ld), 1e300);  // beside the rows
        double expected = 0;
        for (Index r = 0; r < rows; ++r) {
          long double product = 1;
          for (Index p = 0; p < count; ++p) {
            const double value = random_uniform(3, r, p) * (r == rows / 2 ? 2 : 1);
            y[std::size_t(r * ld + p)] = value;
            product *= std::fabs((long double)(value));
          }
          expected = std::max(expected, double(std::pow(product, 1.0L / count)) / 0x1p-20);
        }
        const Buffer<double, B> there(rows * ld);
        if (rows > 0) upload(lane, there.view(), y.data());
        INFO(rows << " " << ld);
        CHECK(dense::norm_from_probes<B>(lane, rows, there.view(), ld) ==
              Approx(expected).epsilon(1e-12));
        if (rows == 0) continue;
        for (Index p = 0; p < count; ++p) y[std::size_t((rows - 1) * ld + p)] = 0;
        y[std::size_t((rows - 1) * ld)] = std::numeric_limits<double>::infinity();
        upload(lane, there.view(), y.data());
        CHECK(std::isinf(dense::norm_from_probes<B>(lane, rows, there.view(), ld)));
      }
  });
}
