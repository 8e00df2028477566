// Distinct numbers and their places among one another, by a bit for each number that they span.
#pragma once
#include <vector>

#include "kernels/cg/coarsening.hpp"

namespace terrace::cg {

/// Numbers first, first + 1 ...
struct NumberRange {
  Index first = 0, count = 0;
  [[nodiscard]] constexpr bool has(Index n) const { return n >= first && n < first + count; }
};

template <class B>
struct DistinctNumbers {
  Index least = 0;
  Buffer<Word, B> set;      ///< bit k: least + k
  Buffer<Index, B> before;  ///< of each word of bits, how many are set in those before it
  Buffer<Index, B> ascending{};
};
/// Those of the lists that are not in `without`; -1 stands for none. 8 bytes a number, a bit for each from the least to the
/// largest. Waits.
template <class B>
DistinctNumbers<B> distinct_numbers(const Stream<B>&,
                                    const std::vector<View<const Index, B>>& lists,
                                    NumberRange without, Scratch<B>&);
/// to[k]: from[k] - own.first of an own number; of others own.count and the place in numbers.ascending,
/// where they must be; -1 stays. Does not wait.
template <class B>
void locate(const Stream<B>&, const DistinctNumbers<B>& numbers, NumberRange own,
            View<const Index, B> from, View<std::int32_t, B> to);

/// Where one of them stands in ascending.
inline Index place_of(const DistinctNumbers<Cpu>& numbers, Index number) {
  const Index at = number - numbers.least, word = at / 64;
  const Word below = (Word(1) << (at % 64)) - 1;
  return numbers.before.data()[word] + __builtin_popcountll(numbers.set.data()[word] & below);
}

}  // namespace terrace::cg
