// What dense invert and dense solve say of a plan, and what it needs.
#pragma once
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "src/dense/cramer.hpp"
#include "src/program/conduct.hpp"
#include "src/program/register.hpp"

namespace terrace::dense {

struct DenseOptions {
  std::string matrix, rhs, factor, pivoting = "auto", assume;
  bool factors = false;         ///< dense factor
  Index grid = 0, threads = 0;  ///< launches of the textbook's method; 0: not given
  int moduli = accurate_moduli;
};

// Host memory for reading, writing and checking.
inline constexpr Index dense_staging_bytes = Index(192) << 20;

inline const char* name_of(Pivoting pivoting) {
  return pivoting == Pivoting::partial ? "partial" : "tournament";
}

/// Of the interrupted run, if it was one of elimination and not of Cholesky's method; or null.
inline nlohmann::json elimination_settings(const Run& run) {
  nlohmann::json from = run.restart_settings();
  return from.is_object() && !from.contains("assume") ? from : nlohmann::json();
}

/// As plan_dense(), with the choices of a run that is continued. `right`: -1 for an inverse, or a factor.
template <class B>
DensePlan choose_plan(Run& run, Index n, Index right, const DenseOptions& o) {
  const bool inverse = right < 0 && !o.factors;
  DenseRequest request{run.options.method, inverse};
  request.right = std::max<Index>(0, right);
  request.factor = o.factors;
  request.stored = !o.factor.empty();
  request.exact_check = run.options.check == "exact";
  request.seed = Word(run.options.seed);
  request.grid = o.grid;
  request.threads = o.threads;
  if (request.method == "textbook" || request.method == "cramer")
    return plan_dense<B>(run.control.size(), n, request);
  request.pivoting = o.pivoting;
  if (const nlohmann::json from = elimination_settings(run); from.is_object()) {
    run.adopt("method", request.method, std::string());
    run.adopt("pivoting", request.pivoting, std::string("auto"));
    run.adopt("block", run.options.block, Index(0));
    const bool kept = from.value("guard", false);  // a run that is continued keeps its check sums
    if (run.options.guard && !kept)
      run.say("--guard has no effect: the checkpoint was written without it");
    run.options.guard = kept;
  }
  request.block = run.options.block;
  request.emulated = run.options.precision == "emulated";
  request.moduli = o.moduli;
  request.mixed = run.options.precision == "mixed";
  request.guard = run.options.guard;
  DensePlan plan = plan_dense<B>(run.control.size(), n, request);
  run.settings.update({{"block", plan.block},
                       {"guard", plan.guard},
                       {"method", plan.method},
                       {"pivoting", name_of(plan.pivoting)},
                       {"precision", run.options.precision}});
  if (plan.emulated) run.settings["moduli"] = plan.moduli;
  return plan;
}

/// Into the report, with a note where there is one.
template <class B>
void note_plan(Run& run, const DensePlan& plan) {
  const bool blocked = plan.method == "gauss-jordan" || plan.method == "lu";
  run.report["n"] = plan.n;
  run.report["method"] = plan.method;
  run.report["block"] = blocked ? plan.block : 0;
  if (!plan.inverse && !plan.factor) run.report["columns"] = plan.rhs;
  if (plan.method == "cramer") return;
  run.report["pivoting"] = name_of(plan.pivoting);
  run.report["memory_per_rank"] = plan.bytes;
  if (blocked) {
    run.report["precision"] = plan.emulated ? "emulated" : plan.mixed ? "mixed" : "fp64";
    if (plan.emulated) run.report["moduli"] = plan.moduli;
  } else if (!std::is_same_v<B, Cpu>) {
    run.report["grid"] = plan.launch.grid;
    run.report["threads"] = plan.launch.threads;
  }
  if (plan.note.empty()) return;
  run.report["note"] = plan.note;
  run.say("note       " + plan.note);
}

/// What a rank takes: on the backend, and for reading, writing and checking.
template <class B>
RankMemory dense_memory(const EliminationPlan& plan, Index host = 0) {
  const Index elements = plan.n * (plan.n + plan.right);
  const Index staging = host + std::min<Index>(dense_staging_bytes, 8 * elements + (1 << 20));
  return std::is_same_v<B, Cpu> ? RankMemory{plan.bytes + staging, 0}
                                : RankMemory{staging, plan.bytes};
}

template <class B>
Work work_of(const Context<B>& context, const DensePlan& plan, bool check) {
  DenseWork work{machine_of(context), plan.method, plan.n, plan.right, plan.block, plan.inverse};
  work.tournament = plan.pivoting == Pivoting::tournament;
  work.gathered = plan.gathered;
  work.emulated = plan.emulated;
  work.moduli = plan.moduli;
  work.mixed = plan.mixed;
  work.check = check || plan.method == "cramer";
  return dense_work(work);
}

/// Lines of --plan.
template <class B>
void describe_plan(Run& run, const DensePlan& plan) {
  if (plan.method == "cramer")
    return run.say(
        fmt::format("method     cramer (asked for): {} determinants of order {}, on the host",
                    1 + plan.n * plan.rhs, plan.n));
  nlohmann::json& report = run.report["result"]["plan"];
  report = {{"bytes_per_rank", plan.bytes}, {"method", plan.method}};
  if (plan.method == "textbook") {
    run.say("method     textbook (asked for): column by column, partial pivoting, rows exchanged");
    return run.say(std::is_same_v<B, Cpu>
                       ? std::string("launches   none: one thread of the host")
                       : fmt::format("launches   {0} x {0} blocks of {1} x {1} threads",
                                     plan.launch.grid, plan.launch.threads));
  }
  run.say(fmt::format("method     {}, in place: {:.4g} flops over {}", plan.method, plan.flops(),
                      counted(plan.rows.ranks, "rank")));
  run.say(fmt::format("block      {} ({})", plan.block, plan.why_block));
  run.say(fmt::format("pivoting   {} ({})", name_of(plan.pivoting), plan.why_pivoting));
  if (plan.emulated)
    run.say(fmt::format(
        "precision  emulated (asked for): the update by products of 8-bit integers, {} moduli",
        plan.moduli));
  if (plan.mixed)
    run.say(
        fmt::format("precision  mixed (asked for): the update in {}, then refined with A in FP64, "
                    "{:.4g} bytes a rank",
                    std::is_same_v<B, Cpu> ? "FP32" : "products of 8-bit integers, 7 moduli",
                    8.0 * double(plan.rows.slots(0)) * double(plan.n)));
  if (!plan.note.empty()) run.say("note       " + plan.note);
  report["block"] = plan.block;
  report["why_block"] = plan.why_block;
  report["why_pivoting"] = plan.why_pivoting;
}

/// `pivoting`: as it was asked for.
template <class B>
PlanNeeds dense_needs(const Run& run, const DensePlan& plan, const std::string& pivoting) {
  PlanNeeds needs;
  if (plan.method == "cramer") {
    needs.memory = [=](int) { return RankMemory{8 * plan.n * (2 * plan.n + 2 * plan.rhs), 0}; };
    return needs;
  }
  const auto as_if = [=, block = run.options.block]<class D>(D, int ranks, bool emulated,
                                                             bool mixed = false) {
    DensePlan other = plan;
    static_cast<EliminationPlan&>(other) = plan_elimination<D>(
        ranks, plan.n, plan.right, plan.inverse, block, pivoting, emulated, plan.lu);
    other.mixed = mixed;
    if (mixed) keep_doubles<D>(other);
    return dense_memory<D>(other, other.host_bytes());
  };
  if (plan.method == "textbook") {
    needs.any_ranks = false;
    needs.memory = [=](int) { return dense_memory<B>(plan); };
    needs.alternatives.push_back({"without --method textbook", [=, ranks = run.control.size()] {
                                    return as_if(B{}, ranks, false);
                                  }});
    return needs;
  }
  needs.memory = [=](int ranks) {
    return ranks == plan.rows.ranks ? dense_memory<B>(plan, plan.host_bytes())
                                    : as_if(B{}, ranks, plan.emulated, plan.mixed);
  };
  if (plan.mixed)
    needs.alternatives.push_back(
        {"without --precision mixed", [=] { return as_if(B{}, plan.rows.ranks, false); }});
  if (plan.emulated)
    needs.alternatives.push_back(
        {"without --precision emulated", [=] { return as_if(B{}, plan.rows.ranks, false); }});
  if (!std::is_same_v<B, Cpu>)
    needs.alternatives.push_back(
        {"with --backend cpu", [=] { return as_if(Cpu{}, plan.rows.ranks, false); }});
  return needs;
}

}  // namespace terrace::dense
