// Communicator<Cuda>: through peers' memory where the ranks of one host reach each other's GPUs, else
// by NCCL; staged through the host where ranks share a GPU.
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "distrib/agree.hpp"
#include "distrib/communicator.hpp"
#include "distrib/communicator_host.hpp"
#include "distrib/context.hpp"
#include "distrib/faults.hpp"
#include "distrib/imagined.hpp"
#include "distrib/peer_line.hpp"
#include "distrib/traffic.hpp"
#include "distrib/watched.hpp"
#include "kernels/base/clock.hpp"
#include "kernels/base/error.hpp"
#include "kernels/base/late.hpp"

namespace terrace {

#define TERRACE_NCCL(function) TERRACE_LATE(TERRACE_SONAME("nccl", NCCL_MAJOR), function)
TERRACE_NCCL(ncclAllGather);
TERRACE_NCCL(ncclAllReduce);
TERRACE_NCCL(ncclBroadcast);
TERRACE_NCCL(ncclCommAbort);
TERRACE_NCCL(ncclCommDestroy);
TERRACE_NCCL(ncclCommFinalize);
TERRACE_NCCL(ncclCommGetAsyncError);
TERRACE_NCCL(ncclCommInitRankConfig);
TERRACE_NCCL(ncclGetErrorString);
TERRACE_NCCL(ncclGetLastError);
TERRACE_NCCL(ncclGetUniqueId);
TERRACE_NCCL(ncclGetVersion);
TERRACE_NCCL(ncclGroupEnd);
TERRACE_NCCL(ncclGroupStart);
TERRACE_NCCL(ncclRecv);
TERRACE_NCCL(ncclReduceScatter);
TERRACE_NCCL(ncclSend);
#undef TERRACE_NCCL

namespace {

/// A lost rank looks so to its peers: the heartbeat names it, and speaks first.
bool may_be_a_lost_rank(ncclResult_t code) {
  return code == ncclRemoteError || code == ncclSystemError;
}
[[noreturn]] void nccl_failed(ncclResult_t code, const char* call) {
  if (may_be_a_lost_rank(code)) std::this_thread::sleep_for(std::chrono::seconds(1));
  throw Error(Exit::fault, std::string(call) + " failed: " + ncclGetErrorString(code) + " (" +
                               ncclGetLastError(nullptr) + ")");
}
void check_nccl(ncclResult_t code, const char* call) {
  if (code != ncclSuccess && code != ncclInProgress) nccl_failed(code, call);
}
ncclDataType_t nccl_type(DataType type) {
  switch (type) {
    case DataType::f64:
      return ncclFloat64;
    case DataType::i64:
      return ncclInt64;
    case DataType::u64:
      return ncclUint64;
    case DataType::bytes:
      return ncclUint8;
  }
  return ncclUint8;
}
ncclRedOp_t nccl_op(Reduce op) {
  switch (op) {
    case Reduce::sum:
      return ncclSum;
    case Reduce::min:
      return ncclMin;
    case Reduce::max:
      return ncclMax;
    default:
      throw Error(Exit::internal, "NCCL has no bit reductions");
  }
}
cudaStream_t native(const Stream<Cuda>& stream) {
  return static_cast<cudaStream_t>(stream.native());
}

/// A communicator that never blocks the host: a call that is not done yet answers ncclInProgress,
/// and nothing of it may be taken for enqueued before the state is ncclSuccess. What happens inside
/// (connections, launches) then runs in threads of NCCL, also while a graph is being recorded: the
/// launch goes to the recording of the stream, whichever thread makes it.
class NcclLine {
 public:
  NcclLine(const Control& control) {
    ncclUniqueId id{};
    if (control.rank() == 0) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    control.broadcast(&id, sizeof id, 0);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    const char* const asked = std::getenv("TERRACE_NCCL_BLOCKING");
    blocking_ = asked != nullptr && *asked == '1';
    config.blocking = blocking_ ? 1 : 0;
    const ncclResult_t code =
        ncclCommInitRankConfig(&comm_, control.size(), id, control.rank(), &config);
    settle(code, "ncclCommInitRankConfig");
    watched_.emplace([this] { return look(); }, [this] { abort(); });
  }
  NcclLine(const NcclLine&) = delete;
  NcclLine& operator=(const NcclLine&) = delete;
  ~NcclLine() {
    watched_.reset();
    if (comm_ == nullptr) return;
    // While an error unwinds, perhaps on this rank alone, nothing here may be waited for (even
    // ncclCommDestroy after ncclCommFinalize is done waits for the peers): the communicator is left
    // to the end of the process.
    if (std::uncaught_exceptions() > depth_) return;
    if (blocking_) {
      ncclCommDestroy(comm_);
      return;
    }
    ncclResult_t state = ncclCommFinalize(comm_);
    const auto end = Clock::now() + std::chrono::seconds(10);
    while (state == ncclInProgress && Clock::now() < end) {
      std::this_thread::yield();
      if (ncclCommGetAsyncError(comm_, &state) != ncclSuccess) break;
    }
    if (state == ncclSuccess)
      ncclCommDestroy(comm_);
    else
      ncclCommAbort(comm_);
  }
  /// Runs enqueue(communicator), which returns its last call's code, and waits until all of it is
  /// on the stream. Two threads may not ask for one communicator's state at once.
  template <class F>
  void operator()(const char* call, F&& enqueue) {
    const std::lock_guard<std::mutex> lock(busy_);
    settle(enqueue(comm_), call);
  }

 private:
  void settle(ncclResult_t code, const char* call) {
    if (code == ncclSuccess) return;
    if (code != ncclInProgress) nccl_failed(code, call);
    // A peer that is lost is the heartbeat's to notice; this is for what it cannot see.
    const auto start = Clock::now();
    for (Index turn = 1; code == ncclInProgress; ++turn) {
      check_nccl(ncclCommGetAsyncError(comm_, &code), "ncclCommGetAsyncError");
      if (turn % 64 != 0) continue;
      const auto spent = Clock::now() - start;
      if (spent > std::chrono::seconds(120))
        throw Error(Exit::fault, std::string(call) +
                                     " was not done after 120 s; check the network between the "
                                     "GPUs (NCCL_DEBUG=INFO)");
      if (spent > std::chrono::milliseconds(10))
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      else
        std::this_thread::yield();
    }
    if (code != ncclSuccess) nccl_failed(code, call);
  }
  /// The heartbeat's thread: what went wrong while kernels ran. The main thread sees for itself
  /// while it is in a call.
  std::string look() {
    const std::unique_lock<std::mutex> lock(busy_, std::try_to_lock);
    ncclResult_t state = ncclSuccess;
    if (!lock.owns_lock() || comm_ == nullptr ||
        ncclCommGetAsyncError(comm_, &state) != ncclSuccess || state == ncclSuccess ||
        state == ncclInProgress)
      return {};
    if (may_be_a_lost_rank(state) && !std::exchange(looked_, true)) return {};  // next time
    return std::string("NCCL failed: ") + ncclGetErrorString(state) + " (" +
           ncclGetLastError(nullptr) + "); check the GPUs and the network between them";
  }
  /// This process is about to end. Nobody may use the communicator any more: it stays locked.
  void abort() {
    if (busy_.try_lock() && comm_ != nullptr) ncclCommAbort(comm_);
  }

  ncclComm_t comm_ = nullptr;
  bool blocking_ = false, looked_ = false;
  int depth_ = std::uncaught_exceptions();
  std::mutex busy_;
  std::optional<Watched> watched_;
};

}  // namespace

template <>
struct Communicator<Cuda>::State : MpiLane {
  State(const Control& control, bool staged) : MpiLane(control) {
    // One rank needs none; tests take NCCL also there, and peers' memory on one GPU, where that is all
    // there is.
    const bool alone = test_setting("TERRACE_TEST_NCCL_ALONE") != nullptr;
    const bool shares = staged && test_setting("TERRACE_TEST_PEERS_SHARE") != nullptr;
    if (size > 1 && !is_imagined(control) && (!staged || shares)) peers = PeerLine::open(control);
    if (!peers && !staged && (size > 1 || alone)) nccl.emplace(control);
  }
  /// Staging memory number `which`, at least `bytes`; grows only.
  char* stage(int which, Index bytes) {
    PinnedBuffer<char>& buffer = stages[which];
    if (buffer.size() < bytes) buffer = PinnedBuffer<char>(std::max<Index>(bytes, Index(1) << 20));
    return buffer.data();
  }

  std::unique_ptr<PeerLine> peers;
  std::optional<NcclLine> nccl;
  PinnedBuffer<char> stages[2];
};

template <>
Communicator<Cuda>::Communicator(const Control& control, bool shared_device)
    : control_(control), state_(std::make_shared<State>(control, shared_device)) {}

template <>
std::string Communicator<Cuda>::transport() const {
  if (size() == 1 && !state_->nccl) return "none (one rank)";
  if (state_->peers) return "peer memory";
  if (!state_->nccl) return "host-staged MPI (ranks share a GPU)";
  int version = 0;
  ncclGetVersion(&version);
  return "NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
         "." + std::to_string(version % 100);
}

template <>
void Communicator<Cuda>::broadcast_group(const Stream<Cuda>& stream,
                                         std::span<const Piece> pieces) const {
  if (size() == 1 && !state_->nccl) return;
  count_broadcast(pieces, rank());
  if (state_->peers) return state_->peers->broadcast_group(stream, pieces);
  if (state_->nccl) {
    (*state_->nccl)("ncclBroadcast", [&](ncclComm_t comm) {
      check_nccl(ncclGroupStart(), "ncclGroupStart");
      for (const Piece& piece : pieces)
        if (piece.bytes > 0)
          check_nccl(ncclBroadcast(piece.data, piece.data, std::size_t(piece.bytes), ncclUint8,
                                   piece.peer, comm, native(stream)),
                     "ncclBroadcast");
      return ncclGroupEnd();
    });
    return;
  }
  const Index most = piece_limit(Index(64) << 20);
  for (const Piece& piece : pieces) {
    for (Index from = 0; from < piece.bytes; from += most) {
      const Index bytes = std::min(most, piece.bytes - from);
      char* data = static_cast<char*>(piece.data) + from;
      stream.synchronize();  // the stage is free
      char* host = state_->stage(0, bytes);
      if (piece.peer == rank()) {
        detail::copy_bytes(stream, host, data, bytes);
        stream.synchronize();
      }
      state_->broadcast(piece.peer, host, bytes);
      if (piece.peer != rank()) detail::copy_bytes(stream, data, host, bytes);
    }
  }
  stream.synchronize();
}

template <>
void Communicator<Cuda>::all_gather_bytes(const Stream<Cuda>& stream, const void* send, Index bytes,
                                          void* recv) const {
  if (bytes == 0) return;
  if (size() == 1 && !state_->nccl) {
    if (send != recv) detail::copy_bytes(stream, recv, send, bytes);
    return;
  }
  count_traffic(bytes, bytes * (size() - 1));
  if (state_->peers) return state_->peers->all_gather(stream, send, bytes, recv);
  if (state_->nccl) {
    (*state_->nccl)("ncclAllGather", [&](ncclComm_t comm) {
      return ncclAllGather(send, recv, std::size_t(bytes), ncclUint8, comm, native(stream));
    });
    return;
  }
  char* mine = state_->stage(0, bytes);
  char* all = state_->stage(1, bytes * size());
  detail::copy_bytes(stream, mine, send, bytes);
  stream.synchronize();
  state_->all_gather(mine, bytes, all);
  detail::copy_bytes(stream, recv, all, bytes * size());
  stream.synchronize();
}

template <>
void Communicator<Cuda>::all_reduce_typed(const Stream<Cuda>& stream, Reduce op, DataType type,
                                          void* data, Index count) const {
  if ((size() == 1 && !state_->nccl) || count == 0) return;
  count_traffic(count * 8, count * 8);
  if (state_->peers) return state_->peers->all_reduce(stream, op, type, data, count);
  if (state_->nccl) {
    (*state_->nccl)("ncclAllReduce", [&](ncclComm_t comm) {
      return ncclAllReduce(data, data, std::size_t(count), nccl_type(type), nccl_op(op), comm,
                           native(stream));
    });
    return;
  }
  char* host = state_->stage(0, count * 8);
  detail::copy_bytes(stream, host, data, count * 8);
  stream.synchronize();
  state_->all_reduce(op, type, host, count);
  detail::copy_bytes(stream, data, host, count * 8);
  stream.synchronize();
}

template <>
void Communicator<Cuda>::reduce_scatter_typed(const Stream<Cuda>& stream, Reduce op, DataType type,
                                              const void* send, void* recv, Index count) const {
  if (count == 0) return;
  if (size() == 1 && !state_->nccl) {
    if (send != recv) detail::copy_bytes(stream, recv, send, count * 8);
    return;
  }
  count_traffic(count * 8 * (size() - 1), count * 8);
  if (state_->peers) return state_->peers->reduce_scatter(stream, op, type, send, recv, count);
  if (state_->nccl) {
    (*state_->nccl)("ncclReduceScatter", [&](ncclComm_t comm) {
      return ncclReduceScatter(send, recv, std::size_t(count), nccl_type(type), nccl_op(op), comm,
                               native(stream));
    });
    return;
  }
  char* all = state_->stage(1, count * 8 * size());
  char* mine = state_->stage(0, count * 8);
  detail::copy_bytes(stream, all, send, count * 8 * size());
  stream.synchronize();
  state_->reduce_scatter(op, type, all, mine, count);
  detail::copy_bytes(stream, recv, mine, count * 8);
  stream.synchronize();
}

template <>
void Communicator<Cuda>::exchange(const Stream<Cuda>& stream, std::span<const Piece> sends,
                                  std::span<const Piece> receives) const {
  // Messages to oneself are copies, k-th send to k-th receive.
  std::vector<Piece> out, in, self_out, self_in;
  for (const Piece& p : sends) (p.peer == rank() ? self_out : out).push_back(p);
  for (const Piece& p : receives) (p.peer == rank() ? self_in : in).push_back(p);
  for (std::size_t i = 0; i < self_out.size(); ++i)
    detail::copy_bytes(stream, self_in[i].data, self_out[i].data, self_out[i].bytes);
  if (size() == 1) return;
  count_exchange(out, in, rank());
  if (state_->peers) return state_->peers->exchange(stream, out, in);
  if (state_->nccl) {
    (*state_->nccl)("ncclSend and ncclRecv", [&](ncclComm_t comm) {
      check_nccl(ncclGroupStart(), "ncclGroupStart");
      for (const Piece& p : out)
        if (p.bytes > 0)
          check_nccl(
              ncclSend(p.data, std::size_t(p.bytes), ncclUint8, p.peer, comm, native(stream)),
              "ncclSend");
      for (const Piece& p : in)
        if (p.bytes > 0)
          check_nccl(
              ncclRecv(p.data, std::size_t(p.bytes), ncclUint8, p.peer, comm, native(stream)),
              "ncclRecv");
      return ncclGroupEnd();
    });
    return;
  }
  const auto place = [&](std::vector<Piece>& pieces, int which) {
    Index total = 0;
    for (const Piece& p : pieces) total += p.bytes;
    char* host = state_->stage(which, total);
    std::vector<Piece> staged = pieces;
    for (Piece& p : staged) {
      p.data = host;
      host += p.bytes;
    }
    return staged;
  };
  const std::vector<Piece> host_out = place(out, 0), host_in = place(in, 1);
  for (std::size_t i = 0; i < out.size(); ++i)
    detail::copy_bytes(stream, host_out[i].data, out[i].data, out[i].bytes);
  stream.synchronize();
  state_->exchange(host_out, host_in);
  for (std::size_t i = 0; i < in.size(); ++i)
    detail::copy_bytes(stream, in[i].data, host_in[i].data, in[i].bytes);
  stream.synchronize();
}

std::string nccl_version() {
  const auto text = [](int v) {
    return std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." +
           std::to_string(v % 100);
  };
  int version = 0;
  ncclGetVersion(&version);
  return text(version) + " (header " + text(NCCL_VERSION_CODE) + ")";
}

template <>
Context<Cuda> make_context(const Control& control, const DeviceWish& wish) {
  const DeviceBinding device = bind_device(control, wish);
  Communicator<Cuda> comm(control, device.shared || is_imagined(control));
  return {.control = control, .comm = comm, .device = device};
}

}  // namespace terrace
