// The same collective verbs on MPI (host memory) and, of device memory, through peers' memory or by
// NCCL, enqueued on a stream.
//
// Every rank enqueues the same verbs in the same order. Where ranks share a GPU, neither can be used:
// Communicator<Cuda> then stages through the host, and says so (transport()).
#pragma once
#include <memory>
#include <span>
#include <string>

#include "distrib/control.hpp"
#include "kernels/base/buffer.hpp"
#include "kernels/base/stream.hpp"

namespace terrace {

enum class DataType { bytes, f64, i64, u64 };

template <class T>
constexpr DataType data_type() {
  if constexpr (std::is_same_v<std::remove_const_t<T>, double>)
    return DataType::f64;
  else if constexpr (std::is_same_v<std::remove_const_t<T>, Index>)
    return DataType::i64;
  else if constexpr (std::is_same_v<std::remove_const_t<T>, Word>)
    return DataType::u64;
  else
    return DataType::bytes;
}

/// One piece of a grouped operation; peer is the root of a broadcast, or the other end of a
/// message.
struct Piece {
  int peer = 0;
  void* data = nullptr;  // only read in a send
  Index bytes = 0;
};

/// Whether GPUs are asked for peer memory at all: one host, at most 16 ranks, and not
/// TERRACE_PEER_MEMORY=0. Else NCCL.
bool may_use_peer_memory(const Control& control);

/// "2.28.3 (header 2.28.3)"; only where CUDA is built.
std::string nccl_version();

template <class B>
class Communicator {
 public:
  /// Collective. For Cuda after bind_device().
  explicit Communicator(const Control& control, bool shared_device = false);
  [[nodiscard]] int rank() const { return control_.rank(); }
  [[nodiscard]] int size() const { return control_.size(); }
  [[nodiscard]] const Control& control() const { return control_; }
  [[nodiscard]] std::string transport() const;  ///< "MPI", "peer memory", "NCCL 2.28.3"

  template <class T>
  void broadcast(const Stream<B>& stream, int root, View<T, B> data) const {
    const Piece piece{root, data.data, data.size * Index(sizeof(T))};
    broadcast_group(stream, {&piece, 1});
  }
  /// Several broadcasts at once, possibly with different roots; the same list of (root, bytes) on
  /// every rank. Zero-byte pieces are allowed.
  void broadcast_group(const Stream<B>& stream, std::span<const Piece> pieces) const;

  /// recv = the ranks' `send` parts one after the other; equal sizes on all ranks.
  template <class T>
  void all_gather(const Stream<B>& stream, std::type_identity_t<View<const T, B>> send,
                  View<T, B> recv) const {
    all_gather_bytes(stream, send.data, send.size * Index(sizeof(T)), recv.data);
  }
  /// In place. T: double, Index or Word (sum, min, max; bit operations on Cpu only).
  template <class T>
  void all_reduce(const Stream<B>& stream, Reduce op, View<T, B> data) const {
    static_assert(data_type<T>() != DataType::bytes);
    all_reduce_typed(stream, op, data_type<T>(), data.data, data.size);
  }
  /// recv = this rank's part of the reduction of `send` (size() parts of recv.size each).
  template <class T>
  void reduce_scatter(const Stream<B>& stream, Reduce op,
                      std::type_identity_t<View<const T, B>> send, View<T, B> recv) const {
    static_assert(data_type<T>() != DataType::bytes);
    reduce_scatter_typed(stream, op, data_type<T>(), send.data, recv.data, recv.size);
  }
  /// All messages of one step at once; a message to oneself is a copy. The k-th send to a peer
  /// meets that peer's k-th receive from here, with equal bytes.
  void exchange(const Stream<B>& stream, std::span<const Piece> sends,
                std::span<const Piece> receives) const;

  void all_gather_bytes(const Stream<B>&, const void* send, Index bytes, void* recv) const;
  void all_reduce_typed(const Stream<B>&, Reduce, DataType, void* data, Index count) const;
  void reduce_scatter_typed(const Stream<B>&, Reduce, DataType, const void* send, void* recv,
                            Index count) const;

 private:
  struct State;
  Control control_;
  std::shared_ptr<State> state_;
};

}  // namespace terrace
