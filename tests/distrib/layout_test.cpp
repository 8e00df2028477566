#include "distrib/layout.hpp"

#include "tests/support/test.hpp"

using namespace terrace;

TEST_CASE("block-cyclic arithmetic agrees with dealing cards") {
  for (Index n : {0, 1, 2, 3, 5, 8, 13, 20})
    for (Index b : {1, 2, 3, 7, 30})
      for (int p : {1, 2, 3, 5, 9}) {
        const BlockCyclic layout{n, b, p};
        std::vector<Index> dealt(std::size_t(p), 0);
        for (Index i = 0; i < n; ++i) {
          const int owner = int((i / b) % p);
          REQUIRE(layout.owner(i) == owner);
          REQUIRE(layout.slot(i) == dealt[std::size_t(owner)]);
          REQUIRE(layout.global(layout.slot(i), owner) == i);
          REQUIRE(layout.seat(i).owner == owner);
          REQUIRE(layout.seat(i).slot == layout.slot(i));
          for (int r = 0; r < p; ++r) REQUIRE(layout.slots_before(i, r) == dealt[std::size_t(r)]);
          ++dealt[std::size_t(owner)];
        }
        for (int r = 0; r < p; ++r) {
          REQUIRE(layout.slots(r) == dealt[std::size_t(r)]);
          REQUIRE(layout.slots_before(n + 100, r) == dealt[std::size_t(r)]);
          Index sum = 0;
          for (const Range& range : layout.ranges(r)) {
            for (Index i = range.first; i < range.end(); ++i) REQUIRE(layout.slot(i) == sum++);
          }
          REQUIRE(sum == dealt[std::size_t(r)]);
        }
      }
}
