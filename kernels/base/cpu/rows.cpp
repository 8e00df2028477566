#include "kernels/base/rows.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

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

void note_not_finite(const Stream<Cpu>& stream, Index rows, Index columns, const double* data,
                     Index ld, Index* not_finite) {
  stream.run([=] {
    for (Index i = 0; i < rows; ++i)
      if (!std::all_of(data + i * ld, data + i * ld + columns,
                       [](double x) { return std::isfinite(x); }))
        *not_finite = 1;
  });
}

void copy_blocks(const Stream<Cpu>& stream, std::span<const BlockCopy> blocks) {
  stream.run([all = std::vector<BlockCopy>(blocks.begin(), blocks.end())] {
    for (const BlockCopy& b : all) {
      const Index grain = std::max<Index>(1, (Index(1) << 15) / std::max<Index>(1, b.columns));
      parallel_ranges(b.rows, grain, [&](Index begin, Index end) {
        for (Index i = begin; i < end; ++i) {
          double* const to = b.to + i * b.to_ld;
          if (b.from)
            std::copy_n(b.from + i * b.from_ld, b.columns, to);
          else
            std::fill_n(to, b.columns, b.fill);
          for (Index j = 0; j < b.columns && b.plus; ++j) to[j] += b.plus[i * b.from_ld + j];
        }
      });
    }
  });
}

}  // namespace terrace
