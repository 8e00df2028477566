#include "src/program/run.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <thread>

#include "distrib/agree.hpp"
#include "distrib/faults.hpp"
#include "distrib/place.hpp"
#include "distrib/quote.hpp"
#include "io/recognised.hpp"
#include "io/unfinished.hpp"
#include "io/volume.hpp"
#include "kernels/base/clock.hpp"
#include "kernels/base/ranges.hpp"
#include "kernels/base/stream.hpp"
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
  const auto moved = [writes] { return double(writes ? io::volume().written : io::volume().read); };
  progress.enter(in_words(name), found->second,
                 [moved, before = moved()] { return moved() - before; });
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
  std::fflush(stdout);
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

void Run::note_input(const std::string& key, const io::Location& location) {
  require_not_written(key, location);
  io::Location absolute = location;
  std::error_code ignored;
  const auto path = std::filesystem::absolute(location.file, ignored);
  if (!ignored) absolute.file = path.lexically_normal().string();
  inputs[key] = io::to_string(absolute);
  if (!location.form.empty()) settings[key + "_form"] = forms[key] = location.form.to_text();
  stamps_[key] = io::stamp_of(control, location.file);
  for (const std::string& what : io::take_recognised()) warn(what);  // so that attributes() says it
}

void Run::require_same_inputs() const {
  for (const auto& [key, stamp] : stamps_) {
    const auto where = io::parse_location(inputs.at(key).get<std::string>());
    if (!io::stamp_of(control, where.file).alike(stamp))
      fail_together(Exit::input, "the file of the " + key + " was changed during the run; " +
                                     where.file + "; leave it alone and start again");
  }
}

namespace {

/// What a program may open and hand on, as /dev/stdout and /dev/fd/63: never renamed over.
bool is_handed_on(const std::string& path) {
  for (const char* place : {"/dev/fd/", "/dev/std", "/proc/"})  // and no file of /dev/shm
    if (path.rfind(place, 0) == 0) return true;
  return false;
}

/// Empty, or why not all of it could be written. A reader that has gone away is no signal here.
std::string write_all(int file, const std::string& text) {
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  std::string reason;
  for (std::size_t at = 0; at < text.size() && reason.empty();) {
    const ssize_t now = write(file, text.data() + at, text.size() - at);
    if (now < 0 && errno != EINTR) reason = std::strerror(errno);
    if (now > 0) at += std::size_t(now);
  }
  std::signal(SIGPIPE, before);
  return reason;
}

/// Writes to what is there: a device, or a pipe that somebody reads.
std::string write_through(const std::string& path, const std::string& text) {
  std::fflush(stdout);
  const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return std::strerror(errno);
  fcntl(file, F_SETFL, O_APPEND);  // its reader may be slow
  const std::string reason = write_all(file, text);
  close(file);
  return reason;
}

/// Empty, or why the report is not there.
std::string put_report(const std::string& path, const std::string& text) {
  struct stat status {};
  const bool there = stat(path.c_str(), &status) == 0;
  if (is_handed_on(path) || (there && !S_ISREG(status.st_mode))) return write_through(path, text);
  const std::string target = io::followed(path);
  const std::string temporary = io::unfinished_name(target, getpid());
  io::Unfinished unfinished;
  unfinished.begin(temporary);
  const int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) return std::strerror(errno);
  std::string reason = write_all(file, text);
  if (close(file) != 0 && reason.empty()) reason = std::strerror(errno);
  if (reason.empty() && std::rename(temporary.c_str(), target.c_str()) != 0)
    reason = std::strerror(errno);
  if (reason.empty()) unfinished.finish();
  return reason;
}

/// Whether `text` is a report of ours, or nothing.
bool is_report(const std::string& text) {
  const auto found = nlohmann::json::parse(text, nullptr, false);
  return found.is_object() && found.contains("command") && found["command"].is_string() &&
         found.contains("exit_code") && found["exit_code"].is_number_integer() &&
         found.contains("seconds");
}

[[noreturn]] void refuse_one_file(const std::string& a, const std::string& b,
                                  const std::string& path) {
  throw Error(Exit::usage, a + " and " + b + " are one file; " + path + "; name another one");
}

/// Whether the group at `outer`, which is to be replaced, holds what stands at `inner`.
bool holds(const std::string& outer, const std::string& inner) {
  return inner.empty() || inner == outer || inner.rfind(outer + "/", 0) == 0;
}

}  // namespace

void Run::require_report() const {
  const std::string& path = options.report;
  const auto refuse = [&](const std::string& what, const std::string& todo) {
    throw Error(Exit::usage, what + "; " + path + "; " + todo);
  };
  struct stat status {};
  const bool there = stat(path.c_str(), &status) == 0;
  if (is_handed_on(path) || (there && (S_ISCHR(status.st_mode) || S_ISFIFO(status.st_mode))))
    return;
  if (there && !S_ISREG(status.st_mode))
    refuse("the report would replace something that is not a regular file", "name a file");
  if (!there && errno != ENOENT && errno != ENOTDIR)
    refuse(std::string("the report cannot be written: ") + std::strerror(errno),
           "choose another name");
  const std::string folder = io::folder_of(io::followed(path));
  if (const std::string reason = io::why_not_writable(folder); !reason.empty())
    refuse("the report cannot be written: " + reason, "choose a writable folder");
  if (!there || status.st_size == 0) return;
  if (io::has_hdf5_signature(path))
    refuse("the report would replace an HDF5 file", "choose another name");
  const bool can_force = command != "verify" && command != "info";
  if (!options.force && !is_report(io::bytes_of(path, 1 << 28)))
    refuse("the report would replace a file that is not a terrace report",
           can_force ? "choose another name or add --force" : "choose another name");
}

void Run::require_own_files() {
  const std::string report_file = std::exchange(options.report, {});  // not written when refused
  collectively(control, [&] {
    if (control.rank() != 0) return;
    std::vector<std::pair<std::string, std::string>> written;
    const auto add = [&](const std::string& what, const std::string& path) {
      for (const auto& [other, there] : written)
        if (io::same_file(path, there)) refuse_one_file(other, what, path);
      written.emplace_back(what, path);
    };
    if (!report_file.empty() && !is_handed_on(report_file)) add("--report", report_file);
    if (!options.output.empty() && !options.plan)
      add("the output", io::parse_location(options.output).file);
    if (!options.restart.empty())
      for (const std::string& path : {options.restart, options.restart + ".old"})
        for (const auto& [other, there] : written)
          if (io::same_file(path, there)) refuse_one_file(other, "--restart", path);
    if (!options.checkpoint.empty() && !options.plan) {
      add("--checkpoint", options.checkpoint);
      add("the older checkpoint", io::followed(options.checkpoint) + ".old");
    }
  });
  options.report = report_file;
  if (report_file.empty()) return;
  collectively(control, [&] {
    if (control.rank() == 0) require_report();
  });
}

void Run::require_not_written(const std::string& key, const io::Location& location) {
  const std::string report_file = std::exchange(options.report, {});
  collectively(control, [&] {
    if (control.rank() != 0) return;
    const auto refuse = [&](const std::string& what, const std::string& path) {
      if (!path.empty() && io::same_file(path, location.file))
        refuse_one_file(what, "the " + key, path);
    };
    if (!is_handed_on(report_file)) refuse("--report", report_file);
    if (options.plan) return;
    if (!options.checkpoint.empty()) {
      refuse("--checkpoint", options.checkpoint);
      refuse("the older checkpoint", io::followed(options.checkpoint) + ".old");
    }
    if (options.output.empty()) return;
    const io::Location to = io::parse_location(options.output);
    if (to.path.empty()) return refuse("the output", to.file);
    if (io::same_file(to.file, location.file) && holds(to.path, location.path))
      throw Error(Exit::usage, "the output group would replace the " + key + "; " +
                                   io::to_string(to) + "; name another group");
  });
  options.report = report_file;
}

void Run::write_report(int exit_code, const std::string& message) {
  report["seconds"]["total"] = since(start_);
  report["exit_code"] = exit_code;
  report_checkpoints();
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
  if (!wants_report() || control.rank() != 0) return;
  const std::string text =
      report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  const auto complain = [&](const std::string& reason, const std::string& where) {
    if (exit_code == 0 && !reason.empty())  // one line on a failure: its own
      put(stderr,
          fmt::format("terrace: the report could not be written: {}; {}; choose a writable place\n",
                      reason, printable(where)));
  };
  if (!options.report.empty()) complain(put_report(options.report, text), options.report);
  if (!report_on_stdout_) return;
  std::fflush(stdout);
  complain(write_all(STDOUT_FILENO, text), "standard output");
}

}  // namespace terrace
