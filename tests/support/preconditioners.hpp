// Preconditioners under test: each rank's rows of a matrix that is a formula, and products with it.
#pragma once
#include "src/cg/chebyshev.hpp"
#include "src/cg/preconditioner.hpp"
#include "tests/support/cg.hpp"

namespace terrace::test {

using namespace terrace::cg;

inline Range own_rows(Index n) {
  const Index first = n * world().rank() / world().size();
  return {first, n * (world().rank() + 1) / world().size() - first};
}

/// This rank's diagonal part of a matrix given by a formula, columns in a scrambled order.
inline LocalRows local_rows(Range rows, const Entry& a) {
  LocalRows l;
  for (Index i = 0; i < rows.count; ++i) {
    for (Index k = 0; k < rows.count; ++k) {
      const Index j = (k + 3 * i) % rows.count;
      const double v = a(rows.first + i, rows.first + j);
      if (v == 0) continue;
      l.column.push_back(j);
      l.value.push_back(v);
    }
    l.start.push_back(Index(l.column.size()));
  }
  return l;
}

template <class B>
Vector apply(const Context<B>& c, const Preconditioner<B>& m, const Vector& r) {
  const Buffer<double, B> from{Index(r.size())}, to{Index(r.size())};
  Vector z(r.size(), 0.0);
  upload(c.ahead, from.view(), r.data());
  m.apply(c, from, to.view());
  download(c.ahead, z.data(), to.view());
  c.ahead.synchronize();
  return z;
}

inline double largest(const Vector& v) {
  double most = 0;
  for (double x : v) most = std::isnan(x) ? 1e300 : std::max(most, std::fabs(x));
  return most;
}
inline double sum(double mine) { return world().reduce(mine, Reduce::sum); }

/// Products as a test's operator makes them: through the host.
template <class B>
struct HostProduct {
  const Context<B>& c;
  Index n;
  Entry a;
  Range rows = own_rows(n);
  mutable Index calls = 0;
  [[nodiscard]] Operand<B> operand(Index columns = 1) const {
    return {Buffer<double, B>((rows.count + 2) * columns), 1, rows.count, columns};
  }
  void operator()(const Operand<B>& p, View<double, B> q, const double*) const {
    const Index k = p.columns;
    Vector mine(std::size_t(rows.count * k), 0.0);
    download(c.ahead, mine.data(), p.own());
    c.ahead.synchronize();
    for (Index column = 0; column < k; ++column) {
      Vector one;
      for (Index i = 0; i < rows.count; ++i) one.push_back(mine[std::size_t(i * k + column)]);
      const Vector all = whole(one, rows, n);
      for (Index i = 0; i < rows.count; ++i) {
        double sum = 0;
        for (Index j = 0; j < n; ++j) sum += a(rows.first + i, j) * all[std::size_t(j)];
        mine[std::size_t(i * k + column)] = sum;
      }
    }
    upload(c.ahead, q, mine.data());
    c.ahead.synchronize();
    ++calls;
  }
};
template <class B>
Vector apply(const Context<B>& c, const Chebyshev<B>& m, const HostProduct<B>& product,
             const Vector& r) {
  const Buffer<double, B> from{Index(r.size())}, to{Index(r.size())};
  Vector z(r.size(), 0.0);
  upload(c.ahead, from.view(), r.data());
  m.apply(c, product, from, to.view());
  download(c.ahead, z.data(), to.view());
  c.ahead.synchronize();
  return z;
}

}  // namespace terrace::test
