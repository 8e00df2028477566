// Elimination of [A | B] on row slices: Gauss-Jordan's for an inverse in place or a solution,
// Gauss's (LU) for a solution or the factors; and the determinant.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "distrib/context.hpp"
#include "distrib/layout.hpp"
#include "kernels/dense/dense.hpp"
#include "src/dense/guard.hpp"
#include "src/frame/checkpoints.hpp"
#include "src/frame/progress.hpp"
#include "src/frame/stages.hpp"

namespace terrace::dense {

enum class Pivoting { partial, tournament };

/// Moduli of emulated products; with accurate_moduli errors are those of FP64's.
constexpr int accurate_moduli = 14, fewest_moduli = 12;
/// Fewer need `emulated`. Throws agreed Error(usage).
void check_moduli(int moduli, bool emulated);

/// Choices and memory of one elimination, known before anything is read.
struct EliminationPlan {
  Index n = 0, right = 0;  ///< order, and columns right of A
  Index columns = 0;       ///< n + right, and some of zeros that align the rows
  Index room = 0;          ///< columns right of A that solve_factored() may take
  bool inverse = true;     ///< update all columns; otherwise only those right of the panel
  bool lu = false;         ///< of a solution: pivot rows rest, and U is solved with at the end
  bool keep = false;       ///< and L is kept left of it: factors() and solve_factored()
  bool low = false;        ///< of LU: the update in low precision; kernels/dense/low.hpp
  Index block = 1;
  Pivoting pivoting = Pivoting::partial;
  bool gathered = false;  ///< of partial: one of several devices gets all rows of a panel
  BlockCyclic rows;       ///< blocks of `block` rows; of a leaf's rows for the host's tournament
  Index ld = 0;           ///< of the local rows
  Index bytes = 0;        ///< on the backend, of the rank with most rows
  std::string why_block, why_pivoting;
  /// Of a panel's rows on their way to other ranks: in the elimination, and in solve_factored().
  [[nodiscard]] Index sent_columns() const { return std::max(columns, block + room); }
  /// The update by products of integers (kernels/dense/emulated.hpp), as accurate as in FP64; CUDA
  /// only.
  bool emulated = false;
  int moduli = accurate_moduli;  ///< of emulated: with fewer, for whom a residual decides
  bool guard =
      false;  ///< the last of the columns right of A is for check sums; src/dense/guard.hpp
  Index guard_interval = 0;  ///< panels from a check to the next; 0: so that they cost little
};
/// `block` 0 and `pivoting` "auto" are chosen here; `room` is `right` at least. Throws agreed
/// Error(usage).
template <class B>
EliminationPlan plan_elimination(int ranks, Index n, Index right, bool inverse, Index block,
                                 const std::string& pivoting, bool emulated = false,
                                 bool lu = false, Index room = 0);

/// LU whose L is kept: adds the memory. `low`: with the update in low precision too.
template <class B>
void keep_lower(EliminationPlan& plan, bool low);

/// The emulated products of a plan on `slots` rows: with some columns at a time, as accurate as in
/// FP64 (measured: largest error 1.5 eps |n_i| |y_j|, DGEMM's 2.9).
emulated::Shape shape_of_products(const EliminationPlan& plan, Index slots);
/// Their memory, enough for accurate_moduli.
template <class B>
Index products_bytes(const EliminationPlan& plan, Index slots);

/// What the elimination found; the same on all ranks.
struct [[nodiscard]] EliminationOutcome {
  Index bad_column = -1;  ///< first column without a usable pivot, or -1
  bool overflow = false;  ///< something is not finite
  double log_abs_determinant = 0;
  int determinant_sign = 1;
  [[nodiscard]] bool good() const { return bad_column < 0 && !overflow; }
};

/// The rows of a rank, with all memory that the elimination needs.
///
/// Row `destination()[slot]` of the result stands in `slot`. After an inversion columns [0, n) are
/// those rows of A^-1, after a solve columns [n, n + right) those rows of X; with `lu` columns [0, n)
/// are those rows of U and its diagonal (left of it L, where it is kept).
/// 2 n^3 flops for an inverse, n^3 + 2 n^2 right for a solve, 2/3 n^3 + 2 n^2 right for one by LU,
/// over all ranks; each rank sends and receives every row once as a pivot row, 8 n (n + right) bytes.
///
/// Gauss-Jordan never moves a row. By LU a rank's rows change places among themselves
/// (kernels/dense/lu.hpp): global_row_ moves with them.
template <class B>
class RowElimination {
 public:
  /// Collective: takes all memory.
  RowElimination(Context<B>& context, const EliminationPlan& plan);

  /// Local rows, to be filled before run() by global row; row-major with ld().
  [[nodiscard]] View<double, B> data() const { return a_.view(); }
  [[nodiscard]] Index ld() const { return plan_.ld; }
  [[nodiscard]] Index slots() const { return slots_; }
  [[nodiscard]] const EliminationPlan& plan() const { return plan_; }
  [[nodiscard]] const dense::Rows<B>& rows() const { return rows_; }
  /// Number in the result of every slot's row; after run().
  [[nodiscard]] const std::vector<Index>& destination() const { return destination_; }

  /// Collective. Overwrites data().
  EliminationOutcome run(Progress& progress, const StageTimes<B>& stages = {});
  /// Of a plan with `emulated`, at most accurate_moduli.
  void set_moduli(int moduli) { plan_.moduli = moduli; }
  /// Of a plan with `low`: whether run() is so, or in FP64.
  void set_low(bool low) { plan_.low = low; }
  /// run(), for plans with a guard too: what it suspects, and a matrix without an inverse, is done
  /// again after `load` has filled data() again; throws agreed Error(fault) where memory was to
  /// blame. Progress has checkpoints in the first run only.
  EliminationOutcome run_guarded(Progress& progress, const std::function<void()>& load);

  /// Row of A that became row j of L and U; after run().
  [[nodiscard]] const std::vector<Index>& pivot_rows() const { return pivot_row_; }
  /// In place of run(), with `lu`: data() has L and U, row j where plan().rows has row j. Collective.
  void adopt_factors();
  /// Columns [n, n + right) := those of X with A X = B, where the row of slot s is that of B which
  /// pivot_rows() has for destination()[s]; right <= plan().room. After adopt_factors(), or a run()
  /// that kept L. 2 n^2 right flops. Collective.
  EliminationOutcome solve_factored(Index right);

  // Elimination of panel k; see src/frame/eliminate.hpp.
  static constexpr bool share_after_update = true, next_ahead = true;
  [[nodiscard]] Index steps() const { return ceil_div(plan_.n, plan_.block); }
  void choose(const Stream<B>& lane, Index k);
  bool stop(Index k);
  void share(const Stream<B>& lane, Index k);
  void update_next(const Stream<B>& lane, Index k);
  void update_rest(const Stream<B>& lane, Index k);
  void begin_guard();
  void guard(const Stream<B>& lane, Index k);
  void end_guard();
  void archive(Archive& archive, Index k);

 private:
  /// The rows that panel k meets: all, or, by LU, those that do not rest, from a multiple of
  /// row_grain on.
  [[nodiscard]] dense::Rows<B> met(Index k) const;
  [[nodiscard]] Index base(Index k) const;
  /// Panel k's update of columns [c0, c1), as the plan wants it.
  void update(const Stream<B>& lane, Index k, Index c0, Index c1);
  /// LU: panel k's pivot rows come to rest; on this rank they are `pivots`, slots of met(k).
  void retire(const Stream<B>& lane, Index k, View<const Index, B> pivots);
  /// LU: what moves_of() says, for the host.
  void note_moves(Index k, const std::vector<Index>& pivots);
  void begin_lu(const Stream<B>& lane);
  void solve_upper(const Stream<B>& lane, Index right);
  /// Where the rows of every panel are, for substitute() on several ranks.
  void list_panels(const Stream<B>& lane);
  /// Panel k's rows of X, and what they mean for the rows below (of L) or above (of U).
  void substitute(const Stream<B>& lane, Index k, Index right, bool lower);
  void substitute_alone(const Stream<B>& lane, Index k, Index right, bool lower);
  [[nodiscard]] dense::Rows<B> other_rows(Index k, Index right, bool below) const;
  /// Whether columns [begin, end) are infinite somewhere.
  [[nodiscard]] bool has_overflow(const Stream<B>& lane, Index begin, Index end) const;
  /// LU: rows and their columns as they lay at first, to or from a checkpoint before panel k.
  void archive_rows(const Stream<B>& lane, Archive& archive, Index k);
  /// Rows that rest to the top, in the order of their columns.
  void sort_rows(const Stream<B>& lane, const std::vector<Index>& column, Index k);
  [[nodiscard]] Index slot_of(Index row) const {
    const Index slot = plan_.rows.slot(row);
    return plan_.lu ? place_[std::size_t(slot)] : slot;
  }
  [[nodiscard]] dense::Panel<B> panel(Index k) const;
  /// First column that panel k's update reads and writes.
  [[nodiscard]] Index from(Index k) const;
  /// No host between panels; see dense::is_direct().
  [[nodiscard]] bool direct() const {
    return dense::is_direct(B{}) && context_.size() == 1 && plan_.pivoting == Pivoting::partial;
  }
  /// L^-1 times the pivot rows.
  [[nodiscard]] View<double, B> y() const {
    return separate_y_ ? other_rows_.view() : pivot_rows_.view();
  }
  /// Pivots and determinant of the panels before `end` from their summaries.
  void note_panels(Index end);
  void note_panel(Index k);
  void choose_partial(const Stream<B>& lane, const dense::Rows<B>& rows,
                      const dense::Panel<B>& panel);
  void choose_tournament(const Stream<B>& lane, const dense::Rows<B>& rows,
                         const dense::Panel<B>& panel);
  void choose_gathered(const Stream<B>& lane, const dense::Rows<B>& rows,
                       const dense::Panel<B>& panel, Index k);
  [[nodiscard]] std::vector<Index> list_sent_rows(Index k);
  void factor_for_all(const Stream<B>& lane, const dense::Rows<B>& part,
                      const dense::Panel<B>& panel, const std::vector<Index>& at);

  Context<B>& context_;
  EliminationPlan plan_;
  Index slots_ = 0;
  bool separate_y_ = false;
  dense::Rows<B> rows_;
  Buffer<double, B> a_, lu_, summary_, work_, record_, records_, pivot_rows_, other_rows_, kept_;
  std::array<Buffer<double, B>, 2> n_;  // of even and odd panels
  Buffer<std::byte, B> integers_;       // of emulated products, and of those in low precision
  Buffer<Index, B> global_row_, column_of_, pivots_, info_, list_;
  // LU: 0, 1 ... (direct: pivots are slots), at the end a list; what retire_rows() wants; of every
  // panel, this rank's rows that rest before it; of every first slot, where its row is; of every
  // slot, its row's first one.
  Buffer<Index, B> numbers_, moves_;
  std::vector<Index> resting_, place_, origin_;
  // Gathered panels. This rank's rows of the panel, and what becomes of their column_of. On rank 0 the
  // columns of all ranks' such rows, as they stand in the panel; where each comes from, its global row,
  // its column_of before, and after. The column of each row of A that was the pivot row of one before
  // counted_.
  Buffer<double, B> gathered_;
  Buffer<Index, B> sent_, sent_by_all_;
  PinnedBuffer<Index> sent_host_;
  std::vector<Index> column_of_row_;
  Index counted_ = 0;
  PinnedBuffer<double> summary_host_;  // of all panels
  PinnedBuffer<Index> list_host_;
  std::array<Event<B>, 4> known_;               // summary of panel k is on the host
  std::vector<Index> pivot_row_, destination_;  // p(j), on all ranks; of this rank's slots
  EliminationOutcome outcome_;
  Index first_ = 0, noted_ = 0;  // panel that this run begins with; panels that the host knows
  std::unique_ptr<DenseGuard<B>> guard_;
  /// Before panel k.
  [[nodiscard]] GuardedRows<B> guarded_rows(Index k) const {
    return {{a_.data(), slots_, plan_.ld}, plan_.lu ? resting_[std::size_t(k)] : 0};
  }
};

}  // namespace terrace::dense
