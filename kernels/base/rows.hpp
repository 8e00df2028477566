// Rows of words or doubles that change places.
#pragma once
#include <span>

#include "kernels/base/buffer.hpp"

namespace terrace {

/// to[place[i] * to_ld + j] = from[i * from_ld + j], i < place.size, j < columns, where place[i] >= 0;
/// the places differ.
void scatter_rows(const Stream<Cpu>&, View<const Index, Cpu> place, Index columns, const Word* from,
                  Index from_ld, Word* to, Index to_ld);
void scatter_rows(const Stream<Cuda>&, View<const Index, Cuda> place, Index columns,
                  const Word* from, Index from_ld, Word* to, Index to_ld);
/// data[i * ld] &= mask, i < rows.
void mask_words(const Stream<Cpu>&, Index rows, Word mask, Word* data, Index ld);
void mask_words(const Stream<Cuda>&, Index rows, Word mask, Word* data, Index ld);
/// data[i * ld + j] = 0, i < rows, j < columns.
void clear_columns(const Stream<Cpu>&, Index rows, Index columns, double* data, Index ld);
void clear_columns(const Stream<Cuda>&, Index rows, Index columns, double* data, Index ld);
/// *not_finite := 1 where one of data[i * ld + j] is NaN or infinite, i < rows, j < columns.
void note_not_finite(const Stream<Cpu>&, Index rows, Index columns, const double* data, Index ld,
                     Index* not_finite);
void note_not_finite(const Stream<Cuda>&, Index rows, Index columns, const double* data, Index ld,
                     Index* not_finite);

/// to[i * to_ld + j] = from[i * from_ld + j] + plus[i * from_ld + j], i < rows, j < columns. A negative
/// leading dimension turns the rows over.
struct BlockCopy {
  const double* from;  ///< null: numbers `fill`
  Index from_ld;
  double* to;
  Index to_ld;
  Index rows, columns;
  const double* plus = nullptr;  ///< null: nothing is added
  double fill = 0;
};
/// All of them at once, in memory of the backend; none may write what another one reads or writes.
void copy_blocks(const Stream<Cpu>&, std::span<const BlockCopy> blocks);
void copy_blocks(const Stream<Cuda>&, std::span<const BlockCopy> blocks);

}  // namespace terrace
