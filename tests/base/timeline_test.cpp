// The timeline's spans, and how long lanes worked side by side.
#include "kernels/base/timeline.hpp"

#include <chrono>
#include <thread>

#include "tests/support/test.hpp"

using namespace terrace;

namespace {

std::vector<Span> of(const std::string& lane) {
  std::vector<Span> found;
  for (const Span& s : timeline())
    if (s.lane == lane) found.push_back(s);
  return found;
}

void work(double seconds) {
  const double end = timeline_now() + seconds;
  while (timeline_now() < end) {
  }
}

}  // namespace

TEST_CASE("work of one name without a pause is one span") {
  double from = timeline_now();
  for (int i = 0; i < 5; ++i) {
    work(0.002);
    note_span("first", "read", from);
    from = of("first").back().to;
  }
  const auto spans = of("first");
  REQUIRE(spans.size() == 1);
  REQUIRE(spans[0].what == "read");
  REQUIRE(spans[0].to - spans[0].from >= 0.01);
}

TEST_CASE("another name and a pause begin another span") {
  { const Noted noted("second", "read"); }
  { const Noted noted("second", "write"); }
  { const Noted noted("second", "read"); }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  { const Noted noted("second", "read"); }
  REQUIRE(of("second").size() == 4);
}

TEST_CASE("spans that never end do not take all memory") {
  for (int i = 0; i < 5000; ++i) note_span("third", i % 2 ? "a" : "b", timeline_now());
  REQUIRE(timeline().size() == 4096);
}

TEST_CASE("overlapped seconds are the lanes' less what they cover together") {
  REQUIRE(overlapped_seconds({}) == 0);
  const std::vector<Span> spans = {{"run", "read", 0, 100}, {"file", "read", 1, 5},
                                   {"host", "take", 2, 6},  {"device", "CUDA", 0, 1},
                                   {"file", "write", 8, 9}, {"host", "fetch", 8, 9}};
  // 1 + 4 + 4 + 1 + 1 less the 6 + 1 that they cover.
  REQUIRE(overlapped_seconds(spans) == 4);
}
