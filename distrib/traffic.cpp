#include "distrib/traffic.hpp"

#include <atomic>

namespace terrace {

namespace {
std::atomic<Index> all_sent{0}, all_received{0};
}

Traffic traffic() { return {all_sent, all_received}; }
void count_traffic(Index sent, Index received) {
  all_sent += sent;
  all_received += received;
}
void count_broadcast(std::span<const Piece> pieces, int rank) {
  for (const Piece& piece : pieces)
    piece.peer == rank ? count_traffic(piece.bytes, 0) : count_traffic(0, piece.bytes);
}
void count_exchange(std::span<const Piece> sends, std::span<const Piece> receives, int rank) {
  for (const Piece& piece : sends)
    if (piece.peer != rank) count_traffic(piece.bytes, 0);
  for (const Piece& piece : receives)
    if (piece.peer != rank) count_traffic(0, piece.bytes);
}

}  // namespace terrace
