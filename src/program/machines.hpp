// Machines that --plan knows without being on them: each constant with its source.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "distrib/control.hpp"
#include "kernels/base/assumed.hpp"
#include "src/program/predict.hpp"
#include "src/program/run.hpp"

namespace terrace {

struct Constant {
  Rate rate;
  double value;
  const char* source;
};
/// One GPU, and the hosts that it comes in.
struct KnownGpu {
  const char* name;  ///< as --gpu has it
  AssumedDevice device;
  int per_host;
  std::vector<Constant> constants;  ///< all rates but those of files
};
/// Names for --gpu.
std::set<std::string> known_gpus();
/// By a name of --gpu, or the name that its driver gives; null: not known.
const KnownGpu* find_gpu(const std::string& name);
Rates rates_of(const KnownGpu& gpu);
/// {"name", "free_bytes", "host_bytes", "gpus_per_host", "constants": {"product": {"value", "unit",
/// "source"}}}
nlohmann::json describe(const KnownGpu& gpu);

inline constexpr int max_planned_ranks = 1 << 16;
/// The ranks that a run goes by: `here`, or with --ranks and --gpu those that --plan is to be made
/// for; then the device is assumed too. Refuses these options without --plan, and where several
/// ranks were started. Collective.
Control ranks_to_plan(const Control& here, const CommonOptions& options);

}  // namespace terrace
