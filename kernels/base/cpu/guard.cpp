// Check sums over rows on the CPU. Roofline: memory bandwidth, each row is read once.
#include "kernels/base/guard.hpp"

#include <algorithm>

#include "kernels/base/parallel.hpp"

namespace terrace {

void xor_groups(const Stream<Cpu>& stream, WordRows out, WordRows rows, Index words, Index height) {
  if (out.count <= 0 || words <= 0) return;
  stream.run([=] {
    parallel_ranges(out.count, 1, [&](Index first, Index last) {
      for (Index g = first; g < last; ++g) {
        Word* const to = out.data + g * out.stride;
        std::fill_n(to, words, Word(0));
        const Index end = std::min(rows.count, (g + 1) * height);
        for (Index i = g * height; i < end; ++i) {
          const Word* const row = rows.data + i * rows.stride;
          for (Index w = 0; w < words; ++w) to[w] ^= row[w];
        }
      }
    });
  });
}

}  // namespace terrace
