// Commands, and the options that they share.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <utility>

#include "distrib/agree.hpp"
#include "kernels/base/parallel.hpp"
#include "src/gf2/strassen.hpp"
#include "src/program/machines.hpp"
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

/// The choices of an option in a list such as "--seed --check=auto,none"; none: it is not there.
std::optional<std::vector<std::string>> choices_in(const std::string& list,
                                                   const std::string& name) {
  std::optional<std::vector<std::string>> found;
  std::istringstream words(list);
  for (std::string word; words >> word;) {
    if (word.substr(0, word.find('=')) != name) continue;
    found.emplace();
    std::istringstream choices(word.substr(std::min(word.size(), name.size() + 1)));
    for (std::string one; std::getline(choices, one, ',');) found->push_back(one);
  }
  return found;
}

void add_common_options(CLI::App& command, CommonOptions& o, const std::string& obeys) {
  const auto option = [&](const char* names, auto& value, const char* about,
                          const char* long_name = nullptr) -> CLI::Option* {
    const auto choices = choices_in(obeys, long_name ? long_name : names);
    if (!choices) return nullptr;
    CLI::Option* const added = command.add_option(names, value, about);
    if (!choices->empty()) added->check(CLI::IsMember(*choices));
    return added;
  };
  const auto number = [&](const char* names, Index& value, const char* about) {
    if (CLI::Option* const added = option(names, value, about)) added->check(not_negative());
  };
  const auto flag = [&](const char* names, bool& value, const char* about) {
    if (choices_in(obeys, names)) command.add_flag(names, value, about);
  };
  option("--method", o.method, "The algorithm (default: the plan's choice)");
  option("--precision", o.precision, "Precision of the arithmetic");
  number("--block", o.block, "Width of panels or tile columns (0: the plan's choice)");
  number("--k", o.k,
         "Rows that one table combines, 1 to 14; implies --method tables (0: the plan's choice)");
  option("--tables", o.tables,
         "local: each rank builds its tables; broadcast: one rank, for all (default: the plan's "
         "choice)");
  option("--panels", o.panels, "Where a GPU's pivots are chosen (default: the plan's choice)");
  option("--seed", o.seed, "Seed of all random numbers");
  flag("--no-check", o.no_check, "Skip the residual or certificate");
  option("--check", o.check,
         choices_in(obeys, "--check").value_or(std::vector<std::string>{}).size() > 2
             ? "exact: the whole residual of an inverse; none: as --no-check"
             : "none: as --no-check");
  flag("--guard", o.guard, "Add check sums: a memory error then ends the run early");
  option("-o,--output", o.output, choices_in(obeys, "--may-print") ? output_help : required_output,
         "--output");
  flag("--force", o.force, "Overwrite an existing output");
  flag("--plan", o.plan, "Print method, memory and time; read no data");
  if (choices_in(obeys, "--ranks"))
    command.add_option("--ranks", o.ranks, "With --plan: for so many ranks, started or not")
        ->check(CLI::Range(1, max_planned_ranks))
        ->default_str("");
  if (choices_in(obeys, "--gpu"))
    command.add_option("--gpu", o.gpu, "With --plan: for ranks with such a GPU each, here or not")
        ->check(CLI::IsMember(known_gpus()));
  option("--report", o.report, "Write a report in JSON; -: to standard output");
  flag("--json", o.json, "Print the report on standard output, and nothing else");
  flag("--quiet", o.quiet, "Print only errors, and a result that is a single number");
  option("--progress", o.progress, "Progress as a bar or as lines, on standard error");
  const auto backends = choices_in(obeys, "--backend");
  option("--backend", o.backend,
         backends && backends->back() == "cuda"
             ? "Where to compute; auto: on GPUs, if there are any"
             : "Where to compute: on the CPU");
  flag("--oversubscribe", o.oversubscribe, "Allow several ranks per GPU");
  flag("--no-bind", o.no_bind, "Keep threads on the cores that the launcher assigned");
  option("--checkpoint", o.checkpoint, "Write checkpoints to this file");
  option("--checkpoint-every", o.checkpoint_every,
         "Interval of checkpoints: a number and s, m or h (default 10m)");
  option("--restart", o.restart, "Continue from this checkpoint");
}

}  // namespace

bool is_common_option(const std::string& name) {
  return choices_in(solver_options + "--method --precision --block --k --tables --panels", name)
      .has_value();
}

CLI::App* add_command(CLI::App& group, Selected& selected, const CommandFacts& facts,
                      std::function<void(Run&, const CLI::App&)> action) {
  CLI::App* const command = group.add_subcommand(facts.name, facts.about);
  command->footer(facts.example);
  add_common_options(*command, selected.options, facts.obeys);
  if (facts.check) selected.checks[command_of(*command)] = facts.check;
  command->callback([&selected, command, action = std::move(action)] {
    selected.command = command_of(*command);
    selected.action = [command, &action](Run& run) { action(run, *command); };
  });
  return command;
}

std::string command_of(const CLI::App& app) {
  const CLI::App* const parent = app.get_parent();
  if (parent == nullptr) return {};
  const std::string before = command_of(*parent);
  return before.empty() ? app.get_name() : before + " " + app.get_name();
}

void add_levels_option(CLI::App& command, Index& levels) {
  command
      .add_option("--levels", levels,
                  "Levels of Strassen's algorithm (0: none; -1: by size and memory)")
      ->check(CLI::Range(-1, gf2::most_strassen_levels));
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
