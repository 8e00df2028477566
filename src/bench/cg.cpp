#include "src/bench/bench.hpp"
namespace terrace {
void add_bench_cg(CLI::App&, Selected&) {}
}  // namespace terrace
