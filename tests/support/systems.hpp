// Symmetric test matrices as formulas, operators made of them, and textbook oracles.
#pragma once
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "kernels/base/random.hpp"
#include "src/cg/operators.hpp"
#include "src/cg/operators_triangle.hpp"
#include "tests/support/test.hpp"

namespace terrace::test {

using Entry = std::function<double(Index, Index)>;
using Vector = std::vector<double>;

inline Vector random_vector(Index n, Word seed) {
  Vector v(std::size_t(n), 0.0);
  for (Index i = 0; i < n; ++i) v[std::size_t(i)] = random_uniform(seed, i, 0);
  return v;
}
inline Vector times(const Entry& a, const Vector& p, bool absolute = false) {
  const Index n = Index(p.size());
  Vector q(p.size(), 0.0);
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < n; ++j)
      q[std::size_t(i)] += (absolute ? std::fabs(a(i, j)) : a(i, j)) * p[std::size_t(j)];
  return q;
}
inline double dot(const Vector& a, const Vector& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}
inline double norm(const Vector& a) { return std::sqrt(dot(a, a)); }
inline Vector minus(Vector a, const Vector& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return a;
}
inline Vector part(const Vector& v, Range rows) {
  return {v.begin() + rows.first, v.begin() + rows.end()};
}
/// All of a distributed vector on every rank.
inline Vector whole(const Vector& mine, Range rows, Index n) {
  Vector all(std::size_t(n), 0.0);
  std::copy(mine.begin(), mine.end(), all.begin() + rows.first);
  if (n > 0) world().reduce(all, Reduce::sum);
  return all;
}

/// The same of an operator's vector.
template <class A>
Vector whole_of(const A& op, const Vector& mine) {
  if constexpr (A::replicated)
    return mine;
  else
    return whole(mine, op.rows(), op.n());
}

/// 2-D Laplace, five points, on p x p grid points.
inline Entry laplace(Index p) {
  return [p](Index i, Index j) {
    if (i == j) return 4.0;
    const Index distance = std::abs(i % p - j % p) + std::abs(i / p - j / p);
    return distance == 1 ? -1.0 : 0.0;
  };
}
/// Lehmer's matrix min(i, j) / max(i, j), one-based.
inline double lehmer(Index i, Index j) {
  return double(std::min(i, j) + 1) / double(std::max(i, j) + 1);
}

// One maker per operator, so that tests are written once for all of them.
struct Dense {
  template <class B>
  static cg::DenseOperator<B> make(const Context<B>& c, Index n, const Entry& a) {
    cg::DenseOperator<B> op(c, n);
    Vector row(std::size_t(n), 0.0);
    for (Index k = 0; k < op.rows().count; ++k) {
      for (Index j = 0; j < n; ++j) row[std::size_t(j)] = a(op.rows().first + k, j);
      op.put_rows(c, k, 1, row.data());
    }
    return op;
  }
};
struct Triangle {
  template <class B>
  static cg::TriangleOperator<B> make(const Context<B>& c, Index n, const Entry& a,
                                      bool planes = false) {
    cg::TriangleOperator<B> op(c, n, planes);
    Vector rows;
    for (Index round = 0; round < op.rounds(); ++round) {
      const Range slab = op.slab(round);
      rows.assign(std::size_t(slab.count * n), 0.0);
      for (Index i = 0; i < slab.count; ++i)
        for (Index j = 0; j < n; ++j) rows[std::size_t(i * n + j)] = a(slab.first + i, j);
      op.put_slab(c, round,
                  [&](const io::Sink<double>& sink) { sink(0, slab.count, rows.data()); });
    }
    (void)op.asymmetry(c);
    return op;
  }
};
struct Band {
  template <class B>
  static cg::BandOperator<B> make(const Context<B>& c, Index n, const Entry& a,
                                  bool heads = false) {
    Index m = 0;
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < i; ++j)
        if (a(i, j) != 0) m = std::max(m, i - j);
    cg::BandOperator<B> op(c, n, m + 2);  // wider than needed: cut at n - 1
    const Index height = m + 3;
    Vector columns;
    const auto put = [&](Range range, Index piece) {
      for (Index from = range.first; from < range.end(); from += piece) {
        const Index count = std::min(piece, range.end() - from);
        columns.assign(std::size_t(count * height), 0.0);
        for (Index k = 0; k < count; ++k)
          for (Index d = 0; d < height && from + k + d < n; ++d)
            columns[std::size_t(k * height + d)] = a(from + k + d, from + k);
        op.put_columns(c, from, count, height, columns.data());
      }
    };
    put(op.columns_before(), 3);
    put(op.rows(), 7);
    if (heads) op.keep_heads(c);
    return op;
  }
};
struct Csr {
  /// Unsorted columns, every third entry stored as two halves.
  static cg::CsrSlice slice(Index n, Range rows, const Entry& a) {
    cg::CsrSlice s;
    for (Index i = rows.first; i < rows.end(); ++i) {
      for (Index k = n - 1; k >= 0; --k) {
        const Index j = (k + i) % n;
        const double v = a(i, j);
        if (v == 0) continue;
        const bool twice = (i + j) % 3 == 0;
        for (int copies = 0; copies <= int(twice); ++copies) {
          s.column.push_back(j);
          s.value.push_back(twice ? 0.5 * v : v);
        }
      }
      s.start.push_back(Index(s.column.size()));
    }
    return s;
  }
  template <class B>
  static cg::CsrOperator<B> make(const Context<B>& c, Index n, const Entry& a, bool heads = false) {
    // Uneven slices, one of them empty from four ranks on.
    std::vector<Index> first(std::size_t(c.size()) + 1, n);
    first[0] = 0;
    for (int r = 1; r < c.size(); ++r)
      first[std::size_t(r)] = std::min(n, n * r / (c.size() + 1) + 1);
    if (c.size() >= 4) first[2] = first[1];
    const Index from = first[std::size_t(c.rank())];
    cg::CsrOperator<B> op(c, first, slice(n, {from, first[std::size_t(c.rank()) + 1] - from}, a));
    if (heads) op.keep_heads(c);
    return op;
  }
};

}  // namespace terrace::test
