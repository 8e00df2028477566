#include "tests/support/bits.hpp"

#include <random>

namespace terrace::test {

PlainBits random_plain(Index rows, Index columns, unsigned seed, double density) {
  PlainBits result(rows, columns);
  std::mt19937 random(seed);
  std::bernoulli_distribution one(density);
  for (auto& entry : result.entries) entry = one(random);
  return result;
}

}  // namespace terrace::test
