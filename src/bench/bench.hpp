// The one benchmark harness: runs of a solve phase on generated data, checked, with a bound.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "src/bench/energy.hpp"
#include "src/bench/median.hpp"
#include "src/frame/stages.hpp"
#include "src/program/register.hpp"

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
  /// Of the answer of the last measure, equal on all ranks or 0 on those that know nothing of it;
  /// may be empty. Above `limit`, or no number: a wrong answer.
  std::function<double()> residual;
  double limit = 30;
  std::function<std::string()> certificate;  ///< exact solvers: "passed", or what is broken
  std::function<std::string()> trouble;      ///< why there is no answer at all; rank 0's counts
  bool rival = false;                        ///< its wrong answer is said, and the bench goes on
  std::function<void(double)> spoil;         ///< writes a number into the answer, for tests
  std::function<nlohmann::json()> stages;    ///< --stages: a run more, as stage_report()
  bool warm_up = true;                       ///< `measure` once, unused, before the others
  EnergyMeter* meter = nullptr;              ///< --energy: what `measure` starts and stops
};
/// Measures (a warm-up, then repeat), judges the answer of each run, prints the line, appends it to
/// run.report["runs"] and returns it. `residual` is the worst of the runs; null, and "not checked",
/// where nothing can check or --no-check asks for nothing. The median time of a check is reported
/// beside: `check_seconds`, `check_to_solve`.
///
/// A wrong answer has no `seconds` but `failed`, which says why. Ours ends the command (exit 4); a
/// rival's does not, and false is returned.
///
/// TERRACE_TEST_BENCH = "WHO:VALUE[:RUN]" spoils the answers of lines whose `who` begins with WHO,
/// of every run or of one (1, 2, ...), before they are judged.
bool bench_run(Run& run, const BenchOptions& options, const BenchRun& what);

/// The order of a product, and the bytes read, that a bound is measured with; 0: what fills the
/// machine. TERRACE_TEST_BOUNDS makes both small, for tests that start bench a hundred times.
struct BoundSizes {
  Index order = 0, bytes = 0;
};
BoundSizes bound_sizes();

/// BenchRun::spoil of an answer that begins at `answer`.
template <class B>
std::function<void(double)> spoils(const Stream<B>& lane, View<double, B> answer) {
  return [&lane, answer](double value) {
    lane.synchronize();
    if (answer.size > 0) upload(lane, answer.slice(0, 1), &value);
    lane.synchronize();
  };
}
/// The same of a vector on the host.
inline std::function<void(double)> spoils(std::vector<double>& answer) {
  return [&answer](double value) {
    if (!answer.empty()) answer.front() = value;
  };
}

/// Removes the test file however the bench ends.
struct Removed {
  const Control& control;
  std::string file;
  bool keep;
  ~Removed() {
    std::error_code ignored;
    if (control.rank() == 0 && !keep) std::filesystem::remove(file, ignored);
  }
};

/// Refuses names of --rivals that are none of `known`: Error(usage) on all ranks.
void require_rivals(const BenchOptions& options, const std::string& family,
                    const std::vector<std::string>& known);
/// The slowest rank's seconds of each stage, and what follows from them:
///   panel, share, widen, update, loop   seconds
///   hidden_fraction                     of panel + share + widen, while an update was under way
///   host_synchronizations_per_panel, panels
///   microseconds_per_pivot              of the whole loop
///   panel_microseconds_per_pivot        of panel
nlohmann::json stage_report(const Control& control, const StageSeconds& mine, Index pivots);

}  // namespace terrace
