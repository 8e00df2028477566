// Loops of the panel over slivers.
#pragma once
#include "kernels/dense/cpu/panel.hpp"

namespace terrace::dense {

/// x := rows of `a`, whole slivers [begin, end); row 0 of `a` is that of sliver 0.
struct SliverLoad {
  Slivers x;
  const double* a = nullptr;
  Index ld = 0, width = 0, begin = 0, end = 0;
};
void load_slivers(const SliverLoad&);

/// Column j of slivers [begin, end), which starts at j0 in its inner block: l = x[j] / pivot,
/// x[j + 1 ... j1) -= l u, x[j] = l; then the best of column `next`. `pivot` 0: only the search;
/// `next` < 0: none.
struct ColumnStep {
  Strip strip;
  Index begin = 0, end = 0, j = -1, j1 = 0, next = -1;
  double pivot = 0;
  const double* u = nullptr;  ///< of columns j ... j1
  Best* best = nullptr;
};
void column_step(const ColumnStep&);

constexpr Index narrow_width = 4;  ///< columns whose effect on the rest of the block waits

/// Columns [j, j + 4) of slivers [begin, end) are eliminated: x[j + 4 ... j1) -= x[j ... j + 4) u,
/// in the order of column_step; then the best of column j + 4.
struct NarrowStep {
  Strip strip;
  Index begin = 0, end = 0, j = 0, j1 = 0;
  const double* u = nullptr;  ///< 4 rows of 16, columns j + 4 ... j1
  Best* best = nullptr;
};
void narrow_step(const NarrowStep&);
/// Rows of 16, columns from j on: the pivot rows of four columns as each was found become rows of U
/// in columns 4 ... columns.
struct NarrowUpper {
  double* rows = nullptr;
  Index columns = 0;
};
void narrow_upper(const NarrowUpper&);

/// x[:, j ... j + 16) -= x[:, 0 ... j) u in slivers [begin, end); u: j x 16, row-major.
struct BlockStep {
  Slivers x;
  Index begin = 0, end = 0, j = 0;
  const double* u = nullptr;
};
void block_step(const BlockStep&);

/// x := L^-1 x for x of rows x 16, row-major, L unit lower, row-major.
struct UpperBlock {
  const double* l = nullptr;
  Index ld = 0, rows = 0;
  double* x = nullptr;
};
void upper_block(const UpperBlock&);

}  // namespace terrace::dense
