#include "src/frame/guard.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "distrib/agree.hpp"
#include "distrib/faults.hpp"
#include "distrib/session.hpp"
#include "kernels/base/error.hpp"
#include "kernels/base/random.hpp"

namespace terrace {

template <class B>
void toggle_bit(const Stream<B>& lane, void* data, Index at, int bit) {
  PinnedBuffer<unsigned char> byte(1);
  const View<unsigned char, B> there{static_cast<unsigned char*>(data) + at, 1};
  download(lane, byte.data(), View<const unsigned char, B>{there.data, 1});
  lane.synchronize();
  byte[0] ^= static_cast<unsigned char>(1U << bit);
  upload(lane, there, byte.data());
  lane.synchronize();
}

TestFlip& next_test_flip() {
  static TestFlip flip = [] {
    TestFlip from;
    const char* const text = test_setting("TERRACE_TEST_FLIP");
    if (!text) return from;
    char* end = nullptr;
    from.rank = std::strtoll(text, &end, 10);
    if (*end == ':') from.step = std::strtoll(end + 1, &end, 10);
    if (*end == ':') from.byte = std::strtoll(end + 1, nullptr, 10);
    return from;
  }();
  return flip;
}

template <class B>
void flip_for_tests(const Stream<B>& lane, int rank, Index step, void* data, Index bytes) {
  TestFlip& flip = next_test_flip();
  if (flip.rank != rank || flip.step != step || bytes <= 0) return;
  const Index at = (flip.byte >= 0 ? flip.byte : Index(random_word(7, step, 0) >> 2)) % bytes;
  toggle_bit(lane, data, at, flip.bit >= 0 ? flip.bit : int(at % 8));
  flip = {};
}

void memory_error(int rank, Index from, Index to) {
  const SettlesLanes settles;  // a verdict is read while the lanes go on
  throw Error(Exit::fault,
              fmt::format("memory error: a check sum of the matrix broke between steps {} and {}; "
                          "on rank {}, host {}; start again, from the last checkpoint if there is "
                          "one, and test the memory of this host",
                          from, to, rank, host_name()));
}

void confirmed_fault(const Control& control, const std::string& what) {
  std::vector<std::string> hosts = control.gather_all(host_name());
  std::sort(hosts.begin(), hosts.end());
  hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
  fail_together(Exit::fault,
                fmt::format("memory error: {}; on host {}; start again, from the last checkpoint "
                            "if there is one, and test the memory of {}",
                            what, fmt::join(hosts, ", "), hosts.size() > 1 ? "them" : "it"));
}

#define TERRACE_INSTANTIATE(B)                                      \
  template void toggle_bit<B>(const Stream<B>&, void*, Index, int); \
  template void flip_for_tests<B>(const Stream<B>&, int, Index, void*, Index);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace
