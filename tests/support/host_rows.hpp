// Rows of sparse matrices on the host against dense ones.
#pragma once
#include <cmath>

#include "kernels/cg/multigrid.hpp"
#include "tests/support/cg.hpp"

namespace terrace::test {

using cg::HostRows;

/// Rows of a dense matrix on the host, all columns.
inline HostRows sparse(Index rows, Index columns, const Entry& a, bool rising = false) {
  HostRows s;
  s.columns = columns;
  for (Index i = 0; i < rows; ++i) {
    for (Index c = 0; c < columns; ++c)
      if (const Index j = rising ? c : columns - 1 - c; a(i, j) != 0) {
        const double v = a(i, j);
        s.column.push_back(std::int32_t(j));
        s.value.push_back(v);
      }
    s.start.push_back(Index(s.column.size()));
  }
  return s;
}
inline Vector dense(const HostRows& s) {
  Vector d(std::size_t(s.rows() * s.columns), 0.0);
  for (Index i = 0; i < s.rows(); ++i)
    for (Index e = s.start[std::size_t(i)]; e < s.start[std::size_t(i) + 1]; ++e)
      d[std::size_t(i * s.columns + s.column[std::size_t(e)])] += s.value[std::size_t(e)];
  return d;
}
inline Vector dense_product(Index rows, Index inner, Index columns, const Entry& a,
                            const Entry& b) {
  Vector c(std::size_t(rows * columns), 0.0);
  for (Index i = 0; i < rows; ++i)
    for (Index k = 0; k < inner; ++k)
      for (Index j = 0; j < columns; ++j) c[std::size_t(i * columns + j)] += a(i, k) * b(k, j);
  return c;
}
inline double largest(const Vector& v) {
  double most = 0;
  for (double x : v) most = std::isnan(x) ? 1e300 : std::max(most, std::fabs(x));
  return most;
}

}  // namespace terrace::test
