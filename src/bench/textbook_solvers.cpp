#include "src/bench/textbook_solvers.hpp"

#include <utility>
#include <vector>

#include "kernels/base/error.hpp"
#include "kernels/dense/textbook_matrix.hpp"

namespace terrace::dense::textbook {

template <class B>
CgOutcome<B> conjugate_gradients(const Matrix<B>& a, const Matrix<B>& b, double rtol, Index most) {
  const Stream<B>& lane = b.stream();
  const Index n = a.rows();
  a.synchronize();  // written on another stream
  CgOutcome<B> result;
  Matrix<B> r = b, p = b, q(lane, n, 1);
  result.x = 0.0 * b;
  double rr = dot(r, r);
  const double stop = rtol * rtol * rr;
  while (!(result.converged = rr <= stop) && result.iterations < most) {
    multiply<B>(lane, Product::element, n, 1, n, a.view(), p.view(), q.view());
    const double pq = dot(p, q);
    if (!(pq > 0)) break;
    const double alpha = rr / pq;
    result.x += alpha * p;
    r -= alpha * q;
    const double next = dot(r, r);
    p = r + (next / rr) * std::move(p);
    rr = next;
    ++result.iterations;
  }
  return result;
}

namespace {

/// Rows first ... n - 1 of the columns named.
double expand(const Matrix<Cpu>& a, Index first, const std::vector<Index>& columns) {
  if (columns.empty()) return 1;
  if (columns.size() == 1) return a(first, columns[0]);
  double sum = 0, sign = 1;
  for (std::size_t k = 0; k < columns.size(); ++k, sign = -sign) {
    std::vector<Index> others = columns;
    others.erase(others.begin() + std::ptrdiff_t(k));
    sum += sign * a(first, columns[k]) * expand(a, first + 1, others);
  }
  return sum;
}

}  // namespace

double expanded_determinant(const Matrix<Cpu>& a) {
  if (a.rows() > expansion_limit)
    throw Error(Exit::usage,
                "expansion of a determinant takes up to 10 rows; --method cramer; use "
                "elimination");
  std::vector<Index> columns;
  for (Index j = 0; j < a.rows(); ++j) columns.push_back(j);
  return expand(a, 0, columns);
}

Matrix<Cpu> solve_by_expansion(const Matrix<Cpu>& a, const Matrix<Cpu>& b) {
  const double whole = expanded_determinant(a);
  if (whole == 0) return {};
  Matrix<Cpu> x(a.stream(), a.rows(), 1);
  for (Index j = 0; j < a.rows(); ++j) {
    Matrix<Cpu> replaced = a;
    for (Index i = 0; i < a.rows(); ++i) replaced(i, j) = b(i, 0);
    x(j, 0) = expanded_determinant(replaced) / whole;
  }
  return x;
}

#define TERRACE_INSTANTIATE(B) \
  template CgOutcome<B> conjugate_gradients(const Matrix<B>&, const Matrix<B>&, double, Index);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::dense::textbook
