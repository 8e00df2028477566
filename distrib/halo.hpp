// The entries of a distributed vector that a rank needs from others, and their exchange.
//
//   memory of one rank:   [ left | own entries | right ]     ascending global numbers throughout
//
// Each step moves exactly the needed entries, one message to and from each neighbour.
#pragma once
#include <vector>

#include "distrib/communicator.hpp"

namespace terrace {

/// Of each rank the entries of this one that it needs, counted from this rank's first one, in ascending
/// order.
using AskedEntries = std::vector<std::vector<Index>>;
/// first[r] .. first[r + 1] are the entries of rank r; `needed`: ascending global numbers outside this
/// rank's own part. Collective.
AskedEntries asked_entries(const Control& control, const std::vector<Index>& first,
                           const std::vector<Index>& needed);

template <class B>
class Halo {
 public:
  Halo() = default;
  /// As asked_entries(), whose answer is `asked`. Collective.
  Halo(const Control& control, const Stream<B>& stream, const std::vector<Index>& first,
       const std::vector<Index>& needed, AskedEntries asked);
  Halo(const Control& control, const Stream<B>& stream, const std::vector<Index>& first,
       const std::vector<Index>& needed)
      : Halo(control, stream, first, needed, asked_entries(control, first, needed)) {}
  [[nodiscard]] const AskedEntries& asked() const { return asked_; }
  [[nodiscard]] Index left() const { return left_; }    ///< needed entries before the own ones
  [[nodiscard]] Index right() const { return right_; }  ///< needed entries after the own ones
  [[nodiscard]] Index sent() const { return sent_; }    ///< entries that go to other ranks
  /// Fills own[-left()..0) and own[count..count + right()) where `count` is the size of the own
  /// part. All ranks.
  void exchange(const Communicator<B>& comm, const Stream<B>& stream, double* own) const;

 private:
  struct Send {
    int peer;
    Index offset, count;  // in the packed list; or in the own part when `direct`
    bool direct;
  };
  struct Receive {
    int peer;
    Index offset, count;  // from the first own entry
  };
  Index left_ = 0, right_ = 0, sent_ = 0, own_ = 0;
  std::vector<Send> sends_;
  std::vector<Receive> receives_;
  AskedEntries asked_;
  Buffer<Index, B> packed_index_;  // own numbers, for the sends that are not one run
  Buffer<double, B> packed_;
};

}  // namespace terrace
