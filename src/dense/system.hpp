// What this folder is for: A^-1, or X with A X = B for any number of right-hand sides, of any
// scale, with determinant, condition, residual and the guard. Callers need no more than this.
//
//   DenseSystem<B> system(context, plan_dense<B>(ranks, n, request), read_a, read_b);
//   system.read();                       // once more for every second try
//   outcome = system.solve(progress);
//   ratio = system.check(progress);      // against the input read again
//   ... system.rows(), system.destination()
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "src/dense/check.hpp"
#include "src/dense/elimination.hpp"
#include "src/dense/float_elimination.hpp"
#include "src/dense/refine.hpp"
#include "src/dense/scale.hpp"
#include "src/dense/textbook.hpp"
#include "src/frame/kept_input.hpp"

namespace terrace::dense {

/// What is asked for; the names are those of the options.
struct DenseRequest {
  /// Of an inverse "gauss-jordan" or "textbook", of a solution "lu", "gauss-jordan" or "cramer";
  /// empty: Gauss-Jordan for an inverse and with emulated products, otherwise LU.
  std::string method;
  bool inverse = true;
  Index right = 0;      ///< right-hand sides
  bool factor = false;  ///< L and U, not an inverse and not a solution
  bool stored = false;  ///< a solution, or a factor, with L and U of before
  Index room = 0;       ///< of a factor: right-hand sides that solve_again() takes at once
  // Of Gauss-Jordan and LU, as for plan_elimination().
  Index block = 0;
  std::string pivoting = "auto";
  bool emulated = false, guard = false;
  int moduli = accurate_moduli;  ///< of emulated
  bool mixed = false;        ///< of LU's solution: in low precision, refined; src/dense/refine.hpp
  bool condition = true;     ///< reciprocal_condition() is asked for, of a solution
  bool exact_check = false;  ///< of an inverse of any order
  Word seed = 1;             ///< of the vectors of a check that is not exact
  Index grid = 0, threads = 0;  ///< of the textbook's launches; 0: not given
};

/// What was chosen, known before anything is read. Columns right of A, but for the textbook's:
///
///   | B | probes of the condition | check sums |     B: of a factor, one column for its check
struct DensePlan : EliminationPlan {
  std::string method;  ///< "gauss-jordan", "lu", "textbook" or "cramer"
  Index rhs = 0, probes = 0;
  bool factor = false, stored = false;
  bool mixed = false;
  Index float_block = 0;  ///< mixed: of FloatElimination, on one GPU; 0: RowElimination's
  bool exact_check = false;
  Word seed = 1;
  textbook::Launch launch;
  std::string note;  ///< for people: something else would be faster
  /// Of an inverse 2 n^3.
  [[nodiscard]] double flops() const;
  /// On the host beside `bytes`.
  [[nodiscard]] Index host_bytes() const;
};
/// Of an LU plan: memory for its update in low precision, and for A in FP64 beside the factor.
template <class B>
void keep_doubles(EliminationPlan& plan);
/// Throws agreed Error(usage).
template <class B>
DensePlan plan_dense(int ranks, Index n, const DenseRequest& request);

/// L and U with P (2^power A) = L U, row j being row rows[j] of that, as `dense factor` stores them.
struct StoredFactor {
  RowReader read;           ///< L below the diagonal, U from there on
  std::vector<Index> rows;  ///< P
  Index power = 0;
  double norm = 0;                 ///< of 2^power A, infinity norm
  double log_abs_determinant = 0;  ///< of A
  int determinant_sign = 1;
};

/// An inverse or a solution by Gauss-Jordan elimination, LU or the textbook's. All members are
/// collective but those that are const.
template <class B>
class DenseSystem {
 public:
  DenseSystem(Context<B>& context, const DensePlan& plan, RowReader a, RowReader b = {});
  /// With factors of before; `a` is for the check, `b` of a solution.
  DenseSystem(Context<B>& context, const DensePlan& plan, RowReader a, RowReader b,
              StoredFactor factor);

  /// Before read(): A may be kept, if it can be read again so; `where` is for messages.
  void keep(io::Rereader reread, std::string where) {
    reread_ = std::move(reread);
    where_ = std::move(where);
  }
  /// Before read(): called by it on all ranks where A or B has NaN or Inf, and throws; of readers
  /// that do not refuse them.
  void refuse(std::function<void()> not_finite) { refuse_ = std::move(not_finite); }
  /// Takes all memory, where it has none; then A and B, near one by powers of two that change no
  /// bit of the result.
  void read();
  /// The determinant is A's. With the guard what looks wrong is read and solved again: agreed
  /// Error(fault) where memory was to blame. progress.checkpoints are written and continued.
  /// `stages`: of a mixed solution.
  EliminationOutcome solve(Progress& progress, const StageTimes<B>& stages = {});
  /// Of emulated products, after solve(): those that gave the result. With fewer than accurate_moduli
  /// asked for, a result whose residual ratio is 1 or more was made again with these.
  [[nodiscard]] int moduli() const { return moduli_; }
  /// Of a mixed solution, after solve(): where it did not converge, that is FP64's, and so is the
  /// determinant; else the determinant is none.
  [[nodiscard]] const Refinement& refinement() const { return refinement_; }
  /// After solve() of a factor: X with A X = B, for `right` <= plan.room columns; rows() and check()
  /// are X's from then on. reciprocal_condition() is asked for before.
  EliminationOutcome solve_again(Index right, RowReader b);
  /// 1 / (||A|| ||A^-1||): in 1-norms from an inverse, in infinity norms, the second within a
  /// factor of about five, from a solution.
  double reciprocal_condition();
  /// LAPACK's ratio, good up to residual_limit; `seen` takes what an inverse has. With the guard
  /// what is worse is read and solved once more, as in solve().
  double check(Progress& progress, const std::function<void(const InverseResidual&)>& seen = {});

  /// What describes a factor; its numbers are rows(). The same on all ranks.
  [[nodiscard]] StoredFactor factor(const EliminationOutcome& found) const;
  /// This rank's rows of the result, and the row of it that each is.
  [[nodiscard]] RowSource rows() const;
  /// Of a factor: its rows, whatever was solved with it.
  [[nodiscard]] RowSource factor_rows() const { return {stored(0, plan_.n), true}; }
  [[nodiscard]] std::span<const Index> destination() const { return held().destination; }
  /// Where X begins, in rows as rows() has them; after read(), for tests.
  [[nodiscard]] View<double, B> solution() const {
    const View<double, B> all = held().data;
    return all.slice(std::min(plan_.n, all.size), std::max<Index>(0, all.size - plan_.n));
  }

 private:
  [[nodiscard]] bool is_accepted(const EliminationOutcome& found);
  [[nodiscard]] InverseRows<B> held() const;
  [[nodiscard]] io::Source<double> stored(Index from, Index columns) const;
  void load(Index from, Index columns, const RowReader& read, ColumnSizes* sizes = nullptr);
  void scale(Index from, const Powers& powers);
  void scale(Index rows, View<double, B> columns, Index ld, const Powers& powers);
  void put_probes();
  [[nodiscard]] View<double, B> probes() const;
  void keep_matrix();
  void read_stored();
  /// Columns from n on := the row of B that belongs to each row of L and U; powers_ is of both.
  void load_factored(Index power);
  /// The row of A that became this slot's of L and U.
  [[nodiscard]] Index row_of_factor(Index slot) const;
  /// Column n := a right-hand side for the check of a factor.
  void put_test(bool factored);
  bool settles();
  EliminationOutcome solve_mixed(Progress& progress, const StageTimes<B>& stages);
  EliminationOutcome try_low(const std::vector<double>& b, Progress& progress,
                             const StageTimes<B>& stages);
  Refinement refine(const std::vector<double>& b, std::vector<double> all);
  std::vector<double> solved_by_rows(Index columns, const std::vector<double>& r);
  double residual(const std::function<void(const InverseResidual&)>& seen);

  Context<B>& context_;
  DensePlan plan_;
  RowReader a_, b_;
  std::function<void()> refuse_;
  io::Rereader reread_;
  std::string where_;
  KeptInput<B> kept_;    ///< A, as powers_ have made it
  Index first_, width_;  ///< columns of the result
  bool again_ = false;   ///< which is a solution with the factor
  std::optional<RowElimination<B>> jordan_;
  std::optional<TextbookInverse<B>> textbook_;
  std::optional<StoredFactor> stored_;
  SystemPowers powers_;
  double norm_a_ = 0;
  // Of a mixed solution: A, as powers_ have made it, or, where jordan_ has it still, its factor.
  Buffer<double, B> doubles_;
  std::optional<FloatElimination<B>> floats_;
  Refinement refinement_;
  // Of emulated products: which gave the result, and, where it was asked then, its residual.
  int moduli_ = accurate_moduli;
  std::optional<double> ratio_;
  std::optional<InverseResidual> seen_;
};

}  // namespace terrace::dense
