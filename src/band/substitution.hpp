// The two loops of the substitutions, for tile columns that may lie elsewhere.
#pragma once
#include "src/band/tile_columns.hpp"

namespace terrace::band {

/// The substitutions on one set of tile columns. The window of partial sums is one vector on one
/// rank; on several it holds rows k w .. k w + w + reach - 1 when tile column k is at work, and
/// travels. Both add in the same order.
///
/// `Tiles` has `shape`, `columns` and tile(k) as BandTiles, a View<const double, B> that stays
/// valid until the next but one is asked for; asked for in the order of the steps, own tile columns
/// only.
template <class B, class Tiles>
class Substitution {
 public:
  Substitution(Context<B>& context, const Tiles& l, BandVectors<B>& x)
      : c_(context),
        lane_(context.ahead),
        l_(l),
        x_(x),
        s_(l.shape),
        row_(x.nrhs),
        alone_(context.size() == 1) {}

  void forward(Index k) {
    const Index w = s_.width, rows = s_.rows_below(k), top = alone_ ? k * w : 0;
    if (!alone_) {
      const Index arriving = k > 0 ? s_.rows_below(k - 1) : 0;
      if (k > 0) pass(k - 1, k, w, 0, arriving);
      if (!mine(k)) return;
      fill_zero(lane_, window(arriving, s_.reach + w));
    }
    band_forward(lane_, s_, rows, l_.tile(k), row_, window(top, top + w), own(k),
                 window(top + w, top + w + rows));
  }

  void backward(Index k) {
    const Index w = s_.width, rows = s_.rows_below(k);
    if (alone_) return band_backward(lane_, s_, rows, l_.tile(k), row_, own(k), after(k));
    if (rows > 0) pass(k + 1, k, 0, w, rows);
    if (!mine(k)) return;
    band_backward(lane_, s_, rows, l_.tile(k), row_, own(k), window(w, w + rows));
    copy<double, B>(lane_, window(0, w), own(k));
  }

 private:
  [[nodiscard]] bool mine(Index k) const { return l_.columns.block_owner(k) == c_.rank(); }
  /// Rows of tile column k; on one rank also those after them.
  [[nodiscard]] View<double, B> own(Index k) const {
    return x_.data.view().slice(x_.rows.slot(k * s_.width) * row_, s_.width * row_);
  }
  [[nodiscard]] View<double, B> after(Index k) const {
    return x_.data.view().slice((k + 1) * s_.width * row_, s_.rows_below(k) * row_);
  }
  [[nodiscard]] View<double, B> window(Index from, Index to) const {
    return x_.window.view().slice(from * row_, (to - from) * row_);
  }
  /// `rows` rows of the window at row `from` of k's owner to row `at` of next's owner.
  void pass(Index k, Index next, Index from, Index at, Index rows) const {
    const Index bytes = rows * row_ * Index(sizeof(double));
    const Piece out{l_.columns.block_owner(next), window(from, from + rows).data, bytes};
    const Piece in{l_.columns.block_owner(k), window(at, at + rows).data, bytes};
    c_.comm.exchange(lane_, {&out, mine(k) ? 1u : 0u}, {&in, mine(next) ? 1u : 0u});
  }

  Context<B>& c_;
  const Stream<B>& lane_;
  const Tiles& l_;
  BandVectors<B>& x_;
  const BandShape s_;
  const Index row_;  // numbers per row
  const bool alone_;
};

/// X := (L L^T)^-1 X.
template <class B, class Tiles>
void substitute(Context<B>& context, const Tiles& l, BandVectors<B>& x, Progress& progress) {
  Substitution<B, Tiles> step(context, l, x);
  const Index tiles = x.nrhs > 0 ? l.shape.tiles() : 0;
  fill_zero(context.ahead, x.window.view());
  progress.begin("substitution", double(2 * tiles));
  for (Index k = 0; k < tiles; ++k) {
    step.forward(k);
    progress.tick(double(k));
  }
  for (Index k = tiles - 1; k >= 0; --k) {
    step.backward(k);
    progress.tick(double(2 * tiles - k));
  }
  context.ahead.synchronize();
  progress.end();
}

}  // namespace terrace::band
