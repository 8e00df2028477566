#include "distrib/faults.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "kernels/base/device_fault.hpp"
#include "kernels/base/error.hpp"
#include "kernels/base/unwinding.hpp"

namespace terrace {

#ifdef TERRACE_FAULT_INJECTION
namespace {

struct Fault {
  int rank = -1;
  std::string phase, kind = "throw";
  Index step = -1;
};

bool number(const std::string& text, Index& value) {
  const char* const end = text.data() + text.size();
  return !text.empty() && std::from_chars(text.data(), end, value).ptr == end;
}

Fault parse(const char* variable) {
  Fault fault;
  if (variable == nullptr) return fault;
  const std::string text = variable;
  std::vector<std::string> parts{""};
  for (const char c : text) {
    if (c == ':')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  const std::vector<std::string> kinds{"throw", "exit", "kill", "stop",   "hang",
                                       "wait",  "gpu",  "full", "shrink", "stuck"};
  Index rank = -1, step = -1;
  bool good = parts.size() >= 2 && parts.size() <= 4 && number(parts[0], rank) && rank >= 0;
  if (good) fault.phase = parts[1];
  std::size_t next = 2;
  if (good && parts.size() > next && number(parts[next], step)) ++next;
  if (good && parts.size() > next) fault.kind = parts[next++];
  good = good && next == parts.size() &&
         std::find(kinds.begin(), kinds.end(), fault.kind) != kinds.end();
  if (!good)
    throw Error(Exit::usage,
                "not a fault: " + text + "; TERRACE_TEST_FAULT; write RANK:PHASE[:STEP][:KIND]")
        .as_agreed();
  if (fault.kind == "gpu" && !with_cuda)
    throw Error(Exit::usage,
                "no GPU can fail in a build without CUDA; TERRACE_TEST_FAULT; choose another kind")
        .as_agreed();
  fault.rank = int(rank);
  fault.step = step;
  return fault;
}

int my_rank = -1;
bool full = false;

/// A clean-up that never ends.
struct Stuck {
  ~Stuck() {
    const MayWait mark;
    for (;;) pause();
  }
};

void commit(const Fault& fault, const Place& place) {
  if (fault.kind == "stuck") {
    const Stuck stuck;
    throw Error(Exit::fault, "injected fault");
  }
  if (fault.kind == "throw")
    throw std::runtime_error("injected fault in " +
                             (place.step < 0 ? "phase " + place.phase : to_string(place)));
  if (fault.kind == "exit") _exit(1);
  if (fault.kind == "kill") raise(SIGKILL);
  if (fault.kind == "stop") raise(SIGSTOP);
  if (fault.kind == "gpu") fail_on_device();
  if (fault.kind == "hang")
    for (;;) pause();
  if (fault.kind == "wait") {
    const char* const text = std::getenv("TERRACE_TEST_WAIT");
    usleep(useconds_t(1e6 * (text != nullptr ? std::atof(text) : 3.0)));
  }
  if (fault.kind == "full") full = true;
  if (fault.kind == "shrink") {
    const char* const file = std::getenv("TERRACE_TEST_FILE");
    if (file != nullptr) std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  }
}

}  // namespace

void inject_fault(int rank, const Place& place) {
  static const Fault fault = parse(std::getenv("TERRACE_TEST_FAULT"));
  static bool done = false;
  my_rank = rank;
  if (done || rank != fault.rank || place.phase != fault.phase || place.step < fault.step) return;
  done = true;
  if (const char* const stamp = std::getenv("TERRACE_TEST_STAMP")) std::ofstream{stamp};
  commit(fault, place);
}
void inject_fault_here() {
  static const bool none = std::getenv("TERRACE_TEST_FAULT") == nullptr;
  if (!none && my_rank >= 0) inject_fault(my_rank, current_place());
}
bool injected_full_disk() { return full; }
#else
void inject_fault(int, const Place&) {}
void inject_fault_here() {}
bool injected_full_disk() { return false; }
#endif

const char* test_setting(const char* name) {
#ifdef TERRACE_FAULT_INJECTION
  return std::getenv(name);
#else
  return nullptr;
#endif
}

}  // namespace terrace
