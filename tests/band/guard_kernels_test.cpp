#include "kernels/band/guard.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/base/random.hpp"
#include "tests/support/numbers.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::band;
using namespace terrace::test;

namespace {

bool close(const std::vector<double>& a, const std::vector<double>& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!(std::abs(a[i] - b[i]) <= 1e-12 * (1 + std::abs(b[i])))) return false;
  return true;
}

}  // namespace

TEMPLATE_TEST_CASE("tile columns are weighed as their entries say", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  const Stream<TestType> lane;
  struct Size {
    Index n, m, width, first, step;
  };
  for (const Size& z : {Size{40, 0, 16, 0, 1}, Size{100, 3, 16, 0, 1}, Size{203, 30, 16, 1, 3},
                        Size{500, 133, 64, 0, 2}, Size{700, 600, 48, 0, 1}}) {
    const BandShape s = band_shape(z.n, z.m, z.width);
    const Index count = ceil_div(s.tiles() - z.first, z.step), length = s.padded() + s.reach;
    std::vector<double> tiles = random_numbers(count * s.tile() + s.width * (s.width + 1), 1);
    const std::vector<double> w = random_numbers(length, 2), x = random_numbers(length, 3);
    for (const Index from : {0, 1})
      for (const bool sizes : {false, true}) {
        INFO("n " << z.n << " m " << z.m << " from " << from << " sizes " << sizes);
        // By definition, entry by entry.
        std::vector<double> t(w.size(), 0.5), t_size = t, sum = t, size = t;
        for (Index q = 0; q < count; ++q)
          for (Index c = 0; c < s.width; ++c)
            for (Index d = 0; d <= s.half_bandwidth; ++d) {
              const Index j = (z.first + q * z.step) * s.width + c;
              const double a = tiles[std::size_t(q * s.tile() + c * s.column() + d)];
              if (d >= from) {
                t[std::size_t(j)] += a * w[std::size_t(j + d)];
                t_size[std::size_t(j)] += std::abs(a * w[std::size_t(j + d)]);
              }
              sum[std::size_t(j + d)] += -2.0 * a * x[std::size_t(j)];
              size[std::size_t(j + d)] += std::abs(-2.0 * a * x[std::size_t(j)]);
            }
        const std::vector<double> halves(w.size(), 0.5);
        const auto data = put(lane, tiles), weights = put(lane, w), in = put(lane, x);
        const auto a = put(lane, halves), b = put(lane, halves), c = put(lane, halves),
                   d = put(lane, halves);
        std::vector<double> scaled = x;
        for (double& v : scaled) v *= 2;  // sizes are not times alpha
        const auto in_size = put(lane, scaled);
        weigh_band(lane, {s, data.data(), z.first, z.step, count}, from, -2.0,
                   {weights.data(), a.data(), sizes ? b.data() : nullptr, in.data(), in_size.data(),
                    c.data(), sizes ? d.data() : nullptr});
        CHECK(close(get(lane, a), t));
        CHECK(close(get(lane, c), sum));
        CHECK(close(get(lane, b), sizes ? t_size : halves));
        CHECK(close(get(lane, d), sizes ? size : halves));
      }
  }
}

TEST_CASE("a weight undoes the scale of its diagonal, and its sign is drawn") {
  const double tiny = 0x1p-1074, inf = std::numeric_limits<double>::infinity();
  for (const double d : {1.0, 2.0, 3.0, 0.25, 0.3, 1e-300, 0x1p-1022, 1e300, 0x1.8p1023}) {
    Index negative = 0;
    for (Index j = 0; j < 200; ++j) {
      const double scaled = std::abs(band_weight(d, j)) * std::sqrt(d);
      CHECK(scaled >= 0.35);
      CHECK(scaled < 1.4143);
      negative += band_weight(d, j) < 0;
    }
    CHECK(negative > 60);
    CHECK(negative < 140);
  }
  for (const double d : {0.0, -4.0, inf, -inf, std::nan(""), tiny}) {
    const double w = std::abs(band_weight(d, 3));
    CHECK(w >= 0.5);
    CHECK(w < (d == tiny ? 0x1p512 : 1.0));
  }
}

TEMPLATE_TEST_CASE("weights are drawn for all columns, padding included", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  const Stream<TestType> lane;
  for (const Index n : {1, 15, 16, 100, 203}) {
    const BandShape s = band_shape(n, 20, 16);
    for (const Index first : {0, 1}) {
      const Index count = ceil_div(std::max<Index>(0, s.tiles() - first), 2);
      const std::vector<double> tiles = random_numbers(std::max<Index>(1, count) * s.tile(), 4);
      const auto data = put(lane, tiles);
      const auto out = put(lane, std::vector<double>(std::size_t(s.padded()), 7.0));
      draw_weights(lane, {s, data.data(), first, 2, count}, out.data());
      std::vector<double> expected(std::size_t(s.padded()), 7.0);
      for (Index q = 0; q < count; ++q)
        for (Index c = 0; c < s.width; ++c) {
          const Index j = (first + 2 * q) * s.width + c;
          expected[std::size_t(j)] =
              band_weight(tiles[std::size_t(q * s.tile() + c * s.column())], j);
        }
      CHECK(get(lane, out) == expected);
    }
  }
}

TEMPLATE_TEST_CASE("the first row whose sum is left over is found", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  const Stream<TestType> lane;
  std::vector<double> w(1000, 0.25), sum(1000, 0.0), size(1000, 2.0);
  w[700] = 0;  // no row of the matrix
  sum[700] = sum[900] = sum[990] = 1;
  sum[100] = 1;  // before the rows that are asked for
  sum[500] = 3e-3;
  Buffer<Index, TestType> bad(1);
  const auto first = [&](Index to, bool sizes, double least) {
    const auto weights = put(lane, w), sums = put(lane, sum), all = put(lane, size);
    judge_band_rows(lane, 200, to, weights.data(), sums.data(), sizes ? all.data() : nullptr, 1e-3,
                    least, bad.data());
    Index found = 0;
    download(lane, &found, bad.view());
    lane.synchronize();
    return found;
  };
  CHECK(first(1000, false, 0) == 900);  // 4e-3 is allowed
  CHECK(first(1000, true, 0) == 500);   // 2e-3
  CHECK(first(1000, true, 2e-3) == 900);
  CHECK(first(900, false, 0) == 900);  // none
  sum[600] = NAN;
  CHECK(first(1000, false, 0) == 600);
  sum[550] = -INFINITY;
  CHECK(first(1000, false, 0) == 550);
}
