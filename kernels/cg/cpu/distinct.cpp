#include "kernels/cg/distinct.hpp"

#include <algorithm>
#include <atomic>
#include <limits>

#include "kernels/base/parallel.hpp"

namespace terrace::cg {
namespace {

constexpr Index number_grain = 4096;

}  // namespace

template <>
DistinctNumbers<Cpu> distinct_numbers(const Stream<Cpu>& stream,
                                      const std::vector<View<const Index, Cpu>>& lists,
                                      NumberRange without, Scratch<Cpu>&) {
  stream.synchronize();
  Index least = std::numeric_limits<Index>::max(), most = std::numeric_limits<Index>::min();
  for (const auto& list : lists)
    for (Index k = 0; k < list.size; ++k)
      if (const Index n = list.data[k]; n >= 0 && !without.has(n)) {
        least = std::min(least, n);
        most = std::max(most, n);
      }
  DistinctNumbers<Cpu> numbers;
  if (most < least) return numbers;
  const Index words = (most - least) / 64 + 1;
  numbers.least = least;
  numbers.set = Buffer<Word, Cpu>(words);
  numbers.before = Buffer<Index, Cpu>(words);
  Word* const set = numbers.set.data();
  std::fill_n(set, words, Word(0));
  for (const auto& list : lists)
    parallel_ranges(list.size, number_grain, [&](Index k, Index end) {
      for (; k < end; ++k) {
        const Index n = list.data[k];
        if (n < 0 || without.has(n)) continue;
        std::atomic_ref<Word> word(set[(n - least) / 64]);
        const Word bit = Word(1) << ((n - least) % 64);
        if ((word.load(std::memory_order_relaxed) & bit) == 0)
          word.fetch_or(bit, std::memory_order_relaxed);
      }
    });
  Index count = 0;
  for (Index w = 0; w < words; ++w) {
    numbers.before.data()[w] = count;
    count += __builtin_popcountll(set[w]);
  }
  numbers.ascending = Buffer<Index, Cpu>(count);
  Index* next = numbers.ascending.data();
  for (Index w = 0; w < words; ++w)
    for (Word left = set[w]; left != 0; left &= left - 1)
      *next++ = least + 64 * w + __builtin_ctzll(left);
  return numbers;
}

template <>
void locate(const Stream<Cpu>& stream, const DistinctNumbers<Cpu>& numbers, NumberRange own,
            View<const Index, Cpu> from, View<std::int32_t, Cpu> to) {
  stream.synchronize();
  parallel_ranges(from.size, number_grain, [&](Index k, Index end) {
    for (; k < end; ++k) {
      const Index n = from.data[k];
      to.data[k] = std::int32_t(n < 0        ? -1
                                : own.has(n) ? n - own.first
                                             : own.count + place_of(numbers, n));
    }
  });
}

}  // namespace terrace::cg
