#include "kernels/base/reserve.hpp"

#include <cstdint>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "kernels/base/buffer.hpp"
#include "kernels/base/memory_use.hpp"
#include "tests/support/test.hpp"

using namespace terrace;

namespace {
constexpr Index grain = detail::Parts::grain;
/// Addresses that nobody reads.
char* address(Index at) { return reinterpret_cast<char*>(std::uintptr_t(1) << 40) + at; }
}  // namespace

TEST_CASE("parts of a reserve: the closest gap, what is settled first, neighbours joined") {
  detail::Parts parts(address(0), 100 * grain);
  bool unsettled = true;
  CHECK(parts.take(101 * grain, 0, unsettled) == nullptr);
  char* const a = parts.take(10 * grain - 3, 0, unsettled);
  CHECK(!unsettled);
  char* const b = parts.take(20 * grain, 0, unsettled);
  char* const c = parts.take(30 * grain, 0, unsettled);
  CHECK(std::vector{a, b, c} == std::vector{address(0), address(10 * grain), address(30 * grain)});
  CHECK(parts.free() == 40 * grain);
  CHECK(!parts.give(address(grain), 1));  // no part begins there
  CHECK(parts.give(b, 1));
  CHECK(!parts.give(b, 1));
  CHECK(parts.free() == 60 * grain);
  CHECK(parts.take(15 * grain, 0, unsettled) == address(60 * grain));  // b may still be worked on
  CHECK(!unsettled);
  CHECK(parts.give(address(60 * grain), 2));
  CHECK(parts.take(15 * grain, 2, unsettled) == b);  // the closer one
  CHECK(!unsettled);
  CHECK(parts.take(40 * grain, 1, unsettled) == address(60 * grain));
  CHECK(unsettled);
  CHECK(parts.give(c, 3));
  CHECK(parts.give(a, 4));
  CHECK(parts.give(b, 5));
  CHECK(!parts.idle());
  CHECK(parts.give(address(60 * grain), 6));
  CHECK(parts.idle());
  CHECK(parts.free() == 100 * grain);
  CHECK(parts.take(100 * grain, 6, unsettled) == address(0));  // one gap again
  CHECK(parts.take(1, 6, unsettled) == nullptr);
  CHECK(parts.give(address(0), 7));
  // A gap is as late as the latest of what it is made of.
  CHECK(parts.take(50 * grain, 7, unsettled) == address(0));
  CHECK(parts.take(50 * grain, 7, unsettled) == address(50 * grain));
  CHECK(parts.give(address(50 * grain), 9));
  CHECK(parts.give(address(0), 8));
  CHECK(parts.take(100 * grain, 8, unsettled) == address(0));
  CHECK(unsettled);
}

TEST_CASE("parts of a reserve never overlap, whatever the order") {
  std::mt19937 random(20261129);
  detail::Parts parts(address(0), 1000 * grain);
  std::vector<std::pair<char*, Index>> taken;
  Index used = 0;
  for (Index step = 1; step < 20000; ++step) {
    if (random() % 2 == 0) {
      const Index bytes = 1 + Index(random() % (60 * grain));
      bool unsettled = false;
      char* const data = parts.take(bytes, Index(random() % step), unsettled);
      if (!data) continue;
      const Index whole = round_up(bytes, grain);
      REQUIRE((data >= address(0) && data + whole <= address(1000 * grain)));
      for (const auto& [other, size] : taken)
        REQUIRE((data >= other + size || data + whole <= other));
      taken.emplace_back(data, whole);
      used += whole;
    } else if (!taken.empty()) {
      const std::size_t k = random() % taken.size();
      REQUIRE(parts.give(taken[k].first, step));
      used -= taken[k].second;
      taken.erase(taken.begin() + std::ptrdiff_t(k));
    }
    REQUIRE(parts.free() == 1000 * grain - used);
  }
}

#if TERRACE_WITH_CUDA
TEST_CASE("buffers of a device are parts of a reserve, which goes with the last of them",
          "[cuda][gpu]") {
  if (!test::context<Cuda>()) return;
  constexpr Index size = Index(64) << 20;
  const auto free = [] { return current_cuda_device().free_bytes; };
  const Index before = free(), used = memory_use(Cuda{}).now;
  std::optional<Reserve> reserve(std::in_place, size);
  CHECK(free() >= before - (Index(4) << 20));  // what is reserved counts as free
  Buffer<char, Cuda> first(size / 2), second(size / 4);
  CHECK(second.data() == first.data() + size / 2);
  CHECK(memory_use(Cuda{}).now == used + size / 2 + size / 4);
  const Buffer<char, Cuda> other(size);  // a block of its own
  CHECK((other.data() + size <= first.data() || other.data() >= first.data() + size));
  const Stream<Cuda> lane;
  fill_zero(lane, first.view());
  char* const place = first.data();
  { const Buffer<char, Cuda> over = std::move(first); }
  first = Buffer<char, Cuda>(size / 2);
  CHECK(first.data() == place);
  fill_zero(lane, first.view());
  reserve.reset();
  const Buffer<char, Cuda> later(size / 4);  // not a part any more
  CHECK((later.data() + size / 4 <= place || later.data() >= place + size));
  std::vector<char> all(std::size_t(size / 2), 1);
  download(lane, all.data(), first.view());
  lane.synchronize();
  CHECK(all == std::vector<char>(std::size_t(size / 2), 0));
  { const Buffer<char, Cuda> over = std::move(first); }
  CHECK(memory_use(Cuda{}).now == used + size / 4 + size + size / 4);
  { const Buffer<char, Cuda> over = std::move(second); }
  CHECK(free() >= before - 2 * size);
}
#endif
