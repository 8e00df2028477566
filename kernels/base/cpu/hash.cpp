#include "kernels/base/hash.hpp"

#include <algorithm>
#include <atomic>

#include "kernels/base/parallel.hpp"

namespace terrace {

Word hash_rows(const Stream<Cpu>& stream, View<const Index, Cpu> row, Index columns,
               const Word* data, Index ld) {
  std::atomic<Word> total{0};
  stream.run([&] {
    const Index grain = std::max<Index>(1, (Index(1) << 15) / std::max<Index>(1, columns));
    parallel_ranges(row.size, grain, [&](Index begin, Index end) {
      Word sum = 0;
      for (Index i = begin; i < end; ++i)
        for (Index j = 0; j < columns; ++j)
          sum += hash_element(data[i * ld + j], row.data[i] * columns + j);
      total += sum;
    });
  });
  stream.synchronize();
  return total;
}

}  // namespace terrace
