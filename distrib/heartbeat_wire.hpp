// What the heartbeat says over TCP: small messages, and the connections that carry them.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "distrib/place.hpp"

namespace terrace::heartbeat {

enum class Kind : std::int32_t {
  hello,       ///< text: the host's name
  welcome,     ///< to the rank whose hello was good
  beat,        ///< where the sender is in its work
  fault,       ///< the job ends with `code`; text: the cause
  goodbye,     ///< the sender's work is done
  farewell,    ///< everybody's work is done
  terminated,  ///< the sender was told to end, by SIGTERM
};

/// The first `head` bytes and `length` bytes of text travel.
struct Message {
  std::uint64_t token = 0;
  Kind kind = Kind::beat;
  std::int32_t rank = 0, code = 0, length = 0;
  std::int64_t step = -1;
  char phase[24] = "";
  char text[960] = "";
  static constexpr std::size_t head = 8 + 4 * 4 + 8 + 24;
  void set_text(const std::string& from);
  void set_place(const Place& place);
  [[nodiscard]] Place place() const;
};

/// One end of a TCP connection. Never blocks, never raises SIGPIPE.
class Line {
 public:
  Line() = default;
  explicit Line(int socket) { open(socket); }
  ~Line() { close(); }
  Line(Line&& other) noexcept;
  Line& operator=(Line&& other) noexcept;
  void open(int socket);
  void close();
  [[nodiscard]] int socket() const { return socket_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool is_open() const { return socket() >= 0; }
  /// False when the connection is broken.
  bool send(const Message& message);
  /// Calls use(message) for each whole message that has come; false at the connection's end.
  bool receive(const std::function<void(const Message&)>& use);

 private:
  std::atomic<int> socket_{-1};  // closed by a forked child, too
  std::size_t filled_ = 0;
  Message partial_;  // the message that is coming in
};

/// Where rank 0 listens; travels by MPI.
struct Invitation {
  std::uint64_t token = 0;
  int port = 0;
  std::string network;                 ///< equal on ranks that share their loopback interface
  std::string host;                    ///< name of rank 0's host
  std::vector<std::string> addresses;  ///< numeric, without loopback
  [[nodiscard]] std::string to_text() const;
  [[nodiscard]] static Invitation from_text(const std::string& text);
};

/// A listening socket on a free port of all interfaces, and its invitation; -1 when there is none.
int listen_anywhere(Invitation& invitation);
/// The next connection, or -1.
int accept_next(int listener);
/// Names the loopback interface of this process (boot and network namespace).
std::string loopback_name();
/// Connects to the first address that answers hello with welcome within `seconds`.
bool join(const Invitation& invitation, const Message& hello, double seconds, Line& line);

}  // namespace terrace::heartbeat
