#include "src/band/tile_columns.hpp"

#include <algorithm>

#include "src/band/guard.hpp"
#include "src/band/steps.hpp"
#include "src/frame/eliminate.hpp"

namespace terrace::band {

Index band_width(Cpu, Index m, Index asked) {
  if (asked > 0) return std::min(asked, band_width_limit(Cpu{}));
  return m >= 1500 ? 96 : m >= 160 ? 64 : m >= 64 ? 48 : m >= 32 ? 32 : 16;
}

Index band_width(Cuda, Index m, Index asked) {
  if (asked > 0) return std::min(round_up(asked, 16), band_width_limit(Cuda{}));
  return m >= 96 ? 128 : m >= 48 ? 64 : 32;
}

double band_factor_flops(Index n, Index half_bandwidth) {
  const double m = double(std::clamp<Index>(half_bandwidth, 0, std::max<Index>(n - 1, 0)));
  return n == 0 ? 0 : (double(n) - m) * (m + 1) * (m + 1) + m * (m + 1) * (2 * m + 1) / 6;
}

double band_solve_flops(Index n, Index half_bandwidth, Index nrhs) {
  const double m = double(std::clamp<Index>(half_bandwidth, 0, std::max<Index>(n - 1, 0)));
  return n == 0 ? 0 : double(nrhs) * 2 * ((double(n) - m) * (2 * m + 1) + m * m);
}

template <class B>
BandTiles<B> band_tiles(Context<B>& context, const BandShape& s) {
  BandTiles<B> a{s, {s.padded(), s.width, context.size()}, {}};
  a.data = Buffer<double, B>(a.columns.slots(context.rank()) * s.column() +
                             s.width * (s.width + 1));  // as kernels/band/parts.hpp wants it
  band_clear(context, a);
  return a;
}

template <class B>
void band_clear(Context<B>& context, BandTiles<B>& a) {
  const BandShape& s = a.shape;
  fill_zero(context.ahead, a.data.view());
  const Index padding = s.padded() - s.n;
  const std::vector<double> ones(std::size_t(padding), 1.0);
  if (padding > 0 && a.columns.owner(s.n) == context.rank())
    copy_rows<double, B>(context.ahead, a.data.data() + a.columns.slot(s.n) * s.column(),
                         s.column(), ones.data(), 1, 1, padding);
  context.ahead.synchronize();
}

template <class B>
BandWork<B>::BandWork(const BandShape& s) : status(kBandRing), seen(kBandRing) {
  for (int i = 0; i < 2; ++i) panels.emplace_back(s.tiles() > 0 ? s.width * s.reach : 0);
}

namespace {

/// Tile columns that are all in memory, with sums of --guard and checkpoints.
template <class B>
class BandCholesky : public BandSteps<B, BandTiles<B>> {
  using Steps = BandSteps<B, BandTiles<B>>;
  using Steps::a_, Steps::context_, Steps::rank_, Steps::s_, Steps::work_;

 public:
  using Steps::Steps;

  void choose(const Stream<B>& lane, Index k) {
    Steps::choose(lane, k);
    if (work_.guard && Steps::mine(k)) work_.guard->take(a_, k);
  }

  void guard(const Stream<B>&, Index k) {
    if (work_.guard) work_.guard->step(a_, k, std::max<Index>(0, k + 1 - kBandLag));
  }

  void archive(Archive& archive, Index k) {
    context_.bulk.synchronize();
    archive.rows(context_.ahead, "columns", s_.padded(), s_.column(), a_.columns.ranges(rank_),
                 a_.data.data(), s_.column());
    std::vector<double> statuses(work_.seen.data(), work_.seen.data() + kBandRing);
    archive.list("statuses", statuses);
    std::copy(statuses.begin(), statuses.end(), work_.seen.data());
    if (archive.loading() && work_.guard) work_.guard->resume(a_, k);
  }

  /// Statuses that the loop has not looked at, and the result.
  Index finish() {
    const Index failed = Steps::finish();
    if (failed == 0 && work_.guard) work_.guard->finish(a_);
    return failed;
  }
};

}  // namespace

template <class B>
Index band_cholesky(Context<B>& context, BandTiles<B>& a, BandWork<B>& work, Progress& progress,
                    const StageTimes<B>& stages) {
  BandCholesky<B> method(context, a, work);
  progress.begin("band Cholesky", double(method.steps()));
  eliminate(context, method, progress, stages);
  progress.end();
  return method.finish();
}

#define TERRACE_INSTANTIATE(B)                                                      \
  template struct BandWork<B>;                                                      \
  template BandTiles<B> band_tiles(Context<B>&, const BandShape&);                  \
  template void band_clear(Context<B>&, BandTiles<B>&);                             \
  template Index band_cholesky(Context<B>&, BandTiles<B>&, BandWork<B>&, Progress&, \
                               const StageTimes<B>&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::band
