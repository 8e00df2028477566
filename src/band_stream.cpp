// The loops over slabs of a streamed band: one that factors, one that substitutes.
#include "src/band_stream.hpp"

#include <algorithm>

#include "kernels/parallel.hpp"

namespace terrace {
namespace {

// A copy of a slab takes about a millisecond; where the half-bandwidth makes its factorization
// longer than the copy, slabs grow, so that launches cost little.
constexpr Index kSlabBytes = Index(64) << 20;
constexpr Index kBalance = 2000, kMostTimes = 8;
constexpr Index kLeastSlabs = 32;              // nothing hides the first copy and the last
constexpr Index kPieceBytes = Index(1) << 30;  // of host memory taken at once
constexpr Index kWord = sizeof(double);

/// Sizes that follow from the shape and the slab.
struct Cut {
  Index slab, back, slots;
  Cut(const BandShape& s, Index asked)
      : slab(asked > 0 ? asked : band_stream_slab(s)),
        back(ceil_div(band_reach_tiles(s), slab)),
        slots(back + 3) {}
  [[nodiscard]] Index tiles() const { return slab * slots; }
};

/// Inverses of the diagonal blocks are kept where the substitution uses them.
template <class B>
constexpr bool keeps_inverses = !std::is_same_v<B, Cpu>;
template <class B>
Index inverse_size(const BandShape& s, const Cut& cut) {
  return keeps_inverses<B> ? cut.tiles() * s.width * s.width : 0;
}

/// All tile columns as one part, without memory.
template <class B>
BandPart<B> whole_part(const BandShape& s, const Cut& cut) {
  BandPart<B> part;
  part.tiles = s.tiles();
  part.ring = cut.tiles();
  return part;
}
template <class B>
Index factor_scratch(const BandShape& s, const Cut& cut) {
  BandPart<B> part = whole_part<B>(s, cut);
  part.to = std::min(cut.slab, part.tiles);
  return part.tiles > 0 ? band_factor_scratch(B{}, s, {&part, 1}) : 0;
}

/// A slab of `tiles` tile columns as a part of its own: the rows below it are its window.
template <class B>
BandPart<B> slab_part(const BandShape& s, Index tiles) {
  BandPart<B> part;
  part.tiles = tiles;
  part.window = band_reach_tiles(s);
  part.ring = part.tiles + part.window;  // of the window only the rows are used
  return part;
}
template <class B>
BandPart<B> slab_part(const BandStream<B>& a, Index i) {
  const Range tiles = a.tiles(i);
  BandPart<B> part = slab_part<B>(a.shape, tiles.count);
  part.band = a.part.tile(a.shape, tiles.first);
  if (keeps_inverses<B>) part.inverse = a.part.diagonal_inverse(a.shape, tiles.first);
  return part;
}
template <class B>
Index substitute_scratch(const BandShape& s, const Cut& cut, Index nrhs) {
  Index most = 0;
  for (const Index tiles : {std::min(cut.slab, s.tiles()), s.tiles() % cut.slab})
    if (const BandPart<B> part = slab_part<B>(s, tiles); tiles > 0)
      most = std::max(most, band_substitute_scratch(B{}, s, {&part, 1}, nrhs));
  return most;
}
Index rows_of(const BandShape& s) { return s.padded() + band_reach_tiles(s) * s.width; }

}  // namespace

Index band_stream_slab(const BandShape& s) {
  const Index bytes = kSlabBytes * std::clamp<Index>(s.half_bandwidth / kBalance, 1, kMostTimes);
  const Index slab = round_up(ceil_div(bytes, s.tile() * kWord), 2);
  return std::min(slab, std::max<Index>(1, ceil_div(s.tiles(), kLeastSlabs)));
}

template <class B>
BandStreamMemory band_stream_memory(const BandShape& s, Index nrhs, Index slab) {
  const Cut cut(s, slab);
  BandStreamMemory m;
  m.ring = band_part_doubles(s, cut.tiles()) * kWord;
  m.inverses = inverse_size<B>(s, cut) * kWord;
  m.vectors = rows_of(s) * nrhs * kWord;
  m.scratch = (factor_scratch<B>(s, cut) + ceil_div(s.tiles(), cut.slab)) * kWord;
  if (nrhs > 0) m.scratch += substitute_scratch<B>(s, cut, nrhs) * kWord;
  m.host = s.tiles() * s.tile() * kWord;
  return m;
}

template <class B>
BandStream<B> band_stream(const BandShape& s, Index slab) {
  const Cut cut(s, slab);
  BandStream<B> a;
  a.shape = s;
  a.slab = cut.slab;
  a.back = cut.back;
  a.slots = cut.slots;
  a.piece = std::max<Index>(1, kPieceBytes / (cut.slab * s.tile() * kWord));
  for (Index i = 0; i < a.slabs(); i += a.piece)
    a.host.emplace_back((std::min(s.tiles(), (i + a.piece) * a.slab) - i * a.slab) * s.tile());
  a.ring = Buffer<double, B>(band_part_doubles(s, cut.tiles()));
  a.inverses = Buffer<double, B>(inverse_size<B>(s, cut));
  a.part = whole_part<B>(s, cut);
  a.part.band = a.ring.data();
  a.part.inverse = a.inverses.data();
  a.status = Buffer<Index, B>(a.slabs());
  a.seen = PinnedBuffer<Index>(a.slabs());
  a.scratch = Buffer<Word, B>(factor_scratch<B>(s, cut));
  return a;
}

template <class B>
void load_stream(Context<B>& context, const BandProblem<B>& problem, BandStream<B>& a) {
  const Stream<B>& lane = context.ahead;
  const BandShape& s = a.shape;
  const Index height = s.half_bandwidth + 1;
  for (Index i = 0; i < a.slabs(); ++i) {
    const Range tiles = a.tiles(i);
    double* const to = a.host_tile(tiles.first);
    const Range columns{tiles.first * s.width,
                        std::min(tiles.count * s.width, s.n - tiles.first * s.width)};
    // By way of the ring, which is idle.
    problem.source(context, columns, height, a.ring.view().slice(0, columns.count * height));
    copy_rows<double, B>(lane, to, s.column(), a.ring.data(), height, height, columns.count);
    parallel_ranges(columns.count, 1024, [&](Index from, Index end) {
      for (Index j = from; j < end; ++j)
        std::fill(to + j * s.column() + height, to + (j + 1) * s.column(), 0.0);
    });
    for (Index j = columns.count; j < tiles.count * s.width; ++j) {
      std::fill(to + j * s.column(), to + (j + 1) * s.column(), 0.0);
      to[j * s.column()] = 1.0;
    }
  }
  lane.synchronize();
}

template <class B>
BandStreamRows<B> band_stream_rows(const BandStream<B>& a, Index nrhs) {
  BandStreamRows<B> x;
  x.nrhs = nrhs;
  x.rows = Buffer<double, B>(rows_of(a.shape) * nrhs);
  if (nrhs > 0)
    x.scratch = Buffer<Word, B>(substitute_scratch<B>(a.shape, {a.shape, a.slab}, nrhs));
  return x;
}

template <class B>
void set_rows(Context<B>& context, const BandStream<B>& a, BandStreamRows<B>& x,
              const double* from) {
  const Index size = a.shape.n * x.nrhs;
  upload(context.ahead, x.rows.view().slice(0, size), from);
  fill_zero(context.ahead, x.rows.view().slice(size, x.rows.size() - size));
  context.ahead.synchronize();
}
template <class B>
void get_rows(Context<B>& context, const BandStream<B>& a, const BandStreamRows<B>& x, double* to) {
  download(context.ahead, to, x.rows.view().slice(0, a.shape.n * x.nrhs));
  context.ahead.synchronize();
}

namespace {

/// y := L^-1 y, or L^-T y, with slab i, whose factor and inverses are in the ring.
template <class B>
void substitute(const Stream<B>& lane, const BandStream<B>& a, Index i, bool transposed,
                const BandStreamRows<B>& x) {
  if (x.nrhs == 0) return;
  const BandPart<B> part = slab_part(a, i);
  const BandPartVectors<B> rows{x.rows.data() + a.tiles(i).first * a.shape.width * x.nrhs};
  if (transposed)
    band_backward_parts(lane, a.shape, {&part, 1}, {&rows, 1}, x.nrhs, x.scratch);
  else
    band_forward_parts(lane, a.shape, {&part, 1}, {&rows, 1}, x.nrhs, x.scratch);
}

/// The steps of the factorization. The host looks at a slab's status lag() slabs later; as many
/// events are kept.
template <class B>
class SlabFactor {
 public:
  SlabFactor(const Stream<B>& lane, BandStream<B>& a, BandStreamRows<B>* y)
      : lane_(lane), a_(a), y_(y), factored_(std::size_t(lag())), home_(std::size_t(lag())) {
    a_.up.wait(lane_.record());  // the ring is idle from here on
  }

  [[nodiscard]] Index lag() const { return 2 * a_.slots; }
  void bring(Index i) {
    // The slab that was in this slot is at home, and nothing that it reaches is unfinished.
    if (i >= a_.slots) {
      a_.up.wait(home_[at(i - a_.slots)]);
      a_.up.wait(factored_[at(i - a_.slots + a_.back)]);
    }
    upload(a_.up, a_.in_ring(i), a_.host_tile(a_.tiles(i).first));
    lane_.wait(a_.up.record());
  }
  void factor(Index i) {
    BandPart<B> part = a_.part;
    part.from = a_.tiles(i).first;
    part.to = a_.tiles(i).end();
    band_factor_parts(lane_, a_.shape, {&part, 1}, a_.status.view().slice(i, 1), a_.scratch);
    a_.down.wait(lane_.record());  // L may go home while it is used
    if (y_) substitute(lane_, a_, i, false, *y_);
    factored_[at(i)] = lane_.record();
  }
  void take_home(Index i) {
    download(a_.down, a_.host_tile(a_.tiles(i).first), a_.in_ring(i));
    download(a_.down, a_.seen.data() + i, a_.status.view().slice(i, 1));
    home_[at(i)] = a_.down.record();
  }
  /// Waits until slab i is at home; its status.
  [[nodiscard]] Index look(Index i) {
    a_.reader.wait(home_[at(i)]);
    a_.reader.synchronize();
    return a_.seen[i];
  }
  void finish() {
    a_.up.synchronize();
    lane_.synchronize();
    a_.down.synchronize();
  }

 private:
  [[nodiscard]] std::size_t at(Index i) const { return std::size_t(i % lag()); }

  const Stream<B>& lane_;
  BandStream<B>& a_;
  BandStreamRows<B>* const y_;
  std::vector<Event<B>> factored_, home_;
};

/// Brings slab after slab of L and substitutes with each.
template <class B>
void each_slab(const Stream<B>& lane, BandStream<B>& a, bool transposed, BandStreamRows<B>& x,
               Progress& progress) {
  std::vector<Event<B>> done(std::size_t(a.slots));
  a.up.wait(lane.record());
  progress.begin("substitution", double(a.slabs()));
  for (Index turn = 0; turn < a.slabs(); ++turn) {
    const Index i = transposed ? a.slabs() - 1 - turn : turn;
    a.up.wait(done[std::size_t(i % a.slots)]);  // of the slab that was in this slot
    upload(a.up, a.in_ring(i), a.host_tile(a.tiles(i).first));
    lane.wait(a.up.record());
    if (keeps_inverses<B>) band_invert_diagonals(lane, a.shape, slab_part(a, i));
    substitute(lane, a, i, transposed, x);
    done[std::size_t(i % a.slots)] = lane.record();
    progress.tick(double(turn));
  }
  lane.synchronize();
  progress.end();
}

}  // namespace

template <class B>
Index stream_factor(Context<B>& context, BandStream<B>& a, BandStreamRows<B>* y,
                    Progress& progress) {
  SlabFactor<B> step(context.ahead, a, y);
  const Index slabs = a.slabs();
  Index seen = 0, failed = 0;
  progress.begin("band Cholesky", double(slabs));
  for (Index i = 0; i < slabs && failed == 0; ++i) {
    if (i >= step.lag()) failed = step.look(seen++);
    if (failed != 0) break;
    step.bring(i);
    step.factor(i);
    step.take_home(i);
    progress.tick(double(i));
  }
  step.finish();
  for (; seen < slabs && failed == 0; ++seen) failed = a.seen[seen];
  progress.end();
  return failed;
}

template <class B>
void stream_forward(Context<B>& context, BandStream<B>& a, BandStreamRows<B>& y,
                    Progress& progress) {
  each_slab(context.ahead, a, false, y, progress);
}
template <class B>
void stream_backward(Context<B>& context, BandStream<B>& a, BandStreamRows<B>& x,
                     Progress& progress) {
  each_slab(context.ahead, a, true, x, progress);
}

template <class B>
double band_factor_residual(Context<B>& context, const BandProblem<B>& problem,
                            const BandStream<B>& l, Word seed) {
  const TileAt<B> tile = [&](Index k) {
    const View<double, B> place = l.ring.view().slice(0, l.shape.tile());
    upload(context.ahead, place, l.host_tile(k));
    return place;
  };
  return band_factor_residual<B>(context, problem, l.shape, tile, seed);
}

template <class B>
void copy_columns(const BandStream<B>& a, Index first, Index count, Index height, Index ld,
                  double* to) {
  const BandShape& s = a.shape;
  parallel_ranges(count, 256, [&](Index from, Index end) {
    for (Index j = first + from; j < first + end; ++j)
      std::copy_n(a.host_tile(j / s.width) + j % s.width * s.column(), height,
                  to + (j - first) * ld);
  });
}

#define TERRACE_INSTANTIATE(B)                                                                   \
  template BandStreamMemory band_stream_memory<B>(const BandShape&, Index, Index);               \
  template BandStream<B> band_stream(const BandShape&, Index);                                   \
  template void load_stream(Context<B>&, const BandProblem<B>&, BandStream<B>&);                 \
  template BandStreamRows<B> band_stream_rows(const BandStream<B>&, Index);                      \
  template void set_rows(Context<B>&, const BandStream<B>&, BandStreamRows<B>&, const double*);  \
  template void get_rows(Context<B>&, const BandStream<B>&, const BandStreamRows<B>&, double*);  \
  template Index stream_factor(Context<B>&, BandStream<B>&, BandStreamRows<B>*, Progress&);      \
  template void stream_forward(Context<B>&, BandStream<B>&, BandStreamRows<B>&, Progress&);      \
  template void stream_backward(Context<B>&, BandStream<B>&, BandStreamRows<B>&, Progress&);     \
  template double band_factor_residual(Context<B>&, const BandProblem<B>&, const BandStream<B>&, \
                                       Word);                                                    \
  template void copy_columns(const BandStream<B>&, Index, Index, Index, Index, double*);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace
