#include "src/band/window.hpp"

#include "kernels/base/matrix.hpp"
#include "src/band/steps.hpp"
#include "src/band/stream.hpp"
#include "src/band/substitution.hpp"
#include "src/frame/eliminate.hpp"

namespace terrace::band {
namespace {

constexpr Index kWindowWord = sizeof(double);
constexpr Index kWindowPiece = Index(1) << 30;  // of host memory taken at once

Index own_tiles(const BandShape& s, int ranks) { return ceil_div(s.tiles(), Index(ranks)); }

/// Tile columns of L for the substitution, own ones, up and then down: what Substitution asks for
/// is in a slot already, and the slot before it is filled again.
template <class B>
class RingTiles {
 public:
  RingTiles(const Stream<B>& lane, BandWindow<B>& l)
      : shape(l.shape), columns(l.columns), lane_(lane), l_(l) {
    l.up.wait(lane.record());  // the ring is idle
    for (Index place = 0; place < l.slots - 1; ++place) bring(place);
  }

  const BandShape shape;
  const BlockCyclic columns;

  [[nodiscard]] View<const double, B> tile(Index) const {
    const Index place = asked_++;
    // Everything enqueued so far is done before the slot of the tile column before is used again.
    l_.up.wait(lane_.record());
    bring(place + l_.slots - 1);
    lane_.wait(l_.here[at(place)]);
    return View<const double, B>(l_.slot(place));
  }

 private:
  [[nodiscard]] std::size_t at(Index place) const { return std::size_t(place % l_.slots); }
  void bring(Index place) const {
    if (place >= 2 * l_.own) return;
    const Index number = place < l_.own ? place : 2 * l_.own - 1 - place;
    upload(l_.up, l_.slot(place), l_.host_tile(number * columns.ranks));
    l_.here[at(place)] = l_.up.record();
  }

  const Stream<B>& lane_;
  BandWindow<B>& l_;
  mutable Index asked_ = 0;
};

/// Tile columns of L where they are.
template <class B>
struct HostFactor {
  const BandWindow<B>& l;
  const BandShape shape = l.shape;
  const BlockCyclic columns = l.columns;
  [[nodiscard]] View<const double, Cpu> tile(Index k) const {
    return View<const double, Cpu>{l.host_tile(k), shape.tile()};
  }
};

}  // namespace

Index band_window_slots(const BandShape& s, int ranks) {
  const Index tiles = ceil_div(s.reach, s.width) + 2;  // at work, updated, and the next one
  return std::max<Index>(2, ceil_div(tiles, Index(ranks)));
}

BandWindowMemory band_window_memory(const BandShape& s, Index nrhs, int ranks) {
  const BandMemory all = band_memory(s, nrhs, ranks, false);
  BandWindowMemory m;
  m.ring = band_window_slots(s, ranks) * s.tile() * kWindowWord;
  m.panels = all.panels;
  m.solution = all.solution;
  m.host = own_tiles(s, ranks) * s.tile() * kWindowWord;
  return m;
}

template <class B>
BandWindow<B> band_window(Context<B>& context, const BandShape& s) {
  BandWindow<B> a;
  a.shape = s;
  a.columns = {s.padded(), s.width, context.size()};
  a.own = a.columns.slots(context.rank()) / s.width;
  a.slots = band_window_slots(s, context.size());
  a.piece = std::max<Index>(1, kWindowPiece / (s.tile() * kWindowWord));
  for (Index k = 0; k < a.own; k += a.piece)
    a.host.emplace_back(std::min(a.piece, a.own - k) * s.tile());
  a.ring = Buffer<double, B>(a.slots * s.tile());
  a.here.resize(std::size_t(a.slots));
  a.home.resize(std::size_t(a.slots));
  return a;
}

template <class B>
void load_window(Context<B>& context, const BandProblem<B>& problem, BandWindow<B>& a) {
  const Stream<B>& lane = context.ahead;
  const BandShape& s = a.shape;
  const Index height = s.half_bandwidth + 1, ranks = context.size();
  // By way of the ring, which is idle; on one rank as many tile columns at a time as it holds.
  const Index most = ranks == 1 ? a.slots : 1;
  for (Index k = 0; k < s.tiles(); k += most * ranks) {
    const Index own = k + context.rank(), first = std::min(own * s.width, s.n);
    const Range columns{first, std::min((own + most) * s.width, s.n) - first};
    problem.source(context, columns, height, height,
                   a.ring.view().slice(0, columns.count * height));
    for (Index tile = own; tile < std::min(own + most, s.tiles()); ++tile) {
      const Index at = tile * s.width, count = std::min(s.width, s.n - at);
      copy_rows<double, B>(lane, a.host_tile(tile), s.column(),
                           a.ring.data() + (at - first) * height, height, height, count);
    }
    lane.synchronize();
    for (Index tile = own; tile < std::min(own + most, s.tiles()); ++tile)
      detail::stream_pad(s, std::min(s.width, s.n - tile * s.width), s.width, height,
                         a.host_tile(tile));
  }
}

template <class B>
Index band_window_cholesky(Context<B>& context, BandWindow<B>& a, BandWork<B>& work,
                           Progress& progress) {
  BandSteps<B, BandWindow<B>> method(context, a, work);
  a.brought = 0;
  for (std::size_t i = 0; i < std::size_t(a.slots); ++i) a.here[i] = a.home[i] = Event<B>();
  a.up.wait(context.ahead.record());
  a.bring(a.slots - 1);
  progress.begin("band Cholesky", double(method.steps()));
  eliminate(context, method, progress);
  a.up.synchronize();
  a.down.synchronize();
  progress.end();
  return method.finish();
}

template <class B>
void band_window_substitute(Context<B>& context, BandWindow<B>& l, BandVectors<B>& x,
                            Progress& progress) {
  if (x.nrhs > 0) substitute(context, RingTiles<B>(context.ahead, l), x, progress);
}

template <class B>
void band_window_substitute_on_host(Context<B>& context, const BandWindow<B>& l, BandVectors<B>& x,
                                    HostSubstitution<B>& work, Progress& progress) {
  download(context.ahead, work.x.data.data(), x.data.view());
  context.ahead.synchronize();
  if (x.nrhs > 0) substitute(work.host, HostFactor<B>{l}, work.x, progress);
  upload(context.ahead, x.data.view(), work.x.data.data());
  context.ahead.synchronize();
}

template <class B>
double band_factor_residual(Context<B>& context, const BandProblem<B>& problem,
                            const BandWindow<B>& l, Word seed) {
  const TileAt<B> tile = [&](Index k) {
    upload(context.ahead, l.slot(0), l.host_tile(k));
    return View<const double, B>(l.slot(0));
  };
  return band_factor_residual<B>(context, problem, l.shape, tile, seed);
}

#define TERRACE_INSTANTIATE(B)                                                                     \
  template BandWindow<B> band_window(Context<B>&, const BandShape&);                               \
  template void load_window(Context<B>&, const BandProblem<B>&, BandWindow<B>&);                   \
  template Index band_window_cholesky(Context<B>&, BandWindow<B>&, BandWork<B>&, Progress&);       \
  template void band_window_substitute(Context<B>&, BandWindow<B>&, BandVectors<B>&, Progress&);   \
  template void band_window_substitute_on_host(Context<B>&, const BandWindow<B>&, BandVectors<B>&, \
                                               HostSubstitution<B>&, Progress&);                   \
  template double band_factor_residual(Context<B>&, const BandProblem<B>&, const BandWindow<B>&,   \
                                       Word);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::band
