// Substitution with a streamed band, slab by slab.
#include <algorithm>
#include <utility>

#include "kernels/base/matrix.hpp"
#include "src/band/stream.hpp"
#include "src/frame/checkpoints.hpp"

namespace terrace::band {

template <class B>
void detail::stream_substitute(const Stream<B>& lane, const BandStream<B>& a, Index i,
                               bool transposed, const BandStreamRows<B>& x) {
  if (x.nrhs == 0) return;
  std::array<BandPart<B>, 2> parts;
  std::array<BandPartVectors<B>, 2> rows;
  std::size_t count = 0;
  for (Index e = 0; e < a.count(); ++e) {
    const Range tiles = a.tiles(i, e);
    if (tiles.count == 0) continue;
    parts[count] = detail::stream_slab_part(a, i, e);
    rows[count++] = {x.rows.data() + (a.first_row(e) + tiles.first * a.shape.width) * x.nrhs,
                     nullptr};
  }
  const std::span<const BandPart<B>> all(parts.data(), count);
  const std::span<const BandPartVectors<B>> vectors(rows.data(), count);
  if (transposed)
    band_backward_parts(lane, a.shape, all, vectors, x.nrhs, x.scratch);
  else
    band_forward_parts(lane, a.shape, all, vectors, x.nrhs, x.scratch);
}

namespace {

/// Brings slab i of L, the turn-th one, from host memory or the store, and substitutes with it.
template <class B>
class SlabSubstitution {
 public:
  SlabSubstitution(const Stream<B>& lane, BandStream<B>& a, bool transposed, BandStreamRows<B>& x)
      : lane_(lane),
        a_(a),
        x_(x),
        transposed_(transposed),
        done_(std::size_t(a.slots)),
        sent_(std::size_t(std::max<Index>(a.kept, 1))) {
    a_.up.wait(lane_.record());
  }

  void take(Index i, Index turn) {
    if (a_.kept > 0) {  // host memory of slab i was last used `kept` turns ago
      a_.reader.wait(sent_[std::size_t(turn % a_.kept)]);
      a_.reader.synchronize();
      each_end(i, [&](Index e) { a_.get(i, e); });
    }
    a_.up.wait(done_[std::size_t(i % a_.slots)]);  // of the slab that was in this slot
    each_end(i, [&](Index e) {
      upload(a_.up, a_.in_ring(i, e), a_.host_tile(a_.tiles(i, e).first, e));
    });
    const Event<B> here = a_.up.record();
    if (a_.kept > 0) sent_[std::size_t(turn % a_.kept)] = here;
    lane_.wait(here);
    if (detail::stream_keeps_inverses<B>)
      each_end(i, [&](Index e) {
        band_invert_diagonals(lane_, a_.shape, detail::stream_slab_part(a_, i, e));
      });
    detail::stream_substitute(lane_, a_, i, transposed_, x_);
    done_[std::size_t(i % a_.slots)] = lane_.record();
  }
  /// The host waits for the slab that was in the slot of slab i.
  void keep_step(Index i) {
    a_.reader.wait(done_[std::size_t(i % a_.slots)]);
    a_.reader.synchronize();
  }
  void finish() {
    a_.up.synchronize();
    lane_.synchronize();
  }

 private:
  template <class Action>
  void each_end(Index i, Action&& action) {
    for (Index e = 0; e < a_.count(); ++e)
      if (a_.tiles(i, e).count > 0) action(e);
  }

  const Stream<B>& lane_;
  BandStream<B>& a_;
  BandStreamRows<B>& x_;
  const bool transposed_;
  std::vector<Event<B>> done_, sent_;
};

/// Turns `first` .. of a pass over all slabs.
template <class B>
void each_slab(Context<B>& context, BandStream<B>& a, bool transposed, BandStreamRows<B>& x,
               Progress& progress, Index first) {
  SlabSubstitution<B> step(context.ahead, a, transposed, x);
  const Index slabs = a.slabs();
  Checkpoints* const checkpoints = a.given || transposed ? progress.checkpoints : nullptr;
  progress.begin("substitution", double(slabs));
  const SettlesLanes settles;  // an error leaves no memory in use
  for (Index turn = first; turn < slabs; ++turn) {
    const Index i = transposed ? slabs - 1 - turn : turn;
    if (checkpoints) step.keep_step(i);  // it hears of time and signals when it should
    step.take(i, turn);
    progress.tick(double(turn));
    if (checkpoints && turn + 1 < slabs && checkpoints->due()) {
      step.finish();
      checkpoints->save(turn + 1 + (transposed ? slabs : 0), 2 * slabs, [&](Archive& archive) {
        archive_stream(context, archive, a, slabs - 1 - turn, &x);
      });
    }
  }
  step.finish();
  progress.end();
}

/// The separator's rows from what both ends leave of them; back into the windows of both.
template <class B>
void solve_separator(const Stream<B>& lane, const BandStream<B>& a, const BandStreamRows<B>& x) {
  if (x.nrhs == 0) return;
  const BandPlan& plan = a.plan;
  const Index size = plan.separator * x.nrhs;
  const auto window = [&](Index e) {
    const Index first = a.first_row(e) + a.part(e).tiles * a.shape.width;
    return x.rows.view().slice(first * x.nrhs, size);
  };
  const View<double, B> own = x.separator.view().slice(0, size);
  const BandPartVectors<B> rows{x.separator.data(), nullptr};
  fill_zero(lane, x.separator.view());
  detail::turn_rows(lane, plan.separator, x.nrhs, window(1).data, own.data);
  add<B>(lane, 1.0, window(0), 1.0, own, own);
  band_forward_parts(lane, plan.reduced, {&a.reduced, 1}, {&rows, 1}, x.nrhs, x.scratch);
  band_backward_parts(lane, plan.reduced, {&a.reduced, 1}, {&rows, 1}, x.nrhs, x.scratch);
  copy<double, B>(lane, window(0), own);
  detail::turn_rows(lane, plan.separator, x.nrhs, own.data, window(1).data);
}

}  // namespace

template <class B>
void stream_forward(Context<B>& context, BandStream<B>& a, BandStreamRows<B>& y,
                    Progress& progress) {
  const Index slabs = a.slabs();
  Index first = 0;
  if (a.given && progress.checkpoints)
    first = progress.checkpoints->resume(
        [&](Archive& archive) { archive_stream(context, archive, a, slabs, &y); });
  if (first > slabs)
    a.resumed = first - slabs;
  else
    each_slab(context, a, false, y, progress, first);
}
template <class B>
void stream_backward(Context<B>& context, BandStream<B>& a, BandStreamRows<B>& x,
                     Progress& progress) {
  const Index first = std::exchange(a.resumed, 0);
  if (a.count() > 1 && first == 0) solve_separator(context.ahead, a, x);
  each_slab(context, a, true, x, progress, first);
}

#define TERRACE_INSTANTIATE(B)                                                                 \
  template void detail::stream_substitute(const Stream<B>&, const BandStream<B>&, Index, bool, \
                                          const BandStreamRows<B>&);                           \
  template void stream_forward(Context<B>&, BandStream<B>&, BandStreamRows<B>&, Progress&);    \
  template void stream_backward(Context<B>&, BandStream<B>&, BandStreamRows<B>&, Progress&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::band
