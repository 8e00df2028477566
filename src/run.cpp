#include "src/run.hpp"

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>

#include "distrib/faults.hpp"
#include "distrib/place.hpp"
#include "io/recognised.hpp"
#include "kernels/ranges.hpp"
#include "kernels/stream.hpp"
#include "src/checkpoints.hpp"
#include "src/stages.hpp"

namespace terrace {

using Clock = std::chrono::steady_clock;

namespace {
double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}
}  // namespace

Progress::Progress(bool enabled, bool terminal)
    : enabled_(enabled), terminal_(terminal), every_(terminal ? 0.2 : 30.0) {
  const char* text = std::getenv("TERRACE_PROGRESS_SECONDS");
  if (text && std::atof(text) > 0) every_ = std::atof(text);
}

void Progress::begin(const std::string& what, double total) {
  what_ = what;
  total_ = total;
  start_ = last_ = Clock::now();
}

void Progress::tick(double done, Index step) {
  reach_step(step >= 0 ? step : Index(done));
  static const int held_up = [] {  // milliseconds a step; tests that must meet a loop only
    const char* text = test_setting("TERRACE_TEST_STEP_DELAY_MS");
    return text ? std::atoi(text) : 0;
  }();
  if (held_up > 0) std::this_thread::sleep_for(std::chrono::milliseconds(held_up));
  inject_fault_here();
  if (!enabled_ || total_ <= 0 || since(last_) < every_) return;
  last_ = Clock::now();
  const double spent = since(start_), part = std::min(1.0, done / total_);
  const double left = part > 0 ? spent / part - spent : 0;
  const std::string text = fmt::format("{} {:5.1f} %  {:.3g} steps/s  {:.0f} s left", what_,
                                       100 * part, done / std::max(spent, 1e-9), left);
  if (terminal_) {
    const int filled = int(part * 30);
    fmt::print(stderr, "\r[{}{}] {}   ", std::string(filled, '#'), std::string(30 - filled, '.'),
               text);
  } else {
    fmt::print(stderr, "{}\n", text);
  }
  std::fflush(stderr);
}

void Progress::end() {
  if (enabled_ && terminal_ && total_ > 0) fmt::print(stderr, "\r{:90}\r", "");
  total_ = 0;
}

namespace {
bool progress_enabled(const Control& control, const CommonOptions& options) {
  return control.rank() == 0 && options.progress != "never" && !options.quiet;
}
}  // namespace

Run::Run(const Session& session, CommonOptions given, std::string name, std::string line)
    : Run(session.control(), std::move(given), std::move(name), std::move(line)) {}

Run::Run(const Control& the_control, CommonOptions given, std::string name, std::string line)
    : control(the_control),
      options(std::move(given)),
      progress(progress_enabled(the_control, options), isatty(2) || options.progress == "always"),
      command(std::move(name)),
      command_line(std::move(line)),
      start_(Clock::now()) {
  record_stages(!options.report.empty() && command.rfind("bench", 0) != 0);
  if (options.oversubscribe) allow_oversubscription();
  if (options.no_bind) leave_cores_unbound();
  start_time =
      control.broadcast(fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))), 0);
  report["command"] = command;
  report["ranks"] = control.size();
  report["backend"] = options.backend;
  report["devices"] = nlohmann::json::array();
  report["seconds"] = {
      {"read", 0.0}, {"solve", 0.0}, {"check", 0.0}, {"write", 0.0}, {"total", 0.0}};
  report["result"] = nlohmann::json::object();
  report["warnings"] = nlohmann::json::array();
  report["status"] = "running";
}

Run::~Run() = default;

void Run::begin_checkpoints() {
  if (options.checkpoint.empty() && options.checkpoint_every.empty() && options.restart.empty())
    return;
  checkpoints_ = std::make_unique<Checkpoints>(*this);
  progress.checkpoints = checkpoints_.get();
}

nlohmann::json Run::restart_settings() const {
  return checkpoints_ ? checkpoints_->settings() : nlohmann::json();
}

void Run::phase(const std::string& name, const std::function<void()>& work) {
  enter_phase(name);
  inject_fault(control.rank(), current_place());
  const ProfileRange range(name.c_str());
  const auto start = Clock::now();
  work();
  const double mine = since(start);
  own_seconds_[name] += mine;
  const double slowest = control.reduce(mine, Reduce::max);
  report["seconds"][name] = report["seconds"].value(name, 0.0) + slowest;
}

double Run::seconds(const std::string& name) const { return report["seconds"].value(name, 0.0); }

void Run::say(const std::string& line) const {
  if (control.rank() == 0 && !options.quiet) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
  }
}

void Run::warn(const std::string& what_where_what_to_do) {
  nlohmann::json& all = report["warnings"];
  if (std::find(all.begin(), all.end(), what_where_what_to_do) != all.end()) return;
  all.push_back(what_where_what_to_do);
  if (control.rank() == 0) fmt::print(stderr, "terrace: warning: {}\n", what_where_what_to_do);
}

void Run::rate(double value, const std::string& unit) {
  report["rate"] = {{"value", std::isfinite(value) ? value : 0.0}, {"unit", unit}};
}

void Run::outcome(const std::string& status, const std::string& message) {
  report["status"] = status;
  fail_together(Exit::outcome, message);
}

io::Attributes Run::attributes() const {
  io::Attributes result;
  result["version"] = TERRACE_VERSION;
  result["command"] = command;
  result["command_line"] = command_line;
  result["ranks"] = Index(control.size());
  result["backend"] = report["backend"].get<std::string>();
  std::string devices;
  for (const auto& device : report["devices"])
    devices += (devices.empty() ? "" : ", ") + device.get<std::string>();
  result["devices"] = devices;
  result["start_time"] = start_time;
  for (const auto& [name, value] : report["seconds"].items())
    if (name != "total" && name != "write") result["seconds_" + name] = value.get<double>();
  if (report.contains("residual") && report["residual"].is_number())
    result["residual"] = report["residual"].get<double>();
  if (report.contains("certificate"))
    result["certificate"] = report["certificate"].is_string()
                                ? report["certificate"].get<std::string>()
                                : report["certificate"].dump();
  for (const auto& [key, value] : inputs.items()) result[key] = value.get<std::string>();
  std::string warnings;
  for (const auto& text : report["warnings"])
    warnings += (warnings.empty() ? "" : "\n") + text.get<std::string>();
  if (!warnings.empty()) result["warnings"] = warnings;
  return result;
}

void Run::note_input(const std::string& key, const io::Location& location) {
  io::Location absolute = location;
  std::error_code ignored;
  const auto path = std::filesystem::absolute(location.file, ignored);
  if (!ignored) absolute.file = path.lexically_normal().string();
  inputs[key] = io::to_string(absolute);
  for (const std::string& what : io::take_recognised()) warn(what);  // so that attributes() says it
}

void Run::write_report(int exit_code, const std::string& message) {
  report["seconds"]["total"] = since(start_);
  report["exit_code"] = exit_code;
  if (exit_code == 0) {
    for (const std::string& what : io::take_recognised()) warn(what);
    report["status"] = "done";
  } else {
    if (report["status"] == "running") report["status"] = "failed";
    report["message"] = message;
  }
  if (!inputs.empty()) report["inputs"] = inputs;
  report["version"] = TERRACE_VERSION;
  report["command_line"] = command_line;
  report["start_time"] = start_time;
  if (options.report.empty() || control.rank() != 0) return;
  // A device, /dev/null say, is written to: a rename would replace it.
  std::error_code failed;
  const auto kind = std::filesystem::status(options.report, failed).type();
  const bool device = kind == std::filesystem::file_type::character;
  const bool plain =
      kind == std::filesystem::file_type::not_found || kind == std::filesystem::file_type::regular;
  const std::string temporary = plain ? options.report + ".tmp" : options.report;
  std::ofstream out;
  if (plain || device) out.open(temporary);
  out << report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  out.close();
  failed.clear();
  if (out && plain) std::filesystem::rename(temporary, options.report, failed);
  if (exit_code == 0 && (!(plain || device) || !out || failed))  // one line on a failure: its own
    fmt::print(stderr, "terrace: the report could not be written; {}; choose a writable place\n",
               options.report);
}

BackendChoice choose_backend(bool device_everywhere, const BackendHint& hint) {
  if (!device_everywhere) return {"cpu", ""};
  if (hint.size < hint.least_size)
    return {"cpu", fmt::format("small: CPU (size {:.0f}, the GPU from {:.0f} on)", hint.size,
                               hint.least_size)};
  return {"cuda", ""};
}

BackendChoice resolve_backend(const Control& control, const std::string& option,
                              const BackendHint& hint) {
  if (option == "cpu") return {"cpu", ""};
  if (option == "cuda" && !with_cuda)
    fail_together(
        Exit::resources,
        "this terrace was built without CUDA; --backend cuda; rebuild with -DTERRACE_CUDA=ON or "
        "use --backend cpu");
  const bool everywhere = control.reduce(Index(cuda_device_count()), Reduce::min) > 0;
  if (option == "auto") return choose_backend(with_cuda && everywhere, hint);
  if (option != "cuda")
    fail_together(Exit::usage,
                  "unknown backend '" + option + "'; --backend; use auto, cpu or cuda");
  if (!everywhere)
    fail_together(Exit::resources,
                  "no CUDA device is seen by some rank; --backend cuda; check nvidia-smi and "
                  "CUDA_VISIBLE_DEVICES, or use --backend cpu");
  return {"cuda", ""};
}

}  // namespace terrace
