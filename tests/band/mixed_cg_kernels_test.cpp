#include "kernels/band/mixed_cg.hpp"

#include <cstring>

#include "kernels/band/symmetric.hpp"
#include "kernels/base/random.hpp"
#include "tests/support/band.hpp"
#include "tests/support/numbers.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::band;
using namespace terrace::test;

namespace {

double entry_of(Index i, Index j) { return random_uniform(5, i, j); }

}  // namespace

TEMPLATE_TEST_CASE("a symmetric band times vectors, reading its lower part", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  const Stream<TestType> lane;
  const Index counts[] = {1, 2, 3, 4, 5, 8, 9, 17};
  Index turn = 0;
  for (const Index n : {1, 2, 63, 64, 65, 127, 128, 129, 200, 1000})
    for (const Index m : {Index(0), Index(1), Index(15), Index(63), Index(64), Index(65), Index(80),
                          Index(127), Index(128), Index(130), Index(300), Index(520), n - 1})
      for (const bool absolute : {false, true}) {
        const Index nrhs = counts[turn++ % 8];
        const BandShape s = band_shape(n, m, band_symmetric_width);
        INFO("n " << n << " m " << m << " nrhs " << nrhs << " absolute " << absolute);
        // What lies behind the last tile column must not count.
        std::vector<double> band(std::size_t(s.tiles() * s.tile() + s.tile()), NAN);
        std::fill_n(band.begin(), s.tiles() * s.tile(), 0.0);
        for (Index j = 0; j < n; ++j)
          for (Index d = 0; d <= s.half_bandwidth && j + d < n; ++d)
            band[std::size_t(j * s.column() + d)] = entry_of(j + d, j);
        std::vector<double> x = random_numbers(s.padded() * nrhs, 3);
        std::fill(x.begin() + n * nrhs, x.end(), 0.0);
        const Buffer<double, TestType> a = put(lane, band), from = put(lane, x);
        const Buffer<double, TestType> to = put(lane, std::vector<double>(x.size(), double(NAN)));
        const Buffer<double, TestType> scratch(band_symmetric_scratch(s, nrhs));
        band_symmetric_times(lane, s, a, absolute, nrhs, from, to, scratch);
        const std::vector<double> y = get(lane, to);
        const std::vector<double> want = band_product(
            n, s.half_bandwidth,
            [=](Index i, Index j) { return absolute ? std::abs(entry_of(i, j)) : entry_of(i, j); },
            std::vector<double>(x.begin(), x.begin() + n * nrhs), nrhs);
        double worst = 0;
        for (std::size_t i = 0; i < y.size(); ++i) {
          const double d = std::abs(y[i] - (i < want.size() ? want[i] : 0.0));
          worst = std::isfinite(d) ? std::max(worst, d) : INFINITY;
        }
        REQUIRE(worst <= 1e-15 * (10.0 + double(s.half_bandwidth)));
        band_symmetric_times(lane, s, a, absolute, nrhs, from, to, scratch);
        const std::vector<double> again = get(lane, to);
        REQUIRE(std::memcmp(again.data(), y.data(), y.size() * sizeof(double)) == 0);
      }
}

TEMPLATE_TEST_CASE("passes of conjugate gradients over right-hand sides in lock step", "",
                   TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  const Stream<TestType> lane;
  for (const Index rows : {1, 2, 31, 255, 256, 257, 4095, 4096, 4097, 100003})
    for (const Index nrhs : {1, 2, 3, 5, 8}) {
      INFO("rows " << rows << " nrhs " << nrhs);
      std::vector<double> scale = random_numbers(rows, 1);
      for (double& value : scale) value = 1.5 + value;
      std::vector<double> r = random_numbers(rows * nrhs, 2), x = random_numbers(rows * nrhs, 3);
      const std::vector<double> p = random_numbers(rows * nrhs, 4),
                                q = random_numbers(rows * nrhs, 5);
      const Buffer<double, TestType> there_scale = put(lane, scale), there_r = put(lane, r),
                                     there_x = put(lane, x), there_p = put(lane, p),
                                     there_q = put(lane, q);
      std::vector<double> state(std::size_t(band_cg::size * nrhs), 0.0);
      for (Index v = 0; v < nrhs; ++v) {
        state[std::size_t(band_cg::active * nrhs + v)] = v == 1 ? 0.0 : 1.0;
        state[std::size_t(band_cg::rz * nrhs + v)] = 0.5 + double(v);
        state[std::size_t(band_cg::pq * nrhs + v)] = v == 2 ? -1.0 : 2.0;
      }
      const Buffer<double, TestType> there_state = put(lane, state), scratch(band_cg_scratch);
      const BandCg<TestType> c{rows, nrhs, there_scale, there_state, scratch};
      band_cg_step(lane, c, there_p, there_q, there_x, there_r);
      std::vector<double> maxima(std::size_t(4 * nrhs), 0.0);
      for (Index e = 0; e < rows * nrhs; ++e) {
        const Index v = e % nrhs, i = e / nrhs;
        const double alpha = v == 1 || v == 2 ? 0.0 : (0.5 + double(v)) / 2.0;
        const std::size_t at = std::size_t(e);
        x[at] += alpha * p[at];
        r[at] -= alpha * q[at];
        const double s = scale[std::size_t(i)];
        const double found[] = {std::abs(r[at]), std::abs(r[at] * s), std::abs(x[at]),
                                std::abs(x[at] / s)};
        for (Index k = 0; k < 4; ++k)
          maxima[std::size_t(k * nrhs + v)] = std::max(maxima[std::size_t(k * nrhs + v)], found[k]);
      }
      const auto apart = [](const std::vector<double>& one, const std::vector<double>& other) {
        double worst = 0;
        for (std::size_t i = 0; i < one.size(); ++i) {
          const double d = std::abs(one[i] - other[i]);
          worst = std::isfinite(d) ? std::max(worst, d) : INFINITY;
        }
        return worst;
      };
      REQUIRE(apart(get(lane, there_x), x) < 1e-14);
      REQUIRE(apart(get(lane, there_r), r) < 1e-14);
      state = get(lane, there_state);
      REQUIRE(apart({state.begin() + band_cg::r * nrhs, state.end()}, maxima) < 1e-14);

      band_cg_products(lane, c, there_r, there_p, there_q);
      band_cg_curvature(lane, c, there_p, there_q);
      state = get(lane, there_state);
      std::vector<double> z = random_numbers(rows * nrhs, 6), next = p;
      for (Index v = 0; v < nrhs; ++v) {
        long double rz = 0, zq = 0, pq = 0;
        for (Index i = 0; i < rows; ++i) {
          const std::size_t at = std::size_t(i * nrhs + v);
          rz += r[at] * p[at];
          zq += p[at] * q[at];
          pq += p[at] * q[at];
        }
        const double allowed = 1e-15 * (1 + std::sqrt(double(rows))) * 20;
        REQUIRE(std::abs(state[std::size_t(band_cg::rz * nrhs + v)] - double(rz)) < allowed);
        REQUIRE(std::abs(state[std::size_t(band_cg::zq * nrhs + v)] - double(zq)) < allowed);
        REQUIRE(std::abs(state[std::size_t(band_cg::pq * nrhs + v)] - double(pq)) < allowed);
        // zq is pq here, so beta is -1 where the curvature is positive.
        for (Index i = 0; i < rows; ++i) {
          const std::size_t at = std::size_t(i * nrhs + v);
          next[at] = state[std::size_t(band_cg::pq * nrhs + v)] > 0 ? z[at] - p[at] : z[at];
        }
      }
      const Buffer<double, TestType> there_z = put(lane, z);
      band_cg_direction(lane, c, there_z, there_p);
      REQUIRE(apart(get(lane, there_p), next) < 1e-10);

      band_cg_residual(lane, c, there_z, there_q, there_x, there_r);
      const std::vector<double> rest = get(lane, there_r);
      for (std::size_t i = 0; i < rest.size(); ++i) REQUIRE(rest[i] == z[i] - q[i]);
    }
}

TEMPLATE_TEST_CASE("largest exponents, and a NaN in one column only", "", TERRACE_BACKENDS) {
  if (!context<TestType>()) return;
  const Stream<TestType> lane;
  const Index rows = 5000, nrhs = 6;
  std::vector<double> b(std::size_t(rows * nrhs), 0.0), scale(std::size_t(rows), 1.0);
  const auto at = [&](Index i, Index v) -> double& { return b[std::size_t(i * nrhs + v)]; };
  at(4321, 0) = -3.0;      // exponent 1
  at(17, 1) = 0x1p-1074;   // the smallest denormal
  at(17, 2) = 0x1.8p1000;  // times 2^500
  at(18, 2) = 1.0;
  scale[17] = 0x1p500;
  at(1, 3) = NAN;
  at(2, 3) = 5.0;
  at(4999, 4) = INFINITY;  // column 5: zero
  const Buffer<double, TestType> there = put(lane, b), there_scale = put(lane, scale),
                                 state(band_cg::size * nrhs), scratch(band_cg_scratch);
  const BandCg<TestType> c{rows, nrhs, there_scale, state, scratch};
  band_cg_exponents(lane, c, there);
  std::vector<double> seen = get(lane, state);
  const double want[] = {1, -1074 + 500, 1500, INFINITY, INFINITY, -INFINITY};
  for (Index v = 0; v < nrhs; ++v) REQUIRE(seen[std::size_t(band_cg::r * nrhs + v)] == want[v]);
  band_cg_norms(lane, c, there);
  seen = get(lane, state);
  const double norms[] = {3.0, 0x1p-1074, 0x1.8p1000, INFINITY, INFINITY, 0.0};
  for (Index v = 0; v < nrhs; ++v) REQUIRE(seen[std::size_t(band_cg::r * nrhs + v)] == norms[v]);
  const std::vector<double> factors = {2, 1, 1, 1, 1, 1, 0.25, 1, 0x1p-1000, 1, 1, 1};
  const Buffer<double, TestType> there_factors = put(lane, factors);
  band_cg_scale(lane, c, there_factors, there);
  const std::vector<double> scaled = get(lane, there);
  REQUIRE(scaled[4321 * nrhs] == -1.5);
  REQUIRE(scaled[17 * nrhs + 2] == 1.5);
}
