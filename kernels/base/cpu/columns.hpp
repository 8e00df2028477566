// Products of a matrix and one vector on the CPU, with the same bits wherever the numbers lie: BLAS's
// kernels for some processors (OpenBLAS 0.3: Sandy Bridge) give addresses that are no multiple of 16
// or 32 bytes sums of their own, and what a rank holds lies elsewhere than on other numbers of ranks.
#pragma once
#include "kernels/base/backend.hpp"

namespace terrace {

/// y += alpha A x: A is rows x columns, column by column.
void add_columns(Index rows, Index columns, double alpha, const double* a, Index ld,
                 const double* x, double* y);
/// y += alpha A^T x.
void add_dots(Index rows, Index columns, double alpha, const double* a, Index ld, const double* x,
              double* y);
/// x = L^-1 x or L^-T x: L is the lower triangle of an n x n matrix, column by column.
void solve_lower(Index n, const double* l, Index ld, double* x);
void solve_lower_transposed(Index n, const double* l, Index ld, double* x);

}  // namespace terrace
