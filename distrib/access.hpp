// Accesses outside this process's memory (SIGSEGV, SIGBUS), where a flipped bit may be their cause.
#pragma once
#include <string>

namespace terrace {

/// While one lives, such an access asks `broken(what)`, which may do only what a signal handler may
/// (reads of memory among it). If that is true, `message` goes to standard error and the process
/// ends with `code`; otherwise it ends as it would have without this. One at a time.
class AccessWatch {
 public:
  AccessWatch(bool (*broken)(void*), void* what, std::string message, int code);
  ~AccessWatch();
  AccessWatch(const AccessWatch&) = delete;
  AccessWatch& operator=(const AccessWatch&) = delete;
};

}  // namespace terrace
