#include "src/dense/cramer.hpp"

#include <cmath>
#include <utility>

namespace terrace {

namespace {

/// mantissa * 2^exponent: products of pivots leave the range of a double.
struct Determinant {
  double mantissa = 1;
  Index exponent = 0;
  Index zero_column = -1;

  void times(double factor) {
    int power = 0;
    mantissa = std::frexp(mantissa * std::frexp(factor, &power), &shift);
    exponent += Index(power) + shift;
  }

 private:
  int shift = 0;
};

Determinant determinant(Matrix<Cpu> a) {
  Determinant d;
  const Index n = a.rows();
  for (Index c = 0; c < n; ++c) {
    Index best = c;
    for (Index i = c + 1; i < n; ++i)
      if (std::fabs(a(i, c)) > std::fabs(a(best, c))) best = i;
    if (a(best, c) == 0) {
      d.mantissa = 0;
      d.zero_column = c;
      return d;
    }
    if (best != c) {
      d.times(-1);
      for (Index j = c; j < n; ++j) std::swap(a(best, j), a(c, j));
    }
    d.times(a(c, c));
    for (Index i = c + 1; i < n; ++i) {
      const double l = a(i, c) / a(c, c);
      for (Index j = c + 1; j < n; ++j) a(i, j) -= l * a(c, j);
    }
  }
  return d;
}

}  // namespace

CramerResult solve_by_cramer(const Matrix<Cpu>& a, const Matrix<Cpu>& b) {
  const Index n = a.rows(), right = b.columns();
  CramerResult result;
  const Determinant whole = determinant(a);
  result.first_zero_pivot = whole.zero_column;
  if (whole.zero_column >= 0) return result;
  result.log_abs_determinant =
      std::log(std::fabs(whole.mantissa)) + double(whole.exponent) * std::log(2.0);
  result.determinant_sign = whole.mantissa < 0 ? -1 : 1;
  result.x = Matrix<Cpu>(a.stream(), n, right);
  for (Index r = 0; r < right; ++r)
    for (Index j = 0; j < n; ++j) {
      Matrix<Cpu> replaced = a;
      for (Index i = 0; i < n; ++i) replaced(i, j) = b(i, r);
      const Determinant part = determinant(std::move(replaced));
      result.x(j, r) =
          std::ldexp(part.mantissa / whole.mantissa, int(part.exponent - whole.exponent));
    }
  return result;
}

}  // namespace terrace
