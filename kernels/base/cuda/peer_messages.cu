#include "kernels/base/peer_messages.hpp"

#include <algorithm>
#include <cstdint>

#include "kernels/base/cuda/early.cuh"

namespace terrace {

namespace {

constexpr int threads = 512;
constexpr int most_lanes = 32;
constexpr int small_ring = 4, large_ring = 4;
constexpr Index small_bytes = 8 << 10;                          // of data in one lane's place
constexpr Index large_bytes = 128 << 10;                        // of one piece
constexpr Index small_grain = 2 << 10, large_grain = 32 << 10;  // that are worth a lane

/// Of one sender and lane.
struct Box {
  uint64_t small[small_ring][small_bytes / 4];
  alignas(128) char large[large_ring][large_bytes];
  alignas(128) unsigned pieces;  // of large messages that are here
  // Of what this mailbox's owner sent to that peer:
  alignas(128) unsigned small_taken;
  unsigned large_taken;
};
struct Counters {
  unsigned small_sent, large_sent, small_got, large_got;
};
static_assert(sizeof(Counters) == 2 * sizeof(Word));

/// So that every block of a call runs at the same time, beside other kernels' too.
__host__ __device__ int lanes_of(int count) {
  return count <= 2 ? most_lanes : count <= 4 ? most_lanes / 2 : most_lanes / 8;
}
__host__ __device__ Index small_most(int lanes) { return lanes * small_bytes; }

struct Segment {
  Index first, bytes;
};
/// The bytes of a message that this lane carries; whole pieces of 16 but for the last.
__host__ __device__ Segment segment(Index bytes, int lane, int lanes) {
  const Index grain = bytes <= small_most(lanes) ? small_grain : large_grain;
  const Index wanted = ceil_div(bytes, grain), used = wanted < lanes ? wanted : lanes;
  const Index each = used > 0 ? round_up(ceil_div(bytes, used), 16) : 0;
  const Index first = lane * each, left = bytes - first;
  return {first, left < 0 ? 0 : left < each ? left : each};
}

__device__ void send_tagged(uint64_t* place, unsigned number, unsigned word) {
  asm volatile("st.relaxed.sys.global.b64 [%0], %1;" ::"l"(place),
               "l"(uint64_t(number) << 32 | word)
               : "memory");
}
__device__ uint64_t look_tagged(const uint64_t* place) {
  uint64_t word;
  asm volatile("ld.relaxed.sys.global.b64 %0, [%1];" : "=l"(word) : "l"(place) : "memory");
  return word;
}
__device__ void release(unsigned* flag, unsigned value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
/// Of what kernels that are over have read.
__device__ void tell(unsigned* flag, unsigned value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
__device__ unsigned acquire(const unsigned* flag) {
  unsigned value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

/// A wait's turn; false when all shall end.
__device__ bool go_on(unsigned& turns, const int* stopped) {
  return (++turns & 0xfff) != 0 || *static_cast<const volatile int*>(stopped) == 0;
}
/// Until *flag has come to `number`; numbers go round.
__device__ bool wait_until(const unsigned* flag, unsigned number, const int* stopped) {
  unsigned turns = 0;
  while (int(acquire(flag) - number) < 0)
    if (!go_on(turns, stopped)) return false;
  return true;
}
/// The word that has come as a part of message `number`.
__device__ unsigned receive_tagged(const uint64_t* place, unsigned number, const int* stopped) {
  unsigned turns = 0;
  for (;;) {
    const uint64_t word = look_tagged(place);
    if (unsigned(word >> 32) == number) return unsigned(word);
    if (!go_on(turns, stopped)) return 0;
  }
}

__device__ Box& box_at(char* mailbox, int peer, int lane, int lanes) {
  return reinterpret_cast<Box*>(mailbox)[peer * lanes + lane];
}
__device__ Counters& counters_at(const Mailboxes& boxes, int peer, int lane, int lanes) {
  return reinterpret_cast<Counters*>(boxes.counters)[peer * lanes + lane];
}

/// Word i of `bytes` bytes, the last filled up with zeros.
__device__ unsigned load_word(const char* from, Index i, Index bytes) {
  const char* const at = from + 4 * i;
  if (reinterpret_cast<uintptr_t>(from) % 4 == 0 && 4 * i + 4 <= bytes)
    return *reinterpret_cast<const unsigned*>(at);
  unsigned word = 0;
  for (int k = 0; k < 4 && 4 * i + k < bytes; ++k)
    word |= unsigned(static_cast<unsigned char>(at[k])) << 8 * k;
  return word;
}
__device__ void store_word(char* to, Index i, Index bytes, unsigned word) {
  char* const at = to + 4 * i;
  if (reinterpret_cast<uintptr_t>(to) % 4 == 0 && 4 * i + 4 <= bytes) {
    *reinterpret_cast<unsigned*>(at) = word;
    return;
  }
  for (int k = 0; k < 4 && 4 * i + k < bytes; ++k) at[k] = char(word >> 8 * k);
}

/// By all threads of the block, not through the first-level cache.
template <class T>
__device__ void copy_as(char* to, const char* from, Index bytes) {
  const Index count = bytes / Index(sizeof(T));
  constexpr int side_by_side = 8;
  const auto* const source = reinterpret_cast<const T*>(from);
  auto* const goal = reinterpret_cast<T*>(to);
  Index i = threadIdx.x;
  for (; i + (side_by_side - 1) * threads < count; i += side_by_side * threads) {
    T some[side_by_side];
#pragma unroll
    for (int k = 0; k < side_by_side; ++k) some[k] = __ldcg(source + i + k * threads);
#pragma unroll
    for (int k = 0; k < side_by_side; ++k) goal[i + k * threads] = some[k];
  }
  for (; i < count; i += threads) goal[i] = __ldcg(source + i);
  for (Index b = count * Index(sizeof(T)) + threadIdx.x; b < bytes; b += threads)
    to[b] = __ldcg(from + b);
}
__device__ void copy_piece(char* to, const char* from, Index bytes) {
  const uintptr_t both = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from);
  if (both % 16 == 0)
    copy_as<uint4>(to, from, bytes);
  else if (both % 8 == 0)
    copy_as<unsigned long long>(to, from, bytes);
  else
    copy_as<char>(to, from, bytes);
}

enum class Way : int { send, receive, copy };
struct Channel {
  Way way = Way::copy;
  int peer = 0, first = 0, count = 0;  // of the messages
};
struct Call {
  Mailboxes boxes;
  int lanes = 0;
  Channel channels[2 * most_peers - 1];
  struct {
    char* data;
    const char* from;  // of a copy
    Index bytes;
  } messages[most_messages];
};
static_assert(sizeof(Call) <= 4096);

/// True on all threads where the first one's answer is.
__device__ bool all_know(bool first) { return __syncthreads_or(threadIdx.x == 0 && first) != 0; }

__device__ bool send_in_pieces(const Call& call, Box& there, const unsigned* taken,
                               unsigned& number, const char* from, Index bytes) {
  for (Index at = 0; at < bytes; at += large_bytes) {
    ++number;
    if (!all_know(threadIdx.x == 0 && wait_until(taken, number - large_ring, call.boxes.stopped)))
      return false;
    copy_piece(there.large[number % large_ring], from + at,
               bytes - at < large_bytes ? bytes - at : large_bytes);
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence_system();
      release(&there.pieces, number);
    }
  }
  return true;
}
__device__ bool receive_in_pieces(const Call& call, const Box& here, unsigned* taken,
                                  unsigned& number, char* to, Index bytes) {
  for (Index at = 0; at < bytes; at += large_bytes) {
    ++number;
    if (!all_know(threadIdx.x == 0 && wait_until(&here.pieces, number, call.boxes.stopped)))
      return false;
    copy_piece(to + at, here.large[number % large_ring],
               bytes - at < large_bytes ? bytes - at : large_bytes);
    __syncthreads();
    if (threadIdx.x == 0) release(taken, number);
  }
  return true;
}

__global__ void __launch_bounds__(threads) pass(const __grid_constant__ Call call) {
  const Channel channel = call.channels[blockIdx.y];
  const int lane = int(blockIdx.x), lanes = call.lanes, me = call.boxes.own;
  if (channel.way == Way::copy) {
    for (int m = channel.first; m < channel.first + channel.count; ++m) {
      const Segment s = segment(call.messages[m].bytes, lane, lanes);
      copy_piece(call.messages[m].data + s.first, call.messages[m].from + s.first, s.bytes);
    }
    return;
  }
  // Theirs for what comes from here, and the one here for what comes from them.
  Box& there = box_at(call.boxes.of[channel.peer], me, lane, lanes);
  Box& here = box_at(call.boxes.of[me], channel.peer, lane, lanes);
  Counters& counters = counters_at(call.boxes, channel.peer, lane, lanes);
  const bool sends = channel.way == Way::send;
  const unsigned taken = acquire(&here.small_taken);
  unsigned small = sends ? counters.small_sent : counters.small_got;
  unsigned large = sends ? counters.large_sent : counters.large_got;
  // A message alone is told of by the next call: nothing is waited for at the end of this one.
  const bool alone = channel.count == 1;
  if (!sends && threadIdx.x == 0) tell(&there.small_taken, small);
  for (int m = channel.first; m < channel.first + channel.count; ++m) {
    const Index bytes = call.messages[m].bytes;
    const Segment s = segment(bytes, lane, lanes);
    if (s.bytes == 0) continue;
    char* const data = call.messages[m].data + s.first;
    if (bytes > small_most(lanes)) {
      if (!(sends ? send_in_pieces(call, there, &here.large_taken, large, data, s.bytes)
                  : receive_in_pieces(call, here, &there.large_taken, large, data, s.bytes)))
        return;
      continue;
    }
    ++small;
    uint64_t* const place = (sends ? there : here).small[small % small_ring];
    const Index words = ceil_div(s.bytes, 4);
    if (sends) {
      if (int(taken - (small - small_ring)) < 0 &&
          !wait_until(&here.small_taken, small - small_ring, call.boxes.stopped))
        return;
      for (Index i = threadIdx.x; i < words; i += threads)
        send_tagged(place + i, small, load_word(data, i, s.bytes));
    } else {
      for (Index i = threadIdx.x; i < words; i += threads)
        store_word(data, i, s.bytes, receive_tagged(place + i, small, call.boxes.stopped));
      if (!alone) {
        __syncthreads();
        if (threadIdx.x == 0) release(&there.small_taken, small);
      }
    }
  }
  if (threadIdx.x == 0) {
    (sends ? counters.small_sent : counters.small_got) = small;
    (sends ? counters.large_sent : counters.large_got) = large;
  }
}

template <class T>
__device__ T combine(Combine op, T a, T b) {
  return op == Combine::sum ? a + b : op == Combine::min ? (b < a ? b : a) : (b > a ? b : a);
}

template <class T>
__global__ void __launch_bounds__(threads)
    reduce(const __grid_constant__ Mailboxes boxes, int lanes, Combine op, T* data, Index count) {
  wait_for_launch_ahead();
  const int lane = int(blockIdx.x), me = boxes.own;
  const Segment s = segment(8 * count, lane, lanes);
  const Index first = s.first / 8, numbers = s.bytes / 8;
  if (numbers == 0) return;
  __shared__ Counters counters[most_peers];
  if (const int q = int(threadIdx.x); q < boxes.count && q != me) {
    const Box& here = box_at(boxes.of[me], q, lane, lanes);
    const unsigned taken = acquire(&here.small_taken);
    const Counters now = counters_at(boxes, q, lane, lanes);
    tell(&box_at(boxes.of[q], me, lane, lanes).small_taken, now.small_got);
    counters[q] = now;
    const unsigned free = now.small_sent + 1 - small_ring;
    if (int(taken - free) < 0) wait_until(&here.small_taken, free, boxes.stopped);
  }
  const auto* const own = reinterpret_cast<const uint64_t*>(data + first);
  const uint64_t early = threadIdx.x < numbers ? own[threadIdx.x] : 0;
  __syncthreads();
  for (int q = 0; q < boxes.count; ++q) {
    if (q == me) continue;
    const unsigned number = counters[q].small_sent + 1;
    uint64_t* const place = box_at(boxes.of[q], me, lane, lanes).small[number % small_ring];
    for (Index i = threadIdx.x; i < numbers; i += threads) {
      const uint64_t value = i < threads ? early : own[i];
      send_tagged(place + 2 * i, number, unsigned(value));
      send_tagged(place + 2 * i + 1, number, unsigned(value >> 32));
    }
  }
  for (Index i = threadIdx.x; i < numbers; i += threads) {
    T sum{};
    for (int q = 0; q < boxes.count; ++q) {
      uint64_t bits = i < threads ? early : own[i];
      if (q != me) {
        const unsigned number = counters[q].small_got + 1;
        const uint64_t* const place =
            box_at(boxes.of[me], q, lane, lanes).small[number % small_ring] + 2 * i;
        bits = receive_tagged(place, number, boxes.stopped);
        bits |= uint64_t(receive_tagged(place + 1, number, boxes.stopped)) << 32;
      }
      T value;
      memcpy(&value, &bits, sizeof value);
      sum = q == 0 ? value : combine(op, sum, value);
    }
    data[first + i] = sum;
  }
  let_next_begin();
  if (const int q = int(threadIdx.x); q < boxes.count && q != me) {
    Counters& there = counters_at(boxes, q, lane, lanes);
    there.small_got = counters[q].small_got + 1;
    there.small_sent = counters[q].small_sent + 1;
  }
}

struct Parts {
  const void* of[most_peers];
  int count;
};
template <class T>
__global__ void combine_all(const __grid_constant__ Parts parts, Combine op, T* to, Index count) {
  for (Index i = Index(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += Index(gridDim.x) * blockDim.x) {
    T sum = static_cast<const T*>(parts.of[0])[i];
    for (int k = 1; k < parts.count; ++k)
      sum = combine(op, sum, static_cast<const T*>(parts.of[k])[i]);
    to[i] = sum;
  }
}

template <class F>
void with_type(Combined type, F&& f) {
  if (type == Combined::f64)
    f(double{});
  else if (type == Combined::i64)
    f(Index{});
  else
    f(Word{});
}
/// Lanes that a message of so many bytes uses.
int lanes_for(Index bytes, int lanes) {
  int used = 1;
  while (used < lanes && segment(bytes, used, lanes).bytes > 0) ++used;
  return used;
}

}  // namespace

Index mailbox_bytes(int count) { return Index(sizeof(Box)) * count * lanes_of(count); }
Index mailbox_counters(int count) { return 2 * count * lanes_of(count); }
Index most_at_once(int count) { return small_most(lanes_of(count)) / 8; }

void pass_messages(const Stream<Cuda>& stream, const Mailboxes& boxes,
                   std::span<const PeerMessage> messages) {
  Call call;
  call.boxes = boxes;
  call.lanes = lanes_of(boxes.count);
  int channels = 0, count = 0, lanes = 0;
  const auto take = [&](Way way, int peer) {
    Channel& channel = call.channels[channels];
    channel = {way, peer, count, 0};
    for (const PeerMessage& m : messages) {
      const Way its = m.peer == boxes.own ? Way::copy : m.from ? Way::send : Way::receive;
      if (its != way || m.peer != peer || m.bytes == 0) continue;
      if (count == most_messages)
        throw Error(Exit::internal, "more messages than a call of peers takes");
      void* const data = way == Way::send ? const_cast<void*>(m.from) : m.to;
      call.messages[count++] = {static_cast<char*>(data), static_cast<const char*>(m.from),
                                m.bytes};
      lanes = std::max(lanes, lanes_for(m.bytes, call.lanes));
    }
    channel.count = count - channel.first;
    if (channel.count > 0) ++channels;
  };
  // Those that send first: what they wait for are messages of earlier calls, or of blocks that
  // come behind them and find a place as well.
  for (const Way way : {Way::send, Way::receive})
    for (int step = 1; step < boxes.count; ++step) take(way, (boxes.own + step) % boxes.count);
  take(Way::copy, boxes.own);
  if (channels == 0) return;
  pass<<<dim3(unsigned(lanes), unsigned(channels)), threads, 0, native(stream)>>>(call);
  check_launch();
}

void reduce_at_once(const Stream<Cuda>& stream, const Mailboxes& boxes, Combine op, Combined type,
                    void* data, Index count) {
  if (count == 0) return;
  const int lanes = lanes_of(boxes.count);
  with_type(type, [&]<class T>(T) {
    launch_early(reduce<T>, unsigned(lanes_for(8 * count, lanes)), threads, 0, native(stream),
                 boxes, lanes, op, static_cast<T*>(data), count);
  });
}

void combine_parts(const Stream<Cuda>& stream, Combine op, Combined type,
                   std::span<const void* const> parts, void* to, Index count) {
  if (count == 0) return;
  Parts all{};
  all.count = int(parts.size());
  std::copy(parts.begin(), parts.end(), all.of);
  with_type(type, [&]<class T>(T) {
    combine_all<T>
        <<<unsigned(std::min<Index>(ceil_div(count, 256), 528)), 256, 0, native(stream)>>>(
            all, op, static_cast<T*>(to), count);
  });
  check_launch();
}

TERRACE_PREPARED(base);

}  // namespace terrace
