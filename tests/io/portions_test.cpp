#include "io/portions.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "io/column_tiles.hpp"
#include "io/copies.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/base/random.hpp"
#include "tests/support/test.hpp"

using namespace terrace;
using io::overlap;
using io::overlap_behind;

namespace {

constexpr Index numbers = 513;  // of a buffer

void fill(Index k, char* buffer) {
  auto* const at = reinterpret_cast<Index*>(buffer);
  for (Index i = 0; i < numbers; ++i) at[i] = k * 1000 + i;
}
bool holds(Index k, const char* buffer) {
  const auto* const at = reinterpret_cast<const Index*>(buffer);
  for (Index i = 0; i < numbers; ++i)
    if (at[i] != k * 1000 + i) return false;
  return true;
}

/// What was done with each of `count` numbers.
struct Log {
  explicit Log(Index count) : times(std::size_t(count)) {}
  std::mutex mutex;
  std::vector<int> times;
  void note(Index k) {
    const std::lock_guard lock(mutex);
    ++times.at(std::size_t(k));
  }
  [[nodiscard]] bool once() const {
    return std::all_of(times.begin(), times.end(), [](int t) { return t == 1; });
  }
};

}  // namespace

TEST_CASE("portions are loaded by any number of threads and used in order") {
  for (const Index count : {0, 1, 2, 3, 7, 40})
    for (const int ahead : {0, 1, 2, 3, 8}) {
      Log loaded(count);
      std::vector<Index> used;
      std::atomic<bool> right{true};
      overlap(
          count, numbers * 8, ahead,
          [&](Index k, char* buffer) {
            loaded.note(k);
            fill(k, buffer);
          },
          [&](Index k, char* buffer) {
            right = right && holds(k, buffer);
            fill(-1 - k, buffer);  // it is the caller's
            right = right && holds(-1 - k, buffer);
            used.push_back(k);
          });
      std::vector<Index> all(static_cast<std::size_t>(count));
      std::iota(all.begin(), all.end(), Index(0));
      INFO(count << " portions, " << ahead << " threads");
      CHECK(right);
      CHECK(used == all);
      CHECK(loaded.once());
    }
}

TEST_CASE("portions are filled in order and brought away by any number of threads") {
  for (const Index count : {0, 1, 2, 3, 7, 40})
    for (const int behind : {1, 2, 3, 8}) {
      Log drained(count);
      std::vector<Index> filled;
      std::atomic<bool> right{true};
      overlap_behind(
          count, numbers * 8, behind,
          [&](Index k, char* buffer) {
            fill(k, buffer);
            filled.push_back(k);
          },
          [&](Index k, char* buffer) {
            right = right && holds(k, buffer);
            fill(-1 - k, buffer);
            drained.note(k);
          });
      std::vector<Index> all(static_cast<std::size_t>(count));
      std::iota(all.begin(), all.end(), Index(0));
      INFO(count << " portions, " << behind << " threads");
      CHECK(right);
      CHECK(filled == all);
      CHECK(drained.once());  // all of them by now
    }
}

TEST_CASE("what one side of portions throws stops both and comes out") {
  struct Stop : std::runtime_error {
    Stop() : std::runtime_error("stop") {}
  };
  const Index count = 30;
  for (const int threads : {0, 1, 3, 8})
    for (const Index bad : {0, 1, 17, 29}) {
      INFO("number " << bad << ", " << threads << " threads");
      std::atomic<Index> used{0};
      const auto throws = [&](Index k, char*) {
        if (k == bad) throw Stop();
      };
      const auto counts = [&](Index, char*) { ++used; };
      CHECK_THROWS_AS(overlap(count, 8, threads, throws, counts), Stop);
      CHECK(used <= bad);
      used = 0;
      CHECK_THROWS_AS(overlap(count, 8, threads, counts, throws), Stop);
      if (threads == 0) continue;
      CHECK_THROWS_AS(overlap_behind(count, 8, threads, throws, counts), Stop);
      CHECK_THROWS_AS(overlap_behind(count, 8, threads, counts, throws), Stop);
    }
}

TEST_CASE("each of several threads works alone, and one has the others' help") {
  set_thread_count(3);
  // Buffers of 20 MiB would take too much for two.
  for (const auto& [ahead, bytes] : {std::pair(1, 8), std::pair(2, 8), std::pair(2, 20 << 20)}) {
    std::atomic<bool> alone{true};
    overlap(
        4, bytes, ahead,
        [&](Index, char*) {
          parallel_team(3, [&](const Team& team) { alone = alone && team.size == 1; });
        },
        [](Index, char*) {});
    CHECK(alone == (ahead > 1 && bytes == 8));
  }
}

TEST_CASE("tiles of columns hold a portion's columns in order, and narrow gaps") {
  for (Index seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    io::Portion p;
    Index at = 0;
    for (Index k = 0; k < 1 + seed % 7; ++k) {
      at += k == 0 || seed % 5 == 0 ? Index(random_word(1, seed, k) % 3)
                                    : Index(random_word(1, seed, k) % 400);
      const Index count = 1 + Index(random_word(2, seed, k) % (k % 3 == seed % 3 ? 20000 : 700));
      p.add({at, count});
      at += count;
    }
    const Index element = seed % 2 == 0 ? 8 : 4, gap = seed % 3 == 0 ? 0 : 2048;
    std::vector<Index> wanted, found;
    for (const Range& r : p.ranges)
      for (Index i = 0; i < r.count; ++i) wanted.push_back(r.first + i);
    for (const io::ColumnTile& t : io::column_tiles(p, element, gap)) {
      CHECK(t.item == Index(found.size()));
      CHECK((t.hull >= t.count && t.hull <= 8192));
      CHECK((t.hull == t.count || gap > 0));
      Index last = t.first;
      io::each_run(p, t, t.hull, [&](Index first, Index count) {
        CHECK((first - last) * element <= gap);
        for (Index i = 0; i < count; ++i) found.push_back(first + i);
        last = first + count;
      });
      CHECK(last == t.first + t.hull);
      CHECK(t.item + t.count == Index(found.size()));
      Index fewer = 0;  // of half a tile
      io::each_run(p, t, t.hull / 2, [&](Index first, Index count) {
        CHECK(first + count <= t.first + t.hull / 2);
        fewer += count;
      });
      CHECK(fewer == std::count_if(found.begin() + t.item, found.end(),
                                   [&](Index i) { return i < t.first + t.hull / 2; }));
    }
    CHECK(found == wanted);
    const auto all = io::joined(p.ranges, 300);
    for (std::size_t k = 1; k < all.size(); ++k) CHECK(all[k].first - all[k - 1].end() > 300);
    CHECK(
        (all.front().first == p.ranges.front().first && all.back().end() == p.ranges.back().end()));
  }
}

TEMPLATE_TEST_CASE("plain memory goes to a backend and back by threads", "", TERRACE_BACKENDS) {
  if (!test::context<TestType>()) return;
  using B = TestType;
  const Stream<B> lane;
  constexpr Index items = 100;  // of a portion
  for (const Index size : {1, 99, 100, 101, 350, 1000, 1001})
    for (const int threads : {0, 1, 3}) {
      INFO("size " << size << " threads " << threads);
      std::vector<double> given(static_cast<std::size_t>(size)), back(given.size(), -1);
      std::iota(given.begin(), given.end(), 0.5);
      const Buffer<double, B> there(size);
      const io::Copies how{8 * items + 3, threads};
      io::upload_plain<double, B>(lane, there.view(), given.data(), how);
      io::download_plain<double, B>(lane, back.data(), there.view(), how);
      CHECK(back == given);
    }
  CHECK(io::Copies::of<Cpu>(Index(1) << 40).threads == 0);
}
