#include "src/bench/bench.hpp"
namespace terrace {
void add_bench_dense(CLI::App&, Selected&) {}
}
