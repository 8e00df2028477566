// The one benchmark harness: runs of a solve phase on generated data, checked, with a bound.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "src/commands.hpp"
#include "src/energy.hpp"
#include "src/stages.hpp"

namespace terrace {

/// Options of every `bench FAMILY`.
struct BenchOptions {
  std::vector<Index> n;             ///< --n, comma-separated sizes
  Index repeat = 3;                 ///< --repeat: the median is reported
  std::vector<std::string> rivals;  ///< --rivals
  bool stages = false;              ///< --stages, where a bench has it
  bool energy = false;              ///< --energy, where a bench has it
};
void add_bench_options(CLI::App& command, BenchOptions& options);
CLI::Option* add_stages_option(CLI::App& command, BenchOptions& options);

/// One line of the table. `measure` returns the seconds of one solve phase.
struct BenchRun {
  nlohmann::json sizes;  ///< n, columns, half_bandwidth, ...
  std::string who;       ///< "terrace" or the rival's name
  double work = 0;       ///< in units of `unit` times seconds, e.g. flops / 1e9; measure may set it
  std::string unit;      ///< "GFLOP/s"
  std::string bound_name;  ///< "DGEMM", "HBM read", ...
  double bound = 0;        ///< in `unit`, measured in the same run
  std::function<double()> measure;
  std::function<double()> residual;          ///< after the last measure; may be empty
  std::function<std::string()> certificate;  ///< exact solvers: "passed", or what is broken
  std::function<nlohmann::json()> stages;    ///< --stages: a run more, as stage_report()
  bool warm_up = true;                       ///< `measure` once, unused, before the others
  EnergyMeter* meter = nullptr;              ///< --energy: what `measure` starts and stops
};
/// Measures (a warm-up, then repeat), prints the line, appends it to run.report["runs"]. The time
/// of the residual or certificate is reported beside: `check_seconds`, `check_to_solve`.
void bench_run(Run& run, const BenchOptions& options, const BenchRun& what);

/// The slowest rank's seconds of each stage, and what follows from them:
///   panel, share, widen, update, loop   seconds
///   hidden_fraction                     of panel + share + widen, while an update was under way
///   host_synchronizations_per_panel, panels
///   microseconds_per_pivot              of the whole loop
///   panel_microseconds_per_pivot        of panel
nlohmann::json stage_report(const Control& control, const StageSeconds& mine, Index pivots);

void add_bench_gf2(CLI::App& bench, Selected& selected);
void add_bench_band(CLI::App& bench, Selected& selected);
void add_bench_dense(CLI::App& bench, Selected& selected);
void add_bench_cg(CLI::App& bench, Selected& selected);
void add_bench_matrix(CLI::App& bench, Selected& selected);
void add_bench_io(CLI::App& bench, Selected& selected);
/// bench profile, and bench --profile.
void add_bench_profile(CLI::App& bench, Selected& selected);

}  // namespace terrace
