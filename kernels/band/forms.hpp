// A band matrix in whichever form its owner holds it, as the solvers read one.
#pragma once
#include <span>

#include "kernels/base/buffer.hpp"

namespace terrace::band {

/// Where the numbers of the lower columns stand: A[j + d, j] at data[j * column + d * diagonal]. SciPy's
/// and LAPACK's forms, lower and upper, are such (in an upper one `diagonal` steps from a column to
/// the next, and back by one diagonal).
struct BandForm {
  const double* data = nullptr;
  Index column = 1, diagonal = 1;
  /// The same from column j on.
  [[nodiscard]] BandForm behind(Index j) const { return {data + j * column, column, diagonal}; }
};

/// `count` columns of a form, to[j * ld + d] := A[j + d, j]; of its `rows` first rows.
struct BandRun {
  BandForm from;
  Index rows, count;
  double* to;
};
/// All of the runs at once: d < height; zero from row `rows` on, and for height <= d < ld.
/// *not_finite := 1 where a number is NaN or infinite; null: they are not looked at.
void lower_columns(const Stream<Cpu>&, std::span<const BandRun> runs, Index height, Index ld,
                   Index* not_finite = nullptr);
void lower_columns(const Stream<Cuda>&, std::span<const BandRun> runs, Index height, Index ld,
                   Index* not_finite = nullptr);

}  // namespace terrace::band
