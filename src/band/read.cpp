// From a file's diagonals to columns on the backend.
#include <algorithm>

#include "distrib/agree.hpp"
#include "kernels/base/matrix.hpp"
#include "src/band/tile_columns.hpp"

namespace terrace::band {

Index turning_bytes(const BandReader& from) {
  // As much as a portion has at most (io/reading.cpp).
  return std::min(4 * io::piece_bytes(), 8 * from.n * (from.half_bandwidth + 1));
}

template <class B>
void turn_columns(Context<B>& c, const BandReader& from, std::span<const Range> ranges,
                  Index height, View<double, B> to, Index ld) {
  const Stream<B>& lane = c.ahead;
  Buffer<double, B> rows;
  Index before = 0;
  for (std::size_t k = 0; k < ranges.size();) {
    Range run = ranges[k];  // with its neighbours
    for (++k; k < ranges.size() && ranges[k].first == run.end(); ++k) run.count += ranges[k].count;
    from.diagonals(run, [&](Index position, Index count, const double* data) {
      if (rows.size() < count * height) rows = {}, rows = Buffer<double, B>(count * height);
      upload(lane, rows.view().slice(0, count * height), data);
      transpose<B>(lane, height, count, rows.view(), count,
                   to.slice((before + position) * ld, to.size - (before + position) * ld), ld);
      lane.synchronize();
    });
    before += run.count;
  }
}

#define TERRACE_INSTANTIATE(B)                                                              \
  template void turn_columns(Context<B>&, const BandReader&, std::span<const Range>, Index, \
                             View<double, B>, Index);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::band
