#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "distrib/communicator.hpp"
#include "distrib/communicator_host.hpp"
#include "distrib/faults.hpp"
#include "distrib/traffic.hpp"

namespace terrace {

MPI_Datatype mpi_type(DataType type) {
  switch (type) {
    case DataType::f64:
      return MPI_DOUBLE;
    case DataType::i64:
      return MPI_INT64_T;
    case DataType::u64:
      return MPI_UINT64_T;
    case DataType::bytes:
      return MPI_BYTE;
  }
  return MPI_BYTE;
}

MpiLane::MpiLane(const Control& control) {
  if (mpi_comm(control) == MPI_COMM_NULL) return;  // one process without MPI
  check_mpi(MPI_Comm_dup(mpi_comm(control), &comm), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
}
MpiLane::~MpiLane() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized && comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
}

Index piece_limit(Index usual) {
  static const Index wished = [] {
    const char* const text = test_setting("TERRACE_TEST_PIECE_BYTES");
    return text ? Index(std::atol(text)) : Index(0);
  }();
  return wished > 0 ? std::min(wished, usual) : usual;
}

namespace {
Index largest_call() { return piece_limit(Index(1) << 30); }  // bytes
Index most_elements() { return std::max<Index>(1, largest_call() / 8); }
void copy_bytes(void* to, const void* from, Index bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, std::size_t(bytes));
}
}  // namespace

void MpiLane::broadcast(int root, void* data, Index bytes) const {
  if (size == 1) return;
  const Index largest = largest_call();
  for (Index from = 0; from < bytes; from += largest)
    check_mpi(MPI_Bcast(static_cast<char*>(data) + from, int(std::min(largest, bytes - from)),
                        MPI_BYTE, root, comm),
              "MPI_Bcast");
}

void MpiLane::all_gather(const void* send, Index bytes, void* recv) const {
  if (size == 1) return copy_bytes(recv, send, bytes);
  // Pieces keep each count below 2^31; each piece lands at its own place of every rank's part.
  if (bytes * size <= largest_call()) {
    check_mpi(MPI_Allgather(send, int(bytes), MPI_BYTE, recv, int(bytes), MPI_BYTE, comm),
              "MPI_Allgather");
    return;
  }
  for (int root = 0; root < size; ++root) {
    char* part = static_cast<char*>(recv) + root * bytes;
    if (root == rank) copy_bytes(part, send, bytes);
    broadcast(root, part, bytes);
  }
}

void MpiLane::all_reduce(Reduce op, DataType type, void* data, Index count) const {
  if (size == 1) return;
  const Index piece = most_elements();
  for (Index from = 0; from < count; from += piece)
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, static_cast<char*>(data) + from * 8,
                            int(std::min(piece, count - from)), mpi_type(type), mpi_op(op), comm),
              "MPI_Allreduce");
}

void MpiLane::reduce_scatter(Reduce op, DataType type, const void* send, void* recv,
                             Index count) const {
  if (size == 1) return copy_bytes(recv, send, 8 * count);
  const Index piece = most_elements();
  if (count <= piece) {
    check_mpi(MPI_Reduce_scatter_block(send, recv, int(count), mpi_type(type), mpi_op(op), comm),
              "MPI_Reduce_scatter_block");
    return;
  }
  for (int root = 0; root < size; ++root)
    for (Index from = 0; from < count; from += piece)
      check_mpi(MPI_Reduce(static_cast<const char*>(send) + (root * count + from) * 8,
                           static_cast<char*>(recv) + from * 8, int(std::min(piece, count - from)),
                           mpi_type(type), mpi_op(op), root, comm),
                "MPI_Reduce");
}

void MpiLane::exchange(std::span<const Piece> sends, std::span<const Piece> receives) const {
  if (size == 1) {
    for (std::size_t i = 0; i < sends.size(); ++i)
      copy_bytes(receives[i].data, sends[i].data, sends[i].bytes);
    return;
  }
  const Index largest = largest_call();
  std::vector<MPI_Request> requests;
  const auto each = [&](std::span<const Piece> pieces, bool sending) {
    for (const Piece& piece : pieces) {
      for (Index from = 0; from < piece.bytes; from += largest) {
        char* data = static_cast<char*>(piece.data) + from;
        const int bytes = int(std::min(largest, piece.bytes - from));
        requests.emplace_back();
        check_mpi(sending ? MPI_Isend(data, bytes, MPI_BYTE, piece.peer, 0, comm, &requests.back())
                          : MPI_Irecv(data, bytes, MPI_BYTE, piece.peer, 0, comm, &requests.back()),
                  sending ? "MPI_Isend" : "MPI_Irecv");
      }
    }
  };
  each(receives, false);
  each(sends, true);
  check_mpi(MPI_Waitall(int(requests.size()), requests.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
}

template <>
struct Communicator<Cpu>::State : MpiLane {
  using MpiLane::MpiLane;
};

template <>
Communicator<Cpu>::Communicator(const Control& control, bool)
    : control_(control), state_(std::make_shared<State>(control)) {}

template <>
std::string Communicator<Cpu>::transport() const {
  return "MPI";
}

template <>
void Communicator<Cpu>::broadcast_group(const Stream<Cpu>& stream,
                                        std::span<const Piece> pieces) const {
  if (size() == 1) return;
  count_broadcast(pieces, rank());
  stream.run([state = state_, list = std::vector<Piece>(pieces.begin(), pieces.end())] {
    for (const Piece& piece : list) state->broadcast(piece.peer, piece.data, piece.bytes);
  });
}

template <>
void Communicator<Cpu>::exchange(const Stream<Cpu>& stream, std::span<const Piece> sends,
                                 std::span<const Piece> receives) const {
  count_exchange(sends, receives, rank());
  stream.run(
      [state = state_, to = std::vector<Piece>(sends.begin(), sends.end()),
       from = std::vector<Piece>(receives.begin(), receives.end())] { state->exchange(to, from); });
}

template <>
void Communicator<Cpu>::all_gather_bytes(const Stream<Cpu>& stream, const void* send, Index bytes,
                                         void* recv) const {
  if (size() > 1) count_traffic(bytes, bytes * (size() - 1));
  stream.run([=, state = state_] { state->all_gather(send, bytes, recv); });
}

template <>
void Communicator<Cpu>::all_reduce_typed(const Stream<Cpu>& stream, Reduce op, DataType type,
                                         void* data, Index count) const {
  if (size() == 1) return;
  count_traffic(count * 8, count * 8);
  stream.run([=, state = state_] { state->all_reduce(op, type, data, count); });
}

template <>
void Communicator<Cpu>::reduce_scatter_typed(const Stream<Cpu>& stream, Reduce op, DataType type,
                                             const void* send, void* recv, Index count) const {
  count_traffic(count * 8 * (size() - 1), count * 8);
  stream.run([=, state = state_] { state->reduce_scatter(op, type, send, recv, count); });
}

}  // namespace terrace
