// Matrices of LAPACK's and SLATE's testers, and matrices whose elimination is exact in any order.
#pragma once
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/base/random.hpp"

namespace terrace::test {

/// n x n, row-major.
struct Dense {
  Index n = 0;
  std::vector<double> values;

  explicit Dense(Index order) : n(order), values(std::size_t(order * order), 0.0) {}
  template <class F>
  Dense(Index order, const F& entry) : Dense(order) {
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < n; ++j) (*this)(i, j) = entry(i, j);
  }
  double& operator()(Index i, Index j) { return values[std::size_t(i * n + j)]; }
  double operator()(Index i, Index j) const { return values[std::size_t(i * n + j)]; }
};

/// Singular values of LAPACK's dlatms: of size 1 to 1 / condition.
enum class Spectrum {
  random_logarithmic,  ///< log s uniform
  geometric,           ///< log s equidistant
  arithmetic,          ///< s equidistant
  cluster0,            ///< one 1, all others 1 / condition
  cluster1             ///< all 1 but the last
};
inline const std::vector<std::pair<Spectrum, std::string>>& spectra() {
  static const std::vector<std::pair<Spectrum, std::string>> all{
      {Spectrum::random_logarithmic, "logrand"},
      {Spectrum::geometric, "geometric"},
      {Spectrum::arithmetic, "arithmetic"},
      {Spectrum::cluster0, "cluster0"},
      {Spectrum::cluster1, "cluster1"}};
  return all;
}
inline long double singular_value(Spectrum kind, Index k, Index n, long double condition) {
  const long double t = n > 1 ? (long double)(k) / (long double)(n - 1) : 0;
  switch (kind) {
    case Spectrum::random_logarithmic:
      if (k == 0 || k == n - 1) return k == 0 ? 1 : 1 / condition;
      return std::pow(condition, -0.5L * (1 + (long double)(random_uniform(101, k, 0))));
    case Spectrum::geometric:
      return std::pow(condition, -t);
    case Spectrum::arithmetic:
      return 1 - t * (1 - 1 / condition);
    case Spectrum::cluster0:
      return k == 0 ? 1 : 1 / condition;
    case Spectrum::cluster1:
      break;
  }
  return k < n - 1 || n == 1 ? 1 : 1 / condition;
}
/// U diag(s) V^T with U and V products of n reflections of random vectors of length 1 to n
/// (Stewart 1980), in long double. Condition number in the 2-norm as given, for n > 1.
inline Dense of_spectrum(Spectrum kind, Index n, double condition) {
  std::vector<long double> a(std::size_t(n * n), 0.0L), v(std::size_t(n), 0.0L);
  for (Index k = 0; k < n; ++k)
    a[std::size_t(k * n + k)] = singular_value(kind, k, n, (long double)(condition));
  for (const bool rows : {true, false})
    for (Index k = n - 1; k >= 0; --k) {
      const auto at = [&](Index i, Index j) -> long double& {
        return a[std::size_t(rows ? i * n + j : j * n + i)];
      };
      long double square = 0;
      for (Index i = k; i < n; ++i) {  // sums of four: nearly normal, so no direction is preferred
        long double sum = 0;
        for (Index t = 0; t < 4; ++t)
          sum += (long double)(random_uniform(rows ? 103 : 107, i * n + k, t));
        v[std::size_t(i)] = sum;
        square += sum * sum;
      }
      for (Index j = 0; j < n; ++j) {
        long double dot = 0;
        for (Index i = k; i < n; ++i) dot += v[std::size_t(i)] * at(i, j);
        for (Index i = k; i < n; ++i) at(i, j) -= 2 * dot / square * v[std::size_t(i)];
      }
    }
  return {n, [&](Index i, Index j) { return double(a[std::size_t(i * n + j)]); }};
}

inline Dense hilbert(Index n) {
  return {n, [](Index i, Index j) { return 1.0 / double(i + j + 1); }};
}
inline Dense lehmer(Index n) {
  return {n,
          [](Index i, Index j) { return double(std::min(i, j) + 1) / double(std::max(i, j) + 1); }};
}
inline Dense minij(Index n) {
  return {n, [](Index i, Index j) { return double(std::min(i, j) + 1); }};
}
inline Dense frank(Index n) {
  return {n, [n](Index i, Index j) { return i > j + 1 ? 0.0 : double(n - std::max(i, j)); }};
}
inline Dense triw(Index n) {
  return {n, [](Index i, Index j) { return i == j ? 1.0 : i < j ? -1.0 : 0.0; }};
}
/// Pivots of partial pivoting grow by 1 + c a column in the last column (Wilkinson; Higham and
/// Higham 1989): L [T | d] with L = I - c (ones below the diagonal), d(i) = (1 + c)^i, T = I or a
/// random unit upper triangle, columns scaled so that the inverse is not exact. No rows are
/// exchanged; for c = 1 and T = I every column is a tie.
inline Dense growth(Index n, double c, bool random) {
  Dense a(n);
  for (Index j = 0; j < n; ++j) {
    const double scale = 1.5 + 0.5 * random_uniform(111, j, 0);
    double above = 0;
    for (Index i = 0; i < n; ++i) {
      const double t = i == j ? 1 : i < j && random ? random_uniform(109, i, j) / 4 : 0;
      a(i, j) = scale * (j == n - 1 ? 1 : t - c * above);
      above += t;
    }
  }
  return a;
}
/// Random entries, row i times 10^rows(i), column j times 10^columns(j), exponents falling evenly
/// from 0 to the given ones; `shuffled`: in random order.
inline Dense scaled(Index n, double rows, double columns, bool shuffled) {
  const auto power = [&](double last, Index i, Word seed) {
    const double t = shuffled ? 0.5 + 0.5 * random_uniform(seed, i, 0)
                              : double(i) / double(std::max<Index>(1, n - 1));
    return std::ldexp(1.0, int(std::lround(last * t * 3.3219280948873623)));
  };
  return {n, [&](Index i, Index j) {
            return random_uniform(113, i, j) * power(rows, i, 127) * power(columns, j, 131);
          }};
}

/// The order of pivot rows: entry j is the row that becomes the pivot of column j.
using Order = std::vector<Index>;
inline Order in_order(Index n) {
  Order p(static_cast<std::size_t>(n));
  std::iota(p.begin(), p.end(), Index(0));
  return p;
}
inline Order in_random_order(Index n) {
  Order p = in_order(n);
  for (Index i = n - 1; i > 0; --i)
    std::swap(p[std::size_t(i)], p[std::size_t(random_word(137, i, 0) % Word(i + 1))]);
  return p;
}

/// P L U with dyadic entries of few bits: l 0, 1/2 or 1/4 in size, the diagonal of U 1 or 2, and
/// the nilpotent parts of L and U of index 3, so that L^-1, U^-1 and every number met on the way to
/// the inverse have few bits too: no order of operations rounds. Partial pivoting takes exactly the
/// rows `order`. With `zero_at` that diagonal entry of U is zero, and the column a combination of
/// those before it.
inline Dense exact_product(Index n, const Order& order, Index zero_at = -1) {
  const auto l = [](Index i, Index k) {
    const Word w = random_word(139, i, k);
    return i == k                               ? 1.0
           : i < k || i % 3 <= k % 3 || (w & 3) ? 0.0
                                                : (w & 4 ? 0.5 : 0.25) * (w & 8 ? 1 : -1);
  };
  const auto u = [zero_at](Index k, Index j) {
    const Word d = random_word(149, k, k), w = random_word(149, k, j);
    const double pivot = (d & 1 ? 2.0 : 1.0) * (d & 2 ? 1 : -1);
    if (k == j) return k == zero_at ? 0.0 : pivot;
    return k > j || k % 3 >= j % 3 || (w & 3) ? 0.0 : (w & 4 ? pivot : -pivot);
  };
  Dense a(n);
  for (Index i = 0; i < n; ++i)
    for (Index k = 0; k <= i; ++k) {
      const double f = l(i, k);
      if (f == 0) continue;
      for (Index j = k; j < n; ++j) a(order[std::size_t(i)], j) += f * u(k, j);
    }
  return a;
}

/// Sylvester's Hadamard matrices of order 8 (the last one smaller), rows dealt out at random and
/// columns in turn: ties in nearly every column, between rows of any ranks, and no rounding.
inline Dense many_ties(Index n) {
  const Index blocks = ceil_div(n, 8);
  const Order row = in_random_order(n);
  Dense a(n);
  for (Index c = 0, j = 0; c < 8; ++c)
    for (Index b = 0; b < blocks; ++b) {
      Index order = std::min<Index>(8, n - 8 * b);
      while (order & (order - 1)) order &= order - 1;  // a power of two; the rest is diagonal
      if (8 * b + c >= n) continue;
      for (Index i = 8 * b; i < std::min(n, 8 * b + 8); ++i) {
        const Index k = i - 8 * b;
        const bool inside = k < order && c < order;
        const int ones = __builtin_popcountll(Word(k) & Word(c));
        a(row[std::size_t(i)], j) = inside ? (ones % 2 == 0 ? 1.0 : -1.0) : k == c ? 1.0 : 0.0;
      }
      ++j;
    }
  return a;
}

}  // namespace terrace::test
