// Steps of the textbook's inversion on one device, column by column, as in the CUDA program of the
// article behind jobs/dense_seed.sh: one plain launch per step, nothing blocked, nothing shared.
//
//   forward,  k = 0 ... n - 1:  the row of the largest |a[i, k]|, i >= k, changes places with row k
//                               (whole rows of A and X); rows i > k -= a[i, k] / a[k, k] row k
//   backward, k = n - 1 ... 0:  rows i < k -= a[i, k] / a[k, k] row k
//   then X[i, :] /= a[i, i], a[i, i] = 1
//
// 3 1/3 n^3 flops, a rate of 2 n^3 is what benchmarks count. On CUDA each flop moves 8 bytes or
// more, and the search for a pivot is one thread's; on the CPU all of it is one thread's.
#pragma once
#include "kernels/base/buffer.hpp"

namespace terrace::dense::textbook {

/// The grid of every launch: grid x grid blocks of threads x threads threads (grid blocks of
/// `threads` for steps along one row or column); what lies beyond is reached in strides of the
/// whole grid. CUDA only.
struct Launch {
  int grid = 16, threads = 32;
};

/// [A | X], each n x n, row-major, ld = n.
template <class B>
struct System {
  Index n = 0;
  View<double, B> a, x;
  View<Index, B> pivot_row;  ///< n: the row that changed places with row k
  View<double, B> pivot;     ///< n: a[k, k] at step k
  View<Index, B> info;       ///< 2: first bad column or -1; 1: its pivot is zero, 2: not finite
  Launch launch;
};

// Every function below is specialised for Cpu (kernels/dense/cpu/textbook.cpp) and Cuda
// (kernels/dense/cuda/textbook.cu). n > 0.

/// X := identity, info := none.
template <class B>
void begin(const Stream<B>&, const System<B>&);
/// pivot_row[k], pivot[k]: the largest |a[i, k]| for i >= k, ties to the lowest row, a NaN before
/// any number; info when it is the first that is zero or not finite.
template <class B>
void choose_pivot(const Stream<B>&, const System<B>&, Index k);
/// Rows k and pivot_row[k] of A and X change places.
template <class B>
void exchange_rows(const Stream<B>&, const System<B>&, Index k);
/// Rows i > k of A (right of column k) and X; column k is left as it is ...
template <class B>
void subtract_below(const Stream<B>&, const System<B>&, Index k);
/// ... and becomes zero here.
template <class B>
void clear_below(const Stream<B>&, const System<B>&, Index k);
/// Rows i < k of A (left of column k) and X, and column k above the diagonal.
template <class B>
void subtract_above(const Stream<B>&, const System<B>&, Index k);
template <class B>
void clear_above(const Stream<B>&, const System<B>&, Index k);
/// X[i, :] /= a[i, i]; then a[i, i] := 1.
template <class B>
void divide_inverse(const Stream<B>&, const System<B>&);
template <class B>
void divide_matrix(const Stream<B>&, const System<B>&);

}  // namespace terrace::dense::textbook
