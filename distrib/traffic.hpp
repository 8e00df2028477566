// Bytes that this process hands to its communicators and gets from them.
#pragma once
#include <span>

#include "distrib/communicator.hpp"

namespace terrace {

/// Payload, each byte once: a broadcast counts at its root as sent and elsewhere as received, a
/// gathered part once as sent; how a library spreads it over the links is not known here. Without
/// the small agreements of Control, and what kernels read in a peer's memory.
struct Traffic {
  Index sent = 0, received = 0;
};
Traffic traffic();
void count_traffic(Index sent, Index received);
/// For grouped operations of rank `rank`; messages to oneself do not count.
void count_broadcast(std::span<const Piece> pieces, int rank);
void count_exchange(std::span<const Piece> sends, std::span<const Piece> receives, int rank);

}  // namespace terrace
