// A matrix from a formula, as solvers read it.
#pragma once
#include "src/dense/system.hpp"
#include "tests/support/dense.hpp"

namespace terrace::test {

/// Rows of an n x columns matrix; the entry, which has to outlive it, may become another one later.
inline dense::RowReader rows_from(Index columns, const Entry& entry) {
  return [columns, &entry](std::span<const Range> ranges, const io::Sink<double>& sink) {
    Index position = 0;
    for (const Range& range : ranges)
      for (Index i = range.first; i < range.end(); ++i) {
        std::vector<double> row;
        for (Index j = 0; j < columns; ++j) row.push_back(entry(i, j));
        sink(position++, 1, row.data());
      }
  };
}

}  // namespace terrace::test
