// band solve --precision mixed.
#pragma once
#include "distrib/agree.hpp"
#include "src/band/mixed.hpp"
#include "src/commands/band_system.hpp"

namespace terrace {

/// Of settings: --precision mixed, which FP64 goes on for.
inline constexpr const char* kNotMixed = "fp64 instead of mixed";

/// Mixed precision has its own method and width.
inline void check_mixed_options(const CommonOptions& common, const BandOptions& options) {
  const auto refuse = [](const std::string& what) {
    fail_together(Exit::usage, what +
                                   " does not go with --precision mixed; --precision; leave one "
                                   "of them out");
  };
  if (!options.factor.empty()) refuse("--factor");
  if (!options.places.diagonal.empty()) refuse("--diagonal");
  if (!options.places.substitution.empty()) refuse("--substitution");
  if (options.parts > 0) refuse("--parts");
  if (!options.scratch.empty()) refuse("--scratch-dir");
  if (!common.method.empty() && common.method != "auto") refuse("--method " + common.method);
  if (common.block > 0) refuse("--block");
  if (common.guard) refuse("--guard");
}

/// Memory of the backend: the FP64 matrix, what mixed precision adds, and the check.
struct MixedPlan {
  BandShape shape;
  BandMemory memory;
  MixedMemory mixed;
  [[nodiscard]] Index total() const { return memory.matrix + memory.check + mixed.total() + rows; }
  Index rows = 0;  ///< of the right-hand sides
};
template <class B>
MixedPlan plan_mixed(const BandRequest& request, bool check) {
  MixedPlan plan;
  plan.shape = band_shape(request.n, request.half_bandwidth, band_low_width(B{}));
  plan.memory = band_memory(plan.shape, request.nrhs, 1, check);
  plan.mixed = band_mixed_memory<B>(plan.shape, request.nrhs);
  // The right-hand sides, and a vector of the condition estimate.
  plan.rows = plan.shape.padded() * (request.nrhs + 1) * Index(sizeof(double));
  return plan;
}

/// Why mixed precision does not run here, or nothing.
template <class B>
std::string why_not_mixed(const BandRequest& request, const MixedPlan& plan) {
  if (request.ranks > 1)
    return fmt::format("mixed precision runs on one rank, not on {}", request.ranks);
  if (!band_low_available(B{}))
    return "mixed precision needs a GPU of compute capability 9.0 and more";
  if (request.device_bytes > 0 && plan.total() > request.device_bytes)
    return fmt::format(
        "mixed precision needs {} on the device, beside the matrix its factor, and "
        "{} are free",
        size_text(plan.total()), size_text(request.device_bytes));
  return {};
}

template <class B>
class MixedRun {
 public:
  MixedRun(Run& run, Context<B>& context, const BandSystem& system, const MixedPlan& plan)
      : run_(run),
        c_(context),
        system_(system),
        shape_(plan.shape),
        problem_{shape_.n, shape_.half_bandwidth, file_source<B>(system.matrix)} {
    run.report["n"] = shape_.n;
    run.report["half_bandwidth"] = system.matrix.half_bandwidth();
    run.report["method"] = "mixed";
    run.report["precision"] = "mixed";
    run.report["block"] = shape_.width;
    for (const char* key : {"method", "block", "precision"}) run.settings[key] = run.report[key];
    device_ = plan.total();
    host_ =
        (2 * system.nrhs() + 4) * shape_.padded() * Index(sizeof(double)) + 3 * io::piece_bytes();
    run.report["memory"] = {{"backend_bytes", device_}, {"host_bytes", host_}};
    work_ = band_work({machine_of(context), run.command, "mixed", shape_.n, shape_.half_bandwidth,
                       shape_.width, system.nrhs(), shape_.tiles(),
                       band_factor_flops(shape_.n, shape_.half_bandwidth), false,
                       !run.options.no_check});
    if (run.options.plan) describe(plan);
  }

  /// Empty, or why the FP64 methods have to solve it.
  [[nodiscard]] std::string solve() {
    constexpr bool device = std::is_same_v<B, Cuda>;
    const Index nrhs = system_.nrhs();
    require_memory(c_.control, host_ + (device ? 0 : device_), device ? device_ : 0);
    BandTiles<B> a = collectively(c_.control, [&] { return band_tiles<B>(c_, shape_); });
    BandMixed<B> mixed = collectively(c_.control, [&] { return band_mixed<B>(shape_, nrhs); });
    Buffer<double, B> x =
        collectively(c_.control, [&] { return Buffer<double, B>(shape_.padded() * nrhs); });
    const View<const double, B> tiles = a.data.view().slice(0, shape_.tiles() * shape_.tile());
    const Range all{0, shape_.n};
    std::vector<double> rows;  // b, then x
    run_.phase("read", [&] {
      rows = read_range(c_.control, system_.rhs, all);
      fill_zero(c_.ahead, x.view());
      upload(c_.ahead, x.view().slice(0, Index(rows.size())), rows.data());
      c_.ahead.synchronize();
      read_tiles(c_, system_.matrix, a);
    });
    bool factored = false;
    MixedResult result;
    run_.phase("solve", [&] {
      factored = mixed_resume(c_, mixed, x, run_.progress) || mixed_factor(c_, tiles, mixed);
      if (factored) result = mixed_solve(c_, tiles, mixed, x, {}, &run_.progress);
    });
    nlohmann::json& report = run_.report["result"];
    report["iterations"] = result.iterations;
    report["restarts"] = result.restarts;
    report["shift"] = mixed.shift;
    if (!factored) return to_string(mixed.failure);
    report["preconditioned_eigenvalues"] = {result.smallest, result.largest};
    if (result.reason != MixedReason::converged)
      return fmt::format("{} after {} iterations", to_string(result.reason), result.iterations);
    report["backward_error"] = result.backward_error;
    double condition = 0;
    run_.phase("condition", [&] { condition = mixed_condition(c_, tiles, mixed, result); });
    if (std::isfinite(condition)) run_.report["condition_estimate"] = condition;
    note_rate(run_, shape_, nrhs, true);
    download(c_.ahead, rows.data(), x.view().slice(0, Index(rows.size())));
    c_.ahead.synchronize();
    if (!run_.options.no_check)
      run_.phase("check", [&] {
        const std::vector<double> b = read_range(c_.control, system_.rhs, all);
        double reciprocal = 1;
        judge_band(run_, system_.matrix,
                   band_residual<B>(c_, problem_, all, rows, b, nrhs, reciprocal));
        note_band_condition(run_, system_.matrix, reciprocal);
      });
    write_solution(run_, system_, {all}, rows);
    say_solved(run_, shape_, nrhs);
    run_.say(
        fmt::format("mixed precision: {} iterations, {} restarts, backward error {:.3g}, condition "
                    "about {:.3g}",
                    result.iterations, result.restarts, result.backward_error, condition));
    return {};
  }

 private:
  void describe(const MixedPlan& plan) {
    describe_band(run_, shape_, system_.nrhs());
    run_.say(fmt::format(
        "method mixed: a factor in {} precision of {} tile columns of width {}, and conjugate "
        "gradients in double precision with it, {} right-hand sides at a time",
        std::is_same_v<B, Cuda> ? "half" : "single", shape_.tiles(), shape_.width,
        std::min(std::max<Index>(system_.nrhs(), 1), kMixedGroup)));
    run_.say(fmt::format(
        "why: --precision mixed on one rank; what does not converge in {} iterations to FP64 "
        "backward error is solved again in FP64",
        MixedLimits{}.iterations));
    run_.say(fmt::format(
        "memory: {} on the backend (matrix in FP64 {}, factor in low precision {}, vectors {}, "
        "scratch {}, check {}), {} on the host for input and output",
        size_text(device_), size_text(plan.memory.matrix), size_text(plan.mixed.factor),
        size_text(plan.mixed.vectors + plan.rows), size_text(plan.mixed.scratch),
        size_text(plan.memory.check), size_text(host_)));
    const Index nrhs = system_.nrhs();
    PlanNeeds needs;
    needs.any_ranks = false;
    needs.memory = [&](int) { return band_on_rank<B>(host_, device_); };
    if (!run_.options.no_check)
      needs.alternatives.push_back(
          {"with --no-check", [&] { return band_on_rank<B>(host_, device_ - plan.memory.check); }});
    needs.alternatives.push_back(
        {"with --precision fp64", [&] {
           const BandShape s = band_shape(shape_.n, system_.matrix.half_bandwidth(),
                                          band_width(B{}, system_.matrix.half_bandwidth(), 0));
           return band_on_rank<B>(host_, band_memory(s, nrhs, 1, !run_.options.no_check).total());
         }});
    needs.alternatives.push_back(
        streamed_instead<B>(run_, shape_.n, system_.matrix.half_bandwidth(), nrhs, 1));
    conclude_plan(run_, c_, work_, needs);
  }

  Run& run_;
  Context<B>& c_;
  const BandSystem& system_;
  const BandShape shape_;
  const BandProblem<B> problem_;
  Index host_ = 0, device_ = 0;
  Work work_;
};

/// True when the system is solved (or its plan printed); otherwise the FP64 method of `plan` has to
/// do it, and the note that says why is in the report and on the screen.
template <class B>
bool solve_mixed(Run& run, Context<B>& c, const BandSystem& system, const BandRequest& request,
                 BandPlan& plan) {
  const MixedPlan mixed = plan_mixed<B>(request, !run.options.no_check);
  std::string why = why_not_mixed<B>(request, mixed);
  if (why.empty()) {
    MixedRun<B> solver(run, c, system, mixed);
    if (run.options.plan) return true;
    why = solver.solve();
    if (why.empty()) return true;
    why = "mixed precision: " + why;
  }
  const std::string note = why + "; solved in FP64";
  run.report["precision"] = "fp64";
  run.settings["precision"] = kNotMixed;
  if (run.options.plan)
    plan.reasons.insert(plan.reasons.begin(), note);
  else
    note_fall_back(run, note);
  return false;
}

}  // namespace terrace
