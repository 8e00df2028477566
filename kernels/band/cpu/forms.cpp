#include "kernels/band/forms.hpp"

#include <algorithm>

#include "kernels/base/parallel.hpp"

namespace terrace::band {

namespace {
constexpr Index tile = 64;  // columns that are turned together
}

void lower_columns(const Stream<Cpu>& stream, const BandForm& from, Index n, Index first,
                   Index count, Index height, double* to) {
  stream.run([=] {
    parallel_for(ceil_div(count, tile), [&](Index t) {
      const Index begin = t * tile, end = std::min(count, begin + tile);
      for (Index j = begin; j < end; ++j)
        std::fill_n(to + j * height + std::min(height, n - first - j),
                    std::max<Index>(0, height - (n - first - j)), 0.0);
      if (from.diagonal == 1)
        for (Index j = begin; j < end; ++j)
          std::copy_n(from.data + j * from.column, std::min(height, n - first - j),
                      to + j * height);
      else
        for (Index d = 0; d < height; ++d)
          for (Index j = begin; j < std::min(end, n - first - d); ++j)
            to[j * height + d] = from.data[j * from.column + d * from.diagonal];
    });
  });
}

}  // namespace terrace::band
