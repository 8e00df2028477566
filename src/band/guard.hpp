// --guard of band Cholesky by tile columns: A w is summed once the matrix A is read, w random; what
// each finished tile column of L gives to L (L^T w) is taken away again. In rows whose tile column
// is finished nothing but rounding may be left. Huang and Abraham 1984, for Cholesky.
//
//   before tile column k:   sum = A w - L_1 (L_1^T w)        L_1: columns before k
//   rows before k w:        sum = 0
//
// w undoes the scale of the diagonal, |w_j| ~ 1 / sqrt(a_jj), so that |w_i| times the terms of row
// i's sum, at most sqrt(a_ii a_jj) |w_j| each, bounds the rounding. That holds where all pivots of
// the rows that row i meets are good: rows are checked once they are known to be. Each rank sums
// its own tile columns; the ranks' sums meet when rows are checked. Padding is summed as well. A check's verdict is read when
// the next one begins. All of it runs on the bulk lane, which waits for panels most of the time: on
// CUDA a stream more slows every launch of the others (H200: 2 us each).
#pragma once
#include <vector>

#include "kernels/band/guard.hpp"
#include "src/band/tile_columns.hpp"

namespace terrace::band {

template <class B>
class BandGuard {
 public:
  /// Takes the memory.
  BandGuard(Context<B>& context, const BandShape& shape);
  static Index bytes(const BandShape& shape);
  /// A w, of the matrix as it is in memory. Collective.
  void begin(const BandTiles<B>& a);
  /// The tile columns before k are L's already.
  void resume(const BandTiles<B>& a, Index k);
  /// Tile column k, this rank's, is L's when step k's check is enqueued.
  void take(const BandTiles<B>& a, Index k);
  /// Step k is enqueued on the bulk lane; the pivots of the first `good` tile columns are known to
  /// be good. A check every few steps. Collective.
  void step(const BandTiles<B>& a, Index k, Index good);
  /// A last check, and all verdicts; throws Error(fault), which ends the job. Collective.
  void finish(const BandTiles<B>& a);
  /// Once more from the start, with the sizes of all terms: A w as it was read against the factor
  /// as it is now. Collective.
  void verify(const BandTiles<B>& l);
  /// TERRACE_TEST_FLIP, after the loop's last step: step tiles() + 1.
  void flip_after(const BandTiles<B>& l) const;

 private:
  void flush(const BandTiles<B>& a);
  void check(const BandTiles<B>& a, Index to, Index steps);
  void look();
  [[nodiscard]] GuardTiles<B> tiles(const BandTiles<B>& a, Index first, Index count) const;

  Context<B>& c_;
  const BandShape s_;
  const Index length_, interval_;
  double least_ = 0;
  Buffer<double, B> w_, given_, sum_, t_;
  Buffer<double, B> size_, t_size_;  ///< of verify() alone
  Buffer<Index, B> bad_;
  PinnedBuffer<Index> bad_host_;
  const Stream<B>& lane_;
  Event<B> known_;
  Index waiting_ = 0, from_ = 0;  ///< own tile columns that wait: `waiting_` before slot `from_`
  Index last_ = 0;                ///< rows before it are checked
  Index end_ = 0;                 ///< of the check that is under way
  Index checked_ = 0, seen_ = 0, due_ = 0;  ///< steps: at the last check, before it, at this one
  bool pending_ = false, sizes_ = false;
};

}  // namespace terrace::band
