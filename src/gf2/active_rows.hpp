// The rows over GF(2) among which pivots are still looked for.
#pragma once
#include <vector>

#include "src/gf2/matrix.hpp"

namespace terrace::gf2 {

/// Rows of this rank that are not pivots yet, on the host and (two copies in turn, because updates
/// may still read the last one) on the backend; and how many the other ranks have.
template <class B>
class ActiveRows {
 public:
  ActiveRows(BlockCyclic layout, int rank);
  /// Rows 0 .. count - 1 of one rank, count at most the layout's.
  void reset(Index count);
  [[nodiscard]] Index count() const { return count_; }
  [[nodiscard]] const std::vector<Index>& counts() const { return counts_; }  ///< of all ranks
  [[nodiscard]] Index operator[](Index i) const { return list_[i]; }
  /// Position of an active slot in the list.
  [[nodiscard]] Index position(Index slot) const { return position_[slot]; }
  /// Enqueues the upload of the list; returns it in the memory of B. remove() only after `lane`
  /// ran.
  const Index* upload(const Stream<B>& lane, Index k);
  void remove(Index slot);
  /// A row of any rank, by its global number.
  void remove_global(Index row);
  static Index host_bytes(Index slots) { return 2 * slots * Index(sizeof(Index)); }
  static Index backend_bytes(Index slots) { return 2 * slots * Index(sizeof(Index)); }

 private:
  BlockCyclic layout_;
  int rank_;
  Index count_ = 0;
  std::vector<Index> counts_;
  PinnedBuffer<Index> list_;
  std::vector<Index> position_;
  Buffer<Index, B> copies_[2];
};

}  // namespace terrace::gf2
