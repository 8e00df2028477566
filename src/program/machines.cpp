#include "src/program/machines.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "distrib/agree.hpp"
#include "distrib/imagined.hpp"
#include "kernels/base/parallel.hpp"

namespace terrace {

namespace {

// Where the constants are from. A fraction of DGEMM, or of the memory's rate, is no constant but
// stands with the method that reaches it: predict.cpp, schedule.cpp.
constexpr const char* ceiling = "measured, one H200, 2026-11";
constexpr const char* same_chip = "of the H200, whose chip, clock and power limit it has";
constexpr const char* pivots =
    "fitted to whole solves of gf2 n = 4,096 to 262,144, one H200; stages measure 0.19 to 0.21 us";
constexpr const char* waits = "fitted to the same: a panel's launches, and the host's wait for it";
constexpr const char* columns = "measured, one H200, stages of dense n = 1,000";
constexpr const char* blocks = "measured, one H200, band m = 128";
constexpr const char* whole_runs =
    "measured, one H200 and 16 cores, whole runs: from the prompt to the run, and CUDA's end";
constexpr const char* peers = "measured, peer memory, two H200";
constexpr const char* nccl = "measured, NCCL 2.28.3 over NVLink, two to eight H200";
constexpr const char* network =
    "NDR 400 Gb/s: 46 to 48 GB/s per NIC, github.com/NVIDIA/nccl-tests issue 290";
constexpr const char* hop =
    "8 bytes between two hosts in 19 us, github.com/NVIDIA/nccl-tests issue 150, less one call";

/// What both chips have alike; `source` of the raw rates.
std::vector<Constant> constants(const char* source, double memory, const char* of_memory) {
  return {{Rate::product, 6.1e13, source},     {Rate::bits, 6.1e15, source},
          {Rate::tables, 1e15, source},        {Rate::integers, 9e14, source},
          {Rate::memory, memory, of_memory},   {Rate::to_device, 5.3e10, source},
          {Rate::to_host, 5.5e10, source},     {Rate::exchange, 3.05e11, peers},
          {Rate::message, 1 / 3e-6, peers},    {Rate::launch, 5e5, source},
          {Rate::start, 1 / 0.32, whole_runs}, {Rate::pivot, 1 / 0.19e-6, pivots},
          {Rate::wait, 1 / 20e-6, waits},      {Rate::column, 1 / 1.23e-6, columns},
          {Rate::block, 1 / 10e-6, blocks},    {Rate::call, 1e5, nccl},
          {Rate::network, 4.7e10, network},    {Rate::hop, 1e5, hop}};
}

DeviceInfo hopper(const char* name, double memory_gib) {
  DeviceInfo info;
  info.name = name;
  info.memory_bytes = Index(memory_gib * 0x1p30);
  info.free_bytes = info.memory_bytes - (Index(768) << 20);  // contexts and libraries
  info.compute_capability = 90;
  info.multiprocessors = 132;
  info.l2_bytes = Index(50) << 20;
  return info;
}

/// Eight of them on a host with 2 TB.
const std::vector<KnownGpu>& gpus() {
  constexpr Index shared = Index(227) << 10, host = Index(2e12);
  static const std::vector<KnownGpu> all{
      {"h100",
       {hopper("NVIDIA H100 80GB HBM3", 79.1), shared, host},
       8,
       constants(same_chip, 3.16e12, "3.35 TB/s by its data sheet, of which 0.945 as on the H200")},
      {"h200",
       {hopper("NVIDIA H200", 139.8), shared, host},
       8,
       constants(ceiling, 4.54e12, ceiling)}};
  return all;
}

}  // namespace

std::set<std::string> known_gpus() {
  std::set<std::string> names;
  for (const KnownGpu& gpu : gpus()) names.insert(gpu.name);
  return names;
}

const KnownGpu* find_gpu(const std::string& name) {
  for (const KnownGpu& gpu : gpus())
    if (name == gpu.name || name == gpu.device.info.name) return &gpu;
  return nullptr;
}

Rates rates_of(const KnownGpu& gpu) {
  Rates r;
  for (const Constant& c : gpu.constants) r[c.rate] = c.value;
  // 16 cores, a file system in memory: jobs/results/whole-runs.md.
  r[Rate::file_read] = 2.8e10;
  r[Rate::file_write] = 1.2e10;
  r[Rate::second] = 1;
  return r;
}

nlohmann::json describe(const KnownGpu& gpu) {
  nlohmann::json constants = nlohmann::json::object();
  for (const Constant& c : gpu.constants)
    constants[name_of(c.rate)] = {
        {"value", c.value}, {"unit", unit_of(c.rate)}, {"source", c.source}};
  return {{"name", gpu.device.info.name},
          {"free_bytes", gpu.device.info.free_bytes},
          {"host_bytes", gpu.device.host_bytes},
          {"gpus_per_host", gpu.per_host},
          {"constants", constants}};
}

/// A core: of an AMD EPYC 9575F.
Rates built_in_rates(bool device, int threads) {
  if (device) return rates_of(*find_gpu("h200"));
  const double cores = std::max(1, threads);
  Rates r;
  r[Rate::product] = 4.5e10 * cores;
  r[Rate::bits] = r[Rate::tables] = 4e12 * cores;
  r[Rate::integers] = 1e10 * cores;
  r[Rate::memory] = 2e10 * std::pow(cores, 0.65);
  r[Rate::to_device] = r[Rate::to_host] = 9e9 * cores;
  r[Rate::file_read] = 4e9;
  r[Rate::file_write] = 1.5e9;
  r[Rate::exchange] = 3e9;
  r[Rate::message] = 5e5;
  r[Rate::launch] = 1e7;
  r[Rate::start] = 100;
  r[Rate::second] = 1;
  return r;
}

Control ranks_to_plan(const Control& here, const CommonOptions& o) {
  if (o.ranks == 0 && o.gpu.empty()) return here;
  const std::string given = o.ranks > 0 ? "--ranks" : "--gpu";
  if (!o.plan)
    fail_together(Exit::usage, "only a plan is made for ranks that are not there; " + given +
                                   "; add --plan, or start the ranks");
  if (here.size() > 1)
    fail_together(Exit::usage, fmt::format("{} ranks were started to plan for others; {}; start "
                                           "one, or leave the option out",
                                           here.size(), given));
  const int ranks = std::max(1, o.ranks);
  if (o.gpu.empty()) return imagined(here, ranks, std::max(1, cuda_device_count()));
  if (o.backend == "cpu")
    fail_together(Exit::usage,
                  "a GPU, and the backend that has none; --gpu with --backend cpu; "
                  "leave one of them out");
  if (!with_cuda)
    fail_together(Exit::resources,
                  "this terrace was built without CUDA; --gpu " + o.gpu +
                      "; use one that was built with -DTERRACE_CUDA=ON: it needs no GPU to plan");
  const KnownGpu* const gpu = find_gpu(o.gpu);
  assume_device(gpu->device);
  return imagined(here, ranks, gpu->per_host);
}

}  // namespace terrace
