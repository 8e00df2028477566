// The loop over the slabs of a streamed band that factors.
#include <algorithm>

#include "kernels/base/matrix.hpp"
#include "src/band/determinant.hpp"
#include "src/band/stream.hpp"
#include "src/frame/checkpoints.hpp"

namespace terrace::band {
namespace {

/// The steps of the factorization. The host looks at a slab's status lag() slabs later; as many
/// events are kept.
template <class B>
class SlabFactor {
 public:
  SlabFactor(const Stream<B>& lane, BandStream<B>& a, BandStreamRows<B>* y, const BandFeed& feed)
      : lane_(lane),
        a_(a),
        y_(y),
        feed_(feed),
        two_(a.count() > 1),
        factored_(std::size_t(lag())),
        home_(std::size_t(lag())),
        turned_(std::size_t(lag())) {
    fill_zero(lane_, a_.status.view());
    if (two_) {  // end 1 is written entry by entry; its padding comes first
      fill_zero(lane_, a_.ends[1].ring.view());
      detail::unit_diagonal(lane_, a_.shape, a_.ends[1].ring.data(), a_.plan.padding(1));
      if (feed_) feed_columns(a_.separator_columns(), a_.plan.separator, a_.separator_host.data());
    }
    a_.up.wait(lane_.record());  // the rings are idle from here on
    if (two_) upload(a_.up, a_.separator.view(), a_.separator_host.data());
  }

  [[nodiscard]] Index lag() const { return 2 * a_.slots; }
  /// The first `count` slabs are at home, from an earlier run: those that reach the next one.
  void go_on(Index count) {
    first_ = count;
    for (Index q = std::max<Index>(0, count - a_.back); q < count; ++q)
      for (Index e = 0; e < a_.count(); ++e) {
        if (a_.kept > 0) a_.get(q, e);
        upload(a_.up, a_.in_ring(q, e), a_.host_tile(a_.tiles(q, e).first, e));
      }
    lane_.wait(a_.up.record());
  }
  /// Whether slab i + 1 can be the first of another run: no window has anything in it.
  [[nodiscard]] bool may_stop_after(Index i) const {
    bool may = true;
    for (Index e = 0; e < a_.count(); ++e) may = may && a_.tiles(i, e).end() < a_.part(e).tiles;
    return may;
  }
  void bring(Index i) {
    if (a_.tiles(i, 0).count > 0) {
      // The slab that was in this slot is at home, and nothing that it reaches is unfinished.
      if (i >= a_.slots) {
        a_.up.wait(home_[at(i - a_.slots)]);
        a_.up.wait(factored_[at(i - a_.slots + a_.back)]);
      }
      feed(i, 0);
      upload(a_.up, a_.in_ring(i, 0), a_.host_tile(a_.tiles(i, 0).first, 0));
    }
    if (two_)
      for (Index q = i == first_ ? i : i + a_.back; q <= i + a_.back; ++q) stage(q);
    lane_.wait(a_.up.record());
    if (two_ && a_.tiles(i, 1).count > 0) turn(i);
  }
  void factor(Index i) {
    std::array<BandPart<B>, 2> parts;
    std::size_t count = 0;
    Index first = 0;
    for (Index e = 0; e < a_.count(); ++e) {
      const Range tiles = a_.tiles(i, e);
      if (tiles.count == 0) continue;
      if (tiles.end() == a_.part(e).tiles) clear_window(e);
      if (count == 0) first = e;
      parts[count] = a_.part(e);
      parts[count].from = tiles.first;
      parts[count++].to = tiles.end();
    }
    band_factor_parts(lane_, a_.shape, {parts.data(), count},
                      a_.status.view().slice(i * a_.count() + first, Index(count)), a_.scratch);
    a_.down.wait(lane_.record());  // L may go home while it is used
    if (y_) detail::stream_substitute(lane_, a_, i, false, *y_);
    factored_[at(i)] = lane_.record();
  }
  void take_home(Index i) {
    for (Index e = 0; e < a_.count(); ++e)
      if (const Range tiles = a_.tiles(i, e); tiles.count > 0)
        download(a_.down, a_.host_tile(tiles.first, e), a_.in_ring(i, e));
    download(a_.down, a_.seen.data() + i * a_.count(),
             a_.status.view().slice(i * a_.count(), a_.count()));
    home_[at(i)] = a_.down.record();
  }
  /// Two ends: the separator's own columns and what the ends leave to it, factored.
  void separator() {
    const BandPlan& plan = a_.plan;
    const BandShape &s = a_.shape, &r = plan.reduced;
    const Index side = plan.separator, size = side * (side + 1), last = a_.slabs() * a_.count();
    const Index own = std::min(s.half_bandwidth + 1, side), high = std::min(s.column(), side);
    const View<double, B> sum = a_.blocks.view().slice(0, size),
                          part = a_.blocks.view().slice(size, size);
    // There and back: what reaches below the separator is left out.
    fill_zero(lane_, a_.blocks.view());
    band_reverse(lane_, side, 0, side, own, a_.separator.data(), s.column(), part.data, side + 1);
    band_reverse(lane_, side, 0, side, own, part.data, side + 1, sum.data, side + 1);
    for (Index e = 0; e < 2; ++e) {
      each_run_of_window(e, [&](View<double, B> in_ring, Index offset) {
        copy<double, B>(lane_, a_.window.view().slice(offset, in_ring.size), in_ring);
      });
      fill_zero(lane_, part);
      if (e == 0)
        copy_rows<double, B>(lane_, part.data, side + 1, a_.window.data(), s.column(), high, side);
      else
        band_reverse(lane_, side, 0, side, high, a_.window.data(), s.column(), part.data, side + 1);
      add<B>(lane_, 1.0, sum, 1.0, part, sum);
    }
    fill_zero(lane_, a_.reduced_band.view());
    detail::unit_diagonal(lane_, r, a_.reduced.band + r.n * r.column(), r.padded() - r.n);
    copy_rows<double, B>(lane_, a_.reduced.band, r.column(), sum.data, side + 1, side, side);
    band_factor_parts(lane_, r, {&a_.reduced, 1}, a_.status.view().slice(last, 1), a_.scratch);
    download(lane_, a_.seen.data() + last, a_.status.view().slice(last, 1));
  }
  /// Waits until slab i is at home; its status.
  [[nodiscard]] Index look(Index i) {
    a_.reader.wait(home_[at(i)]);
    a_.reader.synchronize();
    return seen(i);
  }
  /// Slab i, which is at home: its diagonal is looked at, and it goes into the store.
  void put_away(Index i) const {
    for (Index e = 0; e < a_.count(); ++e) {
      add_logs(a_, i, e);
      if (a_.kept > 0 && a_.tiles(i, e).count > 0) a_.put(i, e);
    }
  }
  /// The separator's system, once the lane is idle.
  void add_separator() const {
    const BandShape& r = a_.plan.reduced;
    LogProduct product;
    for (const double d : diagonal_of<B>(lane_, a_.reduced.band, r.column(), r.n)) product.times(d);
    a_.logs += product.log();
  }
  [[nodiscard]] Index seen(Index i) const {
    for (Index e = 0; e < a_.count(); ++e)
      if (const Index status = a_.seen[i * a_.count() + e]; status != 0) return two_ ? -1 : status;
    return 0;
  }
  [[nodiscard]] Index seen_of_separator() const {
    return two_ && a_.seen[a_.slabs() * a_.count()] != 0 ? -1 : 0;
  }
  void finish() {
    a_.up.synchronize();
    lane_.synchronize();
    a_.down.synchronize();
  }

 private:
  [[nodiscard]] std::size_t at(Index i) const { return std::size_t(i % lag()); }

  void feed_columns(Range columns, Index all, double* to) const {
    const Index height = a_.shape.half_bandwidth + 1;
    feed_(columns, height, to, a_.shape.column());
    detail::stream_pad(a_.shape, columns.count, all, height, to);
  }
  void feed(Index i, Index e) const {
    const Range tiles = a_.tiles(i, e);
    if (feed_)
      feed_columns(a_.columns(i, e), tiles.count * a_.shape.width, a_.host_tile(tiles.first, e));
  }

  [[nodiscard]] double* staged(Index q) const {
    return a_.staged.data() + q % (a_.back + 3) * a_.slab * a_.shape.tile();
  }
  /// Natural columns of slab q of end 1, on their way to rows of slabs q - back .. q.
  void stage(Index q) {
    const Range tiles = a_.tiles(q, 1);
    if (tiles.count == 0) return;
    if (q >= a_.back + 3) a_.up.wait(turned_[at(q - (a_.back + 3))]);
    feed(q, 1);
    upload(a_.up, View<double, B>{staged(q), tiles.count * a_.shape.tile()},
           a_.host_tile(tiles.first, 1));
  }
  /// Slab i of end 1 := its rows in opposite order.
  void turn(Index i) {
    if (i >= a_.slots) lane_.wait(home_[at(i - a_.slots)]);
    const BandShape& s = a_.shape;
    const Range rows = a_.columns(i, 1);
    double* const to = a_.in_ring(i, 1).data + (i == 0 ? a_.plan.padding(1) : 0) * s.column();
    const auto from = [&](Range columns, const double* data) {
      const Index first = std::max(columns.first, rows.first - s.half_bandwidth);
      if (first < columns.end())
        band_reverse(lane_, rows.end(), first, columns.end() - first, s.half_bandwidth + 1,
                     data + (first - columns.first) * s.column(), s.column(), to, s.column(),
                     rows.first);
    };
    for (Index q = i; q <= i + a_.back && a_.tiles(q, 1).count > 0; ++q)
      from(a_.columns(q, 1), staged(q));
    from(a_.separator_columns(), a_.separator.data());
    turned_[at(i)] = lane_.record();
  }

  /// run(view, offset): tile columns of an end's window that lie one after the other in its ring.
  template <class Run>
  void each_run_of_window(Index e, Run&& run) const {
    const BandPart<B>& part = a_.part(e);
    for (Index done = 0; done < part.window;) {
      const Index slot = (part.tiles + done) % part.ring;
      const Index count = std::min(part.window - done, part.ring - slot);
      run(View<double, B>{part.band + slot * a_.shape.tile(), count * a_.shape.tile()},
          done * a_.shape.tile());
      done += count;
    }
  }
  /// The window takes what is left only: the separator's own columns are added at the end.
  void clear_window(Index e) {
    const BandPart<B>& part = a_.part(e);
    if (part.window == 0) return;
    const Index last = (part.tiles + part.window - 1) / a_.slab;  // slab that it would be in
    if (last >= a_.slots) lane_.wait(home_[at(last - a_.slots)]);
    each_run_of_window(e, [&](View<double, B> in_ring, Index) { fill_zero(lane_, in_ring); });
  }

  const Stream<B>& lane_;
  BandStream<B>& a_;
  BandStreamRows<B>* const y_;
  const BandFeed& feed_;
  const bool two_;
  std::vector<Event<B>> factored_, home_, turned_;
  Index first_ = 0;  ///< slab
};

}  // namespace

template <class B>
Index stream_factor(Context<B>& context, BandStream<B>& a, BandStreamRows<B>* y, Progress& progress,
                    const BandFeed& feed) {
  const Index slabs = a.slabs(), steps = y ? 2 * slabs : slabs;
  SlabFactor<B> step(context.ahead, a, y, feed);
  Checkpoints* const checkpoints = progress.checkpoints;
  Index first = 0, failed = 0;
  a.logs = 0;
  if (checkpoints)
    first = checkpoints->resume([&](Archive& archive) {
      const Index done = archive.step();
      archive_stream(context, archive, a, done < slabs ? done : 2 * slabs - done, y);
    });
  if (first >= slabs && first > 0) {
    a.resumed = first - slabs;
    step.finish();
    return 0;
  }
  if (first > 0) step.go_on(first);
  Index seen = first;
  progress.begin("band Cholesky", double(slabs));
  const SettlesLanes settles;  // an error leaves no memory in use
  for (Index i = first; i < slabs && failed == 0; ++i) {
    if (i - seen >= step.lag()) {
      failed = step.look(seen);
      if (failed != 0) break;
      step.put_away(seen++);
    }
    step.bring(i);
    step.factor(i);
    step.take_home(i);
    progress.tick(double(i));
    if (checkpoints && step.may_stop_after(i) && checkpoints->due()) {
      step.finish();
      for (; seen <= i && failed == 0; ++seen) {
        failed = step.seen(seen);
        if (failed == 0) step.put_away(seen);
      }
      if (failed != 0)
        checkpoints->put_off();
      else
        checkpoints->save(i + 1, steps,
                          [&](Archive& archive) { archive_stream(context, archive, a, i + 1, y); });
    }
  }
  if (failed == 0 && a.count() > 1) step.separator();
  step.finish();
  for (; seen < slabs && failed == 0; ++seen) {
    failed = step.seen(seen);
    if (failed == 0) step.put_away(seen);
  }
  progress.end();
  if (failed == 0) failed = step.seen_of_separator();
  if (failed == 0 && a.count() > 1) step.add_separator();
  return failed;
}

#define TERRACE_INSTANTIATE(B)                                                             \
  template Index stream_factor(Context<B>&, BandStream<B>&, BandStreamRows<B>*, Progress&, \
                               const BandFeed&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::band
