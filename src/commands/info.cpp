// terrace info: versions, build, devices and the rank-to-GPU map.
#include <fmt/core.h>

#include "kernels/parallel.hpp"
#include "src/commands.hpp"

namespace terrace {

namespace {

void info(Run& run) {
  run.say("terrace " TERRACE_VERSION);
  run.say(
      fmt::format("compiler   {} {}", __VERSION__, with_cuda ? "(with CUDA)" : "(without CUDA)"));
  run.say("MPI        " + mpi_version());
  run.say("HDF5       " + io::hdf5_version());
  if (with_cuda) run.say("CUDA       " + cuda_versions());
  const bool cuda = with_cuda && run.control.reduce(Index(cuda_device_count()), Reduce::min) > 0;
  std::string mine = fmt::format("{} with {} threads", host_name(), thread_count());
  std::string device = "no CUDA device";
  if (cuda) {
    const DeviceBinding binding = bind_device(run.control);
    device = fmt::format("GPU {} {} {} ({:.1f} GiB free for this rank)", binding.ordinal,
                         binding.name, binding.uuid, double(binding.free_bytes) / 1073741824.0);
    with_backend(run, [&]<class B>(Context<B>& context) {
      run.say("transport  " + context.comm.transport());
    });
  }
  const auto lines = run.control.gather_all(mine + ", " + device);
  for (std::size_t r = 0; r < lines.size(); ++r) run.say(fmt::format("rank {:<5} {}", r, lines[r]));
  run.report["result"]["ranks"] = lines;
}

}  // namespace

void add_info_command(CLI::App& app, Selected& selected) {
  CLI::App* command =
      app.add_subcommand("info", "Versions, build, devices and the rank-to-GPU map");
  command->add_option("--report", selected.options.report, "Write a JSON report to this file");
  command->callback([&selected] {
    selected.command = "info";
    selected.action = info;
  });
}

}  // namespace terrace
