#include "kernels/dense/emulated.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/base/error.hpp"
#include "kernels/base/random.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::dense;

namespace {

constexpr double eps = 0x1p-53;
__extension__ using Wide = __int128;
using Values = std::vector<double>;

/// A -= N Y, `strip` columns at a time (0: all), with leading dimensions beyond the sizes; what
/// lies between is checked to stay.
template <class B>
Values updated(const Stream<B>& lane, Index m, Index n, Index k, const Values& left,
               const Values& right, const Values& a, int moduli, Index strip = 0) {
  const Index ld_left = m + 3, ld_right = n + 1, lda = n + 5;
  Values l(std::size_t(k * ld_left), 1e300), r(std::size_t(k * ld_right), 1e300);
  Values held(std::size_t(m * lda), -7.0);
  for (Index q = 0; q < k; ++q) {
    for (Index i = 0; i < m; ++i) l[std::size_t(i + q * ld_left)] = left[std::size_t(i * k + q)];
    for (Index j = 0; j < n; ++j) r[std::size_t(j + q * ld_right)] = right[std::size_t(j * k + q)];
  }
  for (Index i = 0; i < m; ++i)
    for (Index j = 0; j < n; ++j) held[std::size_t(i * lda + j)] = a[std::size_t(i * n + j)];
  const Buffer<double, B> left_there(k * ld_left), right_there(k * ld_right), there(m * lda);
  upload(lane, left_there.view(), l.data());
  upload(lane, right_there.view(), r.data());
  upload(lane, there.view(), held.data());
  const emulated::Shape shape{m, n, k, moduli};
  const Buffer<std::byte, B> work(emulated::workspace_bytes(B{}, shape));
  emulated::set_left(lane, shape, View<const double, B>(left_there), ld_left, work.view());
  if (strip <= 0) strip = n;
  for (Index j = 0; j < n; j += strip)
    emulated::subtract_product(lane, emulated::Shape{m, std::min(strip, n - j), k, moduli},
                               View<const double, B>(right_there).slice(j, right_there.size() - j),
                               ld_right, there.view().slice(j, there.size() - j), lda, work.view());
  download(lane, held.data(), there.view());
  lane.synchronize();
  Values result(std::size_t(m * n));
  for (Index i = 0; i < m; ++i) {
    for (Index j = 0; j < n; ++j) result[std::size_t(i * n + j)] = held[std::size_t(i * lda + j)];
    for (Index j = n; j < lda; ++j)
      if (held[std::size_t(i * lda + j)] != -7.0) FAIL("wrote beyond row " << i);
  }
  return result;
}

/// Vectors as rows of k numbers.
Values random_vectors(Index count, Index k, Word seed) {
  Values values(std::size_t(count * k));
  for (Index e = 0; e < count * k; ++e) values[std::size_t(e)] = random_uniform(seed, e, 0);
  return values;
}
double norm(const Values& v, Index i, Index k) {
  long double sum = 0;
  for (Index q = 0; q < k; ++q)
    sum += (long double)v[std::size_t(i * k + q)] * v[std::size_t(i * k + q)];
  return double(std::sqrt(sum));
}
double log_of_product(int moduli) {
  double sum = 0;
  for (int p = 0; p < moduli; ++p) sum += std::log2(emulated::moduli[p]);
  return sum;
}
/// log2 of B.
double bits(int moduli) { return std::min(log_of_product(moduli) / 2 - 0.501, 60.0); }

/// Largest error of found = -(n_i y_j), as a part of what rounding to integers may cost.
double worst_error(Index m, Index n, Index k, const Values& left, const Values& right,
                   const Values& found, int moduli) {
  double worst = 0;
  for (Index i = 0; i < m; ++i)
    for (Index j = 0; j < n; ++j) {
      long double sum = 0;
      for (Index q = 0; q < k; ++q)
        sum += (long double)left[std::size_t(i * k + q)] * right[std::size_t(j * k + q)];
      const double scale = norm(left, i, k) * norm(right, j, k);
      const double allowed = 2.1 * std::sqrt(double(k)) * std::exp2(-bits(moduli)) * scale +
                             3 * eps * double(std::fabs(sum)) + double(k) * 0x1p-63 * scale;
      const double error = double(std::fabs(found[std::size_t(i * n + j)] + sum));
      if (error > 0) worst = error <= worst * allowed ? worst : error / allowed;
    }
  return worst;
}

const std::vector<int> all_moduli{6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

}  // namespace

TEST_CASE("The moduli are pairwise coprime and fit bytes") {
  for (int i = 0; i < emulated::most_moduli; ++i) {
    CHECK(emulated::moduli[i] <= 256);
    for (int j = 0; j < i; ++j) {
      int a = emulated::moduli[i], b = emulated::moduli[j];
      while (b != 0) {
        a %= b;
        std::swap(a, b);
      }
      CHECK(a == 1);
    }
  }
  CHECK_THROWS_AS(emulated::make_scheme(5), Error);
  CHECK_THROWS_AS(emulated::make_scheme(17), Error);
}

TEST_CASE("Sums of digits stay where single precision is exact and remainders are bytes") {
  for (const int count : all_moduli) {
    const emulated::Scheme scheme = emulated::make_scheme(count);
    for (int i = 0; i < count; ++i) {
      const emulated::Modulus& m = scheme.moduli[i];
      CHECK(m.p == emulated::moduli[i]);
      const auto check = [&](const emulated::Digits& d, int digits, double top_least,
                             double top_most, double limit) {
        double least = d.start, most = d.start;
        for (int k = 0; k < digits; ++k) {
          const int weight = std::int8_t(d.weights >> 8 * k & 255);
          const double low = k + 1 < digits ? 0 : top_least;
          const double high = k + 1 < digits ? 65535 : top_most;
          least += weight * (weight < 0 ? high : low);
          most += weight * (weight < 0 ? low : high);
        }
        const double largest = std::max(-least, most);
        CHECK(largest < limit);
        // Half of p, and p times the error of the quotient: a half unit of 1 / p.
        if (m.p != 256) CHECK(m.p / 2.0 + largest * 0x1p-24 < 128);
      };
      check(m.left, 4, 0x3000, 0x5000, 0x1p24);
      check(m.right, 4, 0x3000, 0x5000, 0x1p24);
      // Quotients of sums, |x| <= 2^30: the same wherever they are formed.
      CHECK(std::fabs(m.reciprocal - 0x1p38 / m.p) <= 0.5);
    }
  }
}

TEMPLATE_TEST_CASE("Products of integers come out exact, rounded once or twice", "",
                   TERRACE_BACKENDS) {
  Context<TestType>* context = test::context<TestType>();
  if (!context || !emulated::available(TestType{})) return;
  const Index m = 9, n = 7;
  for (const int moduli : all_moduli)
    for (const Index k : {Index(1), Index(2), Index(33), Index(300)}) {
      INFO("moduli " << moduli << ", k " << k);
      // As wide as fits without rounding; 2^52 is all that random_uniform has.
      const int width = std::min(52, int(bits(moduli) - std::log2(double(k)) / 2 - 1));
      Values left = random_vectors(m, k, 5), right = random_vectors(n, k, 6);
      for (double& v : left) v = std::nearbyint(std::ldexp(v, width));
      for (double& v : right) v = std::nearbyint(std::ldexp(v, width));
      if (k > 1)  // cancellation down to a difference of neighbours
        for (Index q = 0; q + 1 < k; q += 2) {
          left[std::size_t(q + 1)] = -left[std::size_t(q)];
          right[std::size_t(q + 1)] = right[std::size_t(q)] + (q == 0 ? 1 : 0);
        }
      const Values found = updated<TestType>(context->ahead, m, n, k, left, right,
                                             Values(std::size_t(m * n), 0.0), moduli);
      const double precision = std::exp2(log_of_product(moduli) - 2 * bits(moduli) + 2 - 64);
      double worst = 0;
      for (Index i = 0; i < m; ++i)
        for (Index j = 0; j < n; ++j) {
          Wide sum = 0;
          for (Index q = 0; q < k; ++q)
            sum += Wide(left[std::size_t(i * k + q)]) * Wide(right[std::size_t(j * k + q)]);
          // x / P is known to 2^-64, and the scaled norms are B / 2 to B.
          const double allowed = 2.6 * eps * std::fabs(double(sum)) +
                                 precision * std::max(1.0, norm(left, i, k) * norm(right, j, k));
          const auto error =
              double(std::fabs((long double)found[std::size_t(i * n + j)] + (long double)sum));
          worst = error <= worst * allowed ? worst : error / allowed;
        }
      CHECK(worst <= 1);
    }
}

TEMPLATE_TEST_CASE("Parallel vectors reach the bound and not beyond", "", TERRACE_BACKENDS) {
  Context<TestType>* context = test::context<TestType>();
  if (!context || !emulated::available(TestType{})) return;
  const Index steps = 64, k = 37;
  // Norms over a whole octave: some vector's integers have a norm within 1 % of B.
  Values left = random_vectors(1, k, 9), all;
  for (Index i = 0; i < steps; ++i)
    for (const double v : left) all.push_back(v * std::exp2(double(i) / double(steps)));
  Values other = all;
  for (std::size_t e = 0; e < other.size(); e += 2) other[e] = -other[e];
  for (const int moduli : all_moduli) {
    INFO("moduli " << moduli);
    const Values zero(std::size_t(steps * steps), 0.0);
    CHECK(worst_error(steps, steps, k, all, all,
                      updated<TestType>(context->ahead, steps, steps, k, all, all, zero, moduli),
                      moduli) <= 1);
    CHECK(worst_error(steps, steps, k, all, other,
                      updated<TestType>(context->ahead, steps, steps, k, all, other, zero, moduli),
                      moduli) <= 1);
    for (double& v : other) v = -v;
    CHECK(worst_error(steps, steps, k, all, other,
                      updated<TestType>(context->ahead, steps, steps, k, all, other, zero, moduli),
                      moduli) <= 1);
  }
}

TEMPLATE_TEST_CASE("Random products at sizes around the tiles", "", TERRACE_BACKENDS) {
  Context<TestType>* context = test::context<TestType>();
  if (!context || !emulated::available(TestType{})) return;
  struct Size {
    Index m, n, k;
  };
  for (const Size s : {Size{1, 1, 1}, Size{31, 5, 127}, Size{127, 3, 128}, Size{128, 255, 15},
                       Size{129, 257, 129}, Size{3, 256, 17}, Size{64, 65, 600}})
    for (const int moduli : {13, 15}) {
      INFO("m " << s.m << ", n " << s.n << ", k " << s.k << ", moduli " << moduli);
      const Values left = random_vectors(s.m, s.k, 1), right = random_vectors(s.n, s.k, 2);
      Values found = updated<TestType>(context->ahead, s.m, s.n, s.k, left, right,
                                       Values(std::size_t(s.m * s.n), 0.0), moduli);
      CHECK(worst_error(s.m, s.n, s.k, left, right, found, moduli) <= 1);
      CHECK(updated<TestType>(context->ahead, s.m, s.n, s.k, left, right,
                              Values(std::size_t(s.m * s.n), 0.0), moduli, 2) == found);
      CHECK(found == updated<Cpu>(Stream<Cpu>(), s.m, s.n, s.k, left, right,
                                  Values(std::size_t(s.m * s.n), 0.0), moduli));
      // What is added to.
      const Values start = random_vectors(s.m, s.n, 3);
      const Values sum =
          updated<TestType>(context->ahead, s.m, s.n, s.k, left, right, start, moduli);
      double worst = 0;
      for (std::size_t e = 0; e < sum.size(); ++e) {
        const double expected = start[e] + found[e];
        worst = std::max(
            worst, std::fabs(sum[e] - expected) / (std::fabs(expected) + std::fabs(found[e])));
      }
      CHECK(worst <= 3 * eps);
    }
}

TEMPLATE_TEST_CASE("Rows and columns of any magnitude", "", TERRACE_BACKENDS) {
  Context<TestType>* context = test::context<TestType>();
  if (!context || !emulated::available(TestType{})) return;
  const Index count = 23, k = 40;
  const Values left = random_vectors(count, k, 1), right = random_vectors(count, k, 2);
  const Values zero(std::size_t(count * count), 0.0);
  const int moduli = 15;
  const Values plain =
      updated<TestType>(context->ahead, count, count, k, left, right, zero, moduli);
  // Powers of two change no bit, whatever they are, as long as numbers and results are normal.
  Values scaled_left = left, scaled_right = right;
  const auto power = [](Index i) { return int(i * 83 - 913); };  // -913 ... 913
  for (Index i = 0; i < count; ++i)
    for (Index q = 0; q < k; ++q) {
      double& l = scaled_left[std::size_t(i * k + q)];
      double& r = scaled_right[std::size_t(i * k + q)];
      l = std::ldexp(l, power(i));
      r = std::ldexp(r, power(i));
    }
  const Values scaled =
      updated<TestType>(context->ahead, count, count, k, scaled_left, scaled_right, zero, moduli);
  int compared = 0;
  for (Index i = 0; i < count; ++i)
    for (Index j = 0; j < count; ++j) {
      const int e = power(i) + power(j);
      const double found = scaled[std::size_t(i * count + j)];
      const double expected = std::ldexp(plain[std::size_t(i * count + j)], e);
      // 2^400 is where norms are taken by another road: it may choose another exponent.
      const bool close =
          std::fabs(found - expected) <=
          std::max(1e-14 * std::ldexp(norm(left, i, k) * norm(right, j, k), e), 0x1p-1074);
      if (!std::isfinite(expected)) {
        CHECK(!std::isfinite(found));
      } else if (!close) {
        FAIL("(" << i << ", " << j << "): " << found << ", " << expected);
      } else {
        ++compared;
      }
    }
  CHECK(compared > count * count / 2);
}

TEMPLATE_TEST_CASE("Zeros, denormal numbers, one number among zeros", "", TERRACE_BACKENDS) {
  Context<TestType>* context = test::context<TestType>();
  if (!context || !emulated::available(TestType{})) return;
  const Index k = 3;
  const double least = 0x1p-1074, most = 0x1.fp1023;
  const Values left{0, 0, 0, least, 0, 0, 0, most, 0, 1, -1, 0, 3 * least, 5 * least, -least};
  const Values right{0, 0, 0, 0x1p1000, 0, 0, 0, 0.5, 0, 1, 1, 7, 0x1p1023, 0, 0x1p1023};
  Values a(25, 0.0);
  a[4] = 2.5;
  const Values found = updated<TestType>(context->ahead, 5, 5, k, left, right, a, 15);
  for (Index i = 0; i < 5; ++i)
    for (Index j = 0; j < 5; ++j) {
      double expected = a[std::size_t(i * 5 + j)];
      for (Index q = 0; q < k; ++q)
        expected -= left[std::size_t(i * k + q)] * right[std::size_t(j * k + q)];
      const double value = found[std::size_t(i * 5 + j)];
      INFO("(" << i << ", " << j << "): " << value << ", " << expected);
      // Denormal numbers are rounded once, but not always a half to even.
      CHECK((std::fabs(value - expected) <= std::max(4 * eps * std::fabs(expected), least) ||
             value == expected));
    }
}

TEMPLATE_TEST_CASE("A number that is not finite spoils its row or column and no other", "",
                   TERRACE_BACKENDS) {
  Context<TestType>* context = test::context<TestType>();
  if (!context || !emulated::available(TestType{})) return;
  const Index m = 6, n = 8, k = 21;
  Values left = random_vectors(m, k, 1), right = random_vectors(n, k, 2);
  const Values a = random_vectors(m, n, 3);
  const Values clean = updated<TestType>(context->ahead, m, n, k, left, right, a, 14);
  left[std::size_t(2 * k + 20)] = std::numeric_limits<double>::quiet_NaN();
  left[std::size_t(5 * k)] = std::numeric_limits<double>::infinity();
  right[std::size_t(7 * k + 3)] = -std::numeric_limits<double>::infinity();
  const Values found = updated<TestType>(context->ahead, m, n, k, left, right, a, 14);
  for (Index i = 0; i < m; ++i)
    for (Index j = 0; j < n; ++j) {
      const auto e = std::size_t(i * n + j);
      if (i == 2 || i == 5 || j == 7 ? !std::isnan(found[e]) : found[e] != clean[e])
        FAIL("(" << i << ", " << j << "): " << found[e]);
    }
}

TEMPLATE_TEST_CASE("Nothing to do, and too much", "", TERRACE_BACKENDS) {
  Context<TestType>* context = test::context<TestType>();
  if (!context || !emulated::available(TestType{})) return;
  const Values a = random_vectors(2, 3, 3);
  CHECK(updated<TestType>(context->ahead, 2, 3, 0, {}, {}, a, 14) == a);
  CHECK(updated<TestType>(context->ahead, 0, 3, 1, {}, {1, 2, 3}, {}, 14).empty());
  CHECK(updated<TestType>(context->ahead, 2, 0, 1, {1, 2}, {}, {}, 14).empty());
  const emulated::Shape deep{1, 1, emulated::most_inner + 1, 14};
  CHECK_THROWS_AS(emulated::set_left(context->ahead, deep, View<const double, TestType>{}, 1,
                                     View<std::byte, TestType>{}),
                  Error);
  const emulated::Shape many{1, 1, 1, 17};
  CHECK_THROWS_AS(emulated::set_left(context->ahead, many, View<const double, TestType>{}, 1,
                                     View<std::byte, TestType>{}),
                  Error);
}
