// A second reading of an input beside other work, by threads of its own, without HDF5 and MPI: its
// hash says whether the file still holds what was read first.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "distrib/layout.hpp"
#include "kernels/base/error.hpp"

namespace terrace::io {

struct InputFile;

/// Of what read() hands on: the sum of hash_element(number k of item i, i * width + k), width being
/// the numbers of an item. All members are local to the rank.
class Rereading {
 public:
  /// What is read, and how: as read() has it.
  struct What {
    int axis = 0;        ///< of the dataset, along which the items lie
    bool words = false;  ///< or doubles
    bool band = false;   ///< number k of item i counts as zero where i + k >= items
  };
  /// Null where the numbers do not lie in the file without gaps, in runs that are worth a read.
  static std::unique_ptr<Rereading> of(std::shared_ptr<const InputFile> file, const What& what,
                                       std::span<const Range> ranges);
  ~Rereading();
  Rereading(const Rereading&) = delete;
  Rereading& operator=(const Rereading&) = delete;

  void begin();
  /// The hash, once it is there. Throws Error(input) where the file cannot be read any more.
  Word finish();

 private:
  Rereading() = default;
  void work();

  std::shared_ptr<const InputFile> file_;
  std::vector<std::function<Word(std::vector<char>&)>> parts_;  ///< with a buffer of the thread
  std::atomic<std::size_t> next_{0};
  std::atomic<Word> sum_{0};
  std::mutex mutex_;
  std::optional<Error> failed_;
  std::vector<std::thread> threads_;
};

/// Makes one for the items of these ranges, or null.
using Rereader = std::function<std::unique_ptr<Rereading>(std::span<const Range> ranges)>;

}  // namespace terrace::io
