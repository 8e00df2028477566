// What this folder is for: A x = b for any number of right-hand sides, with a preconditioner made,
// columns in lock step, the guard and checkpoints. Callers need no more than this.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/cg/chebyshev.hpp"
#include "src/cg/conjugate_gradients.hpp"
#include "src/cg/multigrid.hpp"
#include "src/cg/preconditioner.hpp"
#include "src/cg/reorder.hpp"
#include "src/frame/progress.hpp"

namespace terrace::cg {

/// What is asked for. Of CgOptions the numbers alone, and whether x is given, which it is not at first:
/// `jacobi` and the calls are set here.
struct CgRequest : CgOptions {
  CgRequest() { x_given = false; }

  CgMethod method = CgMethod::classic;
  std::string preconditioner =
      "none";          ///< jacobi, block-jacobi, ic, amg (no dense A), chebyshev, hypre
  Index block = 32;    ///< block-jacobi: rows of a block
  Index degree = 8;    ///< chebyshev: products
  Index at_once = 16;  ///< right-hand sides in lock step, at most
  RowOrder order;      ///< of A's rows, where b and x have another one
  const NearNullSpace* near_null_space = nullptr;  ///< amg: outlives the solve; null: constants

  /// Made for the matrix, and no diagonal.
  [[nodiscard]] bool general() const {
    return preconditioner != "none" && preconditioner != "jacobi";
  }
  /// So many right-hand sides may be solved together.
  [[nodiscard]] Index lock_step() const {
    const bool single = method != CgMethod::classic || general() || mixed;
    return single ? 1 : std::min(at_once, cg_most_columns);
  }
};

/// Calls on the way, on every rank; each may be empty.
struct CgHooks {
  /// The general preconditioner is made: these are its notes. One of them, the others are empty.
  std::function<void(const PreconditionerNotes&, const ChebyshevNotes&, const MultigridNotes&)>
      prepared;
  /// After each iteration of the columns that `what` names.
  std::function<void(const std::string& what, Index iteration, double residual)> observe;
};

template <class B, class A>
class CgPreconditioning;

/// A preconditioner between the solves with one operator: it is made anew where a request asks for
/// another one. It goes before the operator, and its context.
template <class B, class A>
class CgKept {
 public:
  CgKept();
  ~CgKept();
  CgKept(const CgKept&) = delete;
  CgKept& operator=(const CgKept&) = delete;
  /// What `request` asks for; `a` is normalised. Collective.
  CgPreconditioning<B, A>& get(const Context<B>& context, A& a, const CgRequest& request);
  /// A has other values in the same places: aggregates of multigrid stay, all else is made anew.
  void new_values() { stale_ = true; }
  /// Seconds of the last get().
  [[nodiscard]] double seconds() const { return seconds_; }

 private:
  std::unique_ptr<CgPreconditioning<B, A>> made_;
  std::string name_;
  Index block_ = 0, degree_ = 0;
  NearNullSpace near_null_space_;
  bool stale_ = false;
  double seconds_ = 0;
};

struct CgSolution {
  std::vector<CgResult> results;  ///< one per right-hand side, positions in the caller's order
  int power = 0;     ///< their coefficients are those of eigenvalues 2^-power times the caller's
  double bytes = 0;  ///< read and written by one iteration of one column, on all ranks
  double setup = 0;  ///< seconds to make the preconditioner; 0: it was kept, or there is none
  Range own;         ///< rows of x of this rank alone: x stands whole on each for a triangle
};

/// Solves A X = B from the X given, the caller's rows of each on the host, row-major, `nrhs` columns:
/// a.rows(), or those of request.order.
/// Normalises A. A preconditioner that may not be used is a result. With request.guard neither A
/// nor what is made of it may change: an agreed Error(fault). progress.checkpoints are written and
/// continued. Takes memory. `kept`: the preconditioner is looked for there, and left there. Collective.
template <class B, class A>
CgSolution solve_system(const Context<B>& context, A& a, const CgRequest& request, Index nrhs,
                        std::vector<double> b, std::vector<double>& x, Progress& progress,
                        const CgHooks& hooks = {}, CgKept<B, A>* kept = nullptr);
/// The same without request.order, where they lie: `there` without checkpoints. They are not the same
/// memory.
template <class B, class A>
CgSolution solve_system(const Context<B>& context, A& a, const CgRequest& request, Index nrhs,
                        const CgRows<const double>& b, const CgRows<double>& x, Progress& progress,
                        const CgHooks& hooks = {}, CgKept<B, A>* kept = nullptr);

}  // namespace terrace::cg
