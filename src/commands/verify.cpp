// terrace verify RESULT: is the file as it was written, and is it right?
#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>

#include "distrib/agree.hpp"
#include "io/files.hpp"
#include "src/commands/verify.hpp"
#include "src/program/reading.hpp"
#include "src/program/register.hpp"

namespace terrace {

const io::Location& ResultFile::input(const std::string& key) const {
  const auto found = inputs.find(key);
  if (found == inputs.end())
    fail_together(Exit::input, "the result does not name its " + key + "; " + io::to_string(base) +
                                   "; name the input file with --input");
  return found->second;
}

std::string ResultFile::text(const std::string& key) const {
  const auto found = run.find(key);
  const auto* value = found == run.end() ? nullptr : std::get_if<std::string>(&found->second);
  return value ? *value : std::string();
}

double ResultFile::number(const std::string& key, double otherwise) const {
  const auto found = run.find(key);
  if (found == run.end()) return otherwise;
  if (const auto* value = std::get_if<double>(&found->second)) return *value;
  if (const auto* value = std::get_if<Index>(&found->second)) return double(*value);
  return otherwise;
}

Index ResultFile::whole(const std::string& key) const {
  const auto found = run.find(key);
  if (found == run.end() || !std::holds_alternative<Index>(found->second))
    throw BadResult{"attribute terrace/" + key + " is missing"};
  return std::get<Index>(found->second);
}

bool ResultFile::owns(const io::Location& location) const {
  const auto same = [&](const auto& input) {
    return input.second.file == location.file && input.second.path == location.path;
  };
  return location.file == base.file && location.path.rfind(base.path + "/", 0) == 0 &&
         std::none_of(inputs.begin(), inputs.end(), same);
}

Range ResultFile::slice(Index extent) const {
  const auto ranges = contiguous(extent, control.size()).ranges(control.rank());
  return ranges.empty() ? Range{extent, 0} : ranges[0];
}

Verdict verify_stored(const ResultFile&) { return {true, "stored content unchanged"}; }

namespace {

struct VerifyOptions {
  std::string result, input;
};

/// Of a message of three parts the first two, as one.
std::string what_and_where(std::string message) {
  const auto first = message.find("; ");
  if (first == std::string::npos) return message;
  message.erase(std::min(message.size(), message.find("; ", first + 2)));
  return message.replace(first, 2, ", ");
}

/// Exit 3 for what is no HDF5 file at all; a damaged one is a result that fails.
void require_hdf5(const Control& control, const std::string& file) {
  collectively(control, [&] {
    if (control.rank() != 0) return;
    io::require_regular_file(
        file, "name a result of terrace");  // opening a pipe would wait for its writer
    if (!io::has_hdf5_signature(file))
      throw Error(Exit::input, "not an HDF5 file; " + file + "; name a result of terrace");
  });
}

/// Objects below `location` whose content hash does not hold: all are tested, groups with results
/// of their own apart.
std::string changed(const Control& control, const io::Location& location, bool top) {
  const auto names = io::members(control, location);
  if (!top && std::find(names.begin(), names.end(), "terrace") != names.end()) return {};
  for (const auto& name : names) {
    const io::Location child{location.file, location.path + "/" + name};
    if (top && name == "terrace") {
      if (!io::content_hash_holds(control, child)) return child.path;
    }
    if (io::is_group(control, child)) {
      auto below = changed(control, child, false);
      if (!below.empty()) return below;
      const auto attributes = io::read_attributes(control, child);
      if (attributes.count("terrace_hash") > 0 && !io::content_hash_holds(control, child))
        return child.path;
    } else if (!io::content_hash_holds(control, child)) {
      return child.path;
    }
  }
  return {};
}

double size_of(const Control& control, const std::string& file) {
  struct stat status {};
  const bool seen = control.rank() == 0 && stat(file.c_str(), &status) == 0;
  return seen ? double(status.st_size) : 0;
}

/// Where the inputs lie: as stored, or in the file that --input names.
std::map<std::string, io::Location> find_inputs(const ResultFile& result, const std::string& input,
                                                const io::FormOptions& said) {
  std::map<std::string, io::Location> found;
  for (const std::string key : {"input", "rhs", "factor", "x0"}) {
    const std::string text = result.text(key);
    if (text.empty()) continue;
    found[key] = io::parse_location(text);
    found[key].form = io::FormOptions::from_text(result.text(key + "_form"));
    found[key].form.yields = key != "input";
  }
  found["input"].form.add(said, io::to_string(result.base));
  if (found["input"].file.empty() && input.empty()) found.erase("input");
  if (input.empty()) return found;
  const io::Location given = io::parse_location(input);
  const std::string stored = found["input"].file;
  for (auto& [key, location] : found)
    if (location.file == stored) location.file = given.file;
  if (found["input"].file.empty()) found["input"].file = given.file;
  if (!given.path.empty()) found["input"].path = given.path;
  return found;
}

using Checks = decltype(Selected::checks);

Verdict check(const ResultFile& result, const Checks& checks) {
  const std::string command = result.text("command");
  const auto found = checks.find(command);
  if (found == checks.end()) return {false, "unknown command '" + command + "' in the result"};
  return found->second(result);
}

void verify(Run& run, const VerifyOptions& options, const Checks& checks) {
  const Control& control = run.control;
  run.report["backend"] = "cpu";
  io::Location base = collectively(control, [&] { return io::parse_location(options.result); });
  require_hdf5(control, base.file);
  std::string command = "?";
  Verdict verdict;
  std::optional<ResultFile> result;
  run.phase("check", [&] {
    try {
      const bool group = base.path.empty() || io::is_group(control, base);
      const auto names = group ? io::members(control, base) : std::vector<std::string>();
      if (std::find(names.begin(), names.end(), "terrace") == names.end())
        fail_together(Exit::usage, "");
      const io::Attributes record = io::read_run_attributes(control, base);
      // A file of one added group links to that group's record.
      if (const auto group = record.find("group");
          base.path.empty() && group != record.end() &&
          std::holds_alternative<std::string>(group->second) &&
          std::get<std::string>(group->second) != "/")
        base.path = std::get<std::string>(group->second);
      const double bytes = size_of(control, base.file);
      run.show_bytes("checking", false, bytes / control.size(), bytes);
      const std::string where = changed(control, base, true);
      if (!where.empty()) {
        verdict.figure = "the content of " + where + " is not what was written";
        return;
      }
      result.emplace(ResultFile{control, base, record, {}, {}});
      result->show = [&run](const io::Location& of, double own, double all) {
        run.show_bytes("checking " + of.path, false, own, all);
      };
    } catch (const Error& e) {
      if (!e.agreed()) throw;
      if (e.code() == Exit::usage)
        fail_together(Exit::input, "no group terrace; " + io::to_string(base) +
                                       "; only files that terrace wrote can be verified");
      verdict.figure = "the file is damaged: " + what_and_where(e.what());
      return;
    }
    command = result->text("command");
    result->inputs = find_inputs(*result, options.input, run.options.reading);
    try {
      verdict = check(*result, checks);
    } catch (const BadResult& bad) {
      verdict = {false, what_and_where(bad.what)};
      const std::string input = " in the input";  // as the reader of all matrices says it
      if (const auto at = verdict.figure.find(input); at != std::string::npos)
        verdict.figure.replace(at, input.size(), " in the result");
    }
  });
  run.report["result"]["verdict"] = verdict.pass ? "PASS" : "FAIL";
  run.report["result"]["figure"] = verdict.figure;
  run.report["result"]["command"] = command;
  run.say(fmt::format("{}  {}  {}", verdict.pass ? "PASS" : "FAIL", command, verdict.figure));
  if (!verdict.pass)
    run.outcome("verification failed", "verification failed: " + verdict.figure + "; " +
                                           io::to_string(base) + "; make the result again");
}

}  // namespace

void add_verify_command(CLI::App& app, Selected& selected) {
  const auto options = std::make_shared<VerifyOptions>();
  CLI::App* command = add_command(
      app, selected,
      {"verify", "Check a result file against its input: PASS or FAIL", "terrace verify inverse.h5",
       usual_options},
      [options, &selected](Run& run, const CLI::App&) { verify(run, *options, selected.checks); });
  command->add_option("RESULT", options->result, "A file that terrace wrote: FILE.h5[:/group]")
      ->required();
  command->add_option("--input", options->input,
                      "The input file, if it was moved (default: where it was)");
  add_reading_options(*command, selected.options, all_forms);
}

}  // namespace terrace
