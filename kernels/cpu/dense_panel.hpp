// Partial pivoting within one strip of columns, on host memory; shared by the panel and by the
// rounds of the tournament.
#pragma once
#include "kernels/backend.hpp"

namespace terrace::dense {

constexpr Index inner_width = 16;  ///< columns eliminated one by one between matrix products

/// rows x width, row-major; at least round_up(width, 16) columns a row are there.
struct Strip {
  double* x = nullptr;
  Index ld = 0, rows = 0, width = 0;
  Index tile = 1;              ///< rows of one BLAS call
  const Index* id = nullptr;   ///< global row of each row
  Index* column_of = nullptr;  ///< negative: may become a pivot row
};

/// Where the pivot rows go: L (unit) and U, row-major.
struct Factors {
  double* lu = nullptr;
  Index ld = 0;
  Index* pivots = nullptr;  ///< global rows
  Index* info = nullptr;    ///< first bad column or -1, 1: zero, 2: not finite
};

struct Best {
  double key = -1;  ///< |value|, infinity when it is not finite, -1: no row left
  Index row = -1, slot = -1;
};

double pivot_key(double value);
/// Largest entry of column j among the rows that may become pivots, ties to the lowest global row.
Best best_in_column(const Strip& strip, Index j);
/// Stores the pivot row of column j; false, with info set, when there is no usable pivot.
bool take_pivot(const Strip& strip, const Factors& factors, Index j, double key, Index row,
                const double* values);
/// Eliminates column j of all rows by pivot row j and returns the best of column j + 1.
Best eliminate_in_strip(const Strip& strip, const Factors& factors, Index j);
/// All columns; column_of of the pivot rows becomes first + j. Without a usable pivot: with `skip`
/// the column has none and the next one follows (the pivot rows still span all rows), else it ends
/// there.
void factor_strip(const Strip& strip, const Factors& factors, Index first, bool skip);

}  // namespace terrace::dense
