#include "src/bench/bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <thread>

#include "distrib/agree.hpp"
#include "distrib/faults.hpp"
#include "kernels/base/clock.hpp"

namespace terrace {

void add_bench_options(CLI::App& command, BenchOptions& options) {
  command.add_option("--n", options.n, "Sizes, comma-separated")->delimiter(',')->check(positive());
  command.add_option("--repeat", options.repeat, "Measured runs; the median is reported")
      ->check(positive());
  command
      .add_option("--rivals", options.rivals,
                  "Reference libraries to compare with, comma-separated")
      ->delimiter(',');
}

CLI::Option* add_stages_option(CLI::App& command, BenchOptions& options) {
  return command.add_flag("--stages", options.stages,
                          "One more run, with the time of each stage of the elimination");
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
      "{:.6f} s; loop {:.6f} s; {} panels, {:.1f} host synchronizations per panel, {:.3f} us "
      "per pivot, {:.3f} of them panel",
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
      "  energy: {:.4g} J per solve, {:.4g} J above idle; {:.4g} W, idle {:.4g} W; {} solves, {} "
      "devices, by {}",
      value("joules_per_solve"), value("joules_above_idle"), value("watts"), value("idle_watts"),
      e["solves"].get<Index>(), e["devices"].get<Index>(), e["counter"].get<std::string>()));
}

/// TERRACE_TEST_BENCH.
struct Spoiling {
  std::string who;
  double value = 0;
  Index run = 0;  ///< 0: every one
};
std::optional<Spoiling> spoiling() {
  const char* const text = test_setting("TERRACE_TEST_BENCH");
  if (text == nullptr) return {};
  const std::string all = text;
  const std::size_t first = all.find(':'), second = all.find(':', first + 1);
  Spoiling result{all.substr(0, first), std::strtod(text + first + 1, nullptr), 0};
  if (second != std::string::npos) result.run = std::atol(text + second + 1);
  return result;
}

std::string problem_of(const BenchRun& what) {
  std::string problem = what.who;
  for (const auto& [key, value] : what.sizes.items())
    problem +=
        fmt::format(" {}={}", key, value.is_string() ? value.get<std::string>() : value.dump());
  return problem;
}

/// What the checks of a line's runs found, the same on every rank.
struct Judgement {
  double residual = 0;  ///< the worst
  std::string certificate = "passed";
  std::string wrong;  ///< empty: nothing is
  std::vector<double> seconds;
};

void judge(const Run& run, const BenchRun& what, Index number, Judgement& found) {
  const auto start = Clock::now();
  if (what.trouble) found.wrong = run.control.broadcast(what.trouble(), 0);
  if (found.wrong.empty() && what.residual) {
    const double mine = what.residual();  // NaN has no place in a reduction
    const double value = run.control.reduce(std::isfinite(mine) ? mine : HUGE_VAL, Reduce::max);
    found.residual = std::max(found.residual, value);
    if (!(value <= what.limit))
      found.wrong = fmt::format("the residual of run {} is {}, above {:.3g}", number,
                                std::isfinite(value) ? fmt::format("{:.3g}", value)
                                                     : std::string("infinite or no number"),
                                what.limit);
  }
  if (found.wrong.empty() && what.certificate) {
    found.certificate = run.control.broadcast(what.certificate(), 0);
    if (found.certificate != "passed")
      found.wrong =
          fmt::format("the certificate of run {} does not hold, {}", number, found.certificate);
  }
  found.seconds.push_back(run.control.reduce(since(start), Reduce::max));
}

/// OpenBLAS's threads spin for 2^26 cycles after a call with several of them, a rival's or a bound's,
/// and would take cores from what is measured next.
void let_threads_rest() { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }

}  // namespace

void require_rivals(const BenchOptions& options, const std::string& family,
                    const std::vector<std::string>& known) {
  for (const std::string& name : options.rivals)
    if (std::find(known.begin(), known.end(), name) == known.end())
      fail_together(Exit::usage,
                    fmt::format("unknown rival '{}'; --rivals of bench {}; {}", name, family,
                                known.empty() ? "leave it out, there are none"
                                              : "use " + fmt::to_string(fmt::join(known, ", "))));
}

BoundSizes bound_sizes() {
  return test_setting("TERRACE_TEST_BOUNDS") ? BoundSizes{256, Index(1) << 22} : BoundSizes{};
}

bool bench_run(Run& run, const BenchOptions& options, const BenchRun& what) {
  if (!run.report.contains("runs")) {
    run.report["runs"] = nlohmann::json::array();
    run.say(fmt::format("{:<44} {:>5} {:>12} {:>11} {:>12} {:>9}  {}", "problem", "ranks",
                        "seconds", "rate", "unit", "fraction", "residual"));
  }
  static const std::optional<Spoiling> spoil = spoiling();
  const bool spoiled = spoil && what.spoil && what.who.rfind(spoil->who, 0) == 0;
  const bool checked = (what.residual || what.certificate) && !run.options.no_check;
  const std::string problem = problem_of(what);
  std::vector<double> seconds;
  Judgement found;
  if (!what.rival) let_threads_rest();
  if (what.warm_up) what.measure();
  for (Index i = 1; i <= options.repeat && found.wrong.empty(); ++i) {
    seconds.push_back(run.control.reduce(what.measure(), Reduce::max));
    if (spoiled && (spoil->run == 0 || spoil->run == i)) what.spoil(spoil->value);
    if (checked) judge(run, what, i, found);
  }
  nlohmann::json line = what.sizes;
  line["who"] = what.who;
  line["ranks"] = run.control.size();
  line["residual"] = nullptr;
  if (!found.wrong.empty()) {
    line["seconds"] = nullptr;
    line["failed"] = found.wrong;
    if (std::isfinite(found.residual) && what.residual) line["residual"] = found.residual;
    if (what.certificate) line["certificate"] = found.certificate;
    run.report["runs"].push_back(line);
    if (!what.rival)
      run.outcome("check-failed", fmt::format("{}; {} {}; please report this as a bug", found.wrong,
                                              run.command, problem));
    run.say(fmt::format("{:<44} {:>5} failed: {}", problem, run.control.size(), found.wrong));
    return false;
  }
  const double middle = median(seconds);
  const double rate = middle > 0 ? what.work / middle : 0;
  line["seconds"] = middle;
  line["rate"] = {{"value", rate}, {"unit", what.unit}};
  std::string fraction = "-", residual = "not checked", check;
  if (what.bound > 0) {
    line["fraction_of_bound"] = {
        {"bound", what.bound_name}, {"measured", what.bound}, {"fraction", rate / what.bound}};
    fraction = fmt::format("{:.3f}", rate / what.bound);
  }
  if (checked && what.residual) {
    line["residual"] = found.residual;
    residual = fmt::format("{:.3g}", found.residual);
  }
  if (what.certificate) {
    line["certificate"] = checked ? found.certificate : "not checked";
    if (checked) residual = found.certificate;
  }
  if (checked) {
    const double slowest = median(found.seconds);
    line["check_seconds"] = slowest;
    line["check_to_solve"] = middle > 0 ? slowest / middle : 0;
    check = fmt::format("  check {:.3g} s", slowest);
  }
  if (options.stages && what.stages) line["stages"] = what.stages();
  if (what.meter && what.meter->available()) line["energy"] = what.meter->report(what.measure);
  if (what.meter && !what.meter->available()) {
    line["energy"] = nullptr;
    line["energy_reason"] = what.meter->reason();
  }
  run.report["runs"].push_back(line);
  run.say(fmt::format("{:<44} {:>5} {:>12.6f} {:>11.4g} {:>12} {:>9}  {}{}", problem,
                      run.control.size(), middle, rate, what.unit, fraction, residual, check));
  if (line.contains("stages")) say_stages(run, line["stages"]);
  if (line.contains("energy") && !line["energy"].is_null()) say_energy(run, line["energy"]);
  if (what.meter && !what.meter->available())
    run.say("  energy: not measured, " + what.meter->reason());
  return true;
}

}  // namespace terrace
