#include "src/band/window.hpp"

#include <cstring>

#include "distrib/agree.hpp"
#include "kernels/base/matrix.hpp"
#include "src/band/steps.hpp"
#include "src/band/substitution.hpp"
#include "src/frame/checkpoints.hpp"
#include "src/frame/eliminate.hpp"

namespace terrace::band {
namespace {

constexpr Index kWindowWord = sizeof(double);
constexpr Index kWindowPiece = Index(1) << 30;  // of host memory taken at once

Index own_tiles(const BandShape& s, int ranks) { return ceil_div(s.tiles(), Index(ranks)); }

/// With checkpoints, which hold all columns as they are.
template <class B>
class WindowCholesky : public BandSteps<B, BandWindow<B>> {
  using Steps = BandSteps<B, BandWindow<B>>;
  using Steps::a_, Steps::rank_, Steps::s_, Steps::work_;

 public:
  using Steps::Steps;

  void archive(Archive& archive, Index k) {
    a_.up.synchronize();
    if (!archive.loading()) bring_home();
    const Index ld = s_.column();
    archive.pieces(
        "columns", s_.padded(), ld, a_.columns.ranges(rank_),
        [&](Index first, Index count, Word* to) {
          each_host_run(a_, first, count, [&](const double* from, Index columns) {
            std::memcpy(to, from, std::size_t(columns * ld) * sizeof(double));
            to += columns * ld;
          });
        },
        [&](Index first, Index count, const Word* from) { load(first, count, from); });
    std::vector<double> statuses(work_.seen.data(), work_.seen.data() + kBandRing);
    archive.list("statuses", statuses);
    std::copy(statuses.begin(), statuses.end(), work_.seen.data());
    if (archive.loading()) a_.begin(a_.columns.slots_before(k * s_.width, rank_) / s_.width);
  }

 private:
  /// What the ring has begun to update, as it is.
  void bring_home() {
    a_.down.synchronize();
    a_.put_away(a_.left);
    for (Index i = a_.left; i < a_.brought; ++i) {
      download(a_.down, a_.host_place(i), a_.slot(i));
      a_.down.synchronize();
      if (a_.kept > 0) a_.put_one(i);
    }
  }
  void load(Index first, Index count, const Word* from) {
    const Index ld = s_.column();
    const auto* numbers = reinterpret_cast<const double*>(from);
    if (a_.kept > 0) {
      for (Index j = 0; j < count; ++j) a_.diagonal[std::size_t(first + j)] = numbers[j * ld];
      return a_.store.put(first * ld, numbers, count * ld);
    }
    each_host_run(a_, first, count, [&](double* to, Index columns) {
      std::copy_n(numbers, columns * ld, to);
      numbers += columns * ld;
    });
  }
};

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
    double* const from = l_.host_place(l_.kept > 0 ? place : number);
    if (l_.kept > 0) {
      l_.here[at(place)].synchronize();  // the copy from that place, `kept` ago, came before
      l_.get(number, from);
    }
    upload(l_.up, l_.slot(place), from);
    l_.here[at(place)] = l_.up.record();
  }

  const Stream<B>& lane_;
  BandWindow<B>& l_;
  mutable Index asked_ = 0;
};

/// Tile columns of L where they are, or in two places on the host in turn.
template <class B>
class HostFactor {
 public:
  HostFactor(const BandWindow<B>& l, const Stream<Cpu>& lane)
      : shape(l.shape), columns(l.columns), l_(l), lane_(lane) {}

  const BandShape shape;
  const BlockCyclic columns;

  [[nodiscard]] View<const double, Cpu> tile(Index k) const {
    if (l_.kept == 0) return View<const double, Cpu>{l_.host_tile(k), shape.tile()};
    double* const place = l_.host_place(asked_++ % 2);
    lane_.synchronize();  // the step of the tile column before the last one
    l_.get(l_.number(k), place);
    return View<const double, Cpu>{place, shape.tile()};
  }

 private:
  const BandWindow<B>& l_;
  const Stream<Cpu>& lane_;
  mutable Index asked_ = 0;
};

}  // namespace

Index band_window_slots(const BandShape& s, int ranks) {
  const Index tiles = ceil_div(s.reach, s.width) + 2;  // at work, updated, and the next one
  return std::max<Index>(2, ceil_div(tiles, Index(ranks)));
}

Index band_window_kept(const BandShape& s, int ranks) { return 2 * band_window_slots(s, ranks); }

BandWindowMemory band_window_memory(const BandShape& s, Index nrhs, int ranks, bool stored) {
  const Index own = own_tiles(s, ranks);
  const BandMemory all = band_memory(s, nrhs, ranks, false);
  BandWindowMemory m;
  m.ring = band_window_slots(s, ranks) * s.tile() * kWindowWord;
  m.panels = all.panels;
  m.solution = all.solution;
  m.host = own * s.tile() * kWindowWord;
  if (!stored) return m;
  m.store = m.host;
  m.host = own > 0 ? (band_window_kept(s, ranks) * s.tile() + own * s.width) * kWindowWord : 0;
  return m;
}

template <class B>
BandWindow<B> band_window(Context<B>& context, const BandShape& s, bool stored) {
  BandWindow<B> a;
  a.shape = s;
  a.columns = {s.padded(), s.width, context.size()};
  a.own = a.columns.slots(context.rank()) / s.width;
  a.slots = band_window_slots(s, context.size());
  a.piece = std::max<Index>(1, kWindowPiece / (s.tile() * kWindowWord));
  if (stored) {
    a.kept = band_window_kept(s, context.size());
    a.diagonal.resize(std::size_t(a.own * s.width));
  }
  const Index all = stored && a.own > 0 ? a.kept : a.own;
  for (Index k = 0; k < all; k += a.piece)
    a.host.emplace_back(std::min(a.piece, all - k) * s.tile());
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
    const auto pad = [&](bool put) {
      for (Index tile = own; tile < std::min(own + most, s.tiles()); ++tile) {
        detail::stream_pad(s, std::min(s.width, s.n - tile * s.width), s.width, height,
                           a.host_tile(tile));
        if (put) a.put_one(a.number(tile));
      }
    };
    if (a.kept > 0)
      collectively(context.control, [&] { pad(true); });
    else
      pad(false);
  }
}

template <class B>
Index band_window_cholesky(Context<B>& context, BandWindow<B>& a, BandWork<B>& work,
                           Progress& progress) {
  WindowCholesky<B> method(context, a, work);
  a.up.wait(context.ahead.record());
  a.begin(0);
  progress.begin("band Cholesky", double(method.steps()));
  eliminate(context, method, progress);
  a.up.synchronize();
  a.down.synchronize();
  a.put_away(a.left);
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
  if (x.nrhs > 0) substitute(work.host, HostFactor<B>(l, work.host.ahead), work.x, progress);
  upload(context.ahead, x.data.view(), work.x.data.data());
  context.ahead.synchronize();
}

template <class B>
double band_factor_residual(Context<B>& context, const BandProblem<B>& problem,
                            const BandWindow<B>& l, Word seed, double* reciprocal) {
  const TileAt<B> tile = [&](Index k) {
    if (l.kept > 0) {
      context.ahead.synchronize();  // the last one has been uploaded
      l.get(l.number(k), l.host_tile(k));
    }
    upload(context.ahead, l.slot(0), l.host_tile(k));
    return View<const double, B>(l.slot(0));
  };
  return band_factor_residual<B>(context, problem, l.shape, tile, seed, reciprocal);
}

#define TERRACE_INSTANTIATE(B)                                                                     \
  template BandWindow<B> band_window(Context<B>&, const BandShape&, bool);                         \
  template void load_window(Context<B>&, const BandProblem<B>&, BandWindow<B>&);                   \
  template Index band_window_cholesky(Context<B>&, BandWindow<B>&, BandWork<B>&, Progress&);       \
  template void band_window_substitute(Context<B>&, BandWindow<B>&, BandVectors<B>&, Progress&);   \
  template void band_window_substitute_on_host(Context<B>&, const BandWindow<B>&, BandVectors<B>&, \
                                               HostSubstitution<B>&, Progress&);                   \
  template double band_factor_residual(Context<B>&, const BandProblem<B>&, const BandWindow<B>&,   \
                                       Word, double*);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::band
