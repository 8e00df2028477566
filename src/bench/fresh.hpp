// A command of the program in a process of its own.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace terrace {

/// What a process left: its exit code, -1 where none could be started, and its --report, null where
/// there is none.
struct FreshRun {
  int code = -1;
  nlohmann::json report;
};
/// `terrace words --report FILE` as a user would start it, one rank, without what mpirun or srun
/// told this process; its output is lost. Waits.
FreshRun run_fresh(const std::vector<std::string>& words, const std::string& report_file);

}  // namespace terrace
