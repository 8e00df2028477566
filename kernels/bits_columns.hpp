// Elimination over GF(2) column by column, as P. A. Lebedev had it in 2013: a search for a pivot by
// one block of any number of threads, rows swapped in memory or through an index array, one pass of
// subtraction a pivot. For measurements beside the block form; no solver uses it.
#pragma once
#include "kernels/bits.hpp"

namespace terrace {

struct ColumnGauss {
  BitRows<Word, Cuda> rows;    ///< `list`: where rows are, for the index array; null: swapped
  Index* order = nullptr;      ///< the same list, writable, or null
  Index words = 0;             ///< of a row
  Index* state = nullptr;      ///< device: [0] rank so far, [1] position of the last pivot or -1
  int search_threads = 256;    ///< 32 to 1,024
  int subtract_threads = 256;  ///< a multiple of 32
};

/// state[1] = position of the first row from position state[0] on with a one in `column`, or -1;
/// threads read consecutive rows and an atomic minimum in shared memory decides. With `advance` the
/// pivot of the column before counts first.
void search_column(const Stream<Cuda>&, const ColumnGauss& gauss, Index column, bool advance);
/// Moves the pivot row to position state[0], then clears `column` in the rows behind its old
/// place: rows between have a zero there.
void clear_column(const Stream<Cuda>&, const ColumnGauss& gauss, Index column);

}  // namespace terrace
