#include "kernels/band/low.hpp"

#include <cstring>

#include "kernels/base/random.hpp"
#include "tests/support/band.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::band;
using namespace terrace::test;

namespace {

/// Tile columns of the matrix on the host, ones on the diagonal behind row n.
std::vector<double> tile_columns(const BandShape& s, const Entry& entry) {
  std::vector<double> a(std::size_t(s.tiles() * s.tile()), 0.0);
  for (Index j = 0; j < s.padded(); ++j)
    for (Index d = 0; d <= s.half_bandwidth && j + d < s.n; ++d)
      a[std::size_t(j * s.column() + d)] = entry(j + d, j);
  for (Index j = s.n; j < s.padded(); ++j) a[std::size_t(j * s.column())] = 1.0;
  return a;
}

/// Textbook band Cholesky of S A S + shift I in double precision, and z := M^-1 r.
struct Oracle {
  Index n, m;
  std::vector<double> scale, l;  // l: (i, j) at j (m + 1) + i - j
  Oracle(Index order, Index bandwidth, const Entry& entry, double shift)
      : n(order), m(bandwidth), scale(std::size_t(n)), l(std::size_t(n * (m + 1)), 0.0) {
    for (Index i = 0; i < n; ++i) scale[std::size_t(i)] = 1.0 / std::sqrt(entry(i, i));
    for (Index j = 0; j < n; ++j)
      for (Index i = j; i < std::min(n, j + m + 1); ++i) {
        long double sum = entry(i, j) * scale[std::size_t(i)] * scale[std::size_t(j)];
        if (i == j) sum += shift;
        for (Index k = std::max<Index>(0, i - m); k < j; ++k)
          sum -= (long double)at(i, k) * at(j, k);
        at(i, j) = double(i == j ? std::sqrt(sum) : sum / at(j, j));
      }
  }
  double& at(Index i, Index j) { return l[std::size_t(j * (m + 1) + i - j)]; }
  /// S^-1 z of one right-hand side S r.
  std::vector<double> solve(std::vector<double> y) {
    for (Index j = 0; j < n; ++j) {
      y[std::size_t(j)] /= at(j, j);
      for (Index i = j + 1; i < std::min(n, j + m + 1); ++i)
        y[std::size_t(i)] -= at(i, j) * y[std::size_t(j)];
    }
    for (Index j = n - 1; j >= 0; --j) {
      for (Index i = j + 1; i < std::min(n, j + m + 1); ++i)
        y[std::size_t(j)] -= at(i, j) * y[std::size_t(i)];
      y[std::size_t(j)] /= at(j, j);
    }
    return y;
  }
};

/// The kernels' side.
template <class B>
struct Low {
  Stream<B> lane;
  BandShape s;
  Buffer<double, B> a, scale;
  Buffer<Word, B> low, scratch;
  Buffer<Index, B> status;
  Index nrhs;

  Low(Index n, Index m, const Entry& entry, Index right_hand_sides)
      : s(band_shape(n, m, band_low_width(B{}))),
        a(s.tiles() * s.tile()),
        scale(s.padded()),
        low(band_low_words(B{}, s)),
        scratch(band_low_scratch(B{}, s, right_hand_sides)),
        status(1),
        nrhs(right_hand_sides) {
    const std::vector<double> host = tile_columns(s, entry);
    upload(lane, a.view(), host.data());
    lane.synchronize();
  }
  Index seen() const {
    Index value = -1;
    download(lane, &value, status.view());
    lane.synchronize();
    return value;
  }
  Index load(double shift) const {
    band_low_load(lane, s, a, shift, scale, low, status, scratch);
    return seen();
  }
  Index factor() const {
    band_low_factor(lane, s, low, status, scratch);
    return seen();
  }
  std::vector<double> solve(const std::vector<double>& r, Index count, bool in_place) const {
    Buffer<double, B> from(s.padded() * count), to(s.padded() * count);
    upload(lane, from.view(), r.data());
    const std::vector<double> nan(r.size(), NAN);
    upload(lane, to.view(), nan.data());
    lane.synchronize();
    band_low_solve(lane, s, low, scale, count, from, in_place ? from : to, scratch);
    std::vector<double> z(r.size());
    download(lane, z.data(), in_place ? from.view() : to.view());
    lane.synchronize();
    return z;
  }
};

/// Right-hand sides whose scaled entries S r have the magnitude of their column.
std::vector<double> right_hand_sides(const BandShape& s, const std::vector<double>& scale,
                                     Index nrhs, const std::vector<double>& magnitudes) {
  std::vector<double> r(std::size_t(s.padded() * nrhs), 0.0);
  for (Index i = 0; i < s.n; ++i)
    for (Index v = 0; v < nrhs; ++v)
      r[std::size_t(i * nrhs + v)] = magnitudes[std::size_t(v) % magnitudes.size()] *
                                     random_uniform(3, i, v) / scale[std::size_t(i)];
  return r;
}

/// Largest error of M^-1 r, in units of the roundoff and of the largest entry of S^-1 z.
template <class B>
double error(Index n, Index m, const Entry& entry, Index nrhs,
             const std::vector<double>& magnitudes, bool in_place) {
  const double shift = 2 * band_low_roundoff(B{});
  const Index clipped = std::min(m, n - 1);
  Oracle oracle(n, clipped, entry, shift);
  Low<B> low(n, m, entry, nrhs);
  if (low.load(shift) != 0 || low.factor() != 0) return INFINITY;
  const std::vector<double> r = right_hand_sides(low.s, oracle.scale, nrhs, magnitudes);
  const std::vector<double> z = low.solve(r, nrhs, in_place);
  double worst = 0;
  for (Index v = 0; v < nrhs; ++v) {
    const double magnitude = magnitudes[std::size_t(v) % magnitudes.size()];
    std::vector<double> y(static_cast<std::size_t>(n));
    for (Index i = 0; i < n; ++i)
      y[std::size_t(i)] = r[std::size_t(i * nrhs + v)] / magnitude * oracle.scale[std::size_t(i)];
    y = oracle.solve(y);
    double size = 0, off = 0;
    for (Index i = 0; i < n; ++i) {
      const double got = z[std::size_t(i * nrhs + v)] / magnitude / oracle.scale[std::size_t(i)];
      size = std::max(size, std::abs(y[std::size_t(i)]));
      const double d = std::abs(got - y[std::size_t(i)]);
      off = std::isfinite(d) ? std::max(off, d) : INFINITY;
    }
    worst = std::max(worst, off / size / band_low_roundoff(B{}));
  }
  for (Index i = n * nrhs; i < low.s.padded() * nrhs; ++i)
    if (z[std::size_t(i)] != 0) return INFINITY;
  return worst;
}

/// Eigenvalues of S A S in about (0.3, 1.7) at any half-bandwidth: couplings count as much as the
/// diagonal.
Entry decaying(Index n, Index m) {
  const double size = 0.4 / std::sqrt(double(std::clamp<Index>(m, 1, n)));
  return [=](Index i, Index j) {
    const double u = random_uniform(7, i, j);
    return i == j ? 1.0 : i - j <= m ? size * u : 0.0;
  };
}
/// The same with another diagonal.
Entry uneven(const Entry& entry) {
  return [=](Index i, Index j) {
    const auto d = [](Index k) { return 1.0 + 0.9 * random_uniform(8, k, k); };
    return entry(i, j) * d(i) * d(j);
  };
}

constexpr double kAllowed = 24;  // roundoffs, for matrices of condition below ten

}  // namespace

TEMPLATE_TEST_CASE("a band is factored and solved in low precision", "", TERRACE_BACKENDS) {
  if (!context<TestType>() || !band_low_available(TestType{})) return;
  const Index counts[] = {1, 2, 3, 8, 9, 17};
  Index turn = 0;
  for (const Index n : {1, 2, 63, 64, 65, 127, 128, 129, 200, 1000})
    for (const Index m : {Index(0), Index(1), Index(63), Index(64), Index(65), Index(127),
                          Index(128), Index(130), Index(300), n - 1}) {
      if (fewer_cases && n == 1000 && m > 130) continue;
      const Index nrhs = counts[turn++ % 6];
      INFO("n " << n << " m " << m << " nrhs " << nrhs);
      REQUIRE(error<TestType>(n, m, uneven(decaying(n, m)), nrhs, {1.0}, turn % 2 == 0) < kAllowed);
    }
}

TEMPLATE_TEST_CASE("the tail of a factor in low precision", "", TERRACE_BACKENDS) {
  if (!context<TestType>() || !band_low_available(TestType{})) return;
  const Index w = band_low_width(TestType{});
  const double shift = 2 * band_low_roundoff(TestType{});
  for (const Index tiles : {1, 2, 3, 6})
    for (const Index m : {Index(0), Index(1), w - 1, w, w + 2, 2 * w + 5})
      for (const Index first : {Index(0), tiles / 2, tiles - 1}) {
        const Index n = tiles * w, tail = n - first * w, clipped = std::min(m, n - 1);
        INFO("n " << n << " m " << m << " first " << first);
        const Entry entry = uneven(decaying(n, m));
        Oracle oracle(n, clipped, entry, shift);
        Low<TestType> low(n, m, entry, 1);
        REQUIRE((low.load(shift) == 0 && low.factor() == 0));
        std::vector<double> out(std::size_t(tail * tail), NAN);
        const Buffer<double, TestType> to(tail * tail);
        upload(low.lane, to.view(), static_cast<const double*>(out.data()));
        band_low_tail(low.lane, low.s, low.low, low.scale, first, to);
        download(low.lane, out.data(), to.view());
        low.lane.synchronize();
        double worst = 0;
        for (Index r = 0; r < tail; ++r)
          for (Index c = 0; c < tail; ++c) {
            const Index i = first * w + r, j = first * w + c;
            const double want =
                c <= r && r - c <= clipped ? oracle.at(i, j) / oracle.scale[std::size_t(i)] : 0.0;
            const double off = std::abs(out[std::size_t(r * tail + c)] - want);
            worst = std::isfinite(off) ? std::max(worst, off) : INFINITY;
          }
        REQUIRE(worst < kAllowed * band_low_roundoff(TestType{}));
      }
}

TEMPLATE_TEST_CASE("any number of right-hand sides is solved in low precision", "",
                   TERRACE_BACKENDS) {
  if (!context<TestType>() || !band_low_available(TestType{})) return;
  for (const Index nrhs : {1, 2, 3, 8, 9, 17})
    for (const Index m : {1, 64, 130}) {
      INFO("m " << m << " nrhs " << nrhs);
      REQUIRE(error<TestType>(500, m, uneven(decaying(500, m)), nrhs, {1.0}, false) < kAllowed);
      REQUIRE(error<TestType>(500, m, uneven(decaying(500, m)), nrhs, {1.0}, true) < kAllowed);
    }
}

TEMPLATE_TEST_CASE("right-hand sides of any magnitude are solved in low precision", "",
                   TERRACE_BACKENDS) {
  if (!context<TestType>() || !band_low_available(TestType{})) return;
  const std::vector<double> magnitudes = {1e-300, 1.0, 1e300, 1e-20, 1e5, 1e20, 1e-100};
  for (const Index nrhs : {1, 3, 7, 9})
    for (const double first : {1e-300, 1e300}) {
      std::vector<double> all = magnitudes;
      all[0] = first;
      INFO("nrhs " << nrhs << " first " << first);
      REQUIRE(error<TestType>(300, 70, decaying(300, 70), nrhs, all, false) < kAllowed);
    }
}

TEMPLATE_TEST_CASE("badly scaled bands are factored in low precision", "", TERRACE_BACKENDS) {
  if (!context<TestType>() || !band_low_available(TestType{})) return;
  // Rows and columns times powers of two up to 2^332, about 1e100.
  for (const Index m : {5, 100}) {
    const Entry even = decaying(300, m);
    const Entry entry = [=](Index i, Index j) {
      const auto d = [](Index k) { return std::ldexp(1.0, int(k * 97 % 665) - 332); };
      return even(i, j) * d(i) * d(j);
    };
    REQUIRE(error<TestType>(300, m, entry, 2, {1.0, 1e30}, false) < kAllowed);
  }
  for (const double size : {1e-290, 1e290}) {
    const Entry even = decaying(200, 40);
    const Entry entry = [=](Index i, Index j) { return size * even(i, j); };
    REQUIRE(error<TestType>(200, 40, entry, 2, {1.0}, false) < kAllowed);
  }
}

TEMPLATE_TEST_CASE("a diagonal entry that is not positive is named", "", TERRACE_BACKENDS) {
  if (!context<TestType>() || !band_low_available(TestType{})) return;
  const Index n = 200, m = 70;
  for (const Index bad : {0, 1, 63, 64, 127, 128, 199})
    for (const double value : {0.0, -0.0, -1.0, double(NAN), double(INFINITY), -double(INFINITY)}) {
      const Entry even = uneven(decaying(n, m));
      const Low<TestType> low(
          n, m, [&](Index i, Index j) { return i == bad && j == bad ? value : even(i, j); }, 1);
      INFO("bad " << bad << " value " << value);
      REQUIRE(low.load(1e-3) == bad + 1);
    }
  const Low<TestType> two(
      n, m, [&](Index i, Index j) { return i == j && (i == 70 || i == 150) ? -1.0 : i == j; }, 1);
  REQUIRE(two.load(1e-3) == 71);
}

TEMPLATE_TEST_CASE("a pivot that is not positive is reported", "", TERRACE_BACKENDS) {
  if (!context<TestType>() || !band_low_available(TestType{})) return;
  const Index n = 300;
  for (const Index m : {1, 64, 100})
    for (const Index bad : {0, 62, 63, 64, 127, 200, 298}) {
      // A unit diagonal with one coupling above one: not definite from row bad + 1 on.
      const Entry entry = [=](Index i, Index j) {
        return i == j ? 1.0 : i == bad + 1 && j == bad ? 1.5 : 0.0;
      };
      const Low<TestType> low(n, m, entry, 1);
      INFO("m " << m << " bad " << bad);
      REQUIRE(low.load(1e-3) == 0);
      const Index status = low.factor();
      REQUIRE(status >= bad + 2);
      REQUIRE(status <= low.s.padded());
    }
}

TEMPLATE_TEST_CASE("low precision gives the same bits twice, and zero for zero", "",
                   TERRACE_BACKENDS) {
  if (!context<TestType>() || !band_low_available(TestType{})) return;
  const Index n = 777;
  for (const Index m : {3, 64, 200})
    for (const Index nrhs : {1, 3, 9}) {
      const Low<TestType> low(n, m, decaying(n, m), nrhs);
      const std::vector<double> scale(std::size_t(low.s.padded()), 1.0);
      std::vector<double> r = right_hand_sides(low.s, scale, nrhs, {1.0, 1e200});
      if (nrhs > 1)
        for (Index i = 0; i < low.s.padded(); ++i) r[std::size_t(i * nrhs + 1)] = 0;
      std::vector<double> first;
      for (int round = 0; round < 2; ++round) {
        REQUIRE(low.load(1e-3) == 0);
        REQUIRE(low.factor() == 0);
        const std::vector<double> z = low.solve(r, nrhs, round == 1);
        if (round == 0) first = z;
        REQUIRE(std::memcmp(first.data(), z.data(), z.size() * sizeof(double)) == 0);
        for (Index i = 0; nrhs > 1 && i < low.s.padded(); ++i)
          REQUIRE(z[std::size_t(i * nrhs + 1)] == 0);
      }
    }
}
