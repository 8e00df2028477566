#include "kernels/base/rows.hpp"

#include <algorithm>

#include "kernels/base/parallel.hpp"

namespace terrace {

void scatter_rows(const Stream<Cpu>& stream, View<const Index, Cpu> place, Index columns,
                  const Word* from, Index from_ld, Word* to, Index to_ld) {
  stream.run([=] {
    const Index grain = std::max<Index>(1, (Index(1) << 15) / std::max<Index>(1, columns));
    parallel_ranges(place.size, grain, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i)
        if (place.data[i] >= 0)
          std::copy_n(from + i * from_ld, columns, to + place.data[i] * to_ld);
    });
  });
}

void mask_words(const Stream<Cpu>& stream, Index rows, Word mask, Word* data, Index ld) {
  stream.run([=] {
    for (Index i = 0; i < rows; ++i) data[i * ld] &= mask;
  });
}

void clear_columns(const Stream<Cpu>& stream, Index rows, Index columns, double* data, Index ld) {
  stream.run([=] {
    for (Index i = 0; i < rows; ++i) std::fill_n(data + i * ld, columns, 0.0);
  });
}

}  // namespace terrace
