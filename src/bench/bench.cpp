#include "src/bench/bench.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

namespace terrace {

void add_bench_options(CLI::App& command, BenchOptions& options) {
  command.add_option("--n", options.n, "Sizes, comma-separated")->delimiter(',')->check(positive());
  command.add_option("--repeat", options.repeat, "Measured runs; the median is reported")
      ->check(positive());
  command.add_option("--rivals", options.rivals, "Rivals to measure beside, comma-separated")
      ->delimiter(',');
}

CLI::Option* add_stages_option(CLI::App& command, BenchOptions& options) {
  return command.add_flag("--stages", options.stages,
                          "One run more, with the time of each stage of the elimination");
}

nlohmann::json stage_report(const Control& control, const StageSeconds& mine, Index pivots) {
  std::vector<double> slowest{mine.panel,  mine.share, mine.widen,
                              mine.update, mine.loop,  double(mine.host_synchronizations)};
  control.reduce(slowest, Reduce::max);
  std::vector<double> sums{mine.hidden, mine.panel + mine.share + mine.widen};
  control.reduce(sums, Reduce::sum);
  const auto ratio = [](double part, double whole) { return whole > 0 ? part / whole : 0.0; };
  return {{"panel", slowest[0]},
          {"share", slowest[1]},
          {"widen", slowest[2]},
          {"update", slowest[3]},
          {"loop", slowest[4]},
          {"hidden_fraction", ratio(sums[0], sums[1])},
          {"host_synchronizations_per_panel", ratio(slowest[5], double(mine.panels))},
          {"panels", mine.panels},
          {"microseconds_per_pivot", ratio(1e6 * slowest[4], double(pivots))},
          {"panel_microseconds_per_pivot", ratio(1e6 * slowest[0], double(pivots))}};
}

namespace {

void say_stages(const Run& run, const nlohmann::json& s) {
  const auto value = [&](const char* key) { return s[key].get<double>(); };
  run.say(fmt::format(
      "  stages: panel {:.6f} s, share {:.6f} s, widen {:.6f} s, {:.1f} % of them hidden; update "
      "{:.6f} s; loop {:.6f} s; {} panels, {:.1f} host synchronizations a panel, {:.3f} us a "
      "pivot, {:.3f} of them panel",
      value("panel"), value("share"), value("widen"), 100 * value("hidden_fraction"),
      value("update"), value("loop"), s["panels"].get<Index>(),
      value("host_synchronizations_per_panel"), value("microseconds_per_pivot"),
      value("panel_microseconds_per_pivot")));
  if (s.contains("mean_megahertz"))
    run.say(
        fmt::format("  clocks: {:.0f} MHz, lowest {:.0f}; held down by the power limit {:.0f} % "
                    "of the time, by heat {:.0f} %",
                    value("mean_megahertz"), value("lowest_megahertz"),
                    100 * value("power_capped_fraction"), 100 * value("too_hot_fraction")));
}

void say_energy(const Run& run, const nlohmann::json& e) {
  const auto value = [&](const char* key) { return e[key].get<double>(); };
  run.say(fmt::format(
      "  energy: {:.4g} J a solve, {:.4g} J above idle; {:.4g} W, idle {:.4g} W; {} solves, {} "
      "devices, by {}",
      value("joules_per_solve"), value("joules_above_idle"), value("watts"), value("idle_watts"),
      e["solves"].get<Index>(), e["devices"].get<Index>(), e["counter"].get<std::string>()));
}

}  // namespace

void bench_run(Run& run, const BenchOptions& options, const BenchRun& what) {
  if (!run.report.contains("runs")) {
    run.report["runs"] = nlohmann::json::array();
    run.say(fmt::format("{:<44} {:>5} {:>12} {:>11} {:>12} {:>9}  {}", "problem", "ranks",
                        "seconds", "rate", "unit", "fraction", "residual"));
  }
  std::vector<double> seconds;
  if (what.warm_up) what.measure();
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
  std::string fraction = "-", residual = "-", check;
  if (what.bound > 0) {
    line["fraction_of_bound"] = {
        {"bound", what.bound_name}, {"measured", what.bound}, {"fraction", rate / what.bound}};
    fraction = fmt::format("{:.3f}", rate / what.bound);
  }
  const auto check_start = std::chrono::steady_clock::now();
  if (what.residual) {
    const double value = what.residual();
    line["residual"] = value;
    residual = fmt::format("{:.3g}", value);
  }
  if (what.certificate) {
    residual = what.certificate();
    line["certificate"] = residual;
  }
  if (what.residual || what.certificate) {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - check_start;
    const double slowest = run.control.reduce(spent.count(), Reduce::max);
    line["check_seconds"] = slowest;
    line["check_to_solve"] = median > 0 ? slowest / median : 0;
    check = fmt::format("  check {:.3g} s", slowest);
  }
  if (options.stages && what.stages) line["stages"] = what.stages();
  if (what.meter && what.meter->available()) line["energy"] = what.meter->report(what.measure);
  if (what.meter && !what.meter->available()) {
    line["energy"] = nullptr;
    line["energy_reason"] = what.meter->reason();
  }
  run.report["runs"].push_back(line);
  std::string problem = what.who;
  for (const auto& [key, value] : what.sizes.items())
    problem +=
        fmt::format(" {}={}", key, value.is_string() ? value.get<std::string>() : value.dump());
  run.say(fmt::format("{:<44} {:>5} {:>12.6f} {:>11.4g} {:>12} {:>9}  {}{}", problem,
                      run.control.size(), median, rate, what.unit, fraction, residual, check));
  if (line.contains("stages")) say_stages(run, line["stages"]);
  if (line.contains("energy") && !line["energy"].is_null()) say_energy(run, line["energy"]);
  if (what.meter && !what.meter->available())
    run.say("  energy: not measured, " + what.meter->reason());
}

}  // namespace terrace
