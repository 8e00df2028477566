#include "kernels/band/forms.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <vector>

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

void lower_columns(const Stream<Cpu>& stream, std::span<const BandRun> runs, Index height, Index ld,
                   Index* not_finite) {
  stream.run([=, all = std::vector<BandRun>(runs.begin(), runs.end())] {
    std::atomic<bool> finite = true;
    for (const BandRun& r : all)
      parallel_for(ceil_div(r.count, tile), [&](Index t) {
        const Index begin = t * tile, end = std::min(r.count, begin + tile);
        const auto inside = [&](Index j) { return std::clamp<Index>(r.rows - j, 0, height); };
        for (Index j = begin; j < end; ++j)
          std::fill_n(r.to + j * ld + inside(j), ld - inside(j), 0.0);
        if (r.from.diagonal == 1)
          for (Index j = begin; j < end; ++j)
            std::copy_n(r.from.data + j * r.from.column, inside(j), r.to + j * ld);
        else
          for (Index d = 0; d < height; ++d)
            for (Index j = begin; j < std::min(end, r.rows - d); ++j)
              r.to[j * ld + d] = r.from.data[j * r.from.column + d * r.from.diagonal];
        for (Index j = begin; j < end && not_finite; ++j)
          if (!all_finite(r.to + j * ld, inside(j))) finite = false;
      });
    if (!finite) *not_finite = 1;
  });
}

}  // namespace terrace::band
