// Chunks, each read and inflated by one of the ranks that need it; and tiles of a dataset without
// gaps, each read by one of them, where the ranks' own runs are short.
#pragma once
#include <atomic>
#include <map>

#include "distrib/communicator_host.hpp"
#include "io/announce.hpp"
#include "io/input_file.hpp"
#include "io/portions.hpp"
#include "io/stored.hpp"

namespace terrace::io {

class ChunkRounds {
 public:
  /// Collective. `most`: items of a portion.
  ChunkRounds(const Control& control, const InputFile& input, hid_t dataset, const Object& object,
              const Stored& stored, int axis, std::span<const Range> ranges, Index most);
  ChunkRounds(const ChunkRounds&) = delete;
  ChunkRounds& operator=(const ChunkRounds&) = delete;
  /// Items of the shortest run that a rank asks for. Collective.
  static Index shortest_run(const Control& control, std::span<const Range> ranges);
  /// Whether every rank named its items in ascending order; else there are no rounds.
  [[nodiscard]] bool possible() const { return possible_; }
  /// May load() run beside MPI calls of another thread?
  [[nodiscard]] bool ahead() const { return ahead_; }
  /// One portion a round, the same number on every rank, some empty.
  [[nodiscard]] const std::vector<Portion>& portions() const { return portions_; }
  /// The portion's elements in the order of the file, items x others or others x items. Collective;
  /// does not throw: what went wrong stands in failure().
  void load(Index round, char* slab);
  [[nodiscard]] const std::optional<Error>& failure() const { return failure_; }
  /// This rank has failed and needs nothing more: it reads from now on what others need. May be
  /// called beside load().
  void give_up() { given_up_ = true; }
  /// What this rank will read of a dataset without gaps, in windows of rounds that together read
  /// `items` items.
  [[nodiscard]] std::vector<Announcer::Window> windows(Index items) const;

 private:
  struct Chunk {
    Index unit, across;
  };
  struct Job {  // a chunk of a round: who inflates it, who needs it
    Chunk chunk;
    int owner = 0;
    std::vector<int> needers;
  };
  struct Round {  // under way
    Index number = 0;
    char* slab = nullptr;
    std::vector<Job> jobs;
    std::vector<std::size_t> own;            // jobs of this rank
    std::vector<std::vector<Index>> places;  // where each job's part of each message begins
    std::vector<Index> out_start, in_start;  // where each rank's message begins
  };
  struct Messages {               // what the ranks send each other in a round: chunk after chunk
    std::vector<Index> to, from;  // bytes, by rank
    Buffer<char, Cpu> out, in;
    std::unique_ptr<MpiLane> lane;  // of its own: load() runs beside other messages
  };
  struct Strided {  // `count` pieces of `length` bytes, `step` bytes apart
    char* at;
    Index step, length, count;
  };
  void prepare_messages();
  [[nodiscard]] std::vector<Job> jobs(Index round) const;
  [[nodiscard]] Round open(Index number, char* slab);
  void inflate(const Round& round);
  void spread(const Round& round, std::size_t job, const char* tile);
  void exchange(const Round& round);
  void collect(const Round& round) const;
  [[nodiscard]] Index width(const Chunk& chunk) const;
  [[nodiscard]] Strided in_slab(const Round&, const Chunk&, Index count, Index item) const;
  static void copy(const Strided& to, const char* from, Index from_step);
  [[nodiscard]] std::vector<Portion> plan(const std::vector<Range>& ranges) const;
  /// A chunk that was never written, as HDF5 shows it; what lies beyond the extents is zero.
  void ask_library(const hsize_t* offset, LargeVector<char>& raw) const;
  void fetch_into(const Chunk& chunk, std::size_t place);
  template <class F>
  void each_run(const Portion& p, const Chunk& chunk, const F& run) const;

  const Control& control_;
  const InputFile& input_;
  hid_t dataset_;
  const Stored& stored_;
  int axis_;
  Index extent_, others_, unit_, across_, element_, most_;
  Index group_ = 1, parts_ = 1;  ///< units a round takes, or rounds that a unit takes
  std::vector<std::vector<Portion>> all_;
  std::vector<Portion> portions_;
  bool possible_ = true, ahead_ = false;
  std::atomic<bool> given_up_{false};
  std::optional<Error> failure_;
  Messages messages_;
  std::vector<LargeVector<char>> raw_, spare_;
  std::vector<std::uint32_t> masks_;  // filters that each chunk was written without
};

}  // namespace terrace::io
