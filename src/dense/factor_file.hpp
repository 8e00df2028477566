// Factors in a file, as `dense factor` writes them: L and U, and a dataset "pivots" beside it, or
// Cholesky's.
#pragma once
#include <optional>
#include <string>

#include "io/input.hpp"
#include "io/output.hpp"
#include "src/dense/system.hpp"

namespace terrace::dense {

struct FactorFile {
  io::DenseInput factor;
  std::optional<io::DenseInput> pivots;  ///< none: it is Cholesky's
  io::Attributes attributes;
  /// An attribute of the factor; refuses a factor without it.
  [[nodiscard]] double number(const char* name) const;
};
/// Throws agreed Error(input) where that is no factor. Collective, like the next.
FactorFile open_factor(const Control& control, const io::Location& location);
/// L and U; their rows are read when they are asked for.
StoredFactor stored_factor(const Control& control, const FactorFile& file);
/// Columns of Cholesky's L, n numbers each from the diagonal on and then zeros. Throws agreed Error(input) for a diagonal
/// that is not positive, while they are read. `file` outlives it.
RowReader columns_of_cholesky(const Control& control, const FactorFile& file);
/// What stands beside Cholesky's factor; `matrix`: where that stands, for people.
struct CholeskyNotes {
  std::string matrix;
  double log_abs_determinant = 0, reciprocal_condition = 0;
};
/// The upper factor from `columns` of L, n numbers each from the diagonal on and then zeros.
/// Collective.
void write_cholesky(io::Output& output, const std::string& name, Index n,
                    std::span<const Range> ranges, const io::Source<double>& columns,
                    const CholeskyNotes& notes);
/// `matrix`: where the matrix stands, for people. Collective.
void write_factor(const Control& control, io::Output& output, const std::string& name,
                  const StoredFactor& factor, std::span<const Index> destination,
                  const io::Source<double>& rows, const std::string& matrix);

}  // namespace terrace::dense
