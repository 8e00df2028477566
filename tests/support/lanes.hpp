// CPU streams as threads, for the tests that need them.
#pragma once
#include <cstdlib>
#include <optional>
#include <string>

namespace terrace::test {

/// CPU streams made while this lives are threads.
class ThreadedLanes {
 public:
  ThreadedLanes() {
    if (const char* value = std::getenv(kName)) before_ = value;
    setenv(kName, "threads", 1);
  }
  ThreadedLanes(const ThreadedLanes&) = delete;
  ThreadedLanes& operator=(const ThreadedLanes&) = delete;
  ~ThreadedLanes() { before_ ? setenv(kName, before_->c_str(), 1) : unsetenv(kName); }

 private:
  static constexpr const char* kName = "TERRACE_CPU_LANES";
  std::optional<std::string> before_;
};

}  // namespace terrace::test
