#include "kernels/base/parallel.hpp"

#include <atomic>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/support/test.hpp"

using namespace terrace;

TEST_CASE("every piece of a job is done once, whoever comes late, and before the job returns") {
  set_thread_count(4);
  Index wrong = 0;
  for (int job = 0; job < 4000; ++job) {
    std::vector<int> seen(std::size_t(1 + job % 9), 0);
    parallel_for(Index(seen.size()), [&](Index i) { seen[std::size_t(i)] += job + 1; });
    for (const int value : seen) wrong += value != job + 1;
    if (job % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // they sleep
  }
  CHECK(wrong == 0);
}

TEST_CASE("what a piece throws comes out of its job and of no other") {
  set_thread_count(4);
  for (int job = 0; job < 50; ++job) {
    CHECK_THROWS_AS(parallel_for(8,
                                 [&](Index i) {
                                   if (i == job % 8) throw std::runtime_error("a piece");
                                 }),
                    std::runtime_error);
    std::atomic<Index> sum = 0;
    parallel_for(8, [&](Index i) { sum += i; });
    CHECK(sum == 28);
  }
}

TEST_CASE("a team's threads all run at once and meet at its barriers") {
  set_thread_count(4);
  Index wrong = 0;
  for (int job = 0; job < 200; ++job) {
    std::atomic<Index> arrived = 0;
    parallel_team(3, [&](const Team& team) {
      for (int round = 1; round <= 3; ++round) {
        ++arrived;
        team.barrier();
        if (arrived.load() != round * team.size) ++wrong;
        team.barrier();
      }
    });
  }
  CHECK(wrong == 0);
}

TEST_CASE("a job within a job runs in the thread that asks for it") {
  set_thread_count(4);
  std::vector<Index> sums(16, 0);
  parallel_for(16, [&](Index i) { parallel_for(10, [&](Index k) { sums[std::size_t(i)] += k; }); });
  CHECK(std::accumulate(sums.begin(), sums.end(), Index(0)) == 16 * 45);
}
