// Matrices drawn at random from many kinds, for tests that take thousands: easy ones, those whose
// elimination grows, ill-conditioned and singular ones, at the ends of the range of numbers.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "tests/support/dense_kinds.hpp"
#include "tests/support/draw.hpp"

namespace terrace::test {

/// a := H a for a random reflection H, or a H.
inline void reflect(Dense& a, Draw& draw, bool rows) {
  std::vector<double> v(std::size_t(a.n));
  double square = 0;
  for (double& x : v) {
    x = draw.uniform() + draw.uniform();
    square += x * x;
  }
  for (Index j = 0; j < a.n; ++j) {
    const auto at = [&](Index i) -> double& { return rows ? a(i, j) : a(j, i); };
    double dot = 0;
    for (Index i = 0; i < a.n; ++i) dot += v[std::size_t(i)] * at(i);
    for (Index i = 0; i < a.n; ++i) at(i) -= 2 * dot / square * v[std::size_t(i)];
  }
}

inline constexpr Index drawn_kinds = 26;
inline Dense drawn(Index kind, Index n, Draw& draw, std::string& name) {
  const auto random = [&] { return Dense(n, [&](Index, Index) { return draw.uniform(); }); };
  const auto is = [&](const char* text) { name = text; };
  const auto scaled_rows = [&](Dense a, double decades, bool rows, bool columns, bool shuffled) {
    for (int side = 0; side < 2; ++side) {
      if (!(side == 0 ? rows : columns)) continue;
      for (Index i = 0; i < n; ++i) {
        const double at = shuffled ? draw.uniform() : 2 * double(i) / double(n) - 1;
        const double by = std::pow(10.0, decades * at);
        for (Index j = 0; j < n; ++j) (side == 0 ? a(i, j) : a(j, i)) *= by;
      }
    }
    return a;
  };
  const auto times = [&](Dense a, double by) {
    for (double& v : a.values) v *= by;
    return a;
  };
  switch (kind) {
    case 0:
      return is("uniform"), random();
    case 1:
      return is("graded rows"), scaled_rows(random(), 12, true, false, false);
    case 2:
      return is("graded columns"), scaled_rows(random(), 12, false, true, false);
    case 3:
      return is("badly scaled"), scaled_rows(random(), 40, true, true, true);
    case 4:
      return is("Wilkinson"), Dense(n, [&](Index i, Index j) {
               return j == n - 1 || i == j ? 1.0 : i > j ? -1.0 : 0.0;
             });
    case 5: {  // quadrature of a Volterra integral equation (Foster 1994)
      const double c = 1, k = 1, h = 40.0 / double(std::max<Index>(2, n));
      return is("Foster"), Dense(n, [&](Index i, Index j) {
               const double last = j == n - 1 ? -1 / c : 0;
               if (i == 0) return j == 0 ? 1.0 : last;
               return last + (i == j ? 1 - k * h / 2 : j == 0 ? -k * h / 2 : j < i ? -k * h : 0.0);
             });
    }
    case 6: {  // multiple shooting for a two-point boundary value problem (Wright 1993)
      const double h = 0.3, diagonal = std::exp(-h / 6), other = std::exp(-h / 6);
      return is("Wright"), Dense(n, [&](Index i, Index j) {
               if (i == j) return 1.0;
               if (i == j + 2) return -(diagonal * std::cosh(h * 1.1));
               if (i == j + 1 && i % 2 == 1 && i > 1) return -(other * std::sinh(h));
               return i < 2 && j >= n - 2 ? (i == j - n + 2 ? 1.0 : 0.2) : 0.0;
             });
    }
    case 7:
      return is("growth"), growth(n, 0.3 + 0.7 * std::fabs(draw.uniform()), draw.one_in(2));
    case 8: {  // L T of Higham and Higham 1989, L with multipliers of size up to one
      Dense l(n), t(n), a(n);
      const double most = 0.5 + 0.5 * std::fabs(draw.uniform());
      for (Index i = 0; i < n; ++i)
        for (Index j = 0; j <= i; ++j)
          l(i, j) = i == j ? 1 : draw.one_in(4) ? draw.uniform() : -most;
      for (Index i = 0; i < n; ++i)
        for (Index j = i; j < n; ++j)
          t(i, j) = j == n - 1 ? std::pow(1 + most, double(i)) : i == j ? 1 : 0.01 * draw.uniform();
      for (Index i = 0; i < n; ++i)
        for (Index k = 0; k <= i; ++k)
          for (Index j = k; j < n; ++j) a(i, j) += l(i, k) * t(k, j);
      return is("multipliers"), a;
    }
    case 9: {
      const double decades = double(draw.between(1, 18));
      Dense a(n, [&](Index i, Index j) {
        return i == j ? std::pow(10.0, -decades * double(i) / double(std::max<Index>(1, n - 1)))
                      : 0.0;
      });
      for (int i = 0; i < 3; ++i) reflect(a, draw, true), reflect(a, draw, false);
      return is("conditioned"), a;
    }
    case 10:
      return is("near overflow"), times(random(), 1e307);
    case 11:
      return is("near underflow"), times(random(), 1e-300);
    case 12:
      return is("denormal"), times(random(), 1e-310);
    case 13: {
      const Index most = draw.between(1, 9);
      return is("integers"),
             Dense(n, [&](Index, Index) { return double(draw.between(-most, most)); });
    }
    case 14: {
      Dense a(n, [&](Index i, Index j) { return i == j ? 1.0 : 0.0; });
      for (Index i = 0; i < std::min<Index>(n, 5); ++i) reflect(a, draw, true);
      return is("orthogonal"), a;
    }
    case 15:
      return is("cosines"), Dense(n, [&](Index i, Index j) {
               return std::cos(3.14159265358979 * double(i) * (double(j) + 0.5) / double(n));
             });
    case 16:
      return is("Hilbert"), hilbert(n);
    case 17:
      return is("triw"), triw(n);
    case 18: {
      Order p = in_order(n);
      for (Index i = n - 1; i > 0; --i)
        std::swap(p[std::size_t(i)], p[std::size_t(draw.below(i + 1))]);
      return is("sparse"), Dense(n, [&](Index i, Index j) {
               return (p[std::size_t(i)] == j ? 1.0 + draw.uniform() / 2 : 0.0) +
                      (draw.one_in(20) ? draw.uniform() : 0.0);
             });
    }
    case 19: {  // of low rank but for rounding
      const Index rank = draw.between(1, std::max<Index>(1, n - 1));
      Dense f = random(), g = random();
      return is("low rank"), Dense(n, [&](Index i, Index j) {
               double sum = 0;
               for (Index k = 0; k < rank; ++k) sum += f(i, k) * g(k, j);
               return sum;
             });
    }
    case 20:
      return is("leading block nearly singular"), Dense(n, [&](Index i, Index j) {
               const bool same = (i < n / 2) == (j < n / 2);
               return same ? 1e-9 * draw.uniform() : i % (n / 2 + 1) == j % (n / 2 + 1) ? 1.0 : 0.0;
             });
    case 21: {  // Kahan
      const double c = 0.2 + 0.2 * std::fabs(draw.uniform()), s = std::sqrt(1 - c * c);
      return is("Kahan"), Dense(n, [&](Index i, Index j) {
               return std::pow(s, double(i)) * (i == j ? 1.0 : i < j ? -c : 0.0);
             });
    }
    case 22:
      return is("Vandermonde"), Dense(n, [&](Index i, Index j) {
               return std::pow(2.0 * double(i) / double(std::max<Index>(1, n - 1)) - 1.0001,
                               double(j));
             });
    case 23:
      return is("companion"), Dense(n, [&](Index i, Index j) {
               return i == 0 ? 100 * draw.uniform() : i == j + 1 ? 1.0 : 0.0;
             });
    case 24:
      return is("nearly of rank one"), Dense(n, [&](Index i, Index j) {
               return double(1 + i % 3) * double(1 + j % 5) + 1e-9 * draw.uniform();
             });
    default:
      return is("signs"), Dense(n, [&](Index, Index) { return draw.one_in(2) ? 1.0 : -1.0; });
  }
}

}  // namespace terrace::test
