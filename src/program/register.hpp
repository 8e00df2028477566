// How commands are registered: each says all of itself in one place. The list is in src/main.cpp.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "src/gf2/plan.hpp"
#include "src/program/run.hpp"

namespace terrace {

struct ResultFile;
struct Verdict;

/// Filled while the command line is parsed; main() then runs `action` on every rank.
struct Selected {
  CommonOptions options;
  std::string command;               ///< "gf2 rref"
  std::function<void(Run&)> action;  ///< throws Error; returning means exit 0
  /// How `verify` checks what a command wrote, by its name.
  std::map<std::string, Verdict (*)(const ResultFile&)> checks;
};

/// All that the program knows of a command beside its own options.
struct CommandFacts {
  const char *name, *about, *example;
  /// The common options that it obeys, each with its choices: "--seed --check=auto,none". Help
  /// shows these; the parser refuses the others by name. The last of the same name counts.
  std::string obeys;
  /// Of a result that it wrote, sharing no code with what made it.
  Verdict (*check)(const ResultFile&) = nullptr;
};
/// Common options of every command, of those that solve, and of those that measure. To be added:
/// --method and --precision with their choices; --block; of GF(2) --k, --tables and --panels.
inline const std::string basic_options = "--report --json ";
inline const std::string usual_options = basic_options + "--quiet --progress=auto,always,never ";
inline const std::string bench_options =
    usual_options +
    "--seed --check=auto,none --no-check --backend=auto,cpu,cuda --oversubscribe --no-bind ";
inline const std::string solver_options =
    bench_options +
    "--guard --output --force --plan --ranks --gpu --checkpoint --checkpoint-every --restart ";
/// What help says of --output; a list of obeyed options with "--may-print" has a result without it.
inline constexpr const char* output_help =
    "Where to write the result: a file, or a new group of a file";
inline constexpr const char* required_output =
    "Where to write the result: a file, or a new group of a file (required, but not with --plan)";
/// Whether an option ("--block") is one of those that commands share.
bool is_common_option(const std::string& name);
/// Adds a command to a group of commands. `action` gets the parsed command too.
CLI::App* add_command(CLI::App& group, Selected& selected, const CommandFacts& facts,
                      std::function<void(Run&, const CLI::App&)> action);
/// "gf2 rref", by the commands above it.
std::string command_of(const CLI::App& app);
/// Validators whose messages fit a line, where CLI11's print the largest double.
CLI::Validator not_negative();
CLI::Validator positive();
/// Fails together where a matrix of these extents has more than 2^56 entries: no machine holds
/// them, and products of larger sizes overflow.
void require_countable(std::initializer_list<double> extents);
/// How a candidates option reads.
inline constexpr const char* candidates_help =
    "Rows tried first for a panel's pivots, in multiples of its columns; implies --method tables "
    "(0: the "
    "method's choice)";
/// What the options say of an elimination over GF(2); candidates: --candidates.
gf2::PanelWish panel_wish(const CommonOptions& options, Index candidates = 0);
/// --levels of products over GF(2); -1: the planner's choice.
void add_levels_option(CLI::App& command, Index& levels);
/// --grid and --threads of the textbook's inversion: a number, or a vector of them.
template <class T>
void add_launch_options(CLI::App& command, T& grid, T& threads) {
  command
      .add_option("--grid", grid,
                  "Blocks per side of a CUDA launch, for --method textbook: 8, 16 (default) or 32")
      ->check(CLI::IsMember({8, 16, 32}));
  command
      .add_option("--threads", threads,
                  "Threads per side of each of these blocks: 16 or 32 (default)")
      ->check(CLI::IsMember({16, 32}));
}
/// Refuses those of `names` ("--block") that were given on the command line, with the reason why
/// `command` would not obey them: exit 2.
void refuse_given(const CLI::App& command, const std::vector<std::string>& names,
                  const std::string& reason);
/// The input, rhs, output and reading rules shared by all: a matrix result needs -o.
void require_output(const CommonOptions& options);

}  // namespace terrace
