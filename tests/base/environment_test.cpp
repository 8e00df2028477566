// The environment while one thread changes it (src/program/environment.cpp).
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/preparations.hpp"
#include "tests/support/test.hpp"

using namespace terrace;

namespace {
std::string get(const char* name) {
  const char* const text = std::getenv(name);
  return text ? text : "(none)";
}
}  // namespace

TEST_CASE("setenv, putenv and unsetenv do what POSIX says") {
  CHECK(setenv("TERRACE_TEST_A", "one", 0) == 0);
  CHECK(get("TERRACE_TEST_A") == "one");
  CHECK(setenv("TERRACE_TEST_A", "two", 0) == 0);
  CHECK(get("TERRACE_TEST_A") == "one");
  CHECK(setenv("TERRACE_TEST_A", "", 1) == 0);
  CHECK(get("TERRACE_TEST_A").empty());
  CHECK(setenv("TERRACE_TEST", "short", 1) == 0);  // the beginning of another name
  CHECK(get("TERRACE_TEST_A").empty());
  static char entry[] = "TERRACE_TEST_B=before";
  CHECK(putenv(entry) == 0);
  entry[15] = 'B';  // it is the caller's own
  CHECK(get("TERRACE_TEST_B") == "Before");
  CHECK(unsetenv("TERRACE_TEST_A") == 0);
  CHECK(get("TERRACE_TEST_A") == "(none)");
  CHECK(get("TERRACE_TEST") == "short");
  CHECK(unsetenv("TERRACE_TEST_A") == 0);  // not there
  static char name[] = "TERRACE_TEST_B";
  CHECK(putenv(name) == 0);
  CHECK(get("TERRACE_TEST_B") == "(none)");
  for (const char* bad : {"", "A=B"}) {
    errno = 0;
    CHECK(setenv(bad, "x", 1) == -1);
    CHECK(errno == EINVAL);
    CHECK(unsetenv(bad) == -1);
  }
  CHECK(unsetenv("TERRACE_TEST") == 0);
}

TEST_CASE("they are the ones that libraries call") {
  CHECK(dlsym(RTLD_DEFAULT, "setenv") == reinterpret_cast<void*>(&setenv));
  Dl_info where{};
  REQUIRE(dladdr(dlsym(RTLD_DEFAULT, "setenv"), &where) != 0);
  CHECK(std::string(where.dli_fname).find("libc.so") == std::string::npos);
}

#if TERRACE_WITH_CUDA
TEST_CASE("a process alone sees the first of its devices") {
  for (const auto& [seen, left] : {std::pair("2,3,5", "2"), std::pair("4", "4"), std::pair("", ""),
                                   std::pair("GPU-1b2c3d4e,GPU-5", "GPU-1b2c3d4e")}) {
    setenv("CUDA_VISIBLE_DEVICES", seen, 1);
    see_one_device();
    CHECK(get("CUDA_VISIBLE_DEVICES") == left);
  }
  unsetenv("CUDA_VISIBLE_DEVICES");
  see_one_device();
  CHECK(get("CUDA_VISIBLE_DEVICES") == (access("/dev/nvidia1", F_OK) == 0 ? "0" : "(none)"));
  unsetenv("CUDA_VISIBLE_DEVICES");
}
#endif

TEST_CASE("what a thread reads stays while others change the environment") {
  setenv("TERRACE_TEST_STAYS", "as it is", 1);
  char** const list = environ;  // as getenv() holds it on its way
  std::vector<std::string> before;
  for (char** at = list; *at; ++at) before.emplace_back(*at);
  std::atomic<bool> stop{false};
  std::atomic<long> wrong{0}, read{0};
  std::vector<std::thread> readers;
  for (int t = 0; t < 3; ++t)
    readers.emplace_back([&] {
      do {
        wrong += get("TERRACE_TEST_STAYS") != "as it is";
        ++read;
      } while (!stop);
    });
  std::vector<std::thread> writers;
  for (int t = 0; t < 2; ++t)
    writers.emplace_back([t] {
      for (int k = 0; k < 300; ++k) {
        const std::string name = "TERRACE_TEST_" + std::to_string(t) + "_" + std::to_string(k);
        setenv(name.c_str(), "a value that takes some room", 1);
        if (k % 3 == 0) unsetenv(name.c_str());
      }
    });
  for (std::thread& writer : writers) writer.join();
  stop = true;
  for (std::thread& reader : readers) reader.join();
  CHECK(wrong == 0);
  CHECK(read > 0);
  std::vector<std::string> after;
  for (char** at = list; *at; ++at) after.emplace_back(*at);
  CHECK(after == before);
  const auto ours = [](const std::string& entry) { return entry.rfind("TERRACE_TEST_", 0) == 0; };
  std::ptrdiff_t left = 0;
  for (char** at = environ; *at; ++at) left += ours(*at);
  CHECK(left == std::count_if(before.begin(), before.end(), ours) + 2 * 200);
}
