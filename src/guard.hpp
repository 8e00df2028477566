// --guard: check sums carried through an elimination, so that a bit that flips in memory ends the
// run before the answer is there. Huang and Abraham 1984, for Gaussian elimination; with random
// weights, so that no pattern of errors is invisible.
//
// The sums are columns of the matrix and take part in every row operation. Every few panels the
// rows are multiplied by the weights again and compared. Nothing waits: the verdict of a check is
// read when the next one begins.
#pragma once
#include <string>
#include <vector>

#include "distrib/context.hpp"
#include "kernels/guard.hpp"
#include "src/bit_matrix.hpp"

namespace terrace {

/// Toggles one bit of byte `at`, and waits. Tests only.
template <class B>
void toggle_bit(const Stream<B>& lane, void* data, Index at, int bit);

/// A bit that flips once, and never again. Tests only.
struct TestFlip {
  Index rank = -1, step = -1;
  Index byte = -1;  ///< -1: any
  int bit = -1;     ///< -1: byte % 8
};
/// The one to come: TERRACE_TEST_FLIP = "RANK:STEP[:BYTE]", or what a test sets.
TestFlip& next_test_flip();
/// Toggles that bit in this rank's memory [data, data + bytes) once `step` steps are done.
template <class B>
void flip_for_tests(const Stream<B>& lane, int rank, Index step, void* data, Index bytes);

/// The rank's verdict: throws Error(fault), which ends the job.
[[noreturn]] void memory_error(int rank, Index from, Index to);

/// What failed does not fail when it is done again with what is read again: throws the agreed
/// Error(fault). Collective.
[[noreturn]] void confirmed_fault(const Control& control, const std::string& what);

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

/// One more column of the rows of Gauss-Jordan elimination, its last: c = A w + v for random w and
/// v, after any steps T
///
///   c = (T A) w + T v,   stored column j of the pivot in row p(j):  T[:, p(j)], times v[p(j)]
///                        the pivot's own row:                       a one in column j, times w[j]
///
/// (v = 0 where only the columns to come are updated). The weights undo the scales of columns and
/// rows; what a row's numbers were at their largest bounds the rounding that is allowed for.
///
/// Growth within a panel is not seen, so a sum that is off is a suspicion, not a verdict: all is
/// done again with what is read again. Rounding is off by as much as before, and the bound follows
/// it from there on; a flip of a bit is not there any more.
template <class B>
class DenseGuard {
 public:
  /// Takes the memory. `rows`: global rows of this rank's slots.
  DenseGuard(Context<B>& context, BlockCyclic rows, Index n, Index columns, bool inverse,
             Index interval);
  /// The check sums of the rows as they are, `done` panels being applied. Collective.
  void begin(GuardRows<B> a, const Index* column_of, const std::vector<Index>& pivot_row,
             Index columns_done, Index done);
  /// Panel k is applied on both lanes, but the columns [first, first + width) stand in `panel` (by
  /// columns, `panel_ld` apart; null: in the rows). pivot_row[j] is known for j < columns_done on
  /// several ranks.
  void step(GuardRows<B> a, const Index* column_of, const std::vector<Index>& pivot_row,
            Index columns_done, Index k, Range next, const double* panel, Index panel_ld);
  void finish(GuardRows<B> a, const Index* column_of, const std::vector<Index>& pivot_row,
              Index columns_done, Index steps);

  /// A check sum is off, on some rank. The same on all ranks, as are the next three.
  [[nodiscard]] bool suspects() const { return suspicion_.worst > 0; }
  /// What was suspected does not come back: the memory was to blame.
  [[nodiscard]] bool confirmed() const { return confirmed_; }
  /// Nothing is gained by going on.
  [[nodiscard]] bool stops() const { return suspects() || confirmed_; }
  /// All is done again from here on, to see whether the sum is off again.
  void try_again();
  /// confirmed() ends the job.
  [[noreturn]] void accuse() const;

 private:
  struct Suspicion {
    Index from = 0, to = 0;  ///< steps
    double worst = 0;        ///< in units of what is allowed for
    int rank = 0;            ///< with the worst row
  };
  void sum(GuardRows<B> a, const Index* column_of, const std::vector<Index>& pivot_row,
           Index columns_done, Range next, const double* panel, Index panel_ld);
  void check(GuardRows<B> a, Index steps);
  void look();

  Context<B>& context_;
  BlockCyclic rows_;
  Index n_, columns_, slots_, interval_;
  bool inverse_;
  double tolerance_;
  Buffer<double, B> w_, v_, weight_, more_, sum_, size_, largest_, worst_;
  PinnedBuffer<double> worst_host_, weight_host_;
  std::vector<double> all_v_;
  Event<B> known_;
  Index last_ = 0, seen_ = 0, due_ = 0;
  bool pending_ = false, confirmed_ = false;
  double allowed_ = 1;             ///< for rounding that came back
  Suspicion suspicion_, tried_{};  ///< of this run; of the one before
};

}  // namespace terrace
