#include "distrib/heartbeat.hpp"

#include <fmt/core.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "distrib/ending.hpp"
#include "distrib/heart.hpp"
#include "distrib/place.hpp"
#include "distrib/session.hpp"
#include "kernels/base/clock.hpp"
#include "kernels/base/error.hpp"

namespace terrace {

using heartbeat::Invitation;
using heartbeat::Kind;
using heartbeat::Line;
using heartbeat::Message;
using heartbeat::Peer;

namespace {

double seconds_of(const char* name, double otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  return *end == '\0' && value >= 0 ? value : otherwise;
}

std::atomic<bool> told_to_end{false};  // SIGTERM came
std::atomic<int> wake{-1};             // an eventfd
std::atomic<bool> passes_on{false};    // SIGTERM, to the handler that was there before
struct sigaction before_listening {};

bool handled_before() {
  return before_listening.sa_handler != SIG_DFL && before_listening.sa_handler != SIG_IGN;
}

void on_sigterm(int number) {
  if (passes_on) return before_listening.sa_handler(number);
  if (!handled_before()) before_the_end();  // the launcher may leave no time for it
  told_to_end = true;
  const std::uint64_t one = 1;
  if (write(wake, &one, sizeof one) < 0) {  // nothing can be done here
  }
}

}  // namespace

namespace {
std::atomic<Heart*> heart{nullptr};
void wake_up() {
  const std::uint64_t one = 1;
  if (write(wake, &one, sizeof one) < 0) {  // it wakes by itself soon
  }
}
void forget_in_child() {
  if (Heart* const h = heart.exchange(nullptr)) h->forget_sockets();
}
}  // namespace

Heart::Heart(const Control& control)
    : rank_(control.rank()),
      size_(control.size()),
      limit_(control.reduce(seconds_of("TERRACE_HEARTBEAT_SECONDS", 10), Reduce::min)),
      stall_(seconds_of("TERRACE_STALL_SECONDS", 0)),
      host_(host_name()),
      peers_(std::size_t(rank_ == 0 ? size_ : 1)) {
  if (limit_ <= 0) return;
  silence_ = 0.6 * limit_;
  beat_ = limit_ / 20;
  wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  Invitation invitation;
  bool joined = false;
  if (rank_ == 0) {
    rlimit files{};
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < rlim_t(size_) + 512) {
      files.rlim_cur = std::min(files.rlim_max, rlim_t(size_) + 512);
      setrlimit(RLIMIT_NOFILE, &files);
    }
    listener_ = heartbeat::listen_anywhere(invitation);
    invitation.host = host_;
    token_ = invitation.token;
    if (listener_ >= 0) start();
    joined = running_;
  }
  invitation = Invitation::from_text(control.broadcast(invitation.to_text(), 0));
  if (rank_ != 0 && invitation.port > 0) {
    token_ = invitation.token;
    Message hello = message(Kind::hello);
    hello.set_text(host_);
    peers_[0].host = invitation.host;
    if (heartbeat::join(invitation, hello, std::min(5.0, limit_ / 2), peers_[0].line)) start();
    joined = running_;
  }
  const Index first = control.reduce(Index(joined ? size_ : rank_), Reduce::min);
  if (first < size_) {
    const std::string where = control.broadcast(host_, int(first));
    if (rank_ == 0)
      std::fprintf(stderr,
                   "terrace: no heartbeat between rank 0 on host %s and rank %d on host %s; a lost "
                   "rank may go unnoticed there; let the hosts reach each other over TCP, "
                   "or set TERRACE_HEARTBEAT_SECONDS=0\n",
                   host_.c_str(), int(first), where.c_str());
  }
  if (!running_) return;
  heart = this;
  static const int once = pthread_atfork(nullptr, nullptr, &forget_in_child);
  static_cast<void>(once);
  struct sigaction ours {};
  ours.sa_handler = &on_sigterm;
  ours.sa_flags = SA_RESTART;
  sigaction(SIGTERM, nullptr, &before_listening);
  if (before_listening.sa_handler != SIG_IGN) sigaction(SIGTERM, &ours, nullptr);
}

Heart::~Heart() {
  if (running_) {
    leaving_ = true;
    wake_up();
    pthread_join(thread_, nullptr);
    heart = nullptr;
    sigaction(SIGTERM, &before_listening, nullptr);
  }
  if (listener_ >= 0) close(listener_);
  if (wake >= 0) close(wake.exchange(-1));
}

void Heart::start() {
  // The thread allocates nothing while it beats: pinning memory may block allocations for seconds.
  polled_.reserve(std::size_t(2 * size_) + 66);
  strangers_.reserve(std::size_t(size_) + 64);
  closed_.reserve(peers_.size());
  const double time = clock_seconds();
  for (Peer& peer : peers_) peer.heard = peer.moved = time;
  next_beat_ = next_look_ = time;
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  const auto body = [](void* self) -> void* {
    static_cast<Heart*>(self)->run();
    return nullptr;
  };
  // The usual stack: libraries take their thread-local memory from it.
  running_ = pthread_create(&thread_, nullptr, body, this) == 0;
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

void Heart::forget_sockets() {
  for (const Peer& peer : peers_)
    if (peer.line.is_open()) close(peer.line.socket());
  if (listener_ >= 0) close(listener_);
  close(wake.exchange(-1));
}

Message Heart::message(Kind kind) const {
  Message m;
  m.token = token_;
  m.kind = kind;
  m.rank = rank_;
  m.set_place(current_place());
  return m;
}
void Heart::send_all(const Message& m) {
  for (Peer& peer : peers_)
    if (peer.line.is_open()) peer.line.send(m);
}

void Heart::run() {
  double last = clock_seconds();
  for (;;) {
    listen_until(sigterm_at_ > 0 ? std::min(next_beat_, last + 0.05) : next_beat_);
    const double time = clock_seconds();
    if (time - last > limit_ / 4)  // this whole process slept: it knows nothing of the others
      for (Peer& peer : peers_) peer.heard = time;
    last = time;
    if (!closed_.empty()) lost(closed_, "connection closed");
    if (say_what_main_told() || all_done()) return;
    heed_sigterm(time);
    if (time >= next_beat_) beat(time);
  }
}

/// Waits for news and hears them.
void Heart::listen_until(double time) {
  polled_.clear();
  polled_.push_back({wake, POLLIN, 0});
  polled_.push_back({listener_, POLLIN, 0});
  for (const Peer& peer : peers_) polled_.push_back({peer.line.socket(), POLLIN, 0});
  for (const Line& line : strangers_) polled_.push_back({line.socket(), POLLIN, 0});
  const double seconds = std::max(0.0, time - clock_seconds());
  if (poll(polled_.data(), polled_.size(), int(seconds * 1000) + 1) <= 0) return;
  std::uint64_t times = 0;
  if (polled_[0].revents != 0 && read(wake, &times, sizeof times) < 0) times = 0;
  closed_.clear();
  for (std::size_t p = 0; p < peers_.size(); ++p)
    if (polled_[2 + p].revents != 0 && peers_[p].line.is_open() &&
        !peers_[p].line.receive([&, p](const Message& m) { hear(peers_[p], m); }))
      closed(int(p), clock_seconds());
  const std::size_t first = 2 + peers_.size();
  for (std::size_t k = 0; first + k < polled_.size(); ++k) {
    if (polled_[first + k].revents == 0) continue;
    int rank = -1;
    std::string host;
    Line& line = strangers_[k];
    const bool open = line.receive([&](const Message& m) {
      if (m.token != token_ || m.kind != Kind::hello || m.rank <= 0 || m.rank >= size_) return;
      rank = m.rank;
      host = m.text;
    });
    if (open && rank < 0) continue;  // only a part has come
    if (open && line.send(message(Kind::welcome))) {
      Peer& peer = peers_[std::size_t(rank)];
      peer.line = std::move(line);
      peer.host = host;
      peer.heard = peer.moved = clock_seconds();
    } else {
      line.close();
    }
  }
  std::erase_if(strangers_, [](const Line& line) { return !line.is_open(); });
  while (polled_[1].revents != 0 && strangers_.size() < strangers_.capacity()) {
    const int socket = heartbeat::accept_next(listener_);
    if (socket < 0) break;
    strangers_.emplace_back(socket);
  }
}

void Heart::hear(Peer& peer, const Message& m) {
  if (m.token != token_) return;
  peer.heard = clock_seconds();
  if (m.step != peer.step || peer.phase != m.phase) {
    peer.step = m.step;
    peer.phase = m.phase;
    peer.moved = peer.heard;
  }
  peer.goodbye = peer.goodbye || m.kind == Kind::goodbye;
  peer.terminated = peer.terminated || m.kind == Kind::terminated;
  farewell_ = farewell_ || m.kind == Kind::farewell;
  if (m.kind == Kind::fault) end(m.code, m.text, false);
}

void Heart::closed(int number, double time) {
  Peer& peer = peers_[std::size_t(number)];
  peer.line.close();
  peer.gone_at = time;
  if (!peer.goodbye && !peer.terminated && !said_goodbye_)
    closed_.push_back(rank_of(std::size_t(number)));
}

void Heart::beat(double time) {
  next_beat_ = time + beat_;
  send_all(message(Kind::beat));
  std::vector<int> silent;
  double longest = 0;
  for (std::size_t p = 0; p < peers_.size(); ++p) {
    const Peer& peer = peers_[p];
    if (peer.line.is_open() && time - peer.heard > silence_) {
      silent.push_back(rank_of(p));
      longest = std::max(longest, time - peer.heard);
    }
  }
  if (!silent.empty()) lost(silent, fmt::format("no sign of life for {:.1f} s", longest), silence_);
  if (time >= next_look_) {
    next_look_ = time + 1;
    if (const std::string failure = failure_of_watched(); !failure.empty())
      end(int(Exit::fault),
          fmt::format("terrace: rank {} on host {} failed; {}; {}", rank_, host_,
                      to_string(current_place()), failure),
          true);
  }
  if (rank_ != 0 || stall_ <= 0) return;
  Message mine = message(Kind::beat);
  hear(peers_[0], mine);
  peers_[0].host = host_;
  const Peer* first = nullptr;
  for (const Peer& peer : peers_)
    if ((&peer == peers_.data() || (peer.line.is_open() && !peer.goodbye)) &&
        time - peer.moved > stall_ && (first == nullptr || peer.moved < first->moved))
      first = &peer;
  if (first != nullptr && !said_goodbye_)
    end(int(Exit::fault),
        fmt::format(
            "terrace: rank {} on host {} made no progress for {:.1f} s; {}; ended because of "
            "TERRACE_STALL_SECONDS; start again, with --restart if there is a checkpoint",
            first - peers_.data(), first->host, time - first->moved,
            to_string(Place{first->phase, first->step})),
        true);
}

void Heart::lost(const std::vector<int>& ranks, const std::string& why, double waited) {
  std::string who = ranks.size() > 1 ? "ranks " : "rank ";
  for (std::size_t k = 0; k < ranks.size() && k < 8; ++k)
    who += fmt::format("{}{} on host {}", k > 0 ? ", " : "", ranks[k],
                       peers_[std::size_t(ranks[k])].host);
  if (ranks.size() > 8) who += fmt::format(" and {} more", ranks.size() - 8);
  end(int(Exit::fault),
      fmt::format("terrace: {} {} lost ({}); {}; the job is ended; start again, with --restart if "
                  "there is a checkpoint",
                  who, ranks.size() > 1 ? "were" : "was", why, to_string(current_place())),
      true, waited);
}

/// SIGTERM: a launcher ends the other ranks this way when it sees a rank die. Whose death it was
/// may be heard a moment later.
void Heart::heed_sigterm(double time) {
  std::vector<int> missing;
  for (std::size_t p = 0; p < peers_.size(); ++p) {
    const Peer& peer = peers_[p];
    if (peer.terminated && !peer.goodbye && !peer.line.is_open() && !told_to_end &&
        time - peer.gone_at > 0.5)
      lost({rank_of(p)}, "it was ended by SIGTERM");
    if (peer.line.is_open() && !peer.terminated && time - peer.heard > 4 * beat_)
      missing.push_back(rank_of(p));
  }
  if (!told_to_end) return;
  if (sigterm_at_ == 0) {
    sigterm_at_ = time;
    send_all(message(Kind::terminated));
  }
  if (time - sigterm_at_ < 0.3) return;
  if (!missing.empty()) lost(missing, "no sign of life", silence_);
  sigterm_at_ = time + 1e6;
  if (handled_before()) {
    passes_on = true;
    before_listening.sa_handler(SIGTERM);
    return;
  }
  before_the_end();
  sigaction(SIGTERM, &before_listening, nullptr);
  kill(getpid(), SIGTERM);
}

/// Everybody's work is done: rank 0 hears it from all, the others from rank 0.
bool Heart::all_done() {
  if (!leaving_) return false;
  if (rank_ != 0) {
    if (!said_goodbye_) peers_[0].line.send(message(Kind::goodbye));
    said_goodbye_ = true;
    return farewell_ || !peers_[0].line.is_open();
  }
  said_goodbye_ = true;
  for (const Peer& peer : peers_)
    if (peer.line.is_open() && !peer.goodbye) return false;
  send_all(message(Kind::farewell));
  return true;
}

void Heart::tell(int code, const std::string& cause) {
  {
    const std::lock_guard<std::mutex> lock(telling_);
    code_ = code;
    cause_ = cause;
  }
  told_ = true;
  wake_up();
  for (int k = 0; k < 300 && !said_; ++k) usleep(1000);
}
bool Heart::say_what_main_told() {
  if (!told_) return false;
  Message m = message(Kind::fault);
  {
    const std::lock_guard<std::mutex> lock(telling_);
    m.code = code_;
    m.set_text(cause_);
  }
  send_all(m);
  said_ = true;
  return true;
}

void Heart::end(int code, const std::string& line, bool print, double waited) {
  if (print) {
    const std::string text = line + "\n";
    if (write(STDERR_FILENO, text.data(), text.size()) < 0) {  // nobody reads it
    }
  }
  // Over several hosts mpirun takes three seconds to end by itself, with the rank's exit code.
  end_launcher_later(std::max(2.0, 0.6 * (limit_ - waited)));
  Message m = message(Kind::fault);
  m.code = code;
  m.set_text(line);
  send_all(m);
  // The others end by themselves, before the launcher sees this rank's end and ends them its way.
  const double until = clock_seconds() + 0.3;
  for (bool some = rank_ == 0; some && clock_seconds() < until;) {
    some = false;
    polled_.clear();
    for (Peer& peer : peers_) {
      if (peer.line.is_open() && !peer.line.receive([](const Message&) {})) peer.line.close();
      if (peer.line.is_open() && clock_seconds() - peer.heard < 4 * beat_)
        polled_.push_back({peer.line.socket(), POLLIN, 0});
    }
    some = !polled_.empty();
    if (some) poll(polled_.data(), polled_.size(), 20);
  }
  abort_watched();
  sudden_exit(code);
}

Heartbeat::Heartbeat(const Control& control) {
  if (control.size() > 1) state_ = std::make_shared<Heart>(control);
}
Heartbeat::~Heartbeat() = default;

void tell_fault(int code, const std::string& cause) {
  if (Heart* const h = heart.load()) h->tell(code, cause);
}

}  // namespace terrace
