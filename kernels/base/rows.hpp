// Rows of words or doubles that change places.
#pragma once
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

}  // namespace terrace
