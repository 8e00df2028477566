// The products of Gauss-Jordan elimination on operands packed once a panel and read by all threads:
// A -= N Y, and Y = L^-1 P.
#pragma once
#include "kernels/base/cpu/dense_simd.hpp"

namespace terrace::dense {
using namespace simd;

/// Columns of a sliver of Y.
inline Index sliver_columns() { return 3 * lanes(); }

/// Y, depth x length, in slivers of W = sliver_columns() columns, every sliver row by row; the last
/// one has the columns that are left and no padding. Columns [unit, unit_end) are L^-1: row t is
/// zero left of column unit + t.
struct PackedRows {
  double* y = nullptr;
  Index depth = 0, length = 0, unit = 0, unit_end = 0;
};

/// Rows [row, row_end) of A, `row` a multiple of lanes(): columns [c0, c1) of Y's -= N Y. Every
/// entry is a - (sum in order of k), whatever the cut: 2 rows columns depth flops.
struct Product {
  Slivers n;
  PackedRows y;
  double* a = nullptr;  ///< entry of row 0 and Y's column 0
  Index ld = 0, row = 0, row_end = 0, c0 = 0, c1 = 0;
};
void subtract_product(const Product&);

/// Slivers [begin, end) of y := L^-1 p; in columns [unit, unit_end) p counts as the identity.
struct LowerSolve {
  const double* l = nullptr;  ///< unit lower triangle, row-major
  Index ld = 0;
  const double* packed = nullptr;  ///< pack_lower() of it
  const double* p = nullptr;       ///< row-major, rows of y.length
  PackedRows y;
  Index begin = 0, end = 0;
};
void solve_lower_slivers(const LowerSolve&);
/// What is left of the blocks of lanes() rows on the diagonal, in slivers; at most depth^2 doubles.
void pack_lower(const double* l, Index ld, Index depth, double* packed);

}  // namespace terrace::dense
