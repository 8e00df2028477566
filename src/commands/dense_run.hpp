// What dense invert and dense solve do alike.
#pragma once
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/parallel.hpp"
#include "src/commands/dense_scale.hpp"
#include "src/dense/check.hpp"
#include "src/dense/gauss_jordan.hpp"
#include "src/frame/guard.hpp"
#include "src/program/conduct.hpp"
#include "src/program/register.hpp"

namespace terrace {

struct DenseOptions {
  std::string matrix, rhs, pivoting = "auto";
  Index grid = 0, threads = 0;  ///< launches of the textbook's method; 0: not given
};

// Host memory for reading, writing and checking.
inline constexpr Index dense_staging_bytes = Index(192) << 20;

inline RowReader reader(const Control& control, const io::DenseInput& input) {
  return [&control, &input](std::span<const Range> ranges, const io::Sink<double>& sink) {
    input.read(control, ranges, sink);
  };
}

/// As plan_jordan(), with the choices of a run that is continued.
template <class B>
JordanPlan plan_dense(Run& run, Index n, Index right, bool inverse, const DenseOptions& options) {
  std::string pivoting = options.pivoting;
  run.adopt("pivoting", pivoting, std::string("auto"));
  run.adopt("block", run.options.block, Index(0));
  if (const nlohmann::json from = run.restart_settings(); from.is_object()) {
    const bool kept = from.value("guard", false);  // a run that is continued keeps its check sums
    if (run.options.guard && !kept)
      run.say("--guard has no effect: the checkpoint was written without it");
    run.options.guard = kept;
  }
  JordanPlan plan =
      plan_jordan<B>(run.control.size(), n, right + (run.options.guard ? 1 : 0), inverse,
                     run.options.block, pivoting, run.options.precision == "emulated");
  plan.guard = run.options.guard;
  run.settings = {{"block", plan.block},
                  {"guard", plan.guard},
                  {"pivoting", plan.pivoting == Pivoting::partial ? "partial" : "tournament"},
                  {"precision", run.options.precision}};
  return plan;
}

/// Into the report, with a note where several GPUs do not help.
template <class B>
void note_plan(Run& run, const JordanPlan& plan) {
  run.report["n"] = plan.n;
  run.report["method"] = "gauss-jordan";
  run.report["block"] = plan.block;
  run.report["pivoting"] = plan.pivoting == Pivoting::partial ? "partial" : "tournament";
  run.report["precision"] = plan.emulated ? "emulated" : "fp64";
  run.report["memory_per_rank"] = plan.bytes;
  // Measured on one and two H200: even at n = 12,000.
  if (!std::is_same_v<B, Cpu> && plan.rows.ranks > 1 && plan.n <= 10240) {
    const char* const note = "one GPU is faster than several at this order; start one rank";
    run.report["note"] = note;
    run.say(std::string("note       ") + note);
  }
}

/// What a rank takes: `bytes` on the backend, and for reading, writing and checking of `elements`.
template <class B>
RankMemory staged_memory(Index elements, Index bytes) {
  const Index staging = std::min<Index>(dense_staging_bytes, 8 * elements + (1 << 20));
  return std::is_same_v<B, Cpu> ? RankMemory{bytes + staging, 0} : RankMemory{staging, bytes};
}
template <class B>
RankMemory jordan_memory(const JordanPlan& plan) {
  return staged_memory<B>(plan.n * (plan.n + plan.right), plan.bytes);
}

template <class B>
Work jordan_work(const Context<B>& context, const JordanPlan& plan, bool check) {
  DenseWork work{machine_of(context), "gauss-jordan", plan.n, plan.right, plan.block, plan.inverse};
  work.tournament = plan.pivoting == Pivoting::tournament;
  work.emulated = plan.emulated;
  work.check = check;
  return dense_work(work);
}

/// Lines of --plan.
inline void describe_plan(Run& run, const JordanPlan& plan) {
  run.say(fmt::format("method     gauss-jordan, in place: {:.4g} flops over {} ranks",
                      (plan.inverse ? 2.0 : 1.0) * std::pow(double(plan.n), 3) +
                          2.0 * double(plan.n) * double(plan.n) * double(plan.right),
                      plan.rows.ranks));
  run.say(fmt::format("block      {} ({})", plan.block, plan.why_block));
  run.say(fmt::format("pivoting   {} ({})",
                      plan.pivoting == Pivoting::partial ? "partial" : "tournament",
                      plan.why_pivoting));
  if (plan.emulated)
    run.say("precision  emulated (asked for): the update by products of 8-bit integers, 14 moduli");
  run.report["result"]["plan"] = {{"bytes_per_rank", plan.bytes},
                                  {"method", "gauss-jordan"},
                                  {"block", plan.block},
                                  {"why_block", plan.why_block},
                                  {"why_pivoting", plan.why_pivoting}};
}

/// `pivoting`: as it was asked for.
template <class B>
PlanNeeds jordan_needs(const Run& run, const JordanPlan& plan, const std::string& pivoting) {
  const auto as_if = [=, block = run.options.block]<class D>(D, int ranks, bool emulated) {
    return jordan_memory<D>(
        plan_jordan<D>(ranks, plan.n, plan.right, plan.inverse, block, pivoting, emulated));
  };
  PlanNeeds needs;
  needs.memory = [=](int ranks) {
    return ranks == plan.rows.ranks ? jordan_memory<B>(plan) : as_if(B{}, ranks, plan.emulated);
  };
  if (plan.emulated)
    needs.alternatives.push_back(
        {"without --precision emulated", [=] { return as_if(B{}, plan.rows.ranks, false); }});
  if (!std::is_same_v<B, Cpu>)
    needs.alternatives.push_back(
        {"with --backend cpu", [=] { return as_if(Cpu{}, plan.rows.ranks, false); }});
  return needs;
}

/// Rows of this rank from `read`, at column `from` of the solver's rows.
template <class B, class Solver>
void load(Context<B>& context, const Solver& solver, Index from, Index columns,
          const RowReader& read, InputSizes& sizes) {
  const std::vector<Range> ranges = solver.plan().rows.ranges(context.rank());
  read(ranges, [&](Index position, Index count, const double* rows) {
    copy_rows<double>(context.ahead, solver.data().data + position * solver.ld() + from,
                      solver.ld(), rows, columns, columns, count);
    sizes.take(count, rows);
    context.ahead.synchronize();
  });
}

/// The outcomes of the elimination that are not results.
inline void require_regular(Run& run, const JordanOutcome& found) {
  if (found.overflow)
    run.outcome("overflow",
                found.bad_column >= 0
                    ? fmt::format("the elimination overflowed; column {}; scale the matrix",
                                  found.bad_column)
                    : std::string("the result has elements that are not finite; the matrix is "
                                  "singular to working precision or badly scaled; scale it"));
  if (found.bad_column >= 0) {
    run.report["result"]["first_zero_pivot"] = found.bad_column;
    run.outcome("singular",
                fmt::format("the matrix is singular; zero pivot in column {}; it has no "
                            "inverse",
                            found.bad_column));
  }
}

constexpr double residual_limit = 30;  // LAPACK's

inline void require_residual(Run& run, double ratio) {
  run.report["residual"] = std::isfinite(ratio) ? nlohmann::json(ratio) : nlohmann::json("inf");
  if (!(ratio <= residual_limit))
    run.outcome("check-failed",
                fmt::format("the residual check failed: ratio {:.3g} is above {}; reciprocal "
                            "condition {:.3g}; nothing was written",
                            ratio, residual_limit,
                            run.report["result"]["reciprocal_condition"].get<double>()));
}

/// Of an n x n matrix. What has passed its check may still have no right digit.
inline void note_condition(Run& run, Index n, double reciprocal, const io::Location& matrix) {
  run.report["result"]["reciprocal_condition"] = reciprocal;
  if (reciprocal < double(n) * std::numeric_limits<double>::epsilon())
    run.warn(
        fmt::format("the reciprocal condition is {:.2g}, below n * 2.2e-16: rounding alone may "
                    "have changed every digit of the result; {}; compare it with a run on "
                    "slightly changed numbers, or pose the problem in another way",
                    reciprocal, io::to_string(matrix)));
}

/// `powers`: those that A was multiplied by.
inline void note_determinant(Run& run, JordanOutcome& found, const Powers& powers) {
  for (const Index power : powers)
    if (power != 0) {
      found.log_abs_determinant -= double(power) * double(Index(powers.size())) * std::log(2.0);
      break;
    }
  run.report["result"]["log_abs_determinant"] = found.log_abs_determinant;
  run.report["result"]["determinant_sign"] = found.determinant_sign;
}

/// `count` of the solver's rows from `position`, columns [from, from + columns), to the host.
template <class B, class Solver>
io::Source<double> rows_of(Context<B>& context, const Solver& solver, Index from, Index columns) {
  return [&context, &solver, from, columns](Index position, Index count, double* out) {
    copy_rows<double>(context.ahead, out, columns,
                      solver.data().data + position * solver.ld() + from, solver.ld(), columns,
                      count);
    context.ahead.synchronize();
  };
}

inline double safe_reciprocal(double a, double b) {
  const double value = 1.0 / a / b;
  return std::isfinite(value) ? value : 0.0;
}

/// What dense invert and dense solve by elimination share, as members of their jobs. The solver
/// holds the result from column `from` on, to be multiplied by 2^result_powers_.
template <class B, class Solver>
class EliminateDense {
 public:
  EliminateDense(Run& run, Context<B>& context, const io::DenseInput& a, Index from)
      : run_(run), context_(context), a_(a), n_(a.rows()), from_(from) {}
  EliminateDense(const EliminateDense&) = delete;
  EliminateDense& operator=(const EliminateDense&) = delete;
  virtual ~EliminateDense() = default;

  void open() { output_.emplace(run_.control, run_.options.output, run_.options.force); }
  void solve() {
    const std::function<void()> again = [this] { fill(); };
    if constexpr (requires { solver_->run_guarded(run_.progress, again); })
      found_ = solver_->run_guarded(run_.progress, again);
    else
      found_ = solver_->run(run_.progress);
  }
  void outcome() {
    run_.rate(1e-9 * flops() / run_.seconds("solve"), "GFLOP/s");
    if (!settled()) found_.overflow = true;
    require_regular(run_, found_);
    note_determinant(run_, found_, powers_);
  }
  void check() {
    note_condition(run_, n_, n_ == 0 ? 1.0 : safe_reciprocal(norm_a_, norm_of_inverse()),
                   a_.location());
    if (run_.options.no_check) return;
    const double ratio = residual();
    if (run_.options.guard && !(ratio <= residual_limit)) {  // a second try
      fill();
      solve();
      const double now = found_.good() && settled() ? residual() : INFINITY;
      if (now <= residual_limit)
        confirmed_fault(run_.control, fmt::format("the residual was {:.3g}, but is {:.3g} with the "
                                                  "matrix read and solved once more",
                                                  ratio, now));
    }
    require_residual(run_, ratio);
  }

 protected:
  virtual void fill() = 0;  ///< the input, brought near one, into the solver; and norm_a_
  virtual double residual() = 0;
  virtual double norm_of_inverse() = 0;
  [[nodiscard]] virtual double flops() const = 0;

  Run& run_;
  Context<B>& context_;
  const io::DenseInput& a_;
  Index n_, from_;
  std::optional<io::Output> output_;
  std::optional<Solver> solver_;
  Powers powers_, result_powers_;  // of A; of the result
  double norm_a_ = 0;
  JordanOutcome found_;

 private:
  bool settled() { return !found_.good() || settle(context_, *solver_, from_, result_powers_); }
};

/// terrace dense invert by the method that the options name; A is square.
void invert_dense(Run& run, const io::DenseInput& a, const DenseOptions& options);
/// Refuses, before any file is opened, options that do not go with that method.
void check_invert_options(const Run& run, const DenseOptions& options);

}  // namespace terrace
