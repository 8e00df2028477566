#include "src/checkpoints.hpp"

#include <fmt/core.h>

#include <sys/stat.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "distrib/agree.hpp"
#include "distrib/signals.hpp"
#include "io/files.hpp"
#include "io/rows.hpp"
#include "src/run.hpp"

namespace terrace {

namespace {
constexpr Word vote_write = 1, vote_stop = 2;
constexpr const char* head_name = "checkpoint";
constexpr Index much = Index(1) << 30;  // bytes of an input

/// A message that becomes a part of another one.
std::string one_part(std::string message) {
  for (auto at = message.find("; "); at != std::string::npos; at = message.find("; ", at + 1))
    message[at] = ',';
  return message;
}

nlohmann::json to_json(const io::Stamp& s) {
  return {s.device, s.inode, s.size, s.modified, s.changed};
}
io::Stamp to_stamp(const nlohmann::json& j) {
  return {j.at(0).get<Index>(), j.at(1).get<Index>(), j.at(2).get<Index>(), j.at(3).get<Index>(),
          j.at(4).get<Index>()};
}
}  // namespace

// --- archive -------------------------------------------------------------------------------------

void Archive::value(const std::string& name, Index& v) {
  if (loading())
    v = values_.at(name).get<Index>();
  else
    values_[name] = v;
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
    fail_together(Exit::input, "the checkpoint has another shape than this problem; " +
                                   io::to_string(at) + "; start without --restart");
  io::read_stored(control_, at, ranges, sink);
}

// --- checkpoints ---------------------------------------------------------------------------------

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

Checkpoints::Checkpoints(Run& run)
    : run_(run),
      file_(run.control.broadcast(io::followed(run.options.checkpoint), 0)),
      restart_(run.control.broadcast(io::followed(run.options.restart), 0)) {
  const CommonOptions& o = run.options;
  if (!o.checkpoint_every.empty() && file_.empty())
    fail_together(Exit::usage,
                  "an interval without a file; --checkpoint-every; add --checkpoint FILE");
  every_ = parse_interval(o.checkpoint_every.empty() ? "10m" : o.checkpoint_every);
  if (o.plan) {
    file_.clear();
    return;
  }
  if (!o.restart.empty()) {
    find(restart_);
    if (found_.empty()) find(restart_ + ".old");
    if (found_.empty())
      fail_together(Exit::input,
                    "no checkpoint to restart from: " + refused_ + "; --restart; start without it");
    if (!refused_.empty()) run.say("note       " + refused_);
    run.report["restart"] = {{"file", found_.front().file}};
  }
  if (!active()) return;
  require_place();
  votes_ = collectively(run.control, [&] { return std::make_unique<Votes>(run.control); });
  last_ = Clock::now();
  watch_signals();
}

Checkpoints::~Checkpoints() {
  if (active()) ignore_signals();
}

bool Checkpoints::is_checkpoint(const std::string& file) const {
  try {
    return io::read_run_attributes(run_.control, {file, "/"}).count(head_name) > 0;
  } catch (const Error& e) {
    if (!e.agreed()) throw;
    return false;
  }
}

/// A place where one can be written, and where nothing of somebody else's is lost.
void Checkpoints::require_place() {
  const Control& control = run_.control;
  const io::Output probe(control, file_, true);
  for (const std::string& file : {file_, file_ + ".old"}) {
    struct stat status {};
    const bool there = control.rank() == 0 && stat(file.c_str(), &status) == 0;
    // The checkpoints that this run continues are its own, damaged or not.
    const bool own = !found_.empty() && io::same_file(file_, restart_) &&
                     (status.st_size == 0 || io::has_hdf5_signature(file));
    const bool harmless =
        !there || (S_ISREG(status.st_mode) && (status.st_size == 0 || own || run_.options.force));
    if (control.broadcast(harmless ? "" : "look", 0).empty() || is_checkpoint(file)) continue;
    fail_together(Exit::usage, "the checkpoint would replace a file that is none of terrace; " +
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
    const io::Attributes attributes = io::read_run_attributes(run_.control, {file, "/"});
    const auto head = attributes.find(head_name);
    if (head == attributes.end() || !std::holds_alternative<std::string>(head->second))
      return refuse("not a checkpoint");
    nlohmann::json found =
        nlohmann::json::parse(std::get<std::string>(head->second), nullptr, false);
    if (!found.is_object() || !found.contains("identity") || !found.contains("values"))
      return refuse("not a checkpoint of this version");
    const std::string command = found["identity"].value("command", "");
    if (command != run_.command) return refuse("it is of '" + command + "'");
    bool whole = io::content_hash_holds(run_.control, {file, "/terrace"});
    for (const std::string& name : io::members(run_.control, {file, "/"}))
      whole = whole && io::content_hash_holds(run_.control, {file, "/" + name});
    if (!whole) return refuse("its contents do not match their checksums");
    found_.push_back({file, std::move(found)});
  } catch (const Error& e) {
    if (!e.agreed() && run_.control.size() > 1) throw;
    refuse(one_part(e.what()));
  } catch (const nlohmann::json::exception&) {  // all ranks have the same text
    refuse("not a checkpoint of this version");
  }
}

nlohmann::json Checkpoints::settings() const {
  return restarting() ? found_.front().head.value("settings", nlohmann::json()) : nlohmann::json();
}

/// What must be equal for a checkpoint to fit.
nlohmann::json Checkpoints::identity() const {
  nlohmann::json result = {{"command", run_.command}, {"settings", run_.settings}};
  for (const char* key : {"n", "rows", "columns", "half_bandwidth", "nonzeros", "right_hand_sides"})
    if (run_.report.contains(key)) result[key] = run_.report[key];
  for (const auto& [key, where] : run_.inputs.items())
    result[key] = io::fingerprint(run_.control, io::parse_location(where.get<std::string>()));
  // What a rank alone knows differently must not part the ranks.
  return nlohmann::json::parse(run_.control.broadcast(result.dump(), 0));
}

/// For each input its file's stamp and a hash of its content; null where that would be of other
/// data than the solver has, or keep a large job from ending.
nlohmann::json Checkpoints::files() {
  nlohmann::json result = nlohmann::json::object();
  for (const auto& [key, stamp] : run_.stamps()) {
    const auto where = io::parse_location(run_.inputs.at(key).get<std::string>());
    if (!contents_.count(key) && !(stop_ && stamp.size > much) &&
        io::stamp_of(run_.control, where.file) == stamp)
      contents_[key] = io::fingerprint(run_.control, where, true);
    const auto content = contents_.find(key);
    result[key] = {{"stamp", to_json(stamp)}, {"content", nullptr}};
    if (content != contents_.end()) result[key]["content"] = content->second;
  }
  return nlohmann::json::parse(run_.control.broadcast(result.dump(), 0));
}

/// The first input that is not what it was by `files`; empty where all are.
std::string Checkpoints::changed_input(const nlohmann::json& files) {
  for (const auto& [key, stamp] : run_.stamps()) {
    const auto where = io::parse_location(run_.inputs.at(key).get<std::string>());
    const std::string changed = "the " + key + " was changed, " + io::to_string(where);
    if (!files.contains(key)) continue;  // of a version that wrote none
    if (!(io::stamp_of(run_.control, where.file) == stamp)) return changed + " (while it was read)";
    const io::Stamp then = to_stamp(files[key].at("stamp"));
    const nlohmann::json& content = files[key].at("content");
    const bool known = content.is_number();
    if ((stamp == then || (!known && stamp.alike(then))) && io::stands_alone(run_.control, where)) {
      if (known) contents_[key] = content.get<Word>();
      continue;
    }
    if (!known) return changed;
    contents_[key] = io::fingerprint(run_.control, where, true);
    if (contents_[key] != content.get<Word>()) return changed;
  }
  return {};
}

Index Checkpoints::value(const std::string& name, Index otherwise) const {
  return restarting() && !resumed_ ? found_.front().head["values"].value(name, otherwise)
                                   : otherwise;
}

bool Checkpoints::due() {
  if (!active()) return false;
  const SignalRequest asked = take_signal_request();
  Word mine = (asked.checkpoint || asked.stop ? vote_write : 0) | (asked.stop ? vote_stop : 0);
  if (run_.control.rank() == 0 && !waiting_ &&
      std::chrono::duration<double>(Clock::now() - last_).count() > every_) {
    mine |= vote_write;
    waiting_ = true;
  }
  const Word agreed = votes_->poll(mine);
  stop_ = stop_ || (agreed & vote_stop) != 0;
  return agreed != 0 || stop_;
}

void Checkpoints::write(Index step, Index steps, const std::function<void(Archive&)>& state) {
  io::Output output(run_.control, file_, true);
  Archive archive(run_.control, output);
  state(archive);
  io::Attributes attributes = run_.attributes();
  const nlohmann::json head = {
      {"identity", identity()}, {"files", files()}, {"settings", run_.settings},
      {"step", step},           {"steps", steps},   {"values", archive.values()}};
  attributes[head_name] = head.dump();
  collectively(run_.control, [&] {
    std::error_code failed;
    if (run_.control.rank() == 0 && std::filesystem::exists(file_, failed))
      std::filesystem::rename(file_, file_ + ".old", failed);
    if (failed)
      throw Error(Exit::resources, "cannot keep the older checkpoint: " + failed.message() + "; " +
                                       file_ + "; choose another place");
  });
  output.commit(attributes);
}

void Checkpoints::save(Index step, Index steps, const std::function<void(Archive&)>& state) {
  const auto start = Clock::now();
  auto& told = run_.report["checkpoints"];
  if (!told.is_object()) told = nlohmann::json::object();
  std::string failure;
  try {
    write(step, steps, state);
  } catch (const Error& e) {
    if (!e.agreed()) throw;
    failure = e.what();
  }
  if (failure.empty()) {
    last_step_ = step;
    told["written"] = told.value("written", 0) + 1;
    told["file"] = file_;
    told["step"] = step;
  } else {
    told["failed"] = told.value("failed", 0) + 1;
    told["failure"] = failure;
    if (run_.control.rank() == 0)
      std::fputs(
          fmt::format("terrace: warning: no checkpoint of step {}: {}\n", step, failure).c_str(),
          stderr);
  }
  last_ = Clock::now();
  waiting_ = false;
  const double seconds = std::chrono::duration<double>(last_ - start).count();
  told["seconds"] = told.value("seconds", 0.0) + run_.control.reduce(seconds, Reduce::max);
  if (!stop_) return;
  if (last_step_ < 0)
    fail_together(Exit::resources, "asked to stop, and no checkpoint could be written: " +
                                       one_part(failure) + "; " + file_ + "; start again");
  run_.report["status"] = "stopped";
  const std::string signal = stopping_signal();
  fail_together(
      Exit::requeue,
      fmt::format("stopped on {} after step {} of {}; checkpoint of step {} in {}; run again with "
                  "--restart {}",
                  signal.empty() ? "a signal" : signal, step, steps, last_step_, file_, file_));
}

Index Checkpoints::resume(const std::function<void(Archive&)>& state) {
  if (!restarting() || resumed_) return 0;
  resumed_ = true;
  const nlohmann::json mine = identity();
  for (std::size_t i = 0; i < found_.size(); ++i) {
    const Found found = found_[i];
    const nlohmann::json& theirs = found.head["identity"];
    if (theirs != mine) {
      std::string why;
      for (const auto& [key, value] : mine.items())
        if (why.empty() && (!theirs.contains(key) || theirs[key] != value))
          why = fmt::format("{} differs: {} there, {} here", key,
                            theirs.contains(key) ? theirs[key].dump() : "absent", value.dump());
      refuse(found.file, "it is of another problem: " + why);
      if (found.file == restart_) find(restart_ + ".old");
      continue;
    }
    const std::string changed = changed_input(found.head.value("files", nlohmann::json::object()));
    if (!changed.empty()) {
      refuse(found.file, "it is of another problem: " + changed);
      if (found.file == restart_) find(restart_ + ".old");
      continue;
    }
    if (i > 0) run_.say("note       " + refused_);
    const auto start = Clock::now();
    const auto step = found.head.at("step").get<Index>();
    Archive archive(run_.control, found.file, found.head["values"], step);
    state(archive);
    run_.report["restart"] = {
        {"file", found.file},
        {"step", step},
        {"seconds", std::chrono::duration<double>(Clock::now() - start).count()}};
    run_.say(fmt::format("restart    from step {} of {}, {}", step,
                         found.head.at("steps").get<Index>(), found.file));
    return step;
  }
  fail_together(Exit::input, "no checkpoint to restart from: " + refused_ +
                                 "; --restart; give the same input and options, or start without "
                                 "it");
}

}  // namespace terrace
