#include "src/bench/fresh.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string_view>

extern char** environ;

namespace terrace {

namespace {

/// Whether a launcher set this variable for its ranks: with it MPI would look for that launcher.
bool of_launcher(std::string_view variable) {
  constexpr std::array<std::string_view, 2> kept{"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_MCA_"};
  constexpr std::array<std::string_view, 10> gone{
      "OMPI_MCA_orte_", "OMPI_MCA_ess", "OMPI_MCA_pmix", "OMPI_MCA_initial_wdir",
      "OMPI_MCA_shmem", "OMPI_",        "PMIX_",         "PMI_",
      "PRTE_",          "SLURM_"};
  const auto starts = [&](std::string_view with) { return variable.rfind(with, 0) == 0; };
  const auto rule = std::find_if(gone.begin(), gone.end(), starts);
  if (rule == gone.end()) return false;
  return *rule != "OMPI_" || std::none_of(kept.begin(), kept.end(), starts);
}

}  // namespace

FreshRun run_fresh(const std::vector<std::string>& words, const std::string& report_file) {
  FreshRun run;
  std::error_code failed;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", failed).string();
  if (failed) return run;
  std::filesystem::remove(report_file, failed);
  std::vector<std::string> line{program};
  line.insert(line.end(), words.begin(), words.end());
  line.insert(line.end(), {"--report", report_file});
  std::vector<char*> arguments, variables;
  for (std::string& word : line) arguments.push_back(word.data());
  for (char** v = environ; *v; ++v)
    if (!of_launcher(*v)) variables.push_back(*v);
  arguments.push_back(nullptr);
  variables.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_addopen(&files, stream, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const bool started = posix_spawn(&child, program.c_str(), &files, nullptr, arguments.data(),
                                   variables.data()) == 0;
  posix_spawn_file_actions_destroy(&files);
  if (!started) return run;
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return run;
  if (WIFEXITED(status)) run.code = WEXITSTATUS(status);
  std::ifstream file(report_file);
  if (file) run.report = nlohmann::json::parse(file, nullptr, false);
  if (run.report.is_discarded()) run.report = nullptr;
  return run;
}

}  // namespace terrace
