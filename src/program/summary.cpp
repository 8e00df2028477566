#include "src/program/summary.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <sstream>

namespace terrace {

namespace {

constexpr double good_residual = 30;  // of LAPACK's tests

/// Seconds as a person reads them: nobody cares for less than a tenth of a millisecond.
std::string seconds_text(double seconds) {
  if (seconds < 0.001) return fmt::format("{:.4f} s", std::max(seconds, 0.0001));
  return seconds < 10 ? fmt::format("{:.3f} s", seconds) : fmt::format("{:.1f} s", seconds);
}

std::string check_of(const Run& run) {
  const nlohmann::json& report = run.report;
  if (report["result"].contains("relative_residual") && !report["residual"].is_null())
    return fmt::format("relative residual {:.3g} (rtol {:.3g})",
                       report["result"]["relative_residual"].get<double>(),
                       run.settings.value("rtol", 0.0));
  if (report.contains("certificate") && report["certificate"].is_string())
    return "certificate " + report["certificate"].get<std::string>();
  if (!report.contains("residual") || report["residual"].is_null()) return "none (--no-check)";
  const auto& residual = report["residual"];
  return fmt::format("residual {} (scaled; below {} is good)",
                     residual.is_number() ? fmt::format("{:.3g}", residual.get<double>())
                                          : residual.get<std::string>(),
                     good_residual);
}

std::string seconds_of(const nlohmann::json& report) {
  double total = 0;
  std::string parts;
  for (const char* name : {"read", "solve", "condition", "check", "guard", "write"}) {
    const double seconds = report["seconds"].value(name, 0.0);
    total += seconds;
    if (seconds > 0)
      parts += fmt::format("{} {} {}", parts.empty() ? "" : ",", name, seconds_text(seconds));
  }
  return seconds_text(total) + (parts.empty() ? "" : ":" + parts);
}

}  // namespace

std::string counted(Index number, const std::string& one, const std::string& many) {
  return fmt::format("{} {}", number, number == 1 ? one : many.empty() ? one + "s" : many);
}

std::string digits(double number) { return fmt::format("{:.4g}", number); }

void say_summary(const Run& run, const std::string& problem, const std::string& answer,
                 const std::string& file) {
  const nlohmann::json& report = run.report;
  std::string where = report.value("backend", "cpu") == "cuda" ? "GPU" : "CPU";
  std::string method = report.value("method", "");
  if (report.contains("variant")) method += " (" + report["variant"].get<std::string>() + ")";
  run.say(fmt::format("{:<9} {}; {} on the {}, {}", "problem", problem, method, where,
                      counted(run.control.size(), "rank")));
  std::istringstream lines(answer);
  bool first = true;
  for (std::string line; std::getline(lines, line); first = false)
    run.say(fmt::format("{:<9} {}", first ? "answer" : "", line));
  run.say(fmt::format("{:<9} {}", "check", check_of(run)));
  std::string rate;
  if (report.contains("rate") && report["rate"]["value"].get<double>() > 0)
    rate = fmt::format("; {} {}", digits(report["rate"]["value"].get<double>()),
                       report["rate"]["unit"].get<std::string>());
  run.say(fmt::format("{:<9} {}{}", "time", seconds_of(report), rate));
  if (!file.empty()) run.say(fmt::format("{:<9} {}", "output", file));
}

}  // namespace terrace
