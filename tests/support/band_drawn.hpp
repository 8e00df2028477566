// Bands drawn at random from many kinds, for tests that take thousands: easy ones, those at the
// edge of being definite and beyond, graded ones, at the ends of the range of numbers.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/support/draw.hpp"

namespace terrace::test {

struct DrawnBand {
  Index n = 1, m = 0;
  std::vector<double> values;  ///< entry (j + d, j) is values[j * (m + 1) + d]
  const char* name = "";

  [[nodiscard]] double& value(Index j, Index d) { return values[std::size_t(j * (m + 1) + d)]; }
  [[nodiscard]] double at(Index i, Index j) const {
    return i - j <= m ? values[std::size_t(j * (m + 1) + i - j)] : 0.0;
  }
  template <class Change>
  void each(Change&& change) {
    for (Index j = 0; j < n; ++j)
      for (Index d = 0; d <= m && j + d < n; ++d) value(j, d) = change(value(j, d), j, d);
  }
  /// ||b - A x|| / (n ||A|| ||x|| eps) in maximum norms, the largest of the right-hand sides.
  [[nodiscard]] double ratio(const std::vector<double>& x, const std::vector<double>& b,
                             Index nrhs) const {
    long double worst = 0;
    for (Index v = 0; v < nrhs; ++v) {
      long double residual = 0, norm = 0, size = 0;
      for (Index i = 0; i < n; ++i) {
        long double rest = b[std::size_t(i * nrhs + v)], row = 0;
        for (Index j = std::max<Index>(0, i - m); j <= std::min(n - 1, i + m); ++j) {
          const long double a = i >= j ? at(i, j) : at(j, i);
          rest -= a * x[std::size_t(j * nrhs + v)];
          row += std::fabs(a);
        }
        const long double value = x[std::size_t(i * nrhs + v)];
        if (!std::isfinite(value)) return INFINITY;
        residual = std::max(residual, std::fabs(rest));
        norm = std::max(norm, row);
        size = std::max(size, std::fabs(value));
      }
      if (residual > 0) worst = std::max(worst, residual / norm / size / (0x1p-52L * n));
    }
    return double(worst);
  }
};

inline bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), 8 * a.size()) == 0;
}

namespace detail {
/// A := L L^T for the columns of L that are given, as far as they reach.
template <class Column>
void multiply_out(DrawnBand& a, Column&& l) {
  std::vector<double> column(std::size_t(a.m + 1));
  a.each([](double, Index, Index) { return 0.0; });
  for (Index j = 0; j < a.n; ++j) {
    for (Index d = 0; d <= a.m; ++d) column[std::size_t(d)] = l(j, d);
    for (Index d = 0; d <= a.m && j + d < a.n; ++d)
      for (Index e = d; e <= a.m && j + e < a.n; ++e)
        a.value(j + d, e - d) += column[std::size_t(d)] * column[std::size_t(e)];
  }
}
}  // namespace detail

inline constexpr Index drawn_band_kinds = 16;
inline DrawnBand drawn_band(Index kind, Draw& draw) {
  DrawnBand a;
  a.n = draw.one_in(12) ? draw.between(100, 250) : draw.between(1, 100);
  a.m = draw.one_in(12)  ? 0
        : draw.one_in(8) ? std::min<Index>(a.n - 1, 100)
                         : draw.below(std::min<Index>(a.n, 40));
  a.values.assign(std::size_t(a.n * (a.m + 1)), 0.0);
  const double m = double(a.m);
  const auto random = [&](double diagonal) {
    a.each([&](double, Index, Index d) { return d == 0 ? diagonal : draw.uniform(); });
  };
  const auto scaled = [&](auto&& power) {
    std::vector<double> s(std::size_t(a.n));
    for (Index i = 0; i < a.n; ++i) s[std::size_t(i)] = std::pow(10.0, power(i));
    a.each(
        [&](double v, Index j, Index d) { return v * s[std::size_t(j)] * s[std::size_t(j + d)]; });
  };
  const auto is = [&](const char* text) { a.name = text; };
  random(1.2 * m + 1);
  switch (kind) {
    case 0:
      is("dominant");
      break;
    case 1:
      is("hardly dominant"), random(m + 0.3);
      break;
    case 2:
      is("dominant diagonal of many sizes");
      a.each([&](double v, Index, Index d) { return d == 0 ? 2 * m + 1 + draw.uniform() : v; });
      break;
    case 3:
      is("indefinite as a rule"), random(0.6 * m + 0.5);
      break;
    case 4:
      is("graded"), scaled([&](Index) { return 140 * draw.uniform(); });
      break;
    case 5:
      is("a slope");
      scaled([&](Index i) { return 280 * double(i) / double(std::max<Index>(1, a.n - 1)) - 140; });
      break;
    case 6: {
      const double power = draw.of({-161.0, -158.0, -155.0, -150.0, 150.0, 152.0, 153.0});
      is("at an end of the range"), scaled([&](Index) { return power; });
      break;
    }
    case 7: {  // (1 - shift)^p times its transpose: condition about n^(2 p)
      std::vector<double> c{1.0};
      for (Index p = draw.between(1, 5); p > 0 && Index(c.size()) <= a.m; --p) {
        c.push_back(0);
        for (std::size_t i = c.size() - 1; i > 0; --i) c[i] -= c[i - 1];
      }
      is("differences");
      detail::multiply_out(
          a, [&](Index, Index d) { return d < Index(c.size()) ? c[std::size_t(d)] : 0; });
      break;
    }
    case 8:
      is("ones beside the diagonal");
      a.each([&](double, Index, Index d) { return d == 0 ? m + draw.uniform() : 1.0; });
      break;
    case 9: {  // ill-conditioned or numerically singular
      const double most = 2 * std::fabs(draw.uniform()) + 0.2;
      is("a random factor"), detail::multiply_out(a, [&](Index, Index d) {
        return d == 0 ? 1.0 : most * draw.uniform();
      });
      break;
    }
    case 10: {
      const double least = std::pow(10.0, -8 * std::fabs(draw.uniform()));
      is("a factor with small pivots"), detail::multiply_out(a, [&](Index, Index d) {
        return d == 0 && draw.one_in(3) ? least : draw.uniform();
      });
      break;
    }
    case 11:
      is("singular but for rounding"), detail::multiply_out(a, [&](Index j, Index d) {
        return j + d >= a.n || (j + 1 == a.n) ? 0.0 : d == 0 ? 1.0 : d == 1 ? -1.0 : 0.0;
      });
      break;
    case 12: {
      const Index at = draw.below(a.n);
      is("one bad pivot");
      a.value(at, 0) = draw.of({0.0, -1.0, -1e300, 1e-300, -0.0});
      break;
    }
    case 13: {
      is("one large entry");
      const Index j = draw.below(a.n), d = draw.below(std::min(a.m, a.n - 1 - j) + 1);
      a.value(j, d) = draw.of({1e8, 1e150, 1e300, -1e200, 1e16});
      break;
    }
    case 14:
      is("sparse");
      a.each([&](double v, Index, Index d) { return d == 0 || draw.one_in(6) ? v : 0.0; });
      break;
    default: {  // weak and strong in turns
      is("layers");
      const Index layer = draw.between(1, 20);
      scaled([&](Index i) { return i / layer % 2 == 0 ? 0.0 : 6.0; });
    }
  }
  return a;
}

}  // namespace terrace::test
