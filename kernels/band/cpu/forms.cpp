#include "kernels/band/forms.hpp"

#include <algorithm>
#include <atomic>
#include <bit>

#include "kernels/base/parallel.hpp"

namespace terrace::band {

namespace {
constexpr Index tile = 64;  // columns that are turned together

/// An exponent of all ones overflows into the sign.
bool all_finite(const double* x, Index count) {
  constexpr Word exponent = Word(0x7ff) << 52;
  Word seen = 0;
  for (Index i = 0; i < count; ++i)
    seen |= (std::bit_cast<Word>(x[i]) & exponent) + (Word(1) << 52);
  return seen >> 63 == 0;
}
}  // namespace

void lower_columns(const Stream<Cpu>& stream, const BandForm& from, Index n, Index first,
                   Index count, Index height, double* to, Index ld, Index* not_finite) {
  stream.run([=] {
    std::atomic<bool> finite = true;
    parallel_for(ceil_div(count, tile), [&](Index t) {
      const Index begin = t * tile, end = std::min(count, begin + tile);
      for (Index j = begin; j < end; ++j)
        std::fill_n(to + j * ld + std::min(height, n - first - j),
                    std::max<Index>(0, height - (n - first - j)), 0.0);
      if (from.diagonal == 1)
        for (Index j = begin; j < end; ++j)
          std::copy_n(from.data + j * from.column, std::min(height, n - first - j), to + j * ld);
      else
        for (Index d = 0; d < height; ++d)
          for (Index j = begin; j < std::min(end, n - first - d); ++j)
            to[j * ld + d] = from.data[j * from.column + d * from.diagonal];
      for (Index j = begin; j < end && not_finite; ++j)
        if (!all_finite(to + j * ld, height)) finite = false;
    });
    if (!finite) *not_finite = 1;
  });
}

}  // namespace terrace::band
