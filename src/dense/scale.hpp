// Powers of two that bring a dense system near one: they change no bit of its solution, only the
// exponents, and keep every number on the way in range.
#pragma once
#include <vector>

#include "io/output.hpp"
#include "kernels/base/matrix.hpp"
#include "src/dense/check.hpp"

namespace terrace::dense {

/// Largest and least sizes of what right-hand sides hold, zeros aside, column by column.
struct ColumnSizes {
  std::vector<double> largest;  ///< infinity where one is NaN
  std::vector<double> least;

  explicit ColumnSizes(Index columns);
  /// Of so many whole rows.
  void take(Index count, const double* rows);
  void reduce(const Control& control);
  [[nodiscard]] bool finite() const;
};

/// Of the columns of A, all alike, or of right-hand sides, each its own.
using Powers = std::vector<Index>;
bool scales(const Powers& powers);
Powers opposite(Powers powers);

/// What A and B are multiplied by, and what the result of that is multiplied by in turn.
struct SystemPowers {
  Powers a, b, result;

  SystemPowers() = default;
  /// Of an inverse; of a solution.
  SystemPowers(Index n, const Sizes& of_a);
  SystemPowers(Index n, const Sizes& of_a, const ColumnSizes& of_b);
  /// Of a solution with the stored factors of 2^power A.
  SystemPowers(Index n, Index power, const ColumnSizes& of_b);
  /// log |det A| from that of 2^a A.
  [[nodiscard]] double log_determinant(double scaled) const;
};

/// rows[i, j] *= 2^powers[j], on the host.
void scale_rows(Index count, const Powers& powers, double* rows);
/// Rows of a result, copied out of the backend's memory.
struct RowSource {
  io::Source<double> give;
  bool anywhere = false;         ///< to a device too, not to the host alone; the same on all ranks
  const double* data = nullptr;  ///< where the first row lies there, and the others every `ld`
  Index ld = 0;                  ///< numbers; or null
  void operator()(Index position, Index count, double* out) const { give(position, count, out); }
};

/// What is read or written, scaled; on the host, where that changes it.
RowReader scaled(RowReader read, const Powers& powers);
RowSource scaled(RowSource from, const Powers& powers);

}  // namespace terrace::dense
