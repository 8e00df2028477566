// Partial pivoting within one strip of columns, on host memory; shared by the panel and by the
// rounds of the tournament.
#pragma once
#include "kernels/base/cpu/dense_simd.hpp"

namespace terrace::dense {
using namespace simd;

/// rows x width in slivers, with zeros up to round_up(width, 16) columns and to whole slivers.
struct Strip {
  Slivers x;
  Index rows = 0, width = 0;
  const Index* id = nullptr;   ///< global row of each row
  Index* column_of = nullptr;  ///< negative: may become a pivot row
};

/// Strip := columns [0, width) of rows [from, to) of row-major `a`; the last sliver is filled up.
void load_strip(const Strip& strip, const double* a, Index ld, Index from, Index to);

/// Where the pivot rows go: L (unit) and U, row-major.
struct Factors {
  double* lu = nullptr;
  Index ld = 0;
  double* packed = nullptr;  ///< ld^2: U above its diagonal blocks, by inner blocks
  Index* pivots = nullptr;   ///< global rows
  Index* info = nullptr;     ///< first bad column or -1, 1: zero, 2: not finite
};

struct Best {
  double key = -1;  ///< |value|, infinity when it is not finite, -1: no row left
  Index row = -1, slot = -1;
};

/// Largest entry of column j among the rows that may become pivots, ties to the lowest global row.
Best best_in_column(const Strip& strip, Index j);
/// Stores the pivot row of column j; false, with info set, when there is no usable pivot.
bool take_pivot(const Strip& strip, const Factors& factors, Index j, double key, Index row,
                const double* values);
/// Row `slot` := row j of -identity; its elimination makes it row j of -U^-1.
void become_unit_row(const Strip& strip, Index slot, Index j);
void copy_row(const Strip& strip, Index slot, double* out);
/// Eliminates column j of all rows by pivot row j and returns the best of column j + 1.
Best eliminate_in_strip(const Strip& strip, const Factors& factors, Index j);
/// All columns; column_of of the pivot rows becomes first + j. Without a usable pivot: with `skip`
/// the column has none and the next one follows (the pivot rows still span all rows), else it ends
/// there.
void factor_strip(const Strip& strip, const Factors& factors, Index first, bool skip);
/// Strip := strip U^-1.
void divide_strip(const Strip& strip, const Factors& factors);

}  // namespace terrace::dense
