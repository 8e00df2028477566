// The files of a run: none is overwritten that it reads, none is read that changed, and the report.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "distrib/agree.hpp"
#include "distrib/quote.hpp"
#include "io/recognised.hpp"
#include "io/unfinished.hpp"
#include "src/frame/checkpoints.hpp"
#include "src/program/run.hpp"

namespace terrace {

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
    if (now < 0 && errno != EINTR) reason = std::strerror(errno);  // which errno still names
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
  std::string reason = write_all(file, text);
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
      std::fputs(fmt::format("terrace: the report could not be written: {}; {}; choose a writable "
                             "place\n",
                             reason, printable(where))
                     .c_str(),
                 stderr);
  };
  if (!options.report.empty()) complain(put_report(options.report, text), options.report);
  if (!report_on_stdout_) return;
  std::fflush(stdout);
  const std::string reason = write_all(STDOUT_FILENO, text);
  lost_answer_ = !reason.empty() && errno != EPIPE;
  complain(reason, "standard output");
}

}  // namespace terrace
