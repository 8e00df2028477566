// Algebraic multigrid of another library, to compare with our own: BoomerAMG of hypre (Henson, Yang 2002),
// loaded when it is first used, where Terrace is built beside it.
#pragma once
#include <memory>
#include <string>

#include "distrib/control.hpp"
#include "distrib/layout.hpp"

namespace terrace {

/// "2.26.0"; empty: built without hypre.
std::string hypre_version();

/// One V-cycle as a preconditioner: parallel coarsening (HMIS), aggressive from the first level to the
/// second, extended interpolation of at most four entries per row, symmetric Gauss-Seidel with l1 rows
/// (the fastest of those tried: jobs/results/cg.md). In host memory.
class Hypre {
 public:
  /// Rows `rows` of a symmetric matrix of order n: entries start[i] .. start[i + 1] of row i, columns of
  /// the whole matrix. Throws an agreed Error(usage) where hypre is not there, Error(resources) for
  /// numbers that its integers do not hold. Collective.
  Hypre(const Control& control, Index n, Range rows, const Index* start, const Index* column,
        const double* value);
  ~Hypre();
  Hypre(const Hypre&) = delete;
  Hypre& operator=(const Hypre&) = delete;
  /// z = M^-1 r, own rows of each. Collective.
  void apply(const double* r, double* z) const;

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

}  // namespace terrace
