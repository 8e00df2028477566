// The verbs of a communicator through the memory of GPUs of one host (kernels/base/peer_messages.hpp).
#pragma once
#include <memory>
#include <optional>
#include <span>

#include "distrib/communicator.hpp"

namespace terrace {

/// Every rank enqueues the same verbs in the same order. Calls on several streams run one after the
/// other; inside a recording all of them are on one stream.
class PeerLine {
 public:
  /// Collective, with the device bound. Null where some rank cannot reach another's memory: it may
  /// not (may_use_peer_memory), no peer access, an answer that is late or wrong.
  static std::unique_ptr<PeerLine> open(const Control& control);
  ~PeerLine();
  PeerLine(const PeerLine&) = delete;
  PeerLine& operator=(const PeerLine&) = delete;

  void broadcast_group(const Stream<Cuda>& stream, std::span<const Piece> pieces);
  void all_gather(const Stream<Cuda>& stream, const void* send, Index bytes, void* recv);
  void all_reduce(const Stream<Cuda>& stream, Reduce op, DataType type, void* data, Index count);
  void reduce_scatter(const Stream<Cuda>& stream, Reduce op, DataType type, const void* send,
                      void* recv, Index count);
  /// None of the pieces is of or for this rank.
  void exchange(const Stream<Cuda>& stream, std::span<const Piece> sends,
                std::span<const Piece> receives);

 private:
  /// recv := of `count` numbers what all ranks have for this one; what goes to rank r begins at
  /// number r * apart of `send`.
  void combine(const Stream<Cuda>& stream, Reduce op, DataType type, const void* send, Index apart,
               void* recv, Index count);
  struct State;
  explicit PeerLine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace terrace
