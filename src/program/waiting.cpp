#include "src/program/waiting.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <ctime>
#include <initializer_list>

namespace {
std::atomic<bool> crowded{false};
}

/// In the program's own name space the libraries of MPI find this one before libc's.
extern "C" int sched_yield() noexcept {
  if (!crowded.load(std::memory_order_relaxed)) return int(syscall(SYS_sched_yield));
  thread_local bool prompt = false;
  if (!prompt) {
    prctl(PR_SET_TIMERSLACK, 1000UL);  // ns; by default sleeps last 50 us longer
    prompt = true;
  }
  const timespec moment{0, 20'000};
  nanosleep(&moment, nullptr);
  return 0;
}

extern "C" int connect(int socket, const sockaddr* address, socklen_t length) {
  if (address && length >= sizeof(sa_family_t) &&
      (address->sa_family == AF_INET || address->sa_family == AF_INET6)) {
    const int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // other protocols refuse it
  }
  return int(syscall(SYS_connect, socket, address, length));
}

namespace terrace {

void wait_asleep_where_crowded() {
  for (const char* name : {"OMPI_MCA_mpi_oversubscribe", "OMPI_MCA_mpi_yield_when_idle"})
    if (const char* const value = std::getenv(name); value && std::atoi(value) != 0) crowded = true;
}

}  // namespace terrace
