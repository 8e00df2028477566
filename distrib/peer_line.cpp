#include "distrib/peer_line.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "distrib/mpi.hpp"
#include "distrib/watched.hpp"
#include "kernels/base/clock.hpp"
#include "kernels/base/error.hpp"
#include "kernels/base/graph.hpp"
#include "kernels/base/peer_memory.hpp"
#include "kernels/base/peer_messages.hpp"

namespace terrace {

namespace {

// Of the parts that a long reduction receives at once.
constexpr Index scratch_bytes = Index(16) << 20;
constexpr Index short_bytes = Index(64) << 10;  // of a vector that each rank combines whole

Combine combine_of(Reduce op) {
  switch (op) {
    case Reduce::sum:
      return Combine::sum;
    case Reduce::min:
      return Combine::min;
    case Reduce::max:
      return Combine::max;
    default:
      throw Error(Exit::internal, "devices have no bit reductions");
  }
}
Combined combined_of(DataType type) {
  switch (type) {
    case DataType::f64:
      return Combined::f64;
    case DataType::i64:
      return Combined::i64;
    case DataType::u64:
      return Combined::u64;
    case DataType::bytes:
      break;
  }
  throw Error(Exit::internal, "bytes have no reductions");
}
const char* at(const void* data, Index bytes) { return static_cast<const char*>(data) + bytes; }
char* at(void* data, Index bytes) { return static_cast<char*>(data) + bytes; }

}  // namespace

struct PeerLine::State {
  explicit State(const Control& group) : control(group) {
    boxes.own = group.rank();
    boxes.count = group.size();
  }
  ~State() {
    watched.reset();
    // While an error unwinds, perhaps on this rank alone, and after MPI's end, the peers may still
    // write here and are not waited for: the memory is left to the end of the process.
    int ended = 0;
    MPI_Finalized(&ended);
    if (std::uncaught_exceptions() > depth || (opened && ended)) return;
    if (opened) {
      settle_device();
      control.barrier();
    }
    for (int r = 0; r < boxes.count; ++r)
      if (r != boxes.own && boxes.of[r]) unmap_shareable(boxes.of[r]);
    if (opened) control.barrier();  // nobody has it mapped any more
    for (void* const own : {static_cast<void*>(boxes.of[boxes.own]),
                            static_cast<void*>(boxes.counters), static_cast<void*>(scratch)})
      if (own) free_shareable(own);
    if (stop) free_stop(stop);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  bool take_own() {
    boxes.stopped = stop = take_stop();
    boxes.of[boxes.own] = static_cast<char*>(take_shareable(mailbox_bytes(boxes.count)));
    boxes.counters =
        static_cast<Word*>(take_shareable(mailbox_counters(boxes.count) * Index(sizeof(Word))));
    scratch = static_cast<char*>(take_shareable(scratch_bytes));
    return stop && boxes.of[boxes.own] && boxes.counters && scratch;
  }
  /// Collective: whether every rank reaches every other's mailbox.
  bool reach() {
    const std::vector<std::string> handles =
        control.gather_all(take_own() ? handle_of_shareable(boxes.of[boxes.own]) : "");
    bool all = std::none_of(handles.begin(), handles.end(),
                            [](const std::string& handle) { return handle.empty(); });
    for (int r = 0; all && r < boxes.count; ++r) {
      if (r == boxes.own) continue;
      boxes.of[r] = static_cast<char*>(map_shareable(handles[std::size_t(r)]));
      all = boxes.of[r] != nullptr;
    }
    opened = true;  // by some, perhaps
    return control.reduce(Index(all), Reduce::min) == 1;
  }

  /// Verbs run in the order of their calls.
  void follow(const Stream<Cuda>& stream) {
    if (last && last->native() != stream.native()) {
      const Event<Cuda> done = last->record();
      if (is_recording(stream))
        done.synchronize();
      else
        stream.wait(done);
    }
    last = stream;
  }

  Control control;
  Mailboxes boxes;
  char* scratch = nullptr;
  int* stop = nullptr;
  bool opened = false;
  std::optional<Stream<Cuda>> last;
  int depth = std::uncaught_exceptions();
  std::optional<Watched> watched;
};

PeerLine::PeerLine(std::unique_ptr<State> state) : state_(std::move(state)) {}
PeerLine::~PeerLine() = default;

namespace {

/// Whether both kinds of messages and a sum come as they were sent, within five seconds.
bool works(PeerLine& line, const Control& control, int* stop) {
  const int ranks = control.size(), me = control.rank();
  constexpr Index count = 100'000;  // numbers: more than go at once
  const auto number = [](Index r, Index i) {
    return Word(r) * 0x9e3779b97f4a7c15 + Word(i) * 0x632be59bd9b4e019;
  };
  const Stream<Cuda> lane;
  bool right = true;
  try {
    const Buffer<Word, Cuda> all(count * ranks), sum(3);
    std::vector<Word> host(std::size_t(count * ranks), 0);
    for (Index i = 0; i < count; ++i) host[std::size_t(me * count + i)] = number(me, i);
    upload(lane, all.view(), host.data());
    upload(lane, sum.view(), host.data() + me * count);
    lane.synchronize();
    line.all_gather(lane, all.data() + me * count, 8 * count, all.data());
    line.all_reduce(lane, Reduce::sum, DataType::u64, sum.data(), 3);
    const Event<Cuda> done = lane.record();
    const auto end = Clock::now() + std::chrono::seconds(5);
    while (!done.done())
      if (Clock::now() > end)
        *stop = 1;
      else
        std::this_thread::yield();
    right = *stop == 0;
    Word sums[3];
    download(lane, host.data(), all.view());
    download(lane, sums, sum.view());
    lane.synchronize();
    Word expected[3] = {};
    for (Index r = 0; r < ranks; ++r)
      for (Index i = 0; i < count; ++i) {
        right &= host[std::size_t(r * count + i)] == number(r, i);
        if (i < 3) expected[i] += number(r, i);
      }
    right &= std::equal(sums, sums + 3, expected);
  } catch (const Error&) {
    right = false;
  }
  return control.reduce(Index(right), Reduce::min) == 1;
}

}  // namespace

std::unique_ptr<PeerLine> PeerLine::open(const Control& control) {
  if (control.reduce(Index(may_use_peer_memory(control)), Reduce::min) == 0) return nullptr;
  auto state = std::make_unique<State>(control);
  if (!state->reach()) return nullptr;
  int* const stop = state->stop;
  state->watched.emplace([] { return std::string(); }, [stop] { *stop = 1; });
  std::unique_ptr<PeerLine> line(new PeerLine(std::move(state)));
  return works(*line, control, stop) ? std::move(line) : nullptr;
}

void PeerLine::broadcast_group(const Stream<Cuda>& stream, std::span<const Piece> pieces) {
  state_->follow(stream);
  const int ranks = state_->boxes.count, me = state_->boxes.own;
  // Every rank cuts the list at the same places.
  const std::size_t most = std::size_t(most_messages / (ranks - 1));
  std::vector<PeerMessage> messages;
  for (std::size_t from = 0; from < pieces.size(); from += most) {
    messages.clear();
    for (const Piece& p : pieces.subspan(from, std::min(most, pieces.size() - from))) {
      if (p.peer != me) {
        messages.push_back({p.peer, nullptr, p.data, p.bytes});
        continue;
      }
      for (int r = 0; r < ranks; ++r)
        if (r != me) messages.push_back({r, p.data, nullptr, p.bytes});
    }
    pass_messages(stream, state_->boxes, messages);
  }
}

void PeerLine::all_gather(const Stream<Cuda>& stream, const void* send, Index bytes, void* recv) {
  state_->follow(stream);
  const int ranks = state_->boxes.count, me = state_->boxes.own;
  std::vector<PeerMessage> messages;
  for (int r = 0; r < ranks; ++r) {
    if (r == me) continue;
    messages.push_back({r, send, nullptr, bytes});
    messages.push_back({r, nullptr, at(recv, r * bytes), bytes});
  }
  if (at(recv, me * bytes) != send) messages.push_back({me, send, at(recv, me * bytes), bytes});
  pass_messages(stream, state_->boxes, messages);
}

namespace {

/// Part r of `count` numbers among the ranks.
struct Share {
  Index first, count;
};
Share share(Index count, int r, int ranks) {
  const Index each = ceil_div(count, Index(ranks)), first = std::min(count, r * each);
  return {first, std::min(each, count - first)};
}

}  // namespace

void PeerLine::reduce_scatter(const Stream<Cuda>& stream, Reduce op, DataType type,
                              const void* send, void* recv, Index count) {
  combine(stream, op, type, send, count, recv, count);
}

void PeerLine::combine(const Stream<Cuda>& stream, Reduce op, DataType type, const void* send,
                       Index apart, void* recv, Index count) {
  state_->follow(stream);
  const int ranks = state_->boxes.count, me = state_->boxes.own;
  const Index most = scratch_bytes / 8 / (ranks - 1);
  for (Index from = 0; from < count; from += most) {
    const Index now = std::min(most, count - from);
    std::vector<PeerMessage> messages;
    std::vector<const void*> parts;
    char* place = state_->scratch;
    for (int r = 0; r < ranks; ++r) {
      if (r == me) {
        parts.push_back(at(send, 8 * (me * apart + from)));
        continue;
      }
      messages.push_back({r, at(send, 8 * (r * apart + from)), nullptr, 8 * now});
      messages.push_back({r, nullptr, place, 8 * now});
      parts.push_back(place);
      place += 8 * now;
    }
    pass_messages(stream, state_->boxes, messages);
    combine_parts(stream, combine_of(op), combined_of(type), parts, at(recv, 8 * from), now);
  }
}

void PeerLine::all_reduce(const Stream<Cuda>& stream, Reduce op, DataType type, void* data,
                          Index count) {
  state_->follow(stream);
  const int ranks = state_->boxes.count, me = state_->boxes.own;
  if (count <= most_at_once(ranks))
    return reduce_at_once(stream, state_->boxes, combine_of(op), combined_of(type), data, count);
  // One message less, and of two ranks as many bytes.
  if (ranks == 2 || 8 * count <= short_bytes)
    return combine(stream, op, type, data, 0, data, count);
  // Each rank combines its share of every window, and all get it.
  const Index most = scratch_bytes / 8;
  for (Index from = 0; from < count; from += most) {
    char* const window = at(data, 8 * from);
    const Index numbers = std::min(most, count - from);
    const Share own = share(numbers, me, ranks);
    std::vector<PeerMessage> there, back;
    std::vector<const void*> parts;
    char* place = state_->scratch;
    for (int r = 0; r < ranks; ++r) {
      if (r == me) {
        parts.push_back(at(window, 8 * own.first));
        continue;
      }
      const Share its = share(numbers, r, ranks);
      there.push_back({r, at(window, 8 * its.first), nullptr, 8 * its.count});
      there.push_back({r, nullptr, place, 8 * own.count});
      back.push_back({r, at(window, 8 * own.first), nullptr, 8 * own.count});
      back.push_back({r, nullptr, at(window, 8 * its.first), 8 * its.count});
      parts.push_back(place);
      place += 8 * own.count;
    }
    pass_messages(stream, state_->boxes, there);
    combine_parts(stream, combine_of(op), combined_of(type), parts, at(window, 8 * own.first),
                  own.count);
    pass_messages(stream, state_->boxes, back);
  }
}

void PeerLine::exchange(const Stream<Cuda>& stream, std::span<const Piece> sends,
                        std::span<const Piece> receives) {
  state_->follow(stream);
  // Round j takes the messages j * most ... of each pair: both ends know which these are.
  const int most = most_messages / (2 * (state_->boxes.count - 1));
  std::vector<PeerMessage> left;
  std::vector<int> number, of_peer(std::size_t(2 * state_->boxes.count), 0);
  int rounds = 0;
  const auto take = [&](const Piece& p, bool sent) {
    left.push_back({p.peer, sent ? p.data : nullptr, sent ? nullptr : p.data, p.bytes});
    number.push_back(of_peer[std::size_t(2 * p.peer + sent)]++);
    rounds = std::max(rounds, number.back() / most + 1);
  };
  for (const Piece& p : sends) take(p, true);
  for (const Piece& p : receives) take(p, false);
  for (int round = 0; round < rounds; ++round) {
    std::vector<PeerMessage> now;
    for (std::size_t i = 0; i < left.size(); ++i)
      if (number[i] / most == round) now.push_back(left[i]);
    pass_messages(stream, state_->boxes, now);
  }
}

}  // namespace terrace
