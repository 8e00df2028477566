#include "kernels/base/stream.hpp"

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "kernels/base/parallel.hpp"
#include "tests/support/test.hpp"

using namespace terrace;

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
