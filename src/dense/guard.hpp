// --guard: check sums carried through a Gauss-Jordan elimination, so that a bit that flips in
// memory ends the run before the answer is there. Huang and Abraham 1984, for Gaussian elimination;
// with random weights, so that no pattern of errors is invisible.
//
// The sums are columns of the matrix and take part in every row operation. Every few panels the
// rows are multiplied by the weights again and compared. Nothing waits: the verdict of a check is
// read when the next one begins.
#pragma once
#include <vector>

#include "distrib/context.hpp"
#include "distrib/layout.hpp"
#include "kernels/dense/guard.hpp"

namespace terrace::dense {

/// By LU the first `resting` slots are rows of U.
template <class B>
struct GuardedRows : GuardRows<B> {
  Index resting = 0;
};
/// Columns that stand apart from the rows, by columns `ld` apart: of slots from `slot` on.
template <class B>
struct GuardPanel {
  Range columns{};
  const double* data = nullptr;  ///< null: none do
  Index ld = 0, slot = 0;
};

/// One more column of the rows of Gauss-Jordan elimination, its last: c = A w + v for random w and
/// v, after any steps T
///
///   c = (T A) w + T v,   stored column j of the pivot in row p(j):  T[:, p(j)], times v[p(j)]
///                        the pivot's own row:                       a one in column j, times w[j]
///
/// (v = 0 where only the columns to come are updated). By LU a row that rests has
///
///   c = (row of U) w,   from its own column on
///
/// The weights undo the scales of columns and
/// rows; what a row's numbers were at their largest bounds the rounding that is allowed for.
///
/// Growth within a panel is not seen, so a sum that is off is a suspicion, not a verdict: all is
/// done again with what is read again. Rounding is off by as much as before, and the bound follows
/// it from there on; a flip of a bit is not there any more.
template <class B>
class DenseGuard {
 public:
  /// Takes the memory. `rows`: global rows of this rank's slots.
  DenseGuard(Context<B>& context, BlockCyclic rows, Index n, Index columns, bool inverse, bool lu,
             Index interval);
  /// The check sums of the rows as they are, `done` panels being applied. Collective.
  void begin(const GuardedRows<B>& a, const Index* column_of, const std::vector<Index>& pivot_row,
             Index columns_done, Index done);
  /// Panel k is applied on both lanes, to columns that stand apart too. pivot_row[j] is known for
  /// j < columns_done on several ranks.
  void step(const GuardedRows<B>& a, const Index* column_of, const std::vector<Index>& pivot_row,
            Index columns_done, Index k, const GuardPanel<B>& apart);
  void finish(const GuardedRows<B>& a, const Index* column_of, const std::vector<Index>& pivot_row,
              Index columns_done, Index steps);

  /// What every slot's row was made of; goes with the rows.
  [[nodiscard]] View<double, B> sizes() const { return largest_.view(); }
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
  void sum(const GuardedRows<B>& a, const Index* column_of, const std::vector<Index>& pivot_row,
           Index columns_done, const GuardPanel<B>& apart);
  void sum_lu(const GuardedRows<B>& a, const Index* column_of, Index columns_done,
              const GuardPanel<B>& apart);
  void check(GuardRows<B> a, Index steps);
  void look();

  Context<B>& context_;
  BlockCyclic rows_;
  Index n_, columns_, slots_, interval_;
  bool inverse_, lu_;
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

}  // namespace terrace::dense
