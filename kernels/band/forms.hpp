// A band matrix in whichever form its owner holds it, as the solvers read one.
#pragma once
#include "kernels/base/buffer.hpp"

namespace terrace::band {

/// Where the numbers of the lower columns stand: A[j + d, j] at data[j * column + d * diagonal], for
/// the j-th column from `first` on. SciPy's and LAPACK's forms, lower and upper, are such (in an upper
/// one `diagonal` steps from a column to the next, and back by one diagonal).
struct BandForm {
  const double* data = nullptr;
  Index column = 1, diagonal = 1;
};

/// to[j * ld + d] := A[first + j + d, first + j], zero from row n on; j < count, d < height.
/// *not_finite := 1 where one of them is NaN or infinite; null: they are not looked at.
void lower_columns(const Stream<Cpu>&, const BandForm& from, Index n, Index first, Index count,
                   Index height, double* to, Index ld, Index* not_finite = nullptr);
void lower_columns(const Stream<Cuda>&, const BandForm& from, Index n, Index first, Index count,
                   Index height, double* to, Index ld, Index* not_finite = nullptr);

}  // namespace terrace::band
