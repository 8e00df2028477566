// Loops of the panel over slivers.
#pragma once
#include "kernels/cpu/dense_panel.hpp"

namespace terrace::dense {

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
