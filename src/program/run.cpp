#include "src/program/run.hpp"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "distrib/agree.hpp"
#include "distrib/faults.hpp"
#include "distrib/place.hpp"
#include "distrib/quote.hpp"
#include "io/volume.hpp"
#include "kernels/base/clock.hpp"
#include "kernels/base/ranges.hpp"
#include "kernels/base/timeline.hpp"
#include "src/frame/checkpoints.hpp"
#include "src/frame/stages.hpp"

namespace terrace {

namespace {
/// Where nobody can read it, it is not worth the run: fmt::print would throw.
void put(std::FILE* to, const std::string& text) { std::fputs(text.c_str(), to); }
}  // namespace

namespace {
Screen screen_of(const Control& control, const CommonOptions& options) {
  return control.rank() == 0 && !options.quiet ? find_screen(options.progress) : Screen();
}
/// What a person calls a phase.
std::string in_words(const std::string& phase) {
  if (phase == "read") return "reading";
  if (phase == "solve") return "solving";
  if (phase == "check") return "checking";
  return phase == "write" ? "writing" : phase;
}
}  // namespace

namespace {
/// What may mislead though nothing is wrong.
void warn_of_names(Run& run) {
  const char* const given = std::getenv("TERRACE_THREADS");
  const std::string threads = run.control.broadcast(std::string(given ? given : ""), 0);
  if (threads.find_first_not_of("0123456789") != std::string::npos)
    run.warn("TERRACE_THREADS=" + printable(threads) +
             " is no number of threads; in the environment; the cores count instead");
  if (run.options.output.empty() || run.options.plan) return;
  const std::string file = io::parse_location(run.options.output).file;
  // One that is there is meant, or refused.
  std::error_code none;
  const bool there = run.control.rank() == 0 && std::filesystem::exists(file, none);
  if (run.control.reduce(Index(there), Reduce::max) > 0) return;
  for (const char* other :
       {".txt", ".dat", ".csv", ".mtx", ".npy", ".npz", ".mat", ".sms", ".alist"})
    if (file.ends_with(other))
      run.warn(
          fmt::format("an HDF5 file is written under this name; {}; name it .h5, and convert it: "
                      "terrace convert",
                      file));
}
}  // namespace

Run::Run(const Session& session, CommonOptions given, std::string name, std::string line)
    : Run(session.control(), std::move(given), std::move(name), std::move(line)) {}

Run::Run(const Control& the_control, CommonOptions given, std::string name, std::string line)
    : control(the_control),
      options(std::move(given)),
      progress(screen_of(the_control, options)),
      command(std::move(name)),
      command_line(std::move(line)),
      start_(Clock::now()) {
  if (options.check == "none") options.no_check = true;
  report_on_stdout_ = options.json || options.report == "-";
  text_ = options.json ? nullptr : report_on_stdout_ ? stderr : stdout;
  if (options.report == "-") options.report.clear();
  require_own_files();
  record_stages(wants_report() && command.rfind("bench", 0) != 0);
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
  warn_of_names(*this);
}

Run::~Run() = default;

namespace {
/// "90", "90s", "10m", "2h" in seconds; throws agreed Error(usage).
double parse_interval(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  const double scale = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : -1;
  if (end == text.c_str() || scale < 0 || !(number > 0) || !std::isfinite(number))
    fail_together(Exit::usage, "not an interval: '" + text +
                                   "'; --checkpoint-every; give a number and s, m or h, as 10m");
  return number * scale;
}
}  // namespace

void Run::begin_checkpoints() {
  if (!options.checkpoint_every.empty() && options.checkpoint.empty())
    fail_together(Exit::usage,
                  "an interval but no file; --checkpoint-every; add --checkpoint FILE");
  if (options.checkpoint.empty() && options.restart.empty()) return;
  CheckpointJob job;
  if (!options.checkpoint_every.empty()) job.every = parse_interval(options.checkpoint_every);
  if (options.plan) return;
  job.command = command;
  job.file = options.checkpoint;
  job.restart = options.restart;
  job.force = options.force;
  job.say = [this](const std::string& line) { say(line); };
  job.problem = [this] {
    CheckpointProblem problem{settings.dump(), "", {}, stamps_, attributes()};
    nlohmann::json sizes = nlohmann::json::object();
    for (const char* key :
         {"n", "rows", "columns", "half_bandwidth", "nonzeros", "right_hand_sides"})
      if (report.contains(key)) sizes[key] = report[key];
    problem.sizes = sizes.dump();
    for (const auto& [key, where] : inputs.items()) problem.inputs[key] = where.get<std::string>();
    return problem;
  };
  checkpoints_ = std::make_unique<Checkpoints>(control, std::move(job));
  progress.checkpoints = checkpoints_.get();
}

nlohmann::json Run::restart_settings() const {
  return checkpoints_ ? nlohmann::json::parse(checkpoints_->settings()) : nlohmann::json();
}

/// What the checkpoints have done, into the report.
void Run::report_checkpoints() {
  if (!checkpoints_) return;
  const CheckpointRecord& r = checkpoints_->record();
  if (!r.restart_file.empty()) report["restart"] = {{"file", r.restart_file}};
  if (r.restart_step >= 0) {
    report["restart"]["step"] = r.restart_step;
    report["restart"]["seconds"] = r.restart_seconds;
  }
  if (r.written + r.failed == 0) return;
  nlohmann::json& told = report["checkpoints"] = {{"seconds", r.seconds}};
  if (r.written > 0) {
    told["written"] = r.written;
    told["file"] = r.file;
    told["step"] = r.step;
  }
  if (r.failed > 0) {
    told["failed"] = r.failed;
    told["failure"] = r.failure;
  }
  if (r.stopped) report["status"] = "stopped";
}

void Run::phase(const std::string& name, const std::function<void()>& work) {
  enter_phase(name);
  inject_fault(control.rank(), current_place());
  const ProfileRange range(name.c_str());
  const auto start = Clock::now();
  show_phase(name);
  {
    const Noted noted("run", name);
    work();
  }
  progress.leave();
  const double mine = since(start);
  own_seconds_[name] += mine;
  const double slowest = control.reduce(mine, Reduce::max);
  report["seconds"][name] = report["seconds"].value(name, 0.0) + slowest;
}

void Run::expect(const Work& work) {
  const auto bytes = [](const Terms& terms, Rate rate) {
    double sum = 0;
    for (const Term& term : terms)
      if (term.rate == rate) sum += term.amount;
    return sum;
  };
  expected_ = {{"read", bytes(work.read, Rate::file_read)},
               {"check", bytes(work.check, Rate::file_read)},
               {"write", bytes(work.write, Rate::file_write)}};
}

void Run::show_phase(const std::string& name) {
  const auto found = expected_.find(name);
  if (found == expected_.end() || found->second <= 0) return progress.enter(in_words(name));
  const bool writes = name == "write";
  show_bytes(in_words(name), writes, found->second, found->second * control.size());
}

void Run::show_bytes(const std::string& what, bool written, double own, double all) {
  if (!(own > 0)) return progress.enter(what);
  const auto moved = [written, scale = all / own] {
    return scale * double(written ? io::volume().written : io::volume().read);
  };
  progress.enter(what, all, [moved, before = moved()] { return moved() - before; });
}

double Run::seconds(const std::string& name) const { return report["seconds"].value(name, 0.0); }

void Run::say(const std::string& line) const {
  if (control.rank() != 0 || options.quiet || text_ == nullptr) return;
  progress.clear();  // a line of its own
  put(text_, line + "\n");
  std::fflush(text_);
}

void Run::answer(const std::string& scalar) const {
  if (control.rank() != 0 || !options.quiet || report_on_stdout_) return;
  put(stdout, scalar + "\n");
  if (std::fflush(stdout) == 0 || errno == EPIPE) return;
  lost_answer_ = true;
  put(stderr, std::string("terrace: the answer could not be written: ") + std::strerror(errno) +
                  "; standard output; send it elsewhere\n");
}

void Run::warn(const std::string& what_where_what_to_do) {
  nlohmann::json& all = report["warnings"];
  if (std::find(all.begin(), all.end(), what_where_what_to_do) != all.end()) return;
  all.push_back(what_where_what_to_do);
  if (control.rank() != 0) return;
  progress.clear();
  put(stderr, "terrace: warning: " + printable(what_where_what_to_do) + "\n");
}

void Run::rate(double value, const std::string& unit) {
  report["rate"] = {{"value", std::isfinite(value) ? value : 0.0}, {"unit", unit}};
}

void Run::outcome(const std::string& status, const std::string& message) {
  if (status.rfind("check", 0) == 0) require_same_inputs();
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
    devices.append(devices.empty() ? "" : ", ").append(device.get<std::string>());
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
  for (const auto& [key, form] : forms) result[key + "_form"] = form;
  std::string warnings;
  for (const auto& text : report["warnings"])
    warnings.append(warnings.empty() ? "" : "\n").append(text.get<std::string>());
  if (!warnings.empty()) result["warnings"] = warnings;
  return result;
}

}  // namespace terrace
