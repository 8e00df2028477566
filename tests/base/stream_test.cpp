#include "kernels/base/stream.hpp"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

#include "kernels/base/buffer.hpp"
#include "kernels/base/error.hpp"
#include "kernels/base/parallel.hpp"
#include "tests/support/lanes.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using namespace terrace::test;

namespace {

/// body() ends with an error while a lane is at work; whether the work was over when it was caught.
template <class Body>
bool work_is_over(const Stream<Cpu>& lane, const Body& body) {
  std::atomic<bool> over{false};
  const auto slow = [&over](double* number) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    *number = 1;
    over = true;
  };
  bool was_over = false;
  try {
    body(slow);
  } catch (const std::runtime_error&) {
    was_over = over;
  }
  lane.synchronize();
  return was_over;
}

}  // namespace

TEST_CASE("threaded lanes keep their own order and honour events") {
  setenv("TERRACE_CPU_LANES", "threads", 1);
  setenv("TERRACE_CPU_DELAY_US", "200", 1);
  {
    const Stream<Cpu> a, b;
    REQUIRE(!a.immediate());
    std::vector<int> log;
    for (int round = 0; round < 50; ++round) {
      a.run([&log, round] { log.push_back(2 * round); });
      b.wait(a.record());
      b.run([&log, round] { log.push_back(2 * round + 1); });
      a.wait(b.record());
    }
    a.synchronize();
    b.synchronize();
    REQUIRE(log.size() == 100);
    for (int i = 0; i < 100; ++i) REQUIRE(log[std::size_t(i)] == i);
    a.run([] { throw std::runtime_error("kept"); });
    REQUIRE_THROWS_WITH(a.synchronize(), "kept");
  }
  unsetenv("TERRACE_CPU_LANES");
  unsetenv("TERRACE_CPU_DELAY_US");
}

TEST_CASE("what an error frees waits for the lanes that use it") {
  const ThreadedLanes threads;
  const Stream<Cpu> lane;
  CHECK(work_is_over(lane, [&](const auto& slow) {
    const Buffer<double, Cpu> number(1);
    lane.run([&slow, to = number.data()] { slow(to); });
    throw std::runtime_error("freed by the error");
  }));
  CHECK(work_is_over(lane, [&](const auto& slow) {
    const PinnedBuffer<double> number(1);
    lane.run([&slow, to = number.data()] { slow(to); });
    throw std::runtime_error("freed by the error");
  }));
  CHECK(work_is_over(lane, [&](const auto& slow) {
    static double kept = 0;
    const SettlesLanes settles;
    lane.run([&slow] { slow(&kept); });
    throw std::runtime_error("used again by who catches it");
  }));
}

TEST_CASE("an error makes lanes forget theirs, and other threads' lanes go on") {
  const ThreadedLanes threads;
  const Stream<Cpu> lane, other;
  std::atomic<bool> ends{false};
  std::thread([&] {
    other.run([&] {
      while (!ends) std::this_thread::yield();
    });
  }).join();
  const auto fail = [&] {
    const SettlesLanes settles;
    lane.run([] { throw std::runtime_error("of the lane"); });
    throw std::runtime_error("of the host");
  };
  CHECK_THROWS_WITH(fail(), "of the host");
  ends = true;
  CHECK_NOTHROW(lane.synchronize());
  // On a lane itself nothing waits for lanes.
  lane.run([] {
    const Buffer<double, Cpu> number(1);
    const SettlesLanes settles;
    throw std::runtime_error("of the lane");
  });
  CHECK_THROWS_WITH(lane.synchronize(), "of the lane");
}

TEST_CASE("a wait is watched where one rank alone has the error") {
  struct Looks {
    double& found;
    ~Looks() {
      const MayWait mark;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      found = unwinding_seconds();
    }
  };
  for (const bool agreed : {false, true}) {
    const Error error(Exit::fault, "what; where; what to do");
    double found = -1;
    try {
      const Looks looks{found};
      if (agreed) throw error.as_agreed();
      throw Error(error);
    } catch (const Error&) {
    }
    CHECK((found > 0) == !agreed);
    CHECK(unwinding_seconds() == 0);
  }
}

TEST_CASE("parallel_for visits each piece once and passes an exception on") {
  for (Index n : {0, 1, 2, 7, 1000}) {
    std::vector<std::atomic<int>> seen(std::size_t(n + 1));
    parallel_for(n, [&](Index i) { ++seen[std::size_t(i)]; });
    for (Index i = 0; i < n; ++i) REQUIRE(seen[std::size_t(i)] == 1);
    std::vector<std::atomic<int>> ranged(std::size_t(n + 1));
    parallel_ranges(n, 3, [&](Index from, Index to) {
      for (Index i = from; i < to; ++i) ++ranged[std::size_t(i)];
    });
    for (Index i = 0; i < n; ++i) REQUIRE(ranged[std::size_t(i)] == 1);
  }
  REQUIRE_THROWS_WITH(parallel_for(100,
                                   [](Index i) {
                                     if (i == 37) throw std::runtime_error("piece 37");
                                   }),
                      "piece 37");
}
