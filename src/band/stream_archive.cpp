// The state of a streamed band in checkpoints.
#include <fmt/core.h>

#include <algorithm>

#include "src/band/stream.hpp"
#include "src/frame/checkpoints.hpp"

namespace terrace::band {
namespace {

/// The first `tiles` tile columns of end e, a row each of their columns.
template <class B>
void archive_factor(Archive& archive, const BandStream<B>& a, Index e, Index tiles) {
  const BandShape& s = a.shape;
  const Range columns{0, tiles * s.width};
  const Index ld = s.column(), first = a.stored_tile(0, e);
  // run(numbers on the host, how many): columns that lie one after the other.
  const auto each_run = [&](Index column, Index count, auto&& run) {
    for (const Index end = column + count; column < end;) {
      const Index tile = column / s.width, last = std::min(end, (tile + 1) * s.width);
      run(a.host_tile(tile, e) + column % s.width * ld, (last - column) * ld);
      column = last;
    }
  };
  archive.pieces(
      fmt::format("factor {}", e), columns.count, ld, {&columns, 1},
      [&](Index column, Index count, Word* to) {
        auto* numbers = reinterpret_cast<double*>(to);
        if (a.kept > 0) return a.store.get(first + column * ld, numbers, count * ld);
        each_run(column, count,
                 [&](const double* run, Index size) { numbers = std::copy_n(run, size, numbers); });
      },
      [&](Index column, Index count, const Word* from) {
        const auto* numbers = reinterpret_cast<const double*>(from);
        if (a.kept > 0) return a.store.put(first + column * ld, numbers, count * ld);
        each_run(column, count, [&](double* run, Index size) {
          std::copy_n(numbers, size, run);
          numbers += size;
        });
      });
}

}  // namespace

template <class B>
void archive_stream(Context<B>& context, Archive& archive, const BandStream<B>& a, Index slabs,
                    const BandStreamRows<B>* x) {
  if (a.more) a.more(archive);
  for (Index e = 0; e < a.count() && !a.given; ++e)
    archive_factor(archive, a, e, a.tiles(slabs - 1, e).end());
  if (x == nullptr || x->nrhs == 0) return;
  const Range rows{0, x->rows.size() / x->nrhs};
  archive.rows(context.ahead, "rows", rows.count, x->nrhs, {&rows, 1}, x->rows.data(), x->nrhs);
}

#define TERRACE_INSTANTIATE(B)                                                     \
  template void archive_stream(Context<B>&, Archive&, const BandStream<B>&, Index, \
                               const BandStreamRows<B>*);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::band
