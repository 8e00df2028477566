// Options that every solver takes.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

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
                      " entries are more than any machine can hold; on the command line; give "
                      "smaller sizes");
}

gf2::PanelWish panel_wish(const CommonOptions& o, Index candidates) {
  return {o.method, o.tables, o.panels, o.k, o.block, candidates, o.guard};
}

namespace {

/// The one table of common options: which commands obey each of them. Help shows these, and the
/// parser refuses the others by name. A command is named by its words, a family by the first;
/// "-word" takes commands out again.
constexpr std::pair<const char*, const char*> obeyed_by[] = {
    {"--method", "gf2 band dense cg bench -bench_matrix -bench_io -bench_profile"},
    {"--precision", "dense band_solve cg bench_dense bench_band bench_cg"},
    {"--block", "gf2 band dense cg bench_gf2 bench_band bench_dense"},
    {"--k", "gf2 bench_gf2"},
    {"--tables", "gf2 -gf2_multiply bench_gf2"},
    {"--panels", "gf2 -gf2_multiply bench_gf2"},
    {"--seed", "gf2 band dense cg generate bench -bench_io -bench_profile"},
    {"--check", "gf2 band dense cg bench -bench_profile"},
    {"--no-check", "gf2 band dense cg bench -bench_profile"},
    {"--guard", "gf2 band dense cg"},
    {"--output", "gf2 band dense cg generate"},
    {"--force", "gf2 band dense cg generate convert"},
    {"--plan", "gf2 band dense cg generate"},
    {"--report", "gf2 band dense cg generate convert verify info bench"},
    {"--json", "gf2 band dense cg generate convert verify info bench"},
    {"--quiet", "gf2 band dense cg generate convert verify bench"},
    {"--progress", "gf2 band dense cg generate convert verify bench"},
    {"--backend", "gf2 band dense cg generate bench -bench_io"},
    {"--oversubscribe", "gf2 band dense cg bench -bench_io"},
    {"--no-bind", "gf2 band dense cg info bench -bench_io"},
    {"--checkpoint", "gf2 band dense cg"},
    {"--checkpoint-every", "gf2 band dense cg"},
    {"--restart", "gf2 band dense cg"},
};

std::vector<std::string> choices_of_precision(const std::string& command) {
  const bool dense = command.find("dense") != std::string::npos;
  return {"fp64", dense ? "emulated" : "mixed"};
}

}  // namespace

std::string command_of(const CLI::App& app) {
  const CLI::App* const parent = app.get_parent();
  if (parent == nullptr) return {};
  const std::string before = command_of(*parent);
  return before.empty() ? app.get_name() : before + " " + app.get_name();
}

std::string commands_with(const std::string& option) {
  for (const auto& [name, commands] : obeyed_by)
    if (option == name) return commands;
  return {};
}

bool obeys(const std::string& command, const std::string& option) {
  bool found = false;
  std::istringstream words(commands_with(option));
  for (std::string word; words >> word;) {
    const bool without = word[0] == '-';
    std::string name = word.substr(without ? 1 : 0);
    std::replace(name.begin(), name.end(), '_', ' ');
    if (command == name || command.rfind(name + " ", 0) == 0) found = !without;
  }
  return found;
}

void add_common_options(CLI::App& command, CommonOptions& o) {
  const std::string name = command_of(command);
  const auto option = [&](const char* names, auto& value, const char* about,
                          const char* long_name = nullptr) -> CLI::Option* {
    return obeys(name, long_name ? long_name : names) ? command.add_option(names, value, about)
                                                      : nullptr;
  };
  const auto choice = [&](const char* names, std::string& value, const char* about,
                          const std::vector<std::string>& all) {
    if (CLI::Option* const added = option(names, value, about)) added->check(CLI::IsMember(all));
  };
  const auto flag = [&](const char* names, bool& value, const char* about) {
    if (obeys(name, names)) command.add_flag(names, value, about);
  };
  option("--method", o.method, "the algorithm (default: the plan's choice)");
  choice("--precision", o.precision, "Precision of the arithmetic", choices_of_precision(name));
  if (CLI::Option* const added =
          option("--block", o.block, "Width of panels or tile columns (0: the plan's choice)"))
    added->check(not_negative());
  option("--seed", o.seed, "Seed of all random numbers");
  flag("--no-check", o.no_check, "Skip the residual or certificate");
  choice("--check", o.check,
         name == "dense invert" ? "exact: the whole residual of an inverse; none: as --no-check"
                                : "none: as --no-check",
         name == "dense invert" ? std::vector<std::string>{"auto", "none", "exact"}
                                : std::vector<std::string>{"auto", "none"});
  flag("--guard", o.guard, "Add check sums: a memory error then ends the run early");
  option("-o,--output", o.output, "Where to write the result: a file, or a new group of a file",
         "--output");
  flag("--force", o.force, "Overwrite an existing output");
  flag("--plan", o.plan, "Print method, memory and time; read no data");
  option("--report", o.report, "Write a report in JSON; -: to standard output");
  flag("--json", o.json, "Print the report on standard output, and nothing else");
  flag("--quiet", o.quiet, "Print only errors, and a result that is a single number");
  choice("--progress", o.progress, "Progress as a bar or as lines, on standard error",
         {"auto", "always", "never"});
  choice("--backend", o.backend, "Where to compute; auto: on GPUs, if there are any",
         name.rfind("generate", 0) == 0 ? std::vector<std::string>{"auto", "cpu"}
                                        : std::vector<std::string>{"auto", "cpu", "cuda"});
  flag("--oversubscribe", o.oversubscribe, "Allow several ranks per GPU");
  flag("--no-bind", o.no_bind, "Keep threads on the cores that the launcher assigned");
  option("--checkpoint", o.checkpoint, "Write checkpoints to this file");
  option("--checkpoint-every", o.checkpoint_every, "Interval of checkpoints, such as 10m");
  option("--restart", o.restart, "Continue from this checkpoint");
}

void add_bit_options(CLI::App& command, CommonOptions& o) {
  const std::string name = command_of(command);
  command
      .add_option(
          "--k", o.k,
          "Rows that one table combines, 1 to 14; implies --method tables (0: the plan's choice)")
      ->check(not_negative());
  if (!obeys(name, "--tables")) return;
  command
      .add_option("--tables", o.tables,
                  "local: each rank builds its tables; broadcast: one rank, for all")
      ->check(CLI::IsMember({"local", "broadcast"}));
  command.add_option("--panels", o.panels, "Where a GPU's pivots are chosen")
      ->check(CLI::IsMember({"device", "host"}));
}

void add_levels_option(CLI::App& command, Index& levels) {
  command
      .add_option("--levels", levels,
                  "Levels of Strassen's algorithm (0: none; -1: by size and memory)")
      ->check(CLI::Range(-1, gf2::most_strassen_levels));
}

void check_common_options(const CommonOptions& o, const std::string& command) {
  const auto refuse = [](const std::string& what) {
    fail_together(Exit::usage, what + "; leave one of them out");
  };
  if (o.check == "exact" && o.no_check) refuse("--check exact and --no-check; on the command line");
  if (command.rfind("dense", 0) != 0 || (o.method != "textbook" && o.method != "cramer")) return;
  for (const auto& [given, name] : {std::pair{!o.checkpoint.empty(), "--checkpoint"},
                                    {!o.checkpoint_every.empty(), "--checkpoint-every"},
                                    {!o.restart.empty(), "--restart"},
                                    {o.guard, "--guard"}})
    if (given) refuse("--method " + o.method + " has no checkpoints and no check sums; " + name);
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
