// Checkpoints: the state of a loop at a step boundary, in HDF5, and back.
//
// A method that can be stopped has one member, `void archive(Archive&, ...)`, that names its
// state; it is called with both lanes idle, to save and to load. Matrices are stored by their
// global rows, so another number of ranks may load them.
#pragma once
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "distrib/layout.hpp"
#include "distrib/votes.hpp"
#include "io/input.hpp"
#include "io/output.hpp"
#include "kernels/buffer.hpp"

namespace terrace {

class Run;

/// State on its way to a checkpoint or from one. All members are collective.
class Archive {
 public:
  Archive(const Control& control, io::Output& output) : control_(control), output_(&output) {}
  Archive(const Control& control, std::string file, nlohmann::json values, Index step)
      : control_(control), file_(std::move(file)), values_(std::move(values)), step_(step) {}
  [[nodiscard]] Index step() const { return step_; }  ///< where the loop goes on
  [[nodiscard]] bool loading() const { return output_ == nullptr; }
  [[nodiscard]] const nlohmann::json& values() const { return values_; }

  /// Equal on all ranks.
  void value(const std::string& name, Index& v);
  void value(const std::string& name, double& v);  ///< every bit
  void value(const std::string& name, bool& v);
  void value(const std::string& name, int& v);
  void list(const std::string& name, std::vector<Index>& v);
  void list(const std::string& name, std::vector<double>& v);

  /// `rows` x `columns` numbers of 8 bytes: this rank's rows `ranges`, one after the other at
  /// `data` (memory of B) with leading dimension `ld`.
  template <class T, class B>
  void rows(const Stream<B>& lane, const std::string& name, Index rows, Index columns,
            std::span<const Range> ranges, T* data, Index ld) {
    static_assert(sizeof(T) == sizeof(Word));
    auto* const words = reinterpret_cast<Word*>(data);
    if (loading()) {
      load(name, rows, columns, ranges, [&](Index position, Index count, const Word* from) {
        copy_rows<Word>(lane, words + position * ld, ld, from, columns, columns, count);
        lane.synchronize();
      });
    } else {
      save(name, rows, columns, ranges, [&](Index position, Index count, Word* to) {
        copy_rows<Word>(lane, to, columns, words + position * ld, ld, columns, count);
        lane.synchronize();
      });
    }
  }
  /// The same of numbers that lie anywhere: save(position, count, to) and load(position, count,
  /// from) are asked for `count` of this rank's rows.
  void pieces(const std::string& name, Index rows, Index columns, std::span<const Range> ranges,
              const io::Source<Word>& save, const io::Sink<Word>& load) {
    if (loading())
      this->load(name, rows, columns, ranges, load);
    else
      this->save(name, rows, columns, ranges, save);
  }
  /// A vector of all rows: `k` numbers a row, this rank's `own` rows at `data`.
  template <class B>
  void vector(const Stream<B>& lane, const std::string& name, Index n, Index k, Range own,
              View<double, B> data) {
    rows(lane, name, n, k, {&own, 1}, data.data, k);
  }

 private:
  void save(const std::string& name, Index rows, Index columns, std::span<const Range> ranges,
            const io::Source<Word>& source);
  void load(const std::string& name, Index rows, Index columns, std::span<const Range> ranges,
            const io::Sink<Word>& sink);
  template <class T>
  void list_of(const std::string& name, std::vector<T>& v);

  Control control_;
  io::Output* output_ = nullptr;
  std::string file_;
  nlohmann::json values_ = nlohmann::json::object();
  Index step_ = 0;
};

/// When to write one, where, and what to start from: --checkpoint, --checkpoint-every, --restart.
///
/// FILE is the newest, FILE.old the one before it. Each is written under a temporary name, with a
/// hash of every dataset, and renamed when it is whole. A file that is no checkpoint is replaced
/// with --force only. A checkpoint belongs to one command on one matrix: `identity` below, and the
/// inputs' files: untouched since, or of the same content.
class Checkpoints {
 public:
  /// Collective. With --restart reads what stands in the file; throws Error(input) when neither
  /// FILE nor FILE.old is a whole checkpoint of this command. Watches signals with --checkpoint.
  explicit Checkpoints(Run& run);
  ~Checkpoints();
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  [[nodiscard]] bool active() const { return !file_.empty(); }
  [[nodiscard]] bool restarting() const { return !found_.empty(); }
  /// What the interrupted run had chosen (run.settings); null without --restart. Commands adopt it.
  [[nodiscard]] nlohmann::json settings() const;

  /// A value of the archive that resume() will load, or `otherwise`.
  [[nodiscard]] Index value(const std::string& name, Index otherwise) const;

  /// After a step, on every rank: whether all of them write one now.
  [[nodiscard]] bool due();
  /// Instead of save(): the state is not worth keeping. On every rank.
  void put_off() { waiting_ = false; }
  /// Writes the state after `step` of `steps` steps. A failure to write is said and the run goes
  /// on. Throws the agreed Error(requeue) when the end was asked for. Collective.
  void save(Index step, Index steps, const std::function<void(Archive&)>& state);
  /// Loads the state and returns its step; 0, and nothing loaded, without --restart or when
  /// something was resumed before. Throws Error(input) when the checkpoint is another problem's.
  [[nodiscard]] Index resume(const std::function<void(Archive&)>& state);

 private:
  struct Found {
    std::string file;
    nlohmann::json head;
  };
  void find(const std::string& file);
  void refuse(const std::string& file, const std::string& why);
  void write(Index step, Index steps, const std::function<void(Archive&)>& state);
  [[nodiscard]] nlohmann::json identity() const;
  [[nodiscard]] bool is_checkpoint(const std::string& file) const;
  void require_place();
  [[nodiscard]] nlohmann::json files();
  std::string changed_input(const nlohmann::json& files);

  using Clock = std::chrono::steady_clock;
  Run& run_;
  std::string file_, restart_;
  double every_ = 0;  ///< seconds
  std::vector<Found> found_;
  std::string refused_;                   ///< why
  std::map<std::string, Word> contents_;  ///< of inputs, once they are known
  bool resumed_ = false, waiting_ = false, stop_ = false;
  Index last_step_ = -1;
  std::unique_ptr<Votes> votes_;
  Clock::time_point last_;
};

/// "90", "90s", "10m", "2h" in seconds; throws agreed Error(usage).
double parse_interval(const std::string& text);

}  // namespace terrace
