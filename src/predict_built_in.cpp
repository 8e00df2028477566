// Rates of a CPU core and of an H200, for machines that were not measured.
#include "src/predict.hpp"

namespace terrace {

namespace {

/// Seconds of a core per unit; latencies do not shrink with threads.
constexpr const char* cpu_rates = R"({})";
constexpr const char* cuda_rates = R"({})";

bool is_latency(const std::string& name) {
  return name == "start" || name == "panels" || name == "columns" || name == "steps" ||
         name == "substitution panels";
}

}  // namespace

nlohmann::json built_in_rates(const std::string& model, bool device, int threads) {
  static const nlohmann::json cpu = nlohmann::json::parse(cpu_rates);
  static const nlohmann::json cuda = nlohmann::json::parse(cuda_rates);
  const nlohmann::json& all = device ? cuda : cpu;
  if (!all.contains(model)) return nlohmann::json::object();
  nlohmann::json rates = all[model];
  if (!device)
    for (const char* phase : {"solve", "check"})
      if (rates.contains(phase))
        for (auto& [name, value] : rates[phase].items())
          if (!is_latency(name)) value = value.get<double>() / std::max(1, threads);
  return rates;
}

}  // namespace terrace
