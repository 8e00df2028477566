#include "src/frame/checkpoints.hpp"

#include <fmt/core.h>

#include <sys/stat.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "distrib/agree.hpp"
#include "distrib/signals.hpp"
#include "io/files.hpp"
#include "io/rows.hpp"

namespace terrace {

namespace {
using nlohmann::json;
constexpr Word vote_write = 1, vote_stop = 2;
constexpr const char* head_name = "checkpoint";
constexpr Index much = Index(1) << 30;  // bytes of an input

/// A message that becomes a part of another one.
std::string one_part(std::string message) {
  for (auto at = message.find("; "); at != std::string::npos; at = message.find("; ", at + 1))
    message[at] = ',';
  return message;
}

json to_json(const io::Stamp& s) { return {s.device, s.inode, s.size, s.modified, s.changed}; }
io::Stamp to_stamp(const json& j) {
  return {j.at(0).get<Index>(), j.at(1).get<Index>(), j.at(2).get<Index>(), j.at(3).get<Index>(),
          j.at(4).get<Index>()};
}
}  // namespace

// --- archive -------------------------------------------------------------------------------------

void Archive::value(const std::string& name, Index& v) {
  if (!loading()) {
    values_[name] = v;
    return;
  }
  const auto found = values_.find(name);
  if (found == values_.end())  // all ranks have the same
    fail_together(Exit::input, "the checkpoint is of another version; " + file_ + " has no '" +
                                   name + "'; start without --restart");
  v = found->second;
}
void Archive::value(const std::string& name, double& v) {
  Index bits = std::bit_cast<Index>(v);
  value(name, bits);
  v = std::bit_cast<double>(bits);
}
void Archive::value(const std::string& name, bool& v) {
  Index number = v ? 1 : 0;
  value(name, number);
  v = number != 0;
}
void Archive::value(const std::string& name, int& v) {
  Index number = v;
  value(name, number);
  v = int(number);
}

template <class T>
void Archive::list_of(const std::string& name, std::vector<T>& v) {
  Index size = Index(v.size());
  value(name + " size", size);
  const bool mine = loading() || control_.rank() == 0;
  const std::vector<Range> all =
      mine && size > 0 ? std::vector<Range>{{0, size}} : std::vector<Range>{};
  if (size == 0) {
    v.clear();
    return;
  }
  if (loading()) {
    v = collectively(control_, [&] { return std::vector<T>(std::size_t(size)); });
    load(name, size, -1, all, [&](Index position, Index count, const Word* from) {
      std::memcpy(v.data() + position, from, std::size_t(count) * sizeof(T));
    });
  } else {
    save(name, size, -1, all, [&](Index position, Index count, Word* to) {
      std::memcpy(to, v.data() + position, std::size_t(count) * sizeof(T));
    });
  }
}
void Archive::list(const std::string& name, std::vector<Index>& v) { list_of(name, v); }
void Archive::list(const std::string& name, std::vector<double>& v) { list_of(name, v); }

void Archive::save(const std::string& name, Index rows, Index columns,
                   std::span<const Range> ranges, const io::Source<Word>& source) {
  output_->write<Word>(name, rows, columns, ranges, source);
}
void Archive::load(const std::string& name, Index rows, Index columns,
                   std::span<const Range> ranges, const io::Sink<Word>& sink) {
  const io::Location at{file_, "/" + name};
  const std::vector<Index> expected =
      columns < 0 ? std::vector<Index>{rows} : std::vector<Index>{rows, columns};
  if (io::stored_shape(control_, at) != expected)
    fail_together(Exit::input, "the checkpoint is for a problem of another shape; " +
                                   io::to_string(at) + "; start without --restart");
  io::read_stored(control_, at, ranges, sink);
}

// --- checkpoints ---------------------------------------------------------------------------------

Checkpoints::Checkpoints(const Control& control, CheckpointJob job)
    : control_(control), job_(std::move(job)) {
  job_.file = control_.broadcast(io::followed(job_.file), 0);
  job_.restart = control_.broadcast(io::followed(job_.restart), 0);
  if (!job_.restart.empty()) {
    find(job_.restart);
    if (found_.empty()) find(job_.restart + ".old");
    if (found_.empty())
      fail_together(Exit::input,
                    "no checkpoint to restart from: " + refused_ + "; --restart; start without it");
    if (!refused_.empty()) job_.say("note       " + refused_);
    record_.restart_file = found_.front().file;
  }
  if (!active()) return;
  require_place();
  votes_ = collectively(control_, [&] { return std::make_unique<Votes>(control_); });
  last_ = Clock::now();
  watch_signals();
}

Checkpoints::~Checkpoints() {
  if (active()) ignore_signals();
}

bool Checkpoints::is_checkpoint(const std::string& file) const {
  try {
    return io::read_run_attributes(control_, {file, "/"}).count(head_name) > 0;
  } catch (const Error& e) {
    if (!e.agreed()) throw;
    return false;
  }
}

/// A place where one can be written, and where nothing of somebody else's is lost.
void Checkpoints::require_place() {
  const io::Output probe(control_, job_.file, true);
  for (const std::string& file : {job_.file, job_.file + ".old"}) {
    struct stat status {};
    const bool there = control_.rank() == 0 && stat(file.c_str(), &status) == 0;
    // The checkpoints that this run continues are its own, damaged or not.
    const bool own = !found_.empty() && io::same_file(job_.file, job_.restart) &&
                     (status.st_size == 0 || io::has_hdf5_signature(file));
    const bool harmless =
        !there || (S_ISREG(status.st_mode) && (status.st_size == 0 || own || job_.force));
    if (control_.broadcast(harmless ? "" : "look", 0).empty() || is_checkpoint(file)) continue;
    fail_together(Exit::usage, "the checkpoint would replace a file that terrace did not write; " +
                                   file + "; choose another name or add --force");
  }
}

void Checkpoints::refuse(const std::string& file, const std::string& why) {
  refused_ += (refused_.empty() ? "" : ", ") + file + " is refused (" + why + ")";
}

/// Adds `file` if it is a whole checkpoint of this command.
void Checkpoints::find(const std::string& file) {
  const auto refuse = [&](const std::string& why) { Checkpoints::refuse(file, why); };
  try {
    const io::Attributes attributes = io::read_run_attributes(control_, {file, "/"});
    const auto head = attributes.find(head_name);
    if (head == attributes.end() || !std::holds_alternative<std::string>(head->second))
      return refuse("not a checkpoint");
    json found = json::parse(std::get<std::string>(head->second), nullptr, false);
    if (!found.is_object() || !found.contains("identity") || !found.contains("values"))
      return refuse("not a checkpoint of this version");
    const std::string command = found["identity"].value("command", "");
    if (command != job_.command) return refuse("it is of '" + command + "'");
    bool whole = io::content_hash_holds(control_, {file, "/terrace"});
    for (const std::string& name : io::members(control_, {file, "/"}))
      whole = whole && io::content_hash_holds(control_, {file, "/" + name});
    if (!whole) return refuse("its contents do not match their checksums");
    found_.push_back({file, found.dump()});
  } catch (const Error& e) {
    if (!e.agreed() && control_.size() > 1) throw;
    refuse(one_part(e.what()));
  } catch (const json::exception&) {  // all ranks have the same text
    refuse("not a checkpoint of this version");
  }
}

std::string Checkpoints::settings() const {
  return restarting() ? json::parse(found_.front().head).value("settings", json()).dump() : "null";
}

/// What must be equal for a checkpoint to fit.
std::string Checkpoints::identity(const CheckpointProblem& problem) const {
  json result = json::parse(problem.sizes);
  result["command"] = job_.command;
  result["settings"] = json::parse(problem.settings);
  for (const auto& [key, where] : problem.inputs)
    result[key] = io::fingerprint(control_, io::parse_location(where));
  // What a rank alone knows differently must not part the ranks.
  return control_.broadcast(result.dump(), 0);
}

/// For each input its file's stamp and a hash of its content; null where that would be of other
/// data than the solver has, or keep a large job from ending.
std::string Checkpoints::files(const CheckpointProblem& problem) {
  json result = json::object();
  for (const auto& [key, stamp] : problem.stamps) {
    const auto where = io::parse_location(problem.inputs.at(key));
    if (!contents_.count(key) && !(stop_ && stamp.size > much) &&
        io::stamp_of(control_, where.file) == stamp)
      contents_[key] = io::fingerprint(control_, where, true);
    const auto content = contents_.find(key);
    result[key] = {{"stamp", to_json(stamp)}, {"content", nullptr}};
    if (content != contents_.end()) result[key]["content"] = content->second;
  }
  return control_.broadcast(result.dump(), 0);
}

/// The first input that is not what it was by `text`; empty where all are.
std::string Checkpoints::changed_input(const CheckpointProblem& problem, const std::string& text) {
  const json files = json::parse(text);
  for (const auto& [key, stamp] : problem.stamps) {
    const auto where = io::parse_location(problem.inputs.at(key));
    std::string changed = "the " + key + " was changed, " + io::to_string(where);
    if (!files.contains(key)) continue;  // of a version that wrote none
    if (!(io::stamp_of(control_, where.file) == stamp)) return changed + " (while it was read)";
    const io::Stamp then = to_stamp(files[key].at("stamp"));
    const json& content = files[key].at("content");
    const bool known = content.is_number();
    if ((stamp == then || (!known && stamp.alike(then))) && io::stands_alone(control_, where)) {
      if (known) contents_[key] = content.get<Word>();
      continue;
    }
    if (!known) return changed;
    contents_[key] = io::fingerprint(control_, where, true);
    if (contents_[key] != content.get<Word>()) return changed;
  }
  return {};
}

Index Checkpoints::value(const std::string& name, Index otherwise) const {
  if (!restarting() || resumed_) return otherwise;
  return json::parse(found_.front().head)["values"].value(name, otherwise);
}

bool Checkpoints::due() {
  if (!active()) return false;
  const SignalRequest asked = take_signal_request();
  Word mine = (asked.checkpoint || asked.stop ? vote_write : 0) | (asked.stop ? vote_stop : 0);
  if (control_.rank() == 0 && !waiting_ && since(last_) > job_.every) {
    mine |= vote_write;
    waiting_ = true;
  }
  const Word agreed = votes_->poll(mine);
  stop_ = stop_ || (agreed & vote_stop) != 0;
  return agreed != 0 || stop_;
}

void Checkpoints::write(Index step, Index steps, const std::function<void(Archive&)>& state) {
  io::Output output(control_, job_.file, true);
  Archive archive(control_, output);
  state(archive);
  const CheckpointProblem problem = job_.problem();
  io::Attributes attributes = problem.attributes;
  const json head = {{"identity", json::parse(identity(problem))},
                     {"files", json::parse(files(problem))},
                     {"settings", json::parse(problem.settings)},
                     {"step", step},
                     {"steps", steps},
                     {"values", archive.values()}};
  attributes[head_name] = head.dump();
  collectively(control_, [&] {
    std::error_code failed;
    if (control_.rank() == 0 && std::filesystem::exists(job_.file, failed))
      std::filesystem::rename(job_.file, job_.file + ".old", failed);
    if (failed)
      throw Error(Exit::resources, "cannot keep the older checkpoint: " + failed.message() + "; " +
                                       job_.file + "; choose another place");
  });
  output.commit(attributes);
}

void Checkpoints::save(Index step, Index steps, const std::function<void(Archive&)>& state) {
  const auto start = Clock::now();
  std::string failure;
  try {
    write(step, steps, state);
  } catch (const Error& e) {
    if (!e.agreed()) throw;
    failure = e.what();
  }
  if (failure.empty()) {
    last_step_ = record_.step = step;
    record_.file = job_.file;
    ++record_.written;
  } else {
    record_.failure = failure;
    ++record_.failed;
    if (control_.rank() == 0)
      std::fputs(
          fmt::format("terrace: warning: no checkpoint of step {}: {}\n", step, failure).c_str(),
          stderr);
  }
  last_ = Clock::now();
  waiting_ = false;
  const double seconds = std::chrono::duration<double>(last_ - start).count();
  record_.seconds += control_.reduce(seconds, Reduce::max);
  if (!stop_) return;
  if (last_step_ < 0)
    fail_together(Exit::resources, "stopped on request, but no checkpoint could be written: " +
                                       one_part(failure) + "; " + job_.file + "; start again");
  record_.stopped = true;
  const std::string signal = stopping_signal();
  fail_together(
      Exit::requeue,
      fmt::format("stopped on {} after step {} of {}; checkpoint of step {} in {}; run again with "
                  "--restart {}",
                  signal.empty() ? "a signal" : signal, step, steps, last_step_, job_.file,
                  job_.file));
}

Index Checkpoints::resume(const std::function<void(Archive&)>& state) {
  if (!restarting() || resumed_) return 0;
  resumed_ = true;
  const CheckpointProblem problem = job_.problem();
  const json mine = json::parse(identity(problem));
  for (std::size_t i = 0; i < found_.size(); ++i) {
    const std::string file = found_[i].file;
    const json head = json::parse(found_[i].head);
    const json& theirs = head["identity"];
    std::string why;
    if (theirs != mine)
      for (const auto& [key, value] : mine.items())
        if (why.empty() && (!theirs.contains(key) || theirs[key] != value))
          why = fmt::format("{} differs: {} there, {} here", key,
                            theirs.contains(key) ? theirs[key].dump() : "absent", value.dump());
    if (theirs == mine) why = changed_input(problem, head.value("files", json::object()).dump());
    if (theirs != mine || !why.empty()) {
      refuse(file, "it is from another problem: " + why);
      if (file == job_.restart) find(job_.restart + ".old");
      continue;
    }
    if (i > 0) job_.say("note       " + refused_);
    const auto start = Clock::now();
    const auto step = head.at("step").get<Index>();
    Archive archive(control_, file, head["values"].get<std::map<std::string, Index>>(), step);
    state(archive);
    record_.restart_file = file;
    record_.restart_step = step;
    record_.restart_seconds = since(start);
    job_.say(fmt::format("restart    from step {} of {}, {}", step, head.at("steps").get<Index>(),
                         file));
    return step;
  }
  fail_together(Exit::input, "no checkpoint to restart from: " + refused_ +
                                 "; --restart; give the same input and options, or start without "
                                 "it");
}

}  // namespace terrace
