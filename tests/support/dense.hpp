// Textbook dense oracles in long double, and the matrices that break careless programs.
#pragma once
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "kernels/base/random.hpp"
#include "tests/support/oracle.hpp"

namespace terrace::test {

using Entry = std::function<double(Index, Index)>;

struct Oracle {
  std::vector<long double> inverse;  // n x n
  long double log_abs_determinant = 0;
  int sign = 1;
  Index zero_column = -1;
};

/// Gauss-Jordan on [A | I] with row swaps, one element at a time.
TERRACE_ORACLE inline Oracle textbook_inverse(Index n, const Entry& a) {
  Oracle o;
  const Index w = 2 * n;
  std::vector<long double> all(std::size_t(n * w), 0.0L);
  long double* const m = all.data();
  for (Index i = 0; i < n; ++i) {
    for (Index j = 0; j < n; ++j) m[i * w + j] = a(i, j);
    m[i * w + n + i] = 1;
  }
  for (Index c = 0; c < n; ++c) {
    Index best = c;
    for (Index i = c; i < n; ++i)
      if (std::fabs(m[i * w + c]) > std::fabs(m[best * w + c])) best = i;
    const long double pivot = m[best * w + c];
    if (pivot == 0) {
      o.zero_column = c;
      return o;
    }
    if (best != c) {
      o.sign = -o.sign;
      for (Index j = 0; j < w; ++j) std::swap(m[best * w + j], m[c * w + j]);
    }
    o.log_abs_determinant += std::log(std::fabs(pivot));
    if (pivot < 0) o.sign = -o.sign;
    for (Index j = 0; j < w; ++j) m[c * w + j] /= pivot;
    for (Index i = 0; i < n; ++i) {
      const long double f = m[i * w + c];
      if (i == c || f == 0) continue;
      for (Index j = 0; j < w; ++j) m[i * w + j] -= f * m[c * w + j];
    }
  }
  o.inverse.resize(std::size_t(n * n));
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < n; ++j) o.inverse[std::size_t(i * n + j)] = m[i * w + n + j];
  return o;
}

/// ||A X - B||_1 / (n ||A||_1 ||X||_1 eps) in long double; B is I when empty. X n x columns.
TERRACE_ORACLE inline double residual_ratio(Index n, Index columns, const Entry& a,
                                            const std::vector<double>& x, const Entry& b,
                                            bool x_first = false) {
  if (n == 0) return 0;
  std::vector<double> entries(std::size_t(n * n));
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < n; ++j) entries[std::size_t(i * n + j)] = a(i, j);
  const double* const left = x_first ? x.data() : entries.data();
  const double* const right = x_first ? entries.data() : x.data();
  const Index left_columns = x_first ? columns : n, right_columns = x_first ? n : columns;
  std::vector<long double> r(std::size_t(columns), 0.0L), na(std::size_t(n), 0.0L),
      nx(std::size_t(columns), 0.0L), row(static_cast<std::size_t>(columns));
  const auto value = [&](Index i, Index j) {
    return (long double)(x[std::size_t(i * columns + j)]);
  };
  for (Index i = 0; i < n; ++i) {
    for (Index j = 0; j < columns; ++j) row[std::size_t(j)] = -(long double)(b(i, j));
    long double* const sums = row.data();
    for (Index k = 0; k < n; ++k) {
      const long double f = left[i * left_columns + k];
      for (Index j = 0; j < columns; ++j) sums[j] += f * right[k * right_columns + j];
    }
    for (Index j = 0; j < columns; ++j) {
      r[std::size_t(j)] += std::fabs(row[std::size_t(j)]);
      nx[std::size_t(j)] += std::fabs(value(i, j));
    }
    for (Index j = 0; j < n; ++j)
      na[std::size_t(j)] += std::fabs((long double)(entries[std::size_t(i * n + j)]));
  }
  const auto most = [](const std::vector<long double>& v) {
    long double result = 0;
    for (const long double e : v) result = !(e <= result) ? e : result;
    return result;
  };
  const long double eps = 0x1.0p-53L;
  return double(most(r) / (n * most(na) * most(nx) * eps));
}

inline Entry identity() {
  return [](Index i, Index j) { return i == j ? 1.0 : 0.0; };
}

struct Problem {
  std::string name;
  Entry entry;
  Index largest = 1000;  ///< order up to which any careful program reaches ratio 30
};

/// Named matrices of SLATE's and LAPACK's testers, and some of our own.
inline std::vector<Problem> problems(Index n) {
  std::vector<Problem> p;
  p.push_back({"random", [](Index i, Index j) { return random_uniform(7, i, j); }});
  p.push_back({"lehmer", [](Index i, Index j) {
                 return double(std::min(i, j) + 1) / double(std::max(i, j) + 1);
               }});
  p.push_back({"minij", [](Index i, Index j) { return double(std::min(i, j) + 1); }});
  p.push_back({"frank",
               [n](Index i, Index j) { return i > j + 1 ? 0.0 : double(n - std::max(i, j)); }, 12});
  p.push_back({"hilbert", [](Index i, Index j) { return 1.0 / double(i + j + 1); }, 8});
  p.push_back({"triw", [](Index i, Index j) { return i == j ? 1.0 : i < j ? -1.0 : 0.0; }, 30});
  p.push_back({"growth",
               [n](Index i, Index j) {
                 return j == n - 1 ? 1.0 : i == j ? 1.0 : i > j ? -1.0 : 0.0;
               },
               30});
  p.push_back({"graded", [n](Index i, Index j) {
                 return random_uniform(11, i, j) * std::pow(10.0, -12.0 * double(i) / double(n));
               }});
  p.push_back({"permuted diagonal", [n](Index i, Index j) {
                 return (i + n / 2 + 1) % n == j ? 2.0 + double(i % 7) : 0.0;
               }});
  p.push_back({"zero leading block", [n](Index i, Index j) {
                 return i < n / 2 && j < n / 2 ? 0.0 : random_uniform(13, i, j);
               }});
  p.push_back({"pivots in the last rows", [n](Index i, Index j) {
                 return random_uniform(17, i, j) *
                        std::pow(2.0, -20.0 * double(n - 1 - i) / double(n));
               }});
  p.push_back({"ties", [n](Index i, Index j) {
                 return i == j ? 2.0 * double(n) : (random_word(19, i, j) & 1) ? 1.0 : -1.0;
               }});
  // Condition 1e9 with one large singular value: multiplying out inverses of U or L fails here.
  p.push_back({"nearly of rank one", [](Index i, Index j) {
                 return double(1 + i % 3) * double(1 + j % 5) + 1e-9 * random_uniform(31, i, j);
               }});
  p.push_back({"near overflow", [](Index i, Index j) { return 1e300 * random_uniform(23, i, j); }});
  p.push_back(
      {"near underflow", [](Index i, Index j) { return 1e-300 * random_uniform(29, i, j); }});
  return p;
}

}  // namespace terrace::test
