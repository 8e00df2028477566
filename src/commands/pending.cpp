// Commands that have not landed yet; each family removes its lines when it lands.
#include "src/bench/bench.hpp"
#include "src/commands.hpp"

namespace terrace {
void add_gf2_commands(CLI::App&, Selected&) {}
void add_bench_gf2(CLI::App&, Selected&) {}
void add_bench_band(CLI::App&, Selected&) {}
void add_convert_command(CLI::App&, Selected&) {}
}  // namespace terrace
