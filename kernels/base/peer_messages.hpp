// Messages between GPUs of one host, each with a process of its own: kernels store into the
// receiver's mailbox, which is mapped into the sender's process, and wait for what comes into their
// own. No host and no library is in the way: a word takes 1.3 us between two H200.
//
// A mailbox has a box for each sender and lane (a block of threads):
//   small messages   words of 4 bytes of data and 4 of the message's number, 8 together, which
//                    arrive at once: no fence
//   large messages   pieces, and behind each the number of pieces that are there
//   taken            the peer's word on what it has taken of what the owner sent: places that are free
// What was sent and what came is counted on the device, so that a recorded graph can be launched
// again and again. Kernels of one Mailboxes run one after the other.
//
// Protocol after NCCL's LL and Simple (github.com/NVIDIA/nccl, src/device/prims_ll.h).
#pragma once
#include <span>

#include "kernels/base/stream.hpp"

namespace terrace {

constexpr int most_peers = 16;  ///< mailboxes of a group

/// The mailboxes of a group, by numbers that all its processes agree on.
struct Mailboxes {
  int own = 0, count = 0;
  char* of[most_peers] = {};     ///< mapped here; mailbox_bytes() each, zero at first
  Word* counters = nullptr;      ///< mailbox_counters(), zero at first
  const int* stopped = nullptr;  ///< page-locked host memory: not 0 ends every wait
};
Index mailbox_bytes(int count);
Index mailbox_counters(int count);

struct PeerMessage {
  int peer = 0;  ///< number of its mailbox; the own one: a copy within this device
  const void* from = nullptr;
  void* to = nullptr;  ///< only one of them, and both for a copy
  Index bytes = 0;
};
/// Messages of one call at most.
constexpr int most_messages = 96;

/// All at once. The k-th message to a peer meets that peer's k-th from here, with equal bytes.
void pass_messages(const Stream<Cuda>& stream, const Mailboxes& boxes,
                   std::span<const PeerMessage> messages);

enum class Combine { sum, min, max };
enum class Combined { f64, i64, u64 };
/// Numbers that reduce_at_once() takes at most.
Index most_at_once(int count);
/// data := that of all processes, combined in the order of their numbers, in every one.
void reduce_at_once(const Stream<Cuda>& stream, const Mailboxes& boxes, Combine op, Combined type,
                    void* data, Index count);
/// to[i] := parts[0][i] op parts[1][i] ..., of `count` numbers; `to` may be one of the parts.
void combine_parts(const Stream<Cuda>& stream, Combine op, Combined type,
                   std::span<const void* const> parts, void* to, Index count);

}  // namespace terrace
