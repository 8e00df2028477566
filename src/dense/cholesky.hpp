// A dense matrix for Cholesky's method: whether it is symmetric and definite, and its lower half.
//
// The factorization is the band's (src/band/system.hpp), of a band of all columns. Families do not
// know each other, so whoever calls both hands it the columns from here:
//
//   SymmetricMatrix a(control, n, read_rows);
//   if (assume_auto && !a.looks_definite()) ... LU
//   system.matrix = {n, n - 1, a.columns()};   // a BandSystem
//   ... band::solve_band() ...
//   if (const auto why = a.refused(failure.minor)) ... LU, and why->words() in a warning
//   a.reciprocal_condition(ranges, [&](auto& rows) { result->solve_more(rows, condition_probes); })
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "distrib/control.hpp"
#include "io/output.hpp"
#include "src/dense/check.hpp"

namespace terrace::dense {

/// Why a matrix is not Cholesky's: it is not symmetric (minor 0), or its leading minor of that order
/// is not positive.
struct NotDefinite {
  Index minor = 0;
  /// "not symmetric", or which leading minor is not positive.
  [[nodiscard]] std::string words() const;
};

class SymmetryCheck;

/// Column j of a lower triangle, from the diagonal on and then zeros, from row j of the upper one.
RowReader lower_columns(Index n, RowReader upper_rows);

/// Row j of L^T from column j of `columns`, n numbers each from the diagonal on; `ranges`: what the
/// positions mean.
io::Source<double> upper_rows(Index n, std::span<const Range> ranges, io::Source<double> columns);

/// A of order n, read row by row. All members are collective but words.
class SymmetricMatrix {
 public:
  SymmetricMatrix(const Control& control, Index n, RowReader rows);

  /// Whether a few rows, read for this, are symmetric and their diagonal positive.
  [[nodiscard]] bool looks_definite() const;
  /// Column j of the lower band of all columns, n numbers: A[j, j .. n - 1], then zeros. Row j is
  /// read for it, and all of it goes into the check of symmetry. May outlive this.
  [[nodiscard]] RowReader columns() const;
  /// Whether A[i, j] = A[j, i] bit by bit. What columns() has read is not read again, where the ranks
  /// have read every row equally often; else all rows are.
  [[nodiscard]] bool is_symmetric();
  /// After a factorization, with its failed minor or 0: why it is none of A.
  [[nodiscard]] std::optional<NotDefinite> refused(Index failed_minor);
  /// 1 / (||A|| ||A^-1||), infinity norms, the second within a factor of about five
  /// (kernels/dense/probes.hpp). `solve` overwrites condition_probes numbers per row of this rank's
  /// `ranges` with A^-1 times them. After columns() has read all rows.
  [[nodiscard]] double reciprocal_condition(
      std::span<const Range> ranges, const std::function<void(std::vector<double>&)>& solve) const;

 private:
  const Control& control_;
  Index n_;
  RowReader rows_;
  std::shared_ptr<SymmetryCheck> check_;
};

}  // namespace terrace::dense
