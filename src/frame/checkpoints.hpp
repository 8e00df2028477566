// Checkpoints: the state of a loop at a step boundary, in HDF5, and back.
//
// A method that can be stopped has one member, `void archive(Archive&, ...)`, that names its
// state; it is called with both lanes idle, to save and to load. Matrices are stored by their
// global rows, so another number of ranks may load them.
#pragma once
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "distrib/layout.hpp"
#include "distrib/votes.hpp"
#include "io/files.hpp"
#include "io/input.hpp"
#include "io/output.hpp"
#include "kernels/base/buffer.hpp"
#include "kernels/base/clock.hpp"

namespace terrace {

/// State on its way to a checkpoint or from one. All members are collective.
class Archive {
 public:
  Archive(const Control& control, io::Output& output) : control_(control), output_(&output) {}
  Archive(const Control& control, std::string file, std::map<std::string, Index> values, Index step)
      : control_(control), file_(std::move(file)), values_(std::move(values)), step_(step) {}
  [[nodiscard]] Index step() const { return step_; }  ///< where the loop goes on
  [[nodiscard]] bool loading() const { return output_ == nullptr; }
  /// All that value() was given, bit by bit.
  [[nodiscard]] const std::map<std::string, Index>& values() const { return values_; }

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
  /// A vector of all rows: `k` numbers per row, this rank's `own` rows at `data`.
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
  std::map<std::string, Index> values_;
  Index step_ = 0;
};

/// A command's problem as it stands: what a checkpoint belongs to.
struct CheckpointProblem {
  std::string settings, sizes;                ///< JSON objects, equal for a checkpoint that fits
  std::map<std::string, std::string> inputs;  ///< "FILE:/path" by key
  std::map<std::string, io::Stamp> stamps;    ///< of these files, as they were when they were read
  io::Attributes attributes;                  ///< of the checkpoint's `terrace` group
};

/// What the running command gives to its checkpoints.
struct CheckpointJob {
  std::string command;        ///< a file of another one is refused
  std::string file, restart;  ///< where to write, where to start from; or empty
  double every = 600;         ///< seconds
  bool force = false;         ///< a file that is no checkpoint may be replaced
  std::function<CheckpointProblem()> problem;
  std::function<void(const std::string&)> say;  ///< one line for people
};

/// What was done, for reports.
struct CheckpointRecord {
  int written = 0, failed = 0;
  std::string file, failure;  ///< of the last one written, of the last one that failed
  Index step = 0;             ///< of the last one written
  double seconds = 0;         ///< of writing
  bool stopped = false;       ///< by a signal
  std::string restart_file;
  Index restart_step = -1;  ///< -1: nothing loaded
  double restart_seconds = 0;
};

/// When to write one, where, and what to start from.
///
/// FILE is the newest, FILE.old the one before it. Each is written under a temporary name, with a
/// hash of every dataset, and renamed when it is whole. A file that is no checkpoint is replaced
/// with `force` only. A checkpoint belongs to one command on one problem: `identity` below, and the
/// inputs' files: untouched since, or of the same content.
class Checkpoints {
 public:
  /// Collective. With `restart` reads what stands in the file; throws Error(input) when neither
  /// FILE nor FILE.old is a whole checkpoint of this command. Watches signals with `file`.
  Checkpoints(const Control& control, CheckpointJob job);
  ~Checkpoints();
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  [[nodiscard]] bool active() const { return !job_.file.empty(); }
  [[nodiscard]] bool restarting() const { return !found_.empty(); }
  /// What the interrupted run had chosen, a JSON object; "null" without a restart. Commands adopt
  /// it.
  [[nodiscard]] std::string settings() const;
  [[nodiscard]] const CheckpointRecord& record() const { return record_; }

  /// A value of the archive that resume() will load, or `otherwise`.
  [[nodiscard]] Index value(const std::string& name, Index otherwise) const;

  /// After a step, on every rank: whether all of them write one now.
  [[nodiscard]] bool due();
  /// Instead of save(): the state is not worth keeping. On every rank.
  void put_off() { waiting_ = false; }
  /// Writes the state after `step` of `steps` steps. A failure to write is said and the run goes
  /// on. Throws the agreed Error(requeue) when the end was asked for. Collective.
  void save(Index step, Index steps, const std::function<void(Archive&)>& state);
  /// Loads the state and returns its step; 0, and nothing loaded, without a restart or when
  /// something was resumed before. Throws Error(input) when the checkpoint is another problem's.
  [[nodiscard]] Index resume(const std::function<void(Archive&)>& state);

 private:
  struct Found {
    std::string file;
    std::string head;  ///< JSON
  };
  void find(const std::string& file);
  void refuse(const std::string& file, const std::string& why);
  void write(Index step, Index steps, const std::function<void(Archive&)>& state);
  [[nodiscard]] std::string identity(const CheckpointProblem& problem) const;
  [[nodiscard]] bool is_checkpoint(const std::string& file) const;
  void require_place();
  [[nodiscard]] std::string files(const CheckpointProblem& problem);
  std::string changed_input(const CheckpointProblem& problem, const std::string& files);

  Control control_;
  CheckpointJob job_;
  CheckpointRecord record_;
  std::vector<Found> found_;
  std::string refused_;                   ///< why
  std::map<std::string, Word> contents_;  ///< of inputs, once they are known
  bool resumed_ = false, waiting_ = false, stop_ = false;
  Index last_step_ = -1;
  std::unique_ptr<Votes> votes_;
  Clock::time_point last_;
};

}  // namespace terrace
