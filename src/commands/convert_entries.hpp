// Entries of a sparse matrix on their way from a file to their ranks and rows.
//
//   rows    |..group 0..|..group 1..|..group 2..|..group 3..|
//            rank 0                  rank 1
//
// A thread sorts each part of the file by groups as soon as it has read it, while it is in its
// cache. Ranks exchange whole groups. One thread then puts a group's entries in order of their rows.
#pragma once
#include <span>
#include <vector>

#include "distrib/control.hpp"
#include "distrib/layout.hpp"
#include "io/foreign.hpp"
#include "io/offender.hpp"
#include "kernels/base/large_vector.hpp"

namespace terrace {

class Entries {
 public:
  /// Of a matrix whose sides are at most io::max_extent; this rank reads `parts` parts of its file.
  Entries(const Control& control, Index rows, Index columns, Index parts);
  /// Bytes that a rank takes at most while it collects `entries` of its own and deals them.
  static Index memory(const Control& control, Index entries);
  /// Part k in the file's order. Any thread, one call for each part.
  void put(Index k, std::span<const io::Triplet> part);
  /// Sends each entry to the rank of its row. Cost: 16 bytes per entry that moves. Collective.
  void deal(const Control& control);

  [[nodiscard]] Index all_rows() const { return all_rows_; }
  [[nodiscard]] Index columns() const { return columns_; }
  /// This rank's rows.
  [[nodiscard]] Range rows() const { return rows_; }
  // After deal(). Groups are those of this rank: 0 .. groups() - 1, by rows.
  [[nodiscard]] Index groups() const { return ceil_div(rows_.count, Index(1) << shift_); }
  [[nodiscard]] Range rows_of(Index group) const {
    const Index first = group << shift_;
    return {rows_.first + first, std::min(rows_.count - first, Index(1) << shift_)};
  }
  [[nodiscard]] Index count(Index group) const {
    Index sum = 0;
    for (const Part& part : parts_) sum += part.start[group + 1] - part.start[group];
    return sum;
  }
  /// visit(row, column, value) for a group's entries, in the order of the file.
  template <class F>
  void each(Index group, const F& visit) const {
    const Index first = rows_of(group).first;
    for (const Part& part : parts_)
      for (Index k = part.start[group]; k < part.start[group + 1]; ++k) {
        const Entry& e = part.entries[k];
        visit(first + Index(e.place >> column_bits), Index(e.place & column_mask), e.value);
      }
  }

 private:
  static constexpr int column_bits = 36;
  static constexpr Word column_mask = (Word(1) << column_bits) - 1;
  static_assert(io::max_extent <= Index(1) << column_bits);
  struct Entry {
    Word place = 0;  ///< row of the group, above the column
    double value = 0;
  };
  struct Part {
    const Index* start = nullptr;  ///< of each of the rank's groups; one more ends the last
    const Entry* entries = nullptr;
  };
  struct Read {
    std::vector<Index> start;  ///< of the groups of all ranks, and the end
    LargeVector<Entry> entries;
  };
  [[nodiscard]] LargeVector<char> message(Index rank) const;
  void take(const LargeVector<char>& message);

  Index all_rows_, columns_, block_ = 1;
  Range rows_;
  int ranks_, shift_ = 0;
  Index per_rank_ = 1;  ///< groups
  std::vector<Read> read_;
  std::vector<LargeVector<char>> received_;
  std::vector<Part> parts_;  ///< of this rank's groups, in the order of the file
};

}  // namespace terrace
