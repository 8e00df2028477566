// The one benchmark harness: runs of a solve phase on generated data, checked, with a bound.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "src/commands.hpp"

namespace terrace {

/// Options of every `bench FAMILY`.
struct BenchOptions {
  std::vector<Index> n;             ///< --n, comma-separated sizes
  Index repeat = 3;                 ///< --repeat: the median is reported
  std::vector<std::string> rivals;  ///< --rivals
};
void add_bench_options(CLI::App& command, BenchOptions& options);

/// One line of the table. `measure` returns the seconds of one solve phase.
struct BenchRun {
  nlohmann::json sizes;    ///< n, columns, half_bandwidth, ...
  std::string who;         ///< "terrace" or the rival's name
  double work = 0;         ///< in units of `unit` times seconds, e.g. flops / 1e9
  std::string unit;        ///< "GFLOP/s"
  std::string bound_name;  ///< "DGEMM", "HBM read", ...
  double bound = 0;        ///< in `unit`, measured in the same run
  std::function<double()> measure;
  std::function<double()> residual;          ///< after the last measure; may be empty
  std::function<std::string()> certificate;  ///< exact solvers: "passed", or what is broken
};
/// Measures (one warm-up, then repeat), prints the line, appends it to run.report["runs"].
void bench_run(Run& run, const BenchOptions& options, const BenchRun& what);

void add_bench_gf2(CLI::App& bench, Selected& selected);
void add_bench_band(CLI::App& bench, Selected& selected);
void add_bench_dense(CLI::App& bench, Selected& selected);
void add_bench_cg(CLI::App& bench, Selected& selected);

}  // namespace terrace
