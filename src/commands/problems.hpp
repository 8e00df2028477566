// Test problems whose rows any rank can make by itself from the seed: `terrace generate`.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "distrib/layout.hpp"
#include "kernels/base/problems.hpp"

namespace terrace {

/// A dense matrix by rows: fill(rows, out) writes rows.count x n doubles, row-major.
struct DenseProblem {
  Index n = 0;
  std::function<void(Range rows, double* out)> fill;
};
/// Uniform in (-1, 1).
DenseProblem dense_random(Word seed, Index n);
/// (I - 2 u u^T) S (I - 2 v v^T) P with random unit vectors u, v, singular values S spaced evenly
/// on a logarithmic scale from 1 to 1 / condition, and a permutation P. Memory: 5 n.
DenseProblem dense_condition(Word seed, Index n, double condition);
/// (I - 2 v v^T) D (I - 2 v v^T), exactly symmetric, eigenvalues D from 1 to 1 / condition. Memory:
/// 3 n.
DenseProblem dense_spd(Word seed, Index n, double condition);

/// A symmetric band matrix by formula; i >= j.
struct BandProblemFormula {
  Index n = 0, half_bandwidth = 0;
  std::function<double(Index i, Index j)> entry;
};
/// Diagonally dominant; with condition > 1 scaled as d_i A[i,j] d_j, d from 1 to condition^(-1/2).
BandProblemFormula band_spd(Word seed, Index n, Index half_bandwidth, double condition);
/// Five-point Laplacian on a grid in natural order, `points` to a line, the first n points of it.
BandProblemFormula band_laplace(Index n, Index points);

/// Laplacian on points^dim points with Dirichlet borders, natural order, full symmetric pattern:
/// 2 dim on the diagonal, -1 for each neighbour.
struct CsrLaplace {
  Index points = 0;
  int dim = 2;
  [[nodiscard]] Index n() const { return dim == 2 ? points * points : points * points * points; }
  /// Stored entries in the rows before row i.
  [[nodiscard]] Index entries_before(Index i) const;
  /// Entries of row i, columns ascending; returns how many (at most 7).
  int row(Index i, Index* columns, double* values) const;
};

/// A bit matrix by rows of words(): fill(rows, out), unused bits zero.
struct BitProblem {
  Index rows = 0, columns = 0;
  std::function<void(Range rows, Word* out)> fill;
  [[nodiscard]] Index words() const { return ceil_div(columns, 64); }
};
/// Each bit one with probability `density`.
BitProblem gf2_random(Word seed, Index rows, Index columns, double density);
/// Rank exactly `rank`, a sum of a few rows of an echelon form in each row: L R with L unit lower
/// triangular in its first `rank` rows (shuffled) and R an echelon form whose pivots are spread
/// evenly over the columns. Cost: 12 random words a word.
BitProblem gf2_rank(Word seed, Index rows, Index columns, Index rank);
/// Pivot column t of gf2_rank's reduced echelon form.
constexpr Index gf2_rank_pivot(Index columns, Index rank, Index t) { return t * columns / rank; }

}  // namespace terrace
