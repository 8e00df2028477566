// A band matrix of which the backend holds a window: the hybrid algorithm of Khimich and Baranov
// 2013 as it stands, for one or several ranks.
//
//   host memory     | 0 | 1 | 2 |   ..   | k | k+1 .. k+reach | next | ..   own tile columns, then
//   L
//                                    ^                              |
//                       copied home  |                              |  copied in meanwhile
//                                    |                              v
//   backend         one allocation:  | k | k+1 .. k+reach | next |          a ring
//
// Tile columns are dealt to the ranks as in src/band/tile_columns.hpp, and the steps are the same
// (src/band/steps.hpp), so the bits are too. Each rank has room for its share of reach / w + 2 tile
// columns on the backend, w being their width; two streams copy. Diagonal blocks and substitution
// are the backend's or the CPU's. src/band/stream.hpp factors many tile columns in one launch
// instead.
//
// Where the host has no room for its tile columns, it keeps `kept` of them, own tile column i in
// place i % kept, and a store (a file of this rank) holds all.
#pragma once
#include <vector>

#include "src/band/hybrid.hpp"
#include "src/band/stream.hpp"
#include "src/band/tile_columns.hpp"

namespace terrace::band {

/// Own tile columns that the backend has room for.
Index band_window_slots(const BandShape& shape, int ranks);
/// Own tile columns that the host keeps, with a store.
Index band_window_kept(const BandShape& shape, int ranks);

/// Bytes of a rank at most; all but `host` and `store` are memory of the backend.
struct BandWindowMemory {
  Index ring = 0, panels = 0, solution = 0, host = 0, store = 0;
  [[nodiscard]] Index device() const { return ring + panels + solution; }
};
BandWindowMemory band_window_memory(const BandShape& shape, Index nrhs, int ranks,
                                    bool stored = false);

template <class B>
struct BandWindow {
  BandShape shape;
  BlockCyclic columns;
  Index own = 0;          ///< tile columns of this rank
  Index slots = 1;        ///< of the ring
  Index piece = 1;        ///< tile columns in one piece of host memory
  Index kept = 0;         ///< own tile columns in host memory at a time; 0: all
  BandStreamStore store;  ///< if not all
  std::vector<PinnedBuffer<double>> host;
  std::vector<double> diagonal;  ///< with a store: of what was put there, own columns
  Buffer<double, B> ring;
  Stream<B> up, down;
  std::vector<Event<B>> here, home;  ///< of each slot: it has arrived; it is on the host again
  // Own tile columns, by number, before which all ..
  Index brought = 0;  ///< .. are on their way to the ring, or beyond it
  Index left = 0;     ///< .. are on their way home
  Index put = 0;      ///< .. are in the store again

  [[nodiscard]] Index number(Index k) const { return k / columns.ranks; }
  /// Place of own tile column i, or the i-th place where the host does not keep all.
  [[nodiscard]] double* host_place(Index i) const {
    if (kept > 0) i %= kept;
    return host[std::size_t(i / piece)].data() + i % piece * shape.tile();
  }
  [[nodiscard]] double* host_tile(Index k) const { return host_place(number(k)); }
  [[nodiscard]] View<double, B> slot(Index own_number) const {
    return ring.view().slice(own_number % slots * shape.tile(), shape.tile());
  }
  /// Own tile column i from the store to a place on the host.
  void get(Index i, double* to) const { store.get(i * shape.tile(), to, shape.tile()); }
  /// And from its place to the store.
  void put_one(Index i) {
    const double* const from = host_place(i);
    for (Index j = 0; j < shape.width; ++j)
      diagonal[std::size_t(i * shape.width + j)] = from[j * shape.column()];
    store.put(i * shape.tile(), from, shape.tile());
  }
  /// Those before `end`, which have left, are put there.
  void put_away(Index end) {
    for (; kept > 0 && put < end; ++put) {
      home[std::size_t(put % slots)].synchronize();
      put_one(put);
    }
  }
  // Members for src/band/steps.hpp.
  [[nodiscard]] View<double, B> tile(Index k) const { return slot(number(k)); }
  void arrive(const Stream<B>& lane, Index k) {
    bring(number(k));
    lane.wait(here[std::size_t(number(k) % slots)]);  // and with it those before
  }
  void leave(const Stream<B>& lane, Index k) {
    down.wait(lane.record());
    download(down, host_tile(k), tile(k));
    home[std::size_t(number(k) % slots)] = down.record();
    left = number(k) + 1;
    put_away(left + 1 - slots);  // the host waits for tile columns that left long ago
    bring(number(k) + slots);    // the next one for this slot, while others are at work
  }
  template <class Run>
  void each_run(Index from, Index to, Run&& run) const {
    while (from < to) {
      const Index count = std::min(to - from, slots - from % slots);
      run(from, count, View<double, B>{slot(from).data, count * shape.tile()});
      from += count;
    }
  }
  /// Own tile columns up to this number are on their way. A place on the host is free: kept is
  /// 2 slots, so what was there before has been put away.
  void bring(Index last) {
    for (; brought <= std::min(last, own - 1); ++brought) {
      const auto at = std::size_t(brought % slots);
      if (kept > 0) get(brought, host_place(brought));
      up.wait(home[at]);
      upload(up, slot(brought), host_place(brought));
      here[at] = up.record();
    }
  }
  /// Own tile columns before `first` are factored, the others not begun; the ring is idle.
  void begin(Index first) {
    for (std::size_t i = 0; i < std::size_t(slots); ++i) here[i] = home[i] = Event<B>();
    brought = left = put = first;
    bring(first + slots - 1);
  }
};
/// Takes the memory; `stored`: the store is to be set. Local.
template <class B>
BandWindow<B> band_window(Context<B>& context, const BandShape& shape, bool stored = false);
/// Reads the matrix, or a factor of it, into host memory or the store. Collective.
template <class B>
void load_window(Context<B>& context, const BandProblem<B>& problem, BandWindow<B>& a);

/// A := L in host memory, or in the store. Returns as band_cholesky. n m^2 flops; 8 n (m+1) bytes
/// each way between host and backend at the same time, and a broadcast of w m numbers a tile column.
/// With checkpoints in `progress` it may stop between tile columns, and goes on from one of them.
/// A store that fails is this rank's Error.
template <class B>
[[nodiscard]] Index band_window_cholesky(Context<B>& context, BandWindow<B>& a, BandWork<B>& work,
                                         Progress& progress);

/// X := (L L^T)^-1 X by the backend: tile columns of L come to the ring one after the other, each
/// twice.
template <class B>
void band_window_substitute(Context<B>& context, BandWindow<B>& l, BandVectors<B>& x,
                            Progress& progress);
/// The same by the CPU, which has L; bits are those of the CPU backend.
template <class B>
void band_window_substitute_on_host(Context<B>& context, const BandWindow<B>& l, BandVectors<B>& x,
                                    HostSubstitution<B>& work, Progress& progress);

/// As band_factor_residual of tile columns; each is brought to the backend once more.
template <class B>
double band_factor_residual(Context<B>& context, const BandProblem<B>& problem,
                            const BandWindow<B>& l, Word seed, double* reciprocal = nullptr);

/// run(data, count): own columns `first` .. first + count - 1 by slots, on the host, in pieces that
/// lie one after the other, shape.column() numbers each. Those of a store are copies.
template <class B, class Run>
void each_host_run(const BandWindow<B>& a, Index first, Index count, Run&& run) {
  const BandShape& s = a.shape;
  for (const Index end = first + count; first < end;) {
    const Index i = first / s.width, last = std::min(end, (i + 1) * s.width);
    double* const tile = a.host_place(a.kept > 0 ? 0 : i);
    if (a.kept > 0) a.get(i, tile);
    run(tile + first % s.width * s.column(), last - first);
    first = last;
  }
}

}  // namespace terrace::band
