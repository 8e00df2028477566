// terrace info: versions, build, and which host, cores, GPU and network cards each rank has.
#include <fmt/core.h>

#include "distrib/hypre.hpp"
#include "distrib/topology.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/base/threads.hpp"
#include "kernels/cg/graph_parts.hpp"
#include "src/program/register.hpp"

namespace terrace {

namespace {

std::string node_text(int node) { return node < 0 ? "NUMA ?" : fmt::format("NUMA {}", node); }

/// Versions that a program was compiled for and runs with, by library.
nlohmann::json versions() {
  nlohmann::json all = {
      {"MPI", mpi_version()},
      {"HDF5", io::hdf5_version()},
      {"BLAS", blas_version()},
      {"topology", topology_source()},
      {"fmt",
       fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
      {"CLI11", CLI11_VERSION},
      {"nlohmann-json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR,
                                    NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)}};
  if (!cg::metis_version().empty()) all["METIS"] = cg::metis_version();
  if (!hypre_version().empty()) all["hypre"] = hypre_version();
  if constexpr (with_cuda) {
    all["CUDA"] = cuda_versions();
    all["CUDA libraries"] = cuda_libraries();
    all["NCCL"] = nccl_version();
  }
  return all;
}

/// Cards near a node; all of them where the node or the card's place is not known.
std::string cards_near(const std::vector<NetworkCard>& cards, int node) {
  std::string text;
  for (const NetworkCard& card : cards)
    if (node < 0 || card.node < 0 || card.node == node)
      text += (text.empty() ? "" : " ") + card.name;
  return text.empty() ? "none" : text;
}

void info(Run& run) {
  run.say("terrace " TERRACE_VERSION);
  run.say(
      fmt::format("compiler   {} {}", __VERSION__, with_cuda ? "(with CUDA)" : "(without CUDA)"));
  const nlohmann::json libraries = versions();
  for (const auto& [name, version] : libraries.items())
    run.say(fmt::format("{:<14} {}", name, version.get<std::string>()));
  std::string order;
  for (const char* name : thread_variables) order += std::string(name) + ", ";
  run.say(fmt::format("{:<14} {} per rank, by {} (the first of {}cores)", "threads", thread_count(),
                      threads_named_by(), order));
  const std::string mismatch = io::hdf5_mismatch();
  if (!mismatch.empty()) run.say("WARNING    " + mismatch + "; build terrace again");

  const bool cuda = with_cuda && run.control.reduce(Index(cuda_device_count()), Reduce::min) > 0;
  DeviceBinding device;
  if (cuda) {
    allow_oversubscription();  // shown, not refused
    with_backend(run, [&]<class B>(Context<B>& context) {
      device = context.device;
      run.say("transport  " + context.comm.transport());
    });
  } else {
    bind_cores(run.control, "");
  }
  const Topology topology = read_topology();
  const std::vector<int> units = allowed_units();
  const int node = node_of(topology, units);
  const int device_node = cuda ? node_near_pci(device.pci) : -1;
  const std::vector<NetworkCard> cards = network_cards();
  nlohmann::json mine = {
      {"rank", run.control.rank()}, {"host", host_name()}, {"local_rank", run.control.local_rank()},
      {"cores", to_list(units)},    {"node", node},        {"nodes", topology.nodes.size()},
      {"threads", thread_count()},  {"device", nullptr},   {"cards", nlohmann::json::array()}};
  for (const NetworkCard& card : cards)
    mine["cards"].push_back({{"name", card.name}, {"node", card.node}});
  std::string text =
      fmt::format("{}  cores {} ({} of {})  {} threads  ", host_name(), to_list(units),
                  node_text(node), topology.nodes.size(), thread_count());
  if (cuda) {
    mine["device"] = {{"ordinal", device.ordinal},
                      {"name", device.name},
                      {"uuid", device.uuid},
                      {"pci", device.pci},
                      {"node", device_node}};
    text += fmt::format("GPU {} {} {} PCI {} ({}), {:.1f} GiB free for this rank", device.ordinal,
                        device.name, device.uuid, device.pci, node_text(device_node),
                        double(device.free_bytes) / 1073741824.0);
  } else {
    text += "no CUDA device";
  }
  text += "  network " + cards_near(cards, cuda ? device_node : node);
  const auto lines = run.control.gather_all(text);
  for (std::size_t r = 0; r < lines.size(); ++r) run.say(fmt::format("rank {:<5} {}", r, lines[r]));
  nlohmann::json map = nlohmann::json::array();
  for (const std::string& one : run.control.gather_all(mine.dump()))
    map.push_back(nlohmann::json::parse(one));
  run.report["result"]["ranks"] = lines;
  run.report["result"]["map"] = map;
  run.report["result"]["versions"] = libraries;
  run.report["result"]["threads_by"] = threads_named_by();
  if (!mismatch.empty()) run.report["result"]["mismatch"] = mismatch;
}

}  // namespace

void add_info_command(CLI::App& app, Selected& selected) {
  add_command(app, selected,
              {"info", "Versions, build, and what each rank has: cores, GPU, network",
               "mpirun -n 2 terrace info", basic_options + "--no-bind"},
              [](Run& run, const CLI::App&) { info(run); });
}

}  // namespace terrace
