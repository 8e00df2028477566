#include "src/band_cholesky.hpp"

#include <algorithm>

#include "src/band_guard.hpp"
#include "src/band_hybrid.hpp"
#include "src/eliminate.hpp"

namespace terrace {

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
                             s.width * (s.width + 1));  // as kernels/band_parts.hpp wants it
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

namespace {
constexpr Index kLag = 4;          // panels between a status and the look at it
constexpr Index kRing = 2 * kLag;  // statuses kept
}  // namespace

template <class B>
BandWork<B>::BandWork(const BandShape& s) : status(kRing), seen(kRing) {
  for (int i = 0; i < 2; ++i) panels.emplace_back(s.tiles() > 0 ? s.width * s.reach : 0);
}

namespace {

/// The members of the pipeline. Panel k lives in panels[k % 2] from choose(k) to update_rest(k);
/// its status travels with it.
template <class B>
class BandCholesky {
 public:
  static constexpr bool share_after_update = false;

  BandCholesky(Context<B>& context, BandTiles<B>& a, BandWork<B>& work)
      : context_(context), a_(a), work_(work), s_(a.shape), rank_(context.rank()) {
    std::fill_n(work_.seen.data(), kRing, 0.0);
  }

  [[nodiscard]] Index steps() const { return s_.tiles(); }

  void choose(const Stream<B>& lane, Index k) {
    if (!mine(k)) return;
    if (work_.host_diagonal.size() > 0)
      band_factor_diagonal_on_host(lane, s_, k, a_.tile(k), status(k), work_.host_diagonal);
    else
      band_factor_diagonal(lane, s_, k, a_.tile(k), status(k));
    band_solve_panel(lane, s_, s_.rows_below(k), a_.tile(k), panel(k));
    if (work_.guard) work_.guard->take(a_, k);
  }

  void share(const Stream<B>& lane, Index k) {
    const int owner = a_.columns.block_owner(k);
    const Piece pieces[] = {{owner, status(k).data, Index(sizeof(double))},
                            {owner, panel(k).data, panel(k).size * Index(sizeof(double))}};
    context_.comm.broadcast_group(lane, pieces);
  }

  void update_next(const Stream<B>& lane, Index k) {
    if (s_.rows_below(k) > 0 && mine(k + 1))
      band_update(lane, s_, s_.rows_below(k), panel(k), 1, 1, 1, a_.tile(k + 1));
  }

  void update_rest(const Stream<B>& lane, Index k) {
    const Index rows = s_.rows_below(k), w = s_.width, ranks = context_.size();
    const Index from = a_.columns.slots_before((k + 2) * w, rank_) / w;
    const Index to = a_.columns.slots_before((k + 1 + s_.tiles_below(k)) * w, rank_) / w;
    if (from < to)
      band_update(lane, s_, rows, panel(k), from * ranks + rank_ - k, ranks, to - from,
                  a_.data.view().slice(from * s_.tile(), (to - from) * s_.tile()));
    // On this lane, which has time: on CUDA one more stream slows every launch of the others.
    download(lane, work_.seen.data() + k % kRing, status(k));
    seen_[k % kRing] = lane.record();
  }

  void guard(const Stream<B>&, Index k) {
    if (work_.guard) work_.guard->step(a_, k, std::max<Index>(0, k + 1 - kLag));
  }

  bool stop(Index k) { return k >= kLag && look(k - kLag); }

  void archive(Archive& archive, Index k) {
    context_.bulk.synchronize();
    archive.rows(context_.ahead, "columns", s_.padded(), s_.column(), a_.columns.ranges(rank_),
                 a_.data.data(), s_.column());
    std::vector<double> statuses(work_.seen.data(), work_.seen.data() + kRing);
    archive.list("statuses", statuses);
    std::copy(statuses.begin(), statuses.end(), work_.seen.data());
    if (archive.loading() && work_.guard) work_.guard->resume(a_, k);
  }

  /// Statuses that the loop has not looked at, and the result.
  Index finish() {
    context_.bulk.synchronize();
    for (Index k = std::max<Index>(0, steps() - kLag); k < steps(); ++k)
      if (failed_ == 0) look(k);
    if (failed_ == 0 && work_.guard) work_.guard->finish(a_);
    return failed_;
  }

 private:
  [[nodiscard]] bool mine(Index k) const { return a_.columns.block_owner(k) == rank_; }
  [[nodiscard]] View<double, B> status(Index k) const {
    return work_.status.view().slice(k % kRing, 1);
  }
  [[nodiscard]] View<double, B> panel(Index k) const { return work_.panels[k % 2].view(); }
  bool look(Index k) {
    seen_[k % kRing].synchronize();
    failed_ = static_cast<Index>(work_.seen[k % kRing]);
    return failed_ != 0;
  }

  Context<B>& context_;
  BandTiles<B>& a_;
  BandWork<B>& work_;
  const BandShape s_;
  const int rank_;
  Event<B> seen_[kRing];
  Index failed_ = 0;
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

}  // namespace terrace
