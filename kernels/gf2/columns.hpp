// Elimination over GF(2) column by column, as P. A. Lebedev had it in 2013: for each column a
// search for a pivot, and one pass of subtraction. Behind `--method columns` and the studies beside
// it.
//
//   position 0 .. rank - 1     rows that are pivots, in the order of their columns
//   position rank .. count - 1 the others; row order[p] is at position p
//
// Rows are reached through `order` and stay where they are, or are swapped in memory as well.
#pragma once
#include "kernels/gf2/bits.hpp"

namespace terrace::gf2 {

/// How the pass of subtraction reads the pivot row (CUDA); every way gives the same bits.
enum class PivotPath {
  plain,     ///< where it lies, through the caches
  shared,    ///< each block copies it to shared memory
  constant,  ///< copied to constant memory before the pass
  texture    ///< copied aside, read as a texture
};

/// Launch shape (CUDA); every shape gives the same bits.
struct ColumnShape {
  int search_threads = 256;  ///< of the one block that looks for a pivot, 1 to 1,024
  int threads = 256;         ///< of a block of the subtraction: a multiple of lanes, at most 1,024
  int lanes = 32;            ///< of them along a row, a power of two
  int blocks = 2112;         ///< at most; fewer where the rows left need no more
  friend bool operator==(const ColumnShape&, const ColumnShape&) = default;
};

template <class B>
struct ColumnGauss {
  Word* data = nullptr;  ///< `count` rows, `stride` words apart: a multiple of bit_row_alignment
  Index stride = 0, count = 0;
  Index words = 0;           ///< of a row that take part
  Index* order = nullptr;    ///< memory of B: the row at each position
  Index* state = nullptr;    ///< memory of B: [0] pivots so far, [1] position of the last or -1
  Index* columns = nullptr;  ///< memory of B: the pivots' columns
  bool swap = false;         ///< rows move: position p is row p of `data`
  bool in_place = false;     ///< the inverse: cleared columns take the transformation's
  ColumnShape shape{};
  PivotPath path = PivotPath::plain;
  Word* staged = nullptr;          ///< `words` rounded up to 2; for constant and texture
  unsigned long long texture = 0;  ///< of `staged`; RowTexture
};

/// With first = state[0], plus one where `advance` and state[1] >= 0: the first position p from
/// `first` on with a one in `column`. Then state = {first, p}, order[first] and order[p] change
/// places, columns[first] = column; where there is none, state = {first, -1}. Threads read
/// consecutive rows, an atomic minimum in shared memory decides (CUDA).
void search_column(const Stream<Cpu>&, const ColumnGauss<Cpu>& gauss, Index column, bool advance);
void search_column(const Stream<Cuda>&, const ColumnGauss<Cuda>& gauss, Index column, bool advance);

/// What search_column() found: swaps the rows where rows move, and adds the pivot row to every row
/// from position `above` on (not above state[0]) with a one in `column`; those between the pivot's
/// new place and its old one have none and are left out. The grid is as large as the rows from
/// `above` on need. Words from the column's on; all of them in place, where the bits of `column`
/// stay.
void clear_column(const Stream<Cpu>&, const ColumnGauss<Cpu>& gauss, Index column, Index above);
void clear_column(const Stream<Cuda>&, const ColumnGauss<Cuda>& gauss, Index column, Index above);

/// A row of words as a texture.
class RowTexture {
 public:
  RowTexture() = default;
  RowTexture(const Word* row, Index words);
  ~RowTexture();
  RowTexture(const RowTexture&) = delete;
  RowTexture& operator=(const RowTexture&) = delete;
  [[nodiscard]] unsigned long long handle() const { return handle_; }

 private:
  unsigned long long handle_ = 0;
};

}  // namespace terrace::gf2
