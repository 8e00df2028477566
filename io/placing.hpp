// Bytes of a dataset to their places in a file that this program has made: by all threads, round
// HDF5, which takes one call per row and one thread.
#pragma once
#include <string>
#include <vector>

#include "io/hdf5.hpp"
#include "io/slices.hpp"

namespace terrace::io {

/// `count` elements of 8 bytes from element `from` of a buffer on, that follow each other from
/// row-major element `to` of the dataset on.
struct Run {
  Index from = 0, to = 0, count = 0;
};
/// Where the items of a piece go, along `axis` of a dataset of these dimensions; the piece is
/// row-major, as select() takes it.
std::vector<Run> runs_of(const Piece& piece, int axis, const std::vector<Index>& dims);
/// Rows of `width` elements, row i to row destination[i]; neighbours together.
std::vector<Run> runs_of(std::span<const Index> destination, Index width);

/// A dataset that may be written without HDF5: contiguous, allocated, of 8-byte elements in this
/// machine's order, in a file without a user block, which every rank reaches through a coherent
/// file system. Agreed by all ranks.
class Placing {
 public:
  /// `file`: open for writing, its name `name`. `reserved`: it cannot lack room. Collective.
  Placing(const Control& control, hid_t file, hid_t dataset, const std::string& name,
          bool reserved);
  ~Placing();
  Placing(const Placing&) = delete;
  Placing& operator=(const Placing&) = delete;

  [[nodiscard]] bool possible() const { return descriptor_ >= 0; }
  /// Writes the runs by all threads; the sum of their hashes. Throws Error(resources), `told` being
  /// the file's name.
  Word put(const Word* buffer, std::span<const Run> runs, const std::string& told) const;

 private:
  void map(Index bytes);
  int place(const Run& run, const Word* buffer) const;

  int descriptor_ = -1;
  Index offset_ = 0;  ///< of the dataset, bytes
  // Files in memory take writes of one thread at a time, and stores of all: 4 and 18 GB/s.
  char* mapped_ = nullptr;  ///< from `mapped_from_` on
  Index mapped_from_ = 0, mapped_bytes_ = 0;
};

/// Rows go out in pieces of so many bytes, by so many threads.
Index placed_bytes();
int placing_threads();

/// Sum of the hashes of the runs, by all threads.
Word hash_runs(const Word* buffer, std::span<const Run> runs);

}  // namespace terrace::io
