#include "src/bench/bench.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace terrace {

void add_bench_options(CLI::App& command, BenchOptions& options) {
  command.add_option("--n", options.n, "Sizes, comma-separated")->delimiter(',');
  command.add_option("--repeat", options.repeat, "Measured runs; the median is reported")
      ->check(positive());
  command.add_option("--rivals", options.rivals, "Rivals to measure beside, comma-separated")
      ->delimiter(',');
}

void bench_run(Run& run, const BenchOptions& options, const BenchRun& what) {
  if (!run.report.contains("runs")) {
    run.report["runs"] = nlohmann::json::array();
    run.say(fmt::format("{:<44} {:>5} {:>12} {:>11} {:>12} {:>9}  {}", "problem", "ranks",
                        "seconds", "rate", "unit", "fraction", "residual"));
  }
  std::vector<double> seconds;
  what.measure();
  for (Index i = 0; i < options.repeat; ++i)
    seconds.push_back(run.control.reduce(what.measure(), Reduce::max));
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  const double rate = median > 0 ? what.work / median : 0;
  nlohmann::json line = what.sizes;
  line["who"] = what.who;
  line["ranks"] = run.control.size();
  line["seconds"] = median;
  line["rate"] = {{"value", rate}, {"unit", what.unit}};
  std::string fraction = "-", residual = "-";
  if (what.bound > 0) {
    line["fraction_of_bound"] = {
        {"bound", what.bound_name}, {"measured", what.bound}, {"fraction", rate / what.bound}};
    fraction = fmt::format("{:.3f}", rate / what.bound);
  }
  if (what.residual) {
    const double value = what.residual();
    line["residual"] = value;
    residual = fmt::format("{:.3g}", value);
  }
  if (what.certificate) {
    residual = what.certificate();
    line["certificate"] = residual;
  }
  run.report["runs"].push_back(line);
  std::string problem = what.who;
  for (const auto& [key, value] : what.sizes.items())
    problem +=
        fmt::format(" {}={}", key, value.is_string() ? value.get<std::string>() : value.dump());
  run.say(fmt::format("{:<44} {:>5} {:>12.6f} {:>11.4g} {:>12} {:>9}  {}", problem,
                      run.control.size(), median, rate, what.unit, fraction, residual));
}

}  // namespace terrace
