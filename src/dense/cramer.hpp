// Cramer's rule, the textbook baseline for tiny systems.
#pragma once
#include <vector>

#include "kernels/base/matrix.hpp"
#include "src/dense/system.hpp"

namespace terrace::dense {

constexpr Index cramer_limit = 32;

struct [[nodiscard]] CramerResult {
  Matrix<Cpu> x;  ///< n x right
  Index first_zero_pivot = -1;
  double log_abs_determinant = 0;
  int determinant_sign = 1;
};

/// x[j, r] = det(A with column j replaced by b_r) / det(A); each determinant by elimination with
/// partial pivoting. A n x n, B n x right. 2/3 n^4 flops a right-hand side.
CramerResult solve_by_cramer(const Matrix<Cpu>& a, const Matrix<Cpu>& b);

/// A X = B on every rank alike; the members are those of DenseSystem, without the guard.
class CramerSystem {
 public:
  CramerSystem(Context<Cpu>& context, const DensePlan& plan, RowReader a, RowReader b);
  void read();
  EliminationOutcome solve(Progress& progress);
  double reciprocal_condition();
  double check(Progress& progress, const std::function<void(const InverseResidual&)>& seen = {});
  [[nodiscard]] io::Source<double> rows() const;
  [[nodiscard]] std::span<const Index> destination() const { return own_; }

 private:
  Context<Cpu>& context_;
  Index n_, right_;
  RowReader read_a_, read_b_;
  std::vector<Index> own_;  ///< rows of X that this rank delivers
  Matrix<Cpu> a_, b_;       ///< near one
  SystemPowers powers_;
  CramerResult found_;
};

}  // namespace terrace::dense
