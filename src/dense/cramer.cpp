#include "src/dense/cramer.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace terrace::dense {

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

CramerSystem::CramerSystem(Context<Cpu>& context, const DensePlan& plan, RowReader a, RowReader b)
    : context_(context),
      n_(plan.n),
      right_(plan.rhs),
      read_a_(std::move(a)),
      read_b_(std::move(b)) {
  for (const Range& range : contiguous(n_, context.size()).ranges(context.rank()))
    for (Index i = range.first; i < range.end(); ++i) own_.push_back(i);
}

void CramerSystem::read() {
  a_ = Matrix<Cpu>(context_.ahead, n_, n_);
  b_ = Matrix<Cpu>(context_.ahead, n_, right_);
  const Range all{0, n_};
  const auto load = [&](const RowReader& read, Matrix<Cpu>& matrix) {
    read({&all, 1}, [&](Index position, Index count, const double* rows) {
      std::copy_n(rows, count * matrix.columns(), matrix.data() + position * matrix.columns());
    });
  };
  load(read_a_, a_);
  load(read_b_, b_);
  ColumnSizes of_b(right_);
  of_b.take(n_, b_.data());
  powers_ = SystemPowers(n_, sizes_of<Cpu>(context_.ahead, n_, n_, a_.view(), n_), of_b);
  scale_rows(n_, powers_.a, a_.data());
  scale_rows(n_, powers_.b, b_.data());
}

EliminationOutcome CramerSystem::solve(Progress&) {
  found_ = solve_by_cramer(a_, b_);
  EliminationOutcome outcome{found_.first_zero_pivot, false,
                             powers_.log_determinant(found_.log_abs_determinant),
                             found_.determinant_sign};
  if (!outcome.good()) return outcome;
  scale_rows(n_, powers_.result, found_.x.data());
  outcome.overflow = !std::isfinite(norm_max(found_.x));
  return outcome;
}

double CramerSystem::reciprocal_condition() {
  if (n_ == 0) return 1;
  Matrix<Cpu> identity(context_.ahead, n_, n_);
  for (Index i = 0; i < n_; ++i)
    for (Index j = 0; j < n_; ++j) identity(i, j) = i == j ? 1 : 0;
  return safe_reciprocal(norm_infinity(a_), norm_infinity(solve_by_cramer(a_, identity).x));
}

double CramerSystem::check(Progress&, const std::function<void(const InverseResidual&)>&) {
  Matrix<Cpu> x = found_.x;
  scale_rows(n_, opposite(powers_.result), x.data());
  return check_solution<Cpu>(
      context_, n_, right_, contiguous(n_, context_.size()).ranges(context_.rank()),
      [&](Index first, Index count, double* out) {
        for (const Index i : own_)
          for (Index j = 0; j < count; ++j) out[i * count + j] = x(i, first + j);
      },
      scaled(read_a_, powers_.a), scaled(read_b_, powers_.b), 1.0);
}

io::Source<double> CramerSystem::rows() const {
  return [this](Index position, Index count, double* out) {
    for (Index i = position; i < position + count; ++i)
      out = std::copy_n(found_.x.data() + own_[std::size_t(i)] * right_, right_, out);
  };
}

}  // namespace terrace::dense
