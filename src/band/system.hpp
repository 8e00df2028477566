// What this folder is for: A X = B, or the Cholesky factor of A, with a symmetric positive definite
// band matrix that is read from where it lies, by whichever way src/band/plan.hpp chooses: in memory
// of the backend or streamed. What gives up goes on another way; what the guard doubts is done once
// more. Callers need no more.
//
//   auto x = solve_band<Cpu>(context, system, request, plan_system<Cpu>(system, request), progress);
//   if (x->failure.minor == 0) x->finish(), use(x->ranges, x->rows);
#pragma once
#include <memory>

#include "src/band/hybrid.hpp"
#include "src/band/plan.hpp"

namespace terrace::band {

/// A residual, scaled as LAPACK's testers do, that is good.
inline constexpr double kBandPass = 30.0;

/// Where the numbers come from, and what is asked for beside the request.
struct BandSystem {
  BandReader matrix, factor;  ///< the factor: LAPACK's, stored; or none
  io::Rereader reread;        ///< of the matrix, for its check; or none
  std::string where;          ///< it lies, for messages
  ReadRanges rhs;             ///< its rows; none: the factor of the matrix is wanted
  /// Of one rank: B itself, without gaps, in memory of the backend; read in place of `rhs`, which the
  /// check asks. Null: none.
  const double* rhs_at = nullptr;
  BandPlaces places;
  std::string scratch;  ///< folder for a streamed factor; none: host memory, if that has room,
  std::string folder;   ///< and this folder, if it has not
  bool guard = false;   ///< what fails has to fail twice
  Index more = 0;       ///< right-hand sides of solve_more(), if it will be called
  Word seed = 1;        ///< of the check of a factor
};

struct BandFailure {
  Index minor = 0;          ///< not definite, or the row whose pivot is out of range; 0: none
  bool unscalable = false;  ///< the latter, and the entries are too far apart for one scale
  bool passing = false;     ///< it did not fail twice
};

struct BandNotes {
  Index parts = 0;     ///< ends, of a streamed band
  double reading = 0;  ///< seconds in which it was read beside the work, in the last try
  // Of mixed precision.
  bool factored = false;
  MixedResult found;
  double shift = 0, condition = 0;
};

/// Calls on the way, on every rank.
struct BandHooks {
  std::function<void(const std::string& name, const std::function<void()>& work)> phase =
      [](const auto&, const auto& work) { work(); };
  /// `failed` gave up, `now` has taken no memory yet; its note says why.
  std::function<void(const BandPlan& failed, const BandNotes&, const BandPlan& now)> instead =
      [](const auto&, const auto&, const auto&) {};
  /// Of a streamed band's further tries.
  std::function<void(const std::string& text)> note = [](const auto&) {};
};

/// Bytes of the rank with most: beside the memory of the backend, and on it.
struct BandBytes {
  Index host = 0, backend = 0, check = 0;  ///< the last two apart
};
template <class B>
BandBytes band_bytes(const BandPlan& plan, const BandSystem& system, Index nrhs, bool check);

/// Method, parts and width for the system. Throws agreed usage errors.
template <class B>
BandPlan plan_system(const BandSystem& system, const BandRequest& request);

/// What solve_band() leaves, with the memory of its way. All members are collective.
template <class B>
class BandResult {
 public:
  explicit BandResult(BandPlan chosen) : plan(std::move(chosen)) {}
  BandResult(const BandResult&) = delete;
  BandResult& operator=(const BandResult&) = delete;
  virtual ~BandResult() = default;

  /// rows := X. A phase "condition" in mixed precision; "guard" where the guard has sums and no
  /// check will ask them.
  virtual void finish() = 0;
  /// As band_residual(), or band_factor_residual(), of what finish() left; all is read again.
  virtual double residual(double* reciprocal = nullptr) = 0;
  /// With the guard, after a residual that is too large. First its sums, which throw Error(fault)
  /// if memory is to blame; false: this way has none.
  virtual bool verify() { return false; }
  /// Then all once more, finish() too. False, perhaps with `failure`: it cannot.
  virtual bool again() { return false; }
  /// log |det A|, by the factor that the solve used. In mixed precision an estimate, whose standard
  /// error is added to `error`; all others are exact up to rounding.
  virtual double log_determinant(double* error = nullptr) = 0;
  /// more := A^-1 more, by the factor that the solve used: this rank's `ranges`, `nrhs` numbers per
  /// row. Takes memory. False: this way has no such factor (mixed precision, a window).
  virtual bool solve_more(std::vector<double>& more, Index nrhs) { return false; }
  /// X for other right-hand sides, those of system.rhs or rhs_at and request.nrhs as they are now, by
  /// the same factor; finish() and the rest may follow. Takes memory. False: this way has no such factor.
  virtual bool solve_again() { return false; }
  /// to := X of one rank, without gaps, in memory of the backend. False: X is in `rows` alone.
  virtual bool place(double* to) const { return false; }
  /// First `height` entries of `count` columns of the factor, from the `position`-th of `ranges` on.
  virtual void copy_factor(Index position, Index count, Index height, double* out) const {}

  const BandPlan plan;
  BandFailure failure;
  BandNotes notes;
  std::vector<Range> ranges;  ///< of this rank: rows of X, or columns of the factor
  /// X, nrhs numbers per row; zero behind row n. Empty with system.rhs_at, where place() gives X.
  std::vector<double> rows;
};

/// Reads and solves, in the phases "read" and "solve", by `plan`, a plan_system() of the request;
/// where that gives up by plan_instead(). Takes memory. progress.checkpoints are written and
/// continued. A matrix that is not definite is a result. All but `plan` and `hooks` have to outlive
/// what is returned. Collective.
template <class B>
std::unique_ptr<BandResult<B>> solve_band(Context<B>& context, const BandSystem& system,
                                          const BandRequest& request, BandPlan plan,
                                          Progress& progress, const BandHooks& hooks = {});

}  // namespace terrace::band
