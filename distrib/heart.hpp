// The thread of the heartbeat, and what it knows of the other ranks.
#pragma once
#include <poll.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "distrib/control.hpp"
#include "distrib/heartbeat_wire.hpp"

namespace terrace {

namespace heartbeat {
struct Peer {
  Line line;
  std::string host, phase;
  Index step = -1;
  double heard = 0, moved = 0, gone_at = 0;
  bool goodbye = false, terminated = false;
};

}  // namespace heartbeat

/// The thread and what it knows. Rank 0 has a peer for each rank, the others have rank 0 alone.
class Heart {
 public:
  explicit Heart(const Control& control);
  ~Heart();
  void tell(int code, const std::string& cause);
  void forget_sockets();  // in a forked child

 private:
  void start();
  void run();
  void listen_until(double time);
  void hear(heartbeat::Peer& peer, const heartbeat::Message& message);
  void closed(int rank, double time);
  void beat(double time);
  void heed_sigterm(double time);
  bool all_done();
  bool say_what_main_told();
  /// `waited`: seconds of the limit that were spent on noticing it.
  void lost(const std::vector<int>& ranks, const std::string& why, double waited = 0);
  [[noreturn]] void end(int code, const std::string& line, bool print, double waited = 0);
  void send_all(const heartbeat::Message& message);
  [[nodiscard]] heartbeat::Message message(heartbeat::Kind kind) const;
  [[nodiscard]] int rank_of(std::size_t peer) const { return rank_ == 0 ? int(peer) : 0; }

  const int rank_, size_;
  double limit_, stall_, silence_ = 0, beat_ = 0;
  std::uint64_t token_ = 0;
  std::string host_;
  int listener_ = -1;
  std::vector<heartbeat::Peer> peers_;  // rank 0: peer r is rank r, and peer 0 itself has no line
  std::vector<heartbeat::Line> strangers_;  // connected, and said nothing yet
  std::vector<pollfd> polled_;
  std::vector<int> closed_;
  double sigterm_at_ = 0, next_beat_ = 0, next_look_ = 0;
  bool said_goodbye_ = false, farewell_ = false;
  pthread_t thread_{};
  bool running_ = false;
  std::atomic<bool> leaving_{false};
  std::mutex telling_;  // code_ and cause_
  int code_ = 0;
  std::string cause_;
  std::atomic<bool> told_{false}, said_{false};
};

}  // namespace terrace
