// Where the commands of the program are registered; one file a family under src/commands/.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>

#include "src/gf2/plan.hpp"
#include "src/program/run.hpp"

namespace terrace {

/// Filled while the command line is parsed; main() then runs `action` on every rank.
struct Selected {
  CommonOptions options;
  std::string command;               ///< "gf2 rref"
  std::function<void(Run&)> action;  ///< throws Error; returning means exit 0
};

/// "gf2 rref", by the commands above it.
std::string command_of(const CLI::App& app);
/// Whether a command obeys a common option ("--block"): then its help shows it, else it is refused.
bool obeys(const std::string& command, const std::string& option);
/// Those that do, as the table has them; empty where the option is no common one.
std::string commands_with(const std::string& option);
/// Adds those of -o, --backend, --report, ... that the command obeys. It must have its parent.
void add_common_options(CLI::App& command, CommonOptions& options);
/// Adds those of --k, --tables and --panels: how GF(2) eliminates.
void add_bit_options(CLI::App& command, CommonOptions& options);
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
/// Refuses what this version does not offer yet; exit 2.
void check_common_options(const CommonOptions& options, const std::string& command);
/// The input, rhs, output and reading rules shared by all: a matrix result needs -o.
void require_output(const CommonOptions& options);

namespace gf2 {
void add_commands(CLI::App& app, Selected& selected);
}
namespace band {
void add_commands(CLI::App& app, Selected& selected);
}
namespace dense {
void add_commands(CLI::App& app, Selected& selected);
}
namespace cg {
void add_command(CLI::App& app, Selected& selected);
}
void add_generate_commands(CLI::App& app, Selected& selected);
void add_convert_command(CLI::App& app, Selected& selected);
void add_verify_command(CLI::App& app, Selected& selected);
void add_bench_commands(CLI::App& app, Selected& selected);
void add_info_command(CLI::App& app, Selected& selected);

}  // namespace terrace
