// Rates of a CPU core and of an H200, for machines that were not measured: from the figures of
// jobs/results, files at 1.5 to 2 GB/s.
#include <algorithm>
#include <string>

#include "src/program/predict.hpp"

namespace terrace {

namespace {

/// Seconds of a core per unit; latencies do not shrink with threads. The longest key that a model's
/// name begins with counts.
constexpr const char* cpu_rates = R"({
"dense invert": {"solve": {"columns": 5e-6, "panel": 0.05, "flops": 0.02, "traffic": 0.5},
  "check": {"start": 0.003, "bytes": 1.0, "exact": 0.06, "norms": 0.3}},
"dense solve": {"solve": {"columns": 5e-6, "panel": 0.05, "flops": 0.02, "traffic": 0.5},
  "check": {"start": 0.003, "bytes": 1.0, "norms": 0.3}},
"dense invert, textbook": {"solve": {"flops": 1.5}, "check": {"bytes": 1.0, "exact": 0.06}},
"dense solve, cramer": {"solve": {"flops": 1.0}},
"gf2": {"solve": {"start": 0.001, "columns": 1e-6, "words": 0.0145},
  "check": {"start": 0.002, "bytes": 0.6}},
"gf2 multiply": {"solve": {"start": 0.001, "words": 0.012}, "check": {"bytes": 0.6}},
"band": {"solve": {"panels": 1.5e-5, "diagonal": 0.1, "panel": 0.04, "flops": 0.034,
  "substitution": 1.0}, "check": {"bytes": 0.7}},
"cg": {"solve": {"setup": 0.3, "steps": 1e-5, "matrix": 0.13, "preconditioner": 0.13,
  "vectors": 0.13, "shared": 1.0}, "check": {"bytes": 0.2}}
})";
constexpr const char* cuda_rates = R"({
"dense invert": {"solve": {"columns": 1.7e-6, "flops": 1.9e-5},
  "check": {"start": 0.003, "bytes": 0.3, "exact": 4e-5}, "first": 0.06},
"dense solve": {"solve": {"columns": 1.7e-6, "flops": 1.9e-5}, "check": {"bytes": 0.3}, "first": 0.06},
"dense invert, textbook": {"solve": {"columns": 1e-5, "flops": 0.004}, "check": {"bytes": 0.3}},
"dense solve, cramer": {"solve": {"flops": 1.0}},
"gf2": {"solve": {"columns": 5e-7, "words": 1.2e-5}, "check": {"start": 0.002, "bytes": 0.3},
  "first": 0.008},
"gf2 multiply": {"solve": {"start": 0.0005, "words": 1.3e-5}, "check": {"bytes": 0.3}},
"band": {"solve": {"panels": 1.2e-5, "flops": 2e-5, "substitution": 0.0065},
  "check": {"bytes": 0.3}},
"cg": {"solve": {"setup": 0.1, "steps": 1.5e-5, "matrix": 2.6e-4, "preconditioner": 2.6e-4,
  "vectors": 2.6e-4, "shared": 0.05}, "check": {"bytes": 0.05}}
})";
constexpr const char* file_rates = R"({"read": {"start": 0.002, "bytes": 0.5},
  "write": {"start": 0.005, "bytes": 0.7}})";

bool is_latency(const std::string& name) {
  return name == "start" || name == "panels" || name == "columns" || name == "steps" ||
         name == "substitution panels";
}

}  // namespace

nlohmann::json built_in_rates(const std::string& model, bool device, int threads) {
  static const nlohmann::json cpu = nlohmann::json::parse(cpu_rates);
  static const nlohmann::json cuda = nlohmann::json::parse(cuda_rates);
  const nlohmann::json& all = device ? cuda : cpu;
  std::string key;
  for (const auto& [name, value] : all.items())
    if (model.compare(0, name.size(), name) == 0 && name.size() > key.size()) key = name;
  if (key.empty()) return nlohmann::json::object();
  nlohmann::json rates = all[key];
  if (!device)
    for (auto& [phase, amounts] : rates.items())
      for (auto& [name, value] : amounts.items())
        if (!is_latency(name)) value = value.get<double>() / std::max(1, threads);
  rates.update(nlohmann::json::parse(file_rates));
  return rates;
}

nlohmann::json trusted_rates(const nlohmann::json& measured, const std::string& model) {
  constexpr double enough = 0.05;  // seconds of the longest solve
  const nlohmann::json known = built_in_rates(model, true, 1);
  if (measured.value("longest_solve_seconds", 0.0) >= enough || !known.contains("solve"))
    return measured;
  nlohmann::json rates = measured;
  rates["solve"] = known["solve"];
  if (measured.contains("solve") && measured["solve"].contains("shared"))
    rates["solve"]["shared"] = measured["solve"]["shared"];
  rates["first"] = std::max(measured.value("first", 0.0), known.value("first", 0.0));
  return rates;
}

}  // namespace terrace
