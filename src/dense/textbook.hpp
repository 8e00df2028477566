// The textbook's inversion, column by column, on one rank: what the default method is held against.
#pragma once
#include <vector>

#include "distrib/context.hpp"
#include "distrib/layout.hpp"
#include "kernels/dense/textbook.hpp"
#include "src/dense/elimination.hpp"
#include "src/frame/progress.hpp"

namespace terrace::dense {

/// Memory of one inversion, known before anything is read.
struct TextbookPlan {
  Index n = 0;
  textbook::Launch launch;
  BlockCyclic rows;  ///< all on one rank
  Index bytes = 0;   ///< on the backend
};
TextbookPlan plan_textbook(Index n, textbook::Launch launch);

/// Throw agreed Error(usage) for options that do not go together. `launch_given`: --grid or
/// --threads.
void check_textbook_options(int ranks, bool is_textbook, Index block, const std::string& pivoting,
                            bool launch_given);
/// 0: not given. The CPU backend launches nothing.
template <class B>
textbook::Launch launch_of(Index grid, Index threads);

/// [A | I] to [I | A^-1] by partial pivoting with exchanged rows, forward and backward sweep, one
/// launch per step and about 6 n launches; 16 n^2 bytes. The members are those of RowElimination, and
/// row i of the result stands in slot i.
template <class B>
class TextbookInverse {
 public:
  /// Takes all memory. One rank: throws Error(usage) on more.
  TextbookInverse(Context<B>& context, const TextbookPlan& plan);

  /// A before run(), n x n; A^-1 after it.
  [[nodiscard]] View<double, B> data() const { return done_ ? x_.view() : a_.view(); }
  [[nodiscard]] Index ld() const { return plan_.n; }
  [[nodiscard]] Index slots() const { return plan_.n; }
  [[nodiscard]] const TextbookPlan& plan() const { return plan_; }
  [[nodiscard]] const std::vector<Index>& destination() const { return destination_; }

  /// Waits for the device once, at the end. The first column whose largest candidate is zero is
  /// singular, as for LAPACK's getrf.
  EliminationOutcome run(Progress& progress);
  /// data() is A's memory again, for another matrix.
  void reset() { done_ = false; }

 private:
  Context<B>& context_;
  TextbookPlan plan_;
  Buffer<double, B> a_, x_, pivot_;
  Buffer<Index, B> pivot_row_, info_;
  std::vector<double> pivot_host_;
  std::vector<Index> pivot_row_host_, destination_;
  bool done_ = false;
};

}  // namespace terrace::dense
