// What the commands of gf2 do alike: inputs and output, memory, --plan, the certificate.
#pragma once
#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "src/gf2/backend.hpp"
#include "src/gf2/multiply.hpp"
#include "src/gf2/system.hpp"
#include "src/program/conduct.hpp"
#include "src/program/reading.hpp"
#include "src/program/register.hpp"

namespace terrace::gf2 {

struct Gf2Options {
  std::string a, b;  ///< the second is a right-hand side or factor
  bool echelon = false, transform = false, determinant = false;
  Index candidates = 0;  ///< by columns of a panel; 0: the search's choice
  Index levels = -1;     ///< of Strassen's algorithm; -1: the planner's choice
};

inline constexpr const char* passed = "passed: 64 random vectors";

inline io::Attributes bits_attributes(Index columns) {
  return {{"columns", columns}, {"format", std::string("bits")}};
}

/// Whether the result is one number, and a file with its proof is a choice.
inline bool is_scalar(const std::string& command) {
  return command == "gf2 rank" || command == "gf2 determinant";
}

/// Opens and notes the inputs and the output; the output is refused before anything is read.
struct Files {
  std::optional<io::Output> output;
  io::BitInput a;
  std::optional<io::BitInput> b;

  Files(Run& run, const Gf2Options& o, const char* second) {
    const CommonOptions& options = run.options;
    require_bit_method(panel_wish(options, o.candidates));
    if (!is_scalar(run.command)) require_output(options);
    if (!options.output.empty() && !options.plan)
      output.emplace(run.control, options.output, options.force);
    const io::Location location = matrix_location(run, o.a);
    const io::Location other = second ? other_location(run, o.b, location.file) : io::Location{};
    io::Wanted wanted;
    wanted.square = run.command == "gf2 inverse";
    if (second && other.file == location.file) wanted.besides = other.path;
    a = io::open_bits(run.control, location, wanted);
    run.note_input("input", a.location());
    if (second) {
      b = io::open_bits(run.control, other,
                        run.command == "gf2 solve" ? io::Wanted::vectors(a.rows()) : io::Wanted());
      run.note_input(second, b->location());
    }
    run.adopt("method", run.options.method, std::string());  // of columns alone
    if (options.method != "columns") run.adopt("block", run.options.block, Index(0));
    if (const nlohmann::json from = run.restart_settings(); from.is_object()) {
      const bool kept = from.value("guard", false);  // keeps its check sums, or has none
      if (run.options.guard && !kept)
        run.say("--guard has no effect: the checkpoint was written without it");
      run.options.guard = kept;
    }
    run.report["n"] = a.rows();
    run.report["rows"] = a.rows();
    run.report["columns"] = a.columns();
  }
};

/// Memory of the rank with most among so many ranks.
using MemoryOf = std::function<BitMemory(const PanelPlan& plan, int ranks)>;

/// Host and device bytes of the rank with most, among so many.
template <class B>
RankMemory rank_memory(const MemoryOf& memory, const PanelPlan& plan, int ranks) {
  const auto [host, device] = host_and_device<B>(memory(plan, ranks));
  return {host, device};
}

/// Reports and settings of a plan, and its memory.
template <class B>
void note_plan(Run& run, const PanelPlan& plan, const MemoryOf& memory) {
  run.report["block"] = plan.columns;
  run.report["method"] = elimination_method<B>(plan);
  run.settings["block"] = plan.columns;
  if (plan.by_columns) run.settings["method"] = "columns";
  run.settings["seed"] = run.options.seed;
  run.settings["guard"] = run.options.guard;
  const RankMemory needed = rank_memory<B>(memory, plan, run.control.size());
  run.report["memory"] = {{"host_bytes_per_rank", needed.host},
                          {"device_bytes_per_rank", needed.device}};
}

/// For --plan: narrower panels and the CPU backend are what else could be asked for.
template <class B>
PlanNeeds plan_needs(const PanelPlan& plan, const MemoryOf& memory, int ranks) {
  PlanNeeds needs;
  needs.memory = [=](int with) { return rank_memory<B>(memory, plan, with); };
  if (plan.columns > 512)
    needs.alternatives.push_back({"with --block 512", [=] {
                                    PanelPlan narrow = plan;
                                    narrow.columns = 512;
                                    return rank_memory<B>(memory, narrow, ranks);
                                  }});
  if (!std::is_same_v<B, Cpu>)
    needs.alternatives.push_back(
        {"with --backend cpu", [=] { return rank_memory<Cpu>(memory, plan, ranks); }});
  return needs;
}

/// Lines of --plan: how the panels are worked on.
template <class B>
void describe_panels(Run& run, const PanelPlan& plan, const BlockCyclic& layout) {
  const std::string method = elimination_method<B>(plan);
  run.report["result"]["plan"] = {{"method", method}, {"block", plan.columns}};
  if (plan.by_columns)
    return run.say(fmt::format(
        "method     columns: column by column, a search and a pass of subtraction each{}",
        plan.measured ? " (launch shape calibrated)" : ""));
  run.say(
      fmt::format("method     {}, panels of {} columns; rows in blocks of {} over {}, so that "
                  "finished rows are spread evenly",
                  method == "tables" ? describe_tables<B>(plan.product) + " (Four Russians)"
                                     : "binary tensor cores",
                  fmt::format("{}{}", plan.columns, plan.measured ? " (calibrated)" : ""),
                  layout.block, counted(layout.ranks, "rank")));
}

/// A check that fails is exit 4 and no output.
inline void judge(Run& run, const std::string& broken) {
  if (broken.empty()) {
    run.report["certificate"] = passed;
    return;
  }
  run.report["certificate"] = "failed: " + broken;
  run.outcome("check failed", "the certificate does not hold; " + broken +
                                  "; nothing was written, please report this as a bug");
}

inline void commit(io::Output& output, Run& run, const Witness& witness) {
  io::Attributes attributes = run.attributes();
  attributes["witness_seed"] = Index(witness.seed);
  output.commit(attributes);
}

inline void rate(Run& run, double done) {
  run.rate(done / std::max(run.seconds("solve"), 1e-12), "bit-MAC/s");
}

/// gf2 multiply; src/commands/gf2_product.cpp
void multiply(Run& run, const Gf2Options& o);

}  // namespace terrace::gf2
