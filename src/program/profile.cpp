#include "src/program/profile.hpp"

#include <fmt/core.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

#include "distrib/agree.hpp"
#include "kernels/base/assumed.hpp"
#include "kernels/base/parallel.hpp"
#include "src/program/machines.hpp"
#include "src/program/summary.hpp"

namespace terrace {

namespace {

/// An unreadable profile counts as none: it is a cache.
nlohmann::json read(const std::string& path) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed)) return nlohmann::json::object();
  std::ifstream file(path);
  auto profile = nlohmann::json::parse(file, nullptr, false);
  return profile.is_object() ? profile : nlohmann::json::object();
}

/// Seconds of the launcher, of each further GPU of the host, all of which every rank starts, and of
/// NCCL: jobs/results/whole-runs.md, messages.md.
double start_of_several(const Control& control) {
  constexpr double launcher = 0.25, another = 0.13, communicator = 0.5;
  return launcher + another * (control.local_size() - 1) +
         (may_use_peer_memory(control) ? 0 : communicator);
}
constexpr int form = 2;  ///< of rates; 1, without a number, were fits of seconds

bool has_form(const nlohmann::json& stored) {
  return stored.contains("form") && stored["form"] == form && stored.contains("per_second") &&
         stored["per_second"].is_object();
}

Index whole_number(const nlohmann::json& entry, const char* name, Index otherwise) {
  return entry.contains(name) && entry[name].is_number_integer() ? entry[name].get<Index>()
                                                                 : otherwise;
}

/// [from, columns], ascending; empty where one of them is neither.
gf2::PanelMeasurements::Widths widths(const nlohmann::json& stored, const char* name) {
  gf2::PanelMeasurements::Widths list;
  if (!stored.contains(name) || !stored[name].is_array()) return {};
  for (const auto& entry : stored[name]) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_number_integer() ||
        !entry[1].is_number_integer())
      return {};
    list.emplace_back(entry[0].get<Index>(), entry[1].get<Index>());
  }
  return list;
}

}  // namespace

std::string profile_path() {
  if (const char* named = std::getenv("TERRACE_PROFILE")) return named;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::filesystem::path base = cache && *cache ? std::filesystem::path(cache)
                                     : home && *home ? std::filesystem::path(home) / ".cache"
                                                     : std::filesystem::path(".");
  return (base / "terrace" / "profile.json").string();
}

nlohmann::json load_profile(const Control& control, const std::string& device,
                            const std::string& family) {
  std::string text;
  if (control.rank() == 0) {
    const nlohmann::json profile = read(profile_path());
    if (profile.contains(device) && profile[device].is_object() &&
        profile[device].contains(family) && profile[device][family].is_object())
      text = profile[device][family].dump();
  }
  text = control.broadcast(text, 0);
  return text.empty() ? nlohmann::json::object() : nlohmann::json::parse(text);
}

void save_profile(const Control& control, const std::string& device, const std::string& family,
                  const nlohmann::json& values) {
  collectively(control, [&] {
    if (control.rank() != 0) return;
    const std::filesystem::path path = profile_path();
    const std::string temporary = path.string() + ".part";
    std::error_code failed;
    if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), failed);
    nlohmann::json profile = read(path.string());
    if (!profile[device].is_object()) profile[device] = nlohmann::json::object();
    if (values.is_null())
      profile[device].erase(family);
    else
      profile[device][family] = values;
    std::ofstream file(temporary);
    file << profile.dump(2) << '\n';
    file.close();
    if (file) std::filesystem::rename(temporary, path, failed);
    if (!file || failed) {
      std::filesystem::remove(temporary, failed);
      throw Error(Exit::resources, "the profile cannot be written; " + path.string() +
                                       "; name another file with TERRACE_PROFILE");
    }
  });
}

template <>
std::string device_model(const Context<Cpu>&) {
  std::ifstream file("/proc/cpuinfo");
  std::string line, name = "CPU";
  while (std::getline(file, line))
    if (line.starts_with("model name") && line.find(": ") != std::string::npos) {
      name = line.substr(line.find(": ") + 2);
      break;
    }
  return fmt::format("{}, {} threads", name, thread_count());
}
template <>
std::string device_model(const Context<Cuda>& context) {
  return context.device.name;
}

template <class B>
std::string machine_name(const Context<B>& c, int ranks) {
  const auto names = c.control.gather_all(host_name());
  const auto hosts = std::set<std::string>(names.begin(), names.end()).size();
  std::string name = fmt::format("{}, {} rank{}", device_model(c), ranks, ranks == 1 ? "" : "s");
  if (hosts > 1 && ranks == c.size()) name += fmt::format(" on {} hosts", hosts);
  return name;
}

template <class B>
gf2::PanelMeasurements measured_panels(const Context<B>& c) {
  const nlohmann::json stored = load_profile(c.control, device_model(c), "gf2");
  gf2::PanelMeasurements m;
  m.panels = widths(stored, "panels");
  m.table_panels = widths(stored, "table_panels");
  if (stored.contains("shapes") && stored["shapes"].is_array())
    for (const auto& entry : stored["shapes"]) {  // best first
      if (!entry.is_object()) break;
      m.shapes.push_back({whole_number(entry, "k", -1), whole_number(entry, "tables", -1),
                          whole_number(entry, "rows", -1), whole_number(entry, "threads", -1)});
    }
  if (stored.contains("columns") && stored["columns"].is_object()) {
    const auto number = [&](const char* name) { return whole_number(stored["columns"], name, 0); };
    m.columns = {number("search_threads"), number("threads"), number("lanes"), number("blocks")};
  }
  return m;
}

template <class B>
KnownRates known_rates(const Context<B>& c) {
  constexpr bool device = std::is_same_v<B, Cuda>;
  KnownRates known{built_in_rates(device, thread_count()), "", ""};
  const KnownGpu* const gpu = find_gpu(device ? c.device.name : "");
  if (gpu) known.rates = rates_of(*gpu);
  if (device && c.size() > 1)
    known.rates[Rate::start] = 1 / (1 / known.rates[Rate::start] + start_of_several(c.control));
  const std::string built_in =
      device ? std::string("built in, of ") + (gpu ? gpu->device.info.name : "an H200")
             : fmt::format("built in, of a CPU core, times {}", counted(thread_count(), "thread"));
  if (assumed_device()) {
    known.source = built_in;
    return known;
  }
  std::string old;
  std::vector<int> tries{c.size()};
  for (int ranks = 1 << 12; ranks > 0; ranks /= 2)
    if (ranks < c.size()) tries.push_back(ranks);
  for (const int ranks : tries) {
    const std::string machine = machine_name(c, ranks);
    const nlohmann::json stored = load_profile(c.control, machine, "rates");
    if (!has_form(stored)) {
      if (!stored.empty() || !load_profile(c.control, machine, "models").empty()) old = machine;
      continue;
    }
    for (int r = 0; r < int(Rate::second); ++r) {
      const auto found = stored["per_second"].find(name_of(Rate(r)));
      if (found == stored["per_second"].end() || !found->is_object()) continue;
      const auto value = found->find("value");
      if (value != found->end() && value->is_number() && value->get<double>() > 0)
        known.rates[Rate(r)] = value->get<double>();
    }
    known.source = "measured on " + machine;
    if (stored.contains("date") && stored["date"].is_string())
      known.source += ", " + stored["date"].get<std::string>();
    if (ranks != c.size())
      known.note = fmt::format(
          "what {} ranks say to each other was not measured; mpirun -n {} terrace bench profile "
          "measures it",
          c.size(), c.size());
    return known;
  }
  known.source = built_in;
  known.note =
      old.empty()
          ? "no profile of this machine: terrace bench profile measures one in ten seconds"
          : fmt::format(
                "the profile of {} in {} is an old one, and not used; terrace bench profile "
                "measures it anew",
                old, profile_path());
  return known;
}

template <class B>
void save_rates(const Context<B>& c, const nlohmann::json& per_second) {
  std::string date(10, ' ');
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  date.resize(std::strftime(date.data(), 11, "%Y-%m-%d", &utc));
  const std::string machine = machine_name(c, c.size());
  save_profile(c.control, machine, "models", nullptr);  // of older versions
  save_profile(
      c.control, machine, "rates",
      {{"form", form}, {"date", date}, {"version", TERRACE_VERSION}, {"per_second", per_second}});
}

#define TERRACE_INSTANTIATE(B)                                        \
  template std::string machine_name(const Context<B>&, int);          \
  template gf2::PanelMeasurements measured_panels(const Context<B>&); \
  template KnownRates known_rates(const Context<B>&);                 \
  template void save_rates(const Context<B>&, const nlohmann::json&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace
