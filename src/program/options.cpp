// Options that every solver takes.
#include <fmt/core.h>

#include <cstdlib>

#include "distrib/agree.hpp"
#include "kernels/base/parallel.hpp"
#include "src/gf2/strassen.hpp"
#include "src/program/refuse.hpp"
#include "src/program/register.hpp"

namespace terrace {

CLI::Validator not_negative() {
  return {[](const std::string& value) {
            return std::strtod(value.c_str(), nullptr) >= 0 ? std::string()
                                                            : value + " is not zero or more";
          },
          "NOT NEGATIVE"};
}
CLI::Validator positive() {
  return {[](const std::string& value) {
            return std::strtod(value.c_str(), nullptr) > 0 ? std::string()
                                                           : value + " is not more than zero";
          },
          "POSITIVE"};
}

void require_countable(std::initializer_list<double> extents) {
  double entries = 1;
  std::string sizes;
  for (const double extent : extents) {
    entries *= std::max(1.0, extent);
    sizes += (sizes.empty() ? "" : " x ") + fmt::format("{:.0f}", extent);
  }
  if (!(entries <= 0x1p56))
    fail_together(Exit::resources,
                  sizes +
                      " entries are more than any machine holds; on the command line; give "
                      "smaller sizes");
}

gf2::PanelWish panel_wish(const CommonOptions& o, Index candidates) {
  return {o.method, o.tables, o.panels, o.k, o.block, candidates, o.guard};
}

void add_common_options(CLI::App& command, CommonOptions& o) {
  command.add_option("-o,--output", o.output, "Output file, or FILE:/group to add a group to it");
  command.add_option("--backend", o.backend, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  command.add_option("--report", o.report, "Write a JSON report to this file");
  command.add_option("--progress", o.progress, "auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  command.add_flag("--plan", o.plan, "Print memory and method; read no data");
  command.add_flag("--no-check", o.no_check, "Skip the residual or certificate");
  command
      .add_option("--check", o.check,
                  "auto; none: as --no-check; exact: the whole residual of an inverse")
      ->check(CLI::IsMember({"auto", "none", "exact"}));
  command.add_flag("--guard", o.guard, "Check sums on the way: memory errors end the run early");
  command.add_option("--block", o.block, "Panel or tile width (0: the method's choice)")
      ->check(not_negative());
  command.add_option("--method", o.method, "Method, where a command has several");
  command.add_option("--precision", o.precision, "fp64, mixed or emulated")
      ->check(CLI::IsMember({"fp64", "mixed", "emulated"}));
  command.add_option("--seed", o.seed, "Seed of everything random");
  command.add_flag("--quiet", o.quiet, "Print errors only");
  command.add_flag("--force", o.force, "Overwrite an existing output");
  command.add_flag("--oversubscribe", o.oversubscribe, "Allow several ranks a GPU");
  command.add_flag("--no-bind", o.no_bind, "Leave threads on the cores that the launcher gave");
  command.add_option("--checkpoint", o.checkpoint, "Write checkpoints to this file");
  command.add_option("--checkpoint-every", o.checkpoint_every, "Interval, such as 10m");
  command.add_option("--restart", o.restart, "Continue from this checkpoint");
}

void add_bit_options(CLI::App& command, CommonOptions& o) {
  command.add_option("--k", o.k, "Rows that a table combines (1 to 14; 0: the plan's choice)")
      ->check(not_negative());
  command.add_option("--tables", o.tables,
                     "local: built by each rank; broadcast: by one rank, for all");
  command.add_option("--panels", o.panels, "device or host: where pivots of a panel are chosen");
}

void add_levels_option(CLI::App& command, Index& levels) {
  command
      .add_option("--levels", levels,
                  "Levels of Strassen's algorithm (0: none; -1: by size and memory)")
      ->check(CLI::Range(-1, gf2::most_strassen_levels));
}

void check_common_options(const CommonOptions& o, const std::string& command) {
  const auto refuse = [](const std::string& what) {
    fail_together(Exit::usage, what + "; in terrace " TERRACE_VERSION "; leave the option out");
  };
  // Before --restart is looked at: there is nothing to continue.
  if (!o.restart.empty() && (command.rfind("bench", 0) == 0 || command.rfind("generate", 0) == 0))
    fail_together(Exit::usage, command + " continues nothing; --restart; leave it out");
  const bool mixed = command == "band solve" || command == "bench band" || command == "cg" ||
                     command == "bench cg";
  const bool dense =
      command == "dense invert" || command == "dense solve" || command == "bench dense";
  if ((o.precision == "emulated" && !dense) || (o.precision == "mixed" && !mixed))
    refuse("--precision " + o.precision + " is not available for " + command + ", only for " +
           (o.precision == "mixed" ? "band solve, cg and their benches"
                                   : "dense invert, dense solve and bench dense") +
           "; --precision");
  if (o.check == "exact" && (command != "dense invert" || o.no_check))
    refuse("only dense invert with its check has an exact one; --check exact");
  const bool of_dense = command == "dense invert" || command == "dense solve";
  if (of_dense && (o.method == "textbook" || o.method == "cramer"))
    for (const auto& [given, name] : {std::pair{!o.checkpoint.empty(), "--checkpoint"},
                                      {!o.checkpoint_every.empty(), "--checkpoint-every"},
                                      {!o.restart.empty(), "--restart"}})
      if (given) refuse("there are no checkpoints of --method " + o.method + "; " + name);
  const bool guards = command.rfind("gf2 ", 0) == 0 || command == "cg" ||
                      command == "band factor" || command == "band solve" ||
                      ((command == "dense invert" || command == "dense solve") &&
                       o.method != "textbook" && o.method != "cramer");
  if (o.guard && !guards)
    refuse("there are no check sums on the way of " + command +
           ", only of gf2, of the eliminations of band and dense, and of cg; --guard");
}

void require_output(const CommonOptions& options) {
  if (options.output.empty() && !options.plan)
    fail_together(Exit::usage, "no output is named; on the command line; add -o FILE.h5");
}

void refuse_given(const CLI::App& command, const std::vector<std::string>& names,
                  const std::string& reason) {
  for (const std::string& name : names) {
    const CLI::Option* const option = command.get_option_no_throw(name);
    if (option != nullptr && option->count() > 0)
      fail_together(Exit::usage, reason + "; " + name + "; leave it out");
  }
}

}  // namespace terrace
