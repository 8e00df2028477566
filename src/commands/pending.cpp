// Commands that have not landed yet; each family removes its lines when it lands.
#include "src/bench/bench.hpp"
#include "src/commands.hpp"

namespace terrace {
void add_convert_command(CLI::App&, Selected&) {}
}  // namespace terrace
