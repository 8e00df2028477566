#include "distrib/heartbeat_wire.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "kernels/base/clock.hpp"

namespace terrace::heartbeat {

static_assert(offsetof(Message, text) == Message::head);

void Message::set_text(const std::string& from) {
  length = std::int32_t(std::min(from.size(), sizeof text - 1));
  std::memcpy(text, from.data(), std::size_t(length));
  text[length] = '\0';
}
void Message::set_place(const Place& place) {
  const std::size_t size = std::min(place.phase.size(), sizeof phase - 1);
  std::memcpy(phase, place.phase.data(), size);
  phase[size] = '\0';
  step = place.step;
}
Place Message::place() const { return {phase, step}; }

Line::Line(Line&& other) noexcept { *this = std::move(other); }
Line& Line::operator=(Line&& other) noexcept {
  close();
  socket_ = other.socket_.exchange(-1);
  filled_ = std::exchange(other.filled_, 0);
  partial_ = other.partial_;
  return *this;
}
void Line::open(int socket) {
  close();
  const int yes = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
  filled_ = 0;
  socket_ = socket;
}
void Line::close() {
  const int socket = socket_.exchange(-1);
  if (socket >= 0) ::close(socket);
}

bool Line::send(const Message& message) {
  // Beats are few and small: a send buffer that takes no whole message has not moved for minutes.
  const std::size_t bytes = Message::head + std::size_t(message.length);
  return is_open() &&
         ::send(socket(), &message, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == ssize_t(bytes);
}

bool Line::receive(const std::function<void(const Message&)>& use) {
  while (is_open()) {
    std::size_t wanted = Message::head;
    if (filled_ >= Message::head) wanted += std::size_t(partial_.length);
    if (filled_ == wanted) {
      partial_.text[partial_.length] = '\0';
      partial_.phase[sizeof partial_.phase - 1] = '\0';
      filled_ = 0;
      use(partial_);
      continue;
    }
    const ssize_t n = recv(socket(), reinterpret_cast<char*>(&partial_) + filled_, wanted - filled_,
                           MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (n <= 0) return false;
    filled_ += std::size_t(n);
    if (filled_ >= Message::head &&
        (partial_.length < 0 || partial_.length >= std::int32_t(sizeof partial_.text)))
      return false;  // not one of us
  }
  return false;
}

std::string Invitation::to_text() const {
  std::ostringstream out;
  out << token << ' ' << port << ' ' << network << ' ' << host;
  for (const std::string& address : addresses) out << ' ' << address;
  return out.str();
}
Invitation Invitation::from_text(const std::string& text) {
  Invitation result;
  std::istringstream in(text);
  in >> result.token >> result.port >> result.network >> result.host;
  for (std::string address; in >> address;) result.addresses.push_back(address);
  return result;
}

std::string loopback_name() {
  std::string boot = "?";
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char space[64] = "";
  const ssize_t n = readlink("/proc/self/ns/net", space, sizeof space - 1);
  return boot + "/" + std::string(space, n > 0 ? std::size_t(n) : 0);
}

namespace {

/// Listens on a port that is free, on all addresses of the family; -1 where there is none.
int listen_on(int family, int& port) {
  const int listener = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener < 0) return -1;
  const bool six = family == AF_INET6;
  sockaddr_in6 any6{};
  sockaddr_in any4{};
  any6.sin6_family = AF_INET6;
  any6.sin6_addr = in6addr_any;
  any4.sin_family = AF_INET;
  const int no = 0;
  if (six) setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  sockaddr* const any =
      six ? reinterpret_cast<sockaddr*>(&any6) : reinterpret_cast<sockaddr*>(&any4);
  socklen_t size = six ? sizeof any6 : sizeof any4;
  if (bind(listener, any, size) != 0 || listen(listener, 4096) != 0 ||
      getsockname(listener, any, &size) != 0) {
    close(listener);
    return -1;
  }
  port = ntohs(six ? any6.sin6_port : any4.sin_port);
  return listener;
}

}  // namespace

int listen_anywhere(Invitation& invitation) {
  if (getrandom(&invitation.token, sizeof invitation.token, 0) != sizeof invitation.token)
    return -1;
  int listener = listen_on(AF_INET6, invitation.port);
  const bool six = listener >= 0;
  if (!six) listener = listen_on(AF_INET, invitation.port);  // IPv6 may be there and switched off
  if (listener < 0) return -1;
  invitation.network = loopback_name();
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return listener;
  for (const ifaddrs* a = list; a != nullptr; a = a->ifa_next) {
    if (a->ifa_addr == nullptr || (a->ifa_flags & IFF_UP) == 0 ||
        (a->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    char text[INET6_ADDRSTRLEN] = "";
    if (a->ifa_addr->sa_family == AF_INET) {
      inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(a->ifa_addr)->sin_addr, text, sizeof text);
    } else if (a->ifa_addr->sa_family == AF_INET6 && six) {
      const in6_addr& address = reinterpret_cast<sockaddr_in6*>(a->ifa_addr)->sin6_addr;
      if (IN6_IS_ADDR_LINKLOCAL(&address)) continue;
      inet_ntop(AF_INET6, &address, text, sizeof text);
    }
    if (text[0] != '\0' && invitation.addresses.size() < 16)
      invitation.addresses.emplace_back(text);
  }
  freeifaddrs(list);
  return listener;
}

int accept_next(int listener) { return accept4(listener, nullptr, nullptr, SOCK_CLOEXEC); }

namespace {

/// A socket that is on its way to `address`, or -1.
int start_connecting(const std::string& address, int port) {
  const bool six = address.find(':') != std::string::npos;
  sockaddr_in6 to6{};
  sockaddr_in to4{};
  to6.sin6_family = AF_INET6;
  to4.sin_family = AF_INET;
  to6.sin6_port = to4.sin_port = htons(std::uint16_t(port));
  void* const where = six ? static_cast<void*>(&to6.sin6_addr) : &to4.sin_addr;
  if (inet_pton(six ? AF_INET6 : AF_INET, address.c_str(), where) != 1) return -1;
  const int s = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (s < 0) return -1;
  const auto* const to =
      six ? reinterpret_cast<const sockaddr*>(&to6) : reinterpret_cast<const sockaddr*>(&to4);
  if (connect(s, to, six ? sizeof to6 : sizeof to4) == 0 || errno == EINPROGRESS) return s;
  close(s);
  return -1;
}

bool welcomed(Line& line, const Message& hello, int milliseconds) {
  if (!line.send(hello)) return false;
  bool good = false;
  pollfd wait{line.socket(), POLLIN, 0};
  if (poll(&wait, 1, milliseconds) <= 0) return false;
  const bool open = line.receive([&](const Message& m) {
    good = good || (m.kind == Kind::welcome && m.token == hello.token);
  });
  return open && good;
}

}  // namespace

bool join(const Invitation& invitation, const Message& hello, double seconds, Line& line) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  std::vector<std::string> addresses = invitation.addresses;
  if (invitation.network == loopback_name()) addresses = {"127.0.0.1", "::1"};
  std::vector<pollfd> waiting;  // all at once: one that nothing answers costs no time
  for (const std::string& address : addresses)
    if (const int s = start_connecting(address, invitation.port); s >= 0)
      waiting.push_back({s, POLLOUT, 0});
  while (!line.is_open() && !waiting.empty() && Clock::now() < end) {
    poll(waiting.data(), waiting.size(), 100);
    for (pollfd& p : waiting) {
      if (p.revents == 0 || line.is_open()) continue;
      int error = 0;
      socklen_t size = sizeof error;
      getsockopt(p.fd, SOL_SOCKET, SO_ERROR, &error, &size);
      line.open(p.fd);
      if (error != 0 || !welcomed(line, hello, int(seconds * 500))) line.close();
      p.fd = -1;
    }
    std::erase_if(waiting, [](const pollfd& p) { return p.fd < 0; });
  }
  for (const pollfd& p : waiting) close(p.fd);
  return line.is_open();
}

}  // namespace terrace::heartbeat
