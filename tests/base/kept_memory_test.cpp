#include "kernels/base/kept_memory.hpp"

#include <optional>

#include "kernels/base/buffer.hpp"
#include "tests/support/test.hpp"

using namespace terrace;

TEST_CASE("memory is kept for the next taker of just as much, within bounds, while somebody asks") {
  constexpr Index size = Index(1) << 20, large = Index(200) << 20, word = 8;
  { const Buffer<double, Cpu> buffer(size); }
  CHECK(kept_memory() == 0);  // nobody asked
  std::optional<KeepsMemory> keeps(std::in_place), twice(std::in_place);
  const double* place = nullptr;
  {
    const Buffer<double, Cpu> buffer(size);
    place = buffer.data();
    const Buffer<double, Cpu> small(16);  // malloc's
  }
  CHECK(kept_memory() == word * size);
  {
    const Buffer<double, Cpu> other(size + 1), same(size), third(size);
    CHECK(same.data() == place);
    CHECK(third.data() != place);
    CHECK(kept_memory() == 0);
  }
  CHECK(kept_memory() == word * (3 * size + 1));
  { const Buffer<char, Cpu> buffer(large); }
  CHECK(kept_memory() >= large);
  { const Buffer<char, Cpu> buffer(large + 64); }  // the older ones go
  CHECK(kept_memory() == large + 64);
  { const Buffer<char, Cpu> buffer(Index(257) << 20); }  // too much to be kept
  CHECK(kept_memory() == large + 64);
  twice.reset();
  CHECK(kept_memory() > 0);
  std::optional<Buffer<double, Cpu>> outlives(std::in_place, size);
  keeps.reset();
  CHECK(kept_memory() == 0);
  outlives.reset();
  CHECK(kept_memory() == 0);
}

#if TERRACE_WITH_CUDA
TEST_CASE("memory of a device is kept for somewhat less, the closest first", "[cuda][gpu]") {
  if (!test::context<Cuda>()) return;
  constexpr Index size = Index(1) << 20;
  const KeepsMemory keeps;
  const char *large = nullptr, *small = nullptr;
  {
    const Buffer<char, Cuda> first(size), second(size / 8 * 7);
    large = first.data(), small = second.data();
  }
  CHECK(kept_memory() == size + size / 8 * 7);
  {
    const Buffer<char, Cuda> less(size / 10 * 8), more(size / 8 * 7 + 1), tiny(size / 2);
    CHECK(less.data() == small);
    CHECK(more.data() == large);
    CHECK(kept_memory() == 0);
  }
  CHECK(kept_memory() == size + size / 8 * 7 + size / 2);  // as they were taken first
}
#endif
