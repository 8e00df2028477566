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
#pragma once
#include <vector>

#include "src/band/hybrid.hpp"
#include "src/band/tile_columns.hpp"

namespace terrace::band {

/// Own tile columns that the backend has room for.
Index band_window_slots(const BandShape& shape, int ranks);

/// Bytes of a rank at most; all but `host` are memory of the backend.
struct BandWindowMemory {
  Index ring = 0, panels = 0, solution = 0, host = 0;
  [[nodiscard]] Index device() const { return ring + panels + solution; }
};
BandWindowMemory band_window_memory(const BandShape& shape, Index nrhs, int ranks);

template <class B>
struct BandWindow {
  BandShape shape;
  BlockCyclic columns;
  Index own = 0;    ///< tile columns of this rank
  Index slots = 1;  ///< of the ring
  Index piece = 1;  ///< tile columns in one piece of host memory
  std::vector<PinnedBuffer<double>> host;
  Buffer<double, B> ring;
  Stream<B> up, down;
  std::vector<Event<B>> here, home;  ///< of each slot: it has arrived; it is on the host again
  Index brought = 0;                 ///< own tile columns on their way to the ring, or beyond it

  [[nodiscard]] Index number(Index k) const { return k / columns.ranks; }
  [[nodiscard]] double* host_tile(Index k) const {
    const Index i = number(k);
    return host[std::size_t(i / piece)].data() + i % piece * shape.tile();
  }
  [[nodiscard]] View<double, B> slot(Index own_number) const {
    return ring.view().slice(own_number % slots * shape.tile(), shape.tile());
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
    bring(number(k) + slots);  // the next one for this slot, while others are at work
  }
  template <class Run>
  void each_run(Index from, Index to, Run&& run) const {
    while (from < to) {
      const Index count = std::min(to - from, slots - from % slots);
      run(from, count, View<double, B>{slot(from).data, count * shape.tile()});
      from += count;
    }
  }
  /// Own tile columns up to this number are on their way.
  void bring(Index last) {
    for (; brought <= std::min(last, own - 1); ++brought) {
      const auto at = std::size_t(brought % slots);
      up.wait(home[at]);
      upload(up, slot(brought), host_tile(brought * columns.ranks));
      here[at] = up.record();
    }
  }
};
/// Takes the memory. Local.
template <class B>
BandWindow<B> band_window(Context<B>& context, const BandShape& shape);
/// Reads the matrix, or a factor of it, into host memory. Collective.
template <class B>
void load_window(Context<B>& context, const BandProblem<B>& problem, BandWindow<B>& a);

/// A := L in host memory. Returns as band_cholesky. n m^2 flops; 8 n (m+1) bytes each way between
/// host and backend at the same time, and a broadcast of w m numbers a tile column.
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
                            const BandWindow<B>& l, Word seed);

}  // namespace terrace::band
