// The members of the pipeline for a factorization tile column by tile column, wherever they lie.
#pragma once
#include <algorithm>

#include "src/band/hybrid.hpp"
#include "src/band/tile_columns.hpp"

namespace terrace::band {

constexpr Index kBandLag = 4;              // panels between a status and the look at it
constexpr Index kBandRing = 2 * kBandLag;  // statuses kept

/// Panel k lives in panels[k % 2] from choose(k) to update_rest(k); its status travels with it.
///
/// `Tiles` has `shape` and `columns` as BandTiles, tile(k), and
///   arrive(lane, k)             before the lane first works on own tile columns up to k
///   leave(lane, k)              once the lane has done all work on own tile column k
///   each_run(from, to, run)     run(first, count, view): own tile columns from .. to - 1, by
///                               slots, in pieces that lie one after the other
template <class B, class Tiles>
class BandSteps {
 public:
  static constexpr bool share_after_update = false;

  BandSteps(Context<B>& context, Tiles& a, BandWork<B>& work)
      : context_(context), a_(a), work_(work), s_(a.shape), rank_(context.rank()) {
    std::fill_n(work_.seen.data(), kBandRing, 0.0);
  }

  [[nodiscard]] Index steps() const { return s_.tiles(); }

  void choose(const Stream<B>& lane, Index k) {
    if (!mine(k)) return;
    a_.arrive(lane, k);
    if (work_.host_diagonal.size() > 0)
      band_factor_diagonal_on_host(lane, s_, k, a_.tile(k), status(k), work_.host_diagonal);
    else
      band_factor_diagonal(lane, s_, k, a_.tile(k), status(k));
    band_solve_panel(lane, s_, s_.rows_below(k), a_.tile(k), panel(k));
    a_.leave(lane, k);
  }

  void share(const Stream<B>& lane, Index k) {
    const int owner = a_.columns.block_owner(k);
    const Piece pieces[] = {{owner, status(k).data, Index(sizeof(double))},
                            {owner, panel(k).data, panel(k).size * Index(sizeof(double))}};
    context_.comm.broadcast_group(lane, pieces);
  }

  void update_next(const Stream<B>& lane, Index k) {
    if (s_.rows_below(k) == 0 || !mine(k + 1)) return;
    a_.arrive(lane, k + 1);
    band_update(lane, s_, s_.rows_below(k), panel(k), 1, 1, 1, a_.tile(k + 1));
  }

  void update_rest(const Stream<B>& lane, Index k) {
    const Index rows = s_.rows_below(k), w = s_.width, ranks = context_.size();
    const Index from = a_.columns.slots_before((k + 2) * w, rank_) / w;
    const Index to = a_.columns.slots_before((k + 1 + s_.tiles_below(k)) * w, rank_) / w;
    if (from < to) {
      a_.arrive(lane, (to - 1) * ranks + rank_);
      a_.each_run(from, to, [&](Index first, Index count, View<double, B> tiles) {
        band_update(lane, s_, rows, panel(k), first * ranks + rank_ - k, ranks, count, tiles);
      });
    }
    // On this lane, which has time: on CUDA one more stream slows every launch of the others.
    download(lane, work_.seen.data() + k % kBandRing, status(k));
    seen_[k % kBandRing] = lane.record();
  }

  bool stop(Index k) { return k >= kBandLag && look(k - kBandLag); }

  /// Statuses that the loop has not looked at, and the result.
  Index finish() {
    context_.bulk.synchronize();
    for (Index k = std::max<Index>(0, steps() - kBandLag); k < steps(); ++k)
      if (failed_ == 0) look(k);
    return failed_;
  }

 protected:
  [[nodiscard]] bool mine(Index k) const { return a_.columns.block_owner(k) == rank_; }
  [[nodiscard]] View<double, B> status(Index k) const {
    return work_.status.view().slice(k % kBandRing, 1);
  }
  [[nodiscard]] View<double, B> panel(Index k) const { return work_.panels[k % 2].view(); }
  bool look(Index k) {
    seen_[k % kBandRing].synchronize();
    failed_ = static_cast<Index>(work_.seen[k % kBandRing]);
    return failed_ != 0;
  }

  Context<B>& context_;
  Tiles& a_;
  BandWork<B>& work_;
  const BandShape s_;
  const int rank_;

 private:
  Event<B> seen_[kBandRing];
  Index failed_ = 0;
};

}  // namespace terrace::band
