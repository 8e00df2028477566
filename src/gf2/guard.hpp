// --guard: check sums carried through an elimination over GF(2), so that a bit that flips in memory
// ends the run before the answer is there. Huang and Abraham 1984, for Gaussian elimination; with
// random weights, so that no pattern of errors is invisible.
//
// The sums are columns of the matrix and take part in every row operation. Every few panels the
// rows are multiplied by the weights again and compared. Nothing waits: the verdict of a check is
// read when the next one begins.
#pragma once
#include <vector>

#include "distrib/context.hpp"
#include "src/gf2/matrix.hpp"

namespace terrace::gf2 {

/// One more word a row: A X for 64 random vectors X.
///
///   | A | B | witness | A X |        after any steps T:  T A X = (T A) X, to the bit
///
/// For the inverse in place, with V the witness words, column j of the pivot in row p(j):
///   sum over columns to come of (T A) X, sum over the others of T[:, p(j)] V[p(j)], both at once.
///
/// Rows are added up in groups before that, as many groups as vectors where there are so many rows:
/// an error that the steps spread over the rows is even in all of them with probability 2^-64.
template <class B>
class BitGuard {
 public:
  /// Takes the memory. The last word of the matrix is the guard's, that before it the witness.
  BitGuard(Context<B>& context, BitMatrix<B>& matrix, bool inverse, Word witness_seed,
           Index interval);
  static Index bytes(BlockCyclic layout, Index stride);
  /// The guard's word, from rows that are just read.
  void begin();
  /// Inverse: column `first` + q has its pivot in row rows[q].
  void pivots(Index first, const std::vector<Index>& rows);
  /// Panel k is applied on `lane`. A check every `interval` panels.
  void step(const Stream<B>& lane, Index k);
  /// After `steps` panels: a last check, and all verdicts.
  void finish(Index steps);
  /// Steps before this one need no check here.
  void resume(Index k) { last_ = seen_ = k; }

 private:
  void check(const Stream<B>& lane, Index steps);
  void look();
  void set_vectors(const Stream<B>& lane);
  [[nodiscard]] Word witness(Index row) const;

  Context<B>& context_;
  BitMatrix<B>& matrix_;
  bool inverse_;
  Word seed_;
  Index interval_, height_, groups_;  ///< height_: rows of a group
  Buffer<Word, B> sums_, products_, z_, sliced_;
  Buffer<Index, B> bad_;
  PinnedBuffer<Index> bad_host_;
  Event<B> known_;
  std::vector<Word> x_, uploaded_, corrections_, more_;
  Index last_ = 0, seen_ = 0, due_ = 0;
  bool pending_ = false, changed_ = true;
};

}  // namespace terrace::gf2
