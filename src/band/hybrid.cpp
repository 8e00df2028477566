#include "src/band/hybrid.hpp"

#include "distrib/agree.hpp"
#include "src/band/plan.hpp"
#include "src/band/substitution.hpp"

namespace terrace::band {
namespace {

void check_place(const std::string& option, const std::string& place, bool device) {
  if (place.empty() || place == "cpu" || (place == "gpu" && device)) return;
  if (place == "gpu")
    fail_together(Exit::usage, "the CPU backend has no GPU; " + option +
                                   " gpu; use --backend cuda or leave the option out");
  fail_together(Exit::usage, "unknown place '" + place + "'; " + option + "; use gpu or cpu");
}

void check_all(const BandPlaces& places, bool device) {
  check_place("--diagonal", places.diagonal, device);
  check_place("--substitution", places.substitution, device);
}

/// A shape whose tile column begins with a dense diagonal block of leading dimension w.
BandShape block_shape(const BandShape& s) { return {s.n, s.width, s.width, s.width}; }

/// Tile columns of L on their way to the host, in the order of the steps: this rank's, up and then
/// down. The slot of the tile column before the last one asked for is filled again.
template <class B>
class HostTiles {
 public:
  HostTiles(const BandTiles<B>& l, const HostSubstitution<B>& work, int rank)
      : shape(l.shape),
        columns(l.columns),
        l_(l),
        work_(work),
        count_(columns.slots(rank) / shape.width),
        rank_(rank) {
    bring(0);
  }

  const BandShape shape;
  const BlockCyclic columns;

  [[nodiscard]] View<const double, Cpu> tile(Index) const {
    const Index place = asked_++;
    waiting_.wait(arrived_[place % 2]);
    waiting_.synchronize();
    work_.host.ahead.synchronize();  // the other slot's step
    bring(asked_);
    return View<const double, Cpu>{slot(place).data, shape.tile()};
  }

 private:
  [[nodiscard]] View<double, Cpu> slot(Index place) const {
    return work_.tiles.view().slice(place % 2 * shape.tile(), shape.tile());
  }
  void bring(Index place) const {
    if (place >= 2 * count_) return;
    const Index own = place < count_ ? place : 2 * count_ - 1 - place;
    const Index k = own * columns.ranks + rank_;
    download(work_.lane, slot(place).data, l_.tile(k));
    arrived_[place % 2] = work_.lane.record();
  }

  const BandTiles<B>& l_;
  const HostSubstitution<B>& work_;
  const Index count_;
  const int rank_;
  Stream<B> waiting_;
  mutable Index asked_ = 0;
  mutable Event<B> arrived_[2];
};

}  // namespace

void check_places(Cpu, const BandPlaces& places) { check_all(places, false); }
void check_places(Cuda, const BandPlaces& places) { check_all(places, true); }

void adopt_places(const BandPlaces& places, BandRequest& request) {
  if ((places.diagonal + places.substitution).empty()) return;
  if (request.method.empty() || request.method == "auto") request.method = "tile-columns";
  if (request.method != "tile-columns" && request.method != "streamed")
    fail_together(
        Exit::usage,
        "the method has no tile columns whose work could be shared out: " + request.method +
            "; --diagonal and --substitution; use --method tile-columns or streamed, or "
            "leave them out");
  request.tile_by_tile = request.method == "streamed";
}

PinnedBuffer<double> band_host_diagonal(const BandShape& s) {
  return PinnedBuffer<double>(block_shape(s).tile() + 1);
}

template <class B>
void band_factor_diagonal_on_host(const Stream<B>& lane, const BandShape& s, Index k,
                                  View<double, B> tile, View<double, B> status,
                                  const PinnedBuffer<double>& room) {
  const Index w = s.width;
  const BandShape block = block_shape(s);
  const View<double, Cpu> found = room.view().slice(block.tile(), 1);
  copy_rows<double, B>(lane, room.data(), w, tile.data, s.reach, w, w);
  lane.synchronize();
  const Stream<Cpu> here;
  band_factor_diagonal(here, block, k, room.view(), found);
  here.synchronize();
  // The upper triangle belongs to other entries of the tile column; nothing has changed them.
  copy_rows<double, B>(lane, tile.data, s.reach, room.data(), w, w, w);
  upload(lane, status, found.data);
}

template <class B>
HostSubstitution<B>::HostSubstitution(Context<B>& context, const BandShape& s, Index nrhs)
    : host(make_context<Cpu>(context.control)),
      tiles(s.tiles() > 0 ? 2 * s.tile() : 0),
      x(band_vectors<Cpu>(host, s, nrhs)) {}

template <class B>
void band_substitute_on_host(Context<B>& context, const BandTiles<B>& l, BandVectors<B>& x,
                             HostSubstitution<B>& work, Progress& progress) {
  download(context.ahead, work.x.data.data(), x.data.view());
  context.ahead.synchronize();
  if (x.nrhs > 0) substitute(work.host, HostTiles<B>(l, work, context.rank()), work.x, progress);
  upload(context.ahead, x.data.view(), work.x.data.data());
  context.ahead.synchronize();
}

#define TERRACE_INSTANTIATE(B)                                                             \
  template struct HostSubstitution<B>;                                                     \
  template void band_factor_diagonal_on_host(const Stream<B>&, const BandShape&, Index,    \
                                             View<double, B>, View<double, B>,             \
                                             const PinnedBuffer<double>&);                 \
  template void band_substitute_on_host(Context<B>&, const BandTiles<B>&, BandVectors<B>&, \
                                        HostSubstitution<B>&, Progress&);
TERRACE_FOR_EACH_BACKEND(TERRACE_INSTANTIATE)
#undef TERRACE_INSTANTIATE

}  // namespace terrace::band
