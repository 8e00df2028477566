// Streamed band Cholesky: the matrix in host memory, rings of tile columns on the device.
//
// Tile columns are cut into slabs; slab i lives in slot i % slots of the ring while it is there:
//
//     host   ... | i-3 | i-2 | i-1 |  i  | i+1 | i+2 | ...      in place: A, then L
//                         ^     |     |     |     |
//              down  L ---+     +--+--+     |     |
//              ahead               | factors slab i, reading those that reach it
//              up                  |        +-----+--- A
//     ring            [ back slabs of L | i | two slabs on their way in ]
//
// The tile columns before slab i that reach it are in the `back` slabs before it. The right-hand
// sides stay on the device; L Y = B is solved slab by slab while L is there, L^T X = Y in a second
// pass from the end.
//
// Where one chain of diagonal blocks is slower than the copies, the band is streamed from both ends
// at once (src/band/parts.hpp: two ends), each with a ring of its own, slab i of both in one
// launch:
//
//     rows   end 0 ->          S         <- end 1          S: separator, on the device
//          |--------------|=======|--------------|
//
// End 1 is the matrix in opposite order. Its slabs come up in natural order (`staged`), the
// separator's columns behind them, and are turned over into the ring: rows of slab i from the
// natural columns of slabs i .. i + back. What goes home is the factor in opposite order. The
// windows of both ends are added to S, which is factored last.
//
// Where the host has no room for the matrix either, it keeps `kept` slabs of each end, and a store
// (a file) the rest of the factor.
//
// One rank. Sources: Khimich, Baranov 2013 (window of tile columns); LAPACK's dpbtrf (the failed
// minor); van der Vorst, Parallel Computing 5, 1987 (two ends).
#pragma once
#include <array>
#include <functional>
#include <vector>

#include "src/band/parts.hpp"

namespace terrace {
class Archive;
}  // namespace terrace
namespace terrace::band {

/// Tile columns of a slab: long against a launch, short against the whole.
Index band_stream_slab(const BandShape& shape, Index ends = 1);
/// Slabs of each end that the host keeps at least, with a store.
Index band_stream_kept(const BandPlan& plan, Index slab = 0);
/// One end, by method `streamed`.
BandPlan one_ended_stream(const BandShape& shape);

/// Bytes of a streamed band: all but `host` are memory of the backend.
struct BandStreamMemory {
  Index ring = 0, inverses = 0, staged = 0, separator = 0, vectors = 0, scratch = 0, host = 0;
  [[nodiscard]] Index device() const {
    return ring + inverses + staged + separator + vectors + scratch;
  }
};
/// slab = 0: band_stream_slab; kept = 0: all.
template <class B>
BandStreamMemory band_stream_memory(const BandPlan& plan, Index nrhs, Index slab = 0,
                                    Index kept = 0);

/// Where the tile columns go that host memory has no room for; `at` counts numbers.
struct BandStreamStore {
  std::function<void(Index at, const double* from, Index count)> put;
  std::function<void(Index at, double* to, Index count)> get;
};

/// One end: its tile columns on the host and the ring on the device.
template <class B>
struct BandStreamEnd {
  std::vector<PinnedBuffer<double>> host;
  BandPart<B> part;  ///< all tile columns; its band and inverses are the ring
  Buffer<double, B> ring, inverses;
};

template <class B>
struct BandStream {
  BandPlan plan;
  BandShape shape;
  Index slab = 1;         ///< tile columns of a slab
  Index back = 1;         ///< slabs that the tile columns reaching a slab are in
  Index slots = 4;        ///< slabs of a ring
  Index piece = 1;        ///< slabs in one piece of host memory
  Index kept = 0;         ///< slabs of an end that are in host memory at a time; 0: all
  BandStreamStore store;  ///< if not all
  std::vector<BandStreamEnd<B>> ends;
  // Two ends only.
  PinnedBuffer<double> separator_host;  ///< its natural columns, shape.column() numbers each
  Buffer<double, B> separator, staged;
  Buffer<double, B> window;  ///< of one end, its tile columns one after the other
  Buffer<double, B> blocks;  ///< two of s (s + 1) numbers
  BandPart<B> reduced;       ///< the separator's system
  Buffer<double, B> reduced_band, reduced_inverses;

  Buffer<Index, B> status;  ///< one an end and slab, and the separator's
  PinnedBuffer<Index> seen;
  Buffer<Word, B> scratch;
  Stream<B> up, down, reader;  ///< `reader` lets the host wait for one event

  // Checkpoints (src/frame/checkpoints.hpp), between two slabs.
  std::function<void(Archive&)> more;  ///< the caller's own state
  bool given = false;                  ///< a stored factor, which they leave out
  Index resumed = 0;                   ///< slabs that an earlier run took backward
  double logs = 0;                     ///< of the diagonal of what is factored, added up

  [[nodiscard]] Index count() const { return Index(ends.size()); }
  [[nodiscard]] const BandPart<B>& part(Index e = 0) const { return ends[std::size_t(e)].part; }
  /// Slabs of the end that has most.
  [[nodiscard]] Index slabs() const {
    Index most = 0;
    for (const BandStreamEnd<B>& end : ends) most = std::max(most, ceil_div(end.part.tiles, slab));
    return most;
  }
  /// Tile columns of slab i; none behind the last.
  [[nodiscard]] Range tiles(Index i, Index e = 0) const {
    const Index first = std::min(i * slab, part(e).tiles);
    return {first, std::min(slab, part(e).tiles - first)};
  }
  /// Natural columns of slab i, which are the rows of end 1 too.
  [[nodiscard]] Range columns(Index i, Index e = 0) const {
    const Range own = tiles(i, e);
    if (e == 0) {
      const Index end = count() > 1 ? part(0).tiles * shape.width : shape.n;
      const Index first = std::min(own.first * shape.width, end);
      return {first, std::min(own.end() * shape.width, end) - first};
    }
    const Index top = shape.n + plan.padding(1);
    const Index first = top - own.end() * shape.width;
    return {first, std::min(top - own.first * shape.width, shape.n) - first};
  }
  [[nodiscard]] Range separator_columns() const {
    return {plan.begin[1] - plan.separator, plan.separator};
  }
  /// Tile column k on the host, if it is there.
  [[nodiscard]] double* host_tile(Index k, Index e = 0) const {
    if (kept > 0) k %= kept * slab;
    const Index length = piece * slab;
    return ends[std::size_t(e)].host[std::size_t(k / length)].data() + k % length * shape.tile();
  }
  /// Tile column k in the store.
  [[nodiscard]] Index stored_tile(Index k, Index e) const {
    return ((e > 0 ? part(0).tiles : 0) + k) * shape.tile();
  }
  void put(Index i, Index e) const {
    const Range own = tiles(i, e);
    store.put(stored_tile(own.first, e), host_tile(own.first, e), own.count * shape.tile());
  }
  void get(Index i, Index e) const {
    const Range own = tiles(i, e);
    store.get(stored_tile(own.first, e), host_tile(own.first, e), own.count * shape.tile());
  }
  /// Slab i in its ring.
  [[nodiscard]] View<double, B> in_ring(Index i, Index e = 0) const {
    return {part(e).tile(shape, tiles(i, e).first), tiles(i, e).count * shape.tile()};
  }
  /// First row of end e in the memory of the right-hand sides.
  [[nodiscard]] Index first_row(Index e) const {
    return e == 0 ? 0 : (part(0).tiles + band_reach_tiles(shape)) * shape.width;
  }
};
/// Takes the memory; slab = 0: band_stream_slab; with kept > 0 the store is to be set. Local.
template <class B>
BandStream<B> band_stream(const BandPlan& plan, Index slab = 0, Index kept = 0);
template <class B>
BandStream<B> band_stream(const BandShape& shape, Index slab = 0) {
  return band_stream<B>(one_ended_stream(shape), slab);
}
/// Reads the matrix, or with one end a factor of it, into host memory; with a store a factor only.
/// `factor`: it is one, and a.logs are its.
template <class B>
void load_stream(Context<B>& context, const BandProblem<B>& problem, BandStream<B>& a,
                 bool factor = false);

/// to := the first `height` entries of natural columns, on the host; leading dimension ld.
using BandFeed = std::function<void(Range columns, Index height, double* to, Index ld)>;

/// Right-hand sides on the device, row-major; behind the rows of each end, rows for the window of
/// its last slab.
template <class B>
struct BandStreamRows {
  Index nrhs = 1;
  Buffer<double, B> rows, separator;
  Buffer<Word, B> scratch;
  std::vector<double> turned;  ///< a piece of the rows of end 1
};
template <class B>
BandStreamRows<B> band_stream_rows(const BandStream<B>& a, Index nrhs);
/// x := n rows, nrhs numbers each, from the host; and back there.
template <class B>
void set_rows(Context<B>& context, const BandStream<B>& a, BandStreamRows<B>& x,
              const double* from);
template <class B>
void get_rows(Context<B>& context, const BandStream<B>& a, BandStreamRows<B>& x, double* to);

/// What a checkpoint holds once the first `slabs` slabs of each end are factored, or are left to be
/// taken backward: their factor, unless it is given, and x if there is one. All lanes are idle.
template <class B>
void archive_stream(Context<B>& context, Archive& archive, const BandStream<B>& a, Index slabs,
                    const BandStreamRows<B>* x);

/// A := L in host memory and, with `y`, Y := L^-1 Y. Returns 0, or the one-based order of the first
/// leading minor that is not positive definite (by kernels/band/parts.hpp: on CUDA a pivot below
/// 1e-307 or so counts as such), with two ends -1, as they cannot know it; A and Y are then
/// undefined. With `feed` the matrix is not in host memory yet: each slab is fed while the device
/// works on those before it; a store needs that. n m^2 flops; 8 n (m+1) bytes each way, at the same
/// time. Goes on from a checkpoint of it, or of the backward substitution, which stream_backward
/// then does from there.
template <class B>
[[nodiscard]] Index stream_factor(Context<B>& context, BandStream<B>& a, BandStreamRows<B>* y,
                                  Progress& progress, const BandFeed& feed = {});
/// Y := L^-1 Y, and X := L^-T X, by a factor in host memory; with two ends the separator's system
/// is solved by the latter. 2 n m nrhs flops and 8 n (m+1) bytes to the device each.
template <class B>
void stream_forward(Context<B>& context, BandStream<B>& a, BandStreamRows<B>& y,
                    Progress& progress);
template <class B>
void stream_backward(Context<B>& context, BandStream<B>& a, BandStreamRows<B>& x,
                     Progress& progress);

/// As band_factor_residual of tile columns; each is brought to the device once more. One end.
template <class B>
double band_factor_residual(Context<B>& context, const BandProblem<B>& problem,
                            const BandStream<B>& l, Word seed, double* reciprocal = nullptr);

/// First `height` entries of columns first .. first + count - 1 of what is in host memory; leading
/// dimension ld. One end.
template <class B>
void copy_columns(const BandStream<B>& a, Index first, Index count, Index height, Index ld,
                  double* to);

/// a.logs += those of slab i of end e, which is a factor on the host.
template <class B>
void add_logs(BandStream<B>& a, Index i, Index e);

/// What is in host memory times `by`.
template <class B>
void scale_stream(const BandStream<B>& a, double by);

namespace detail {
/// Inverses of the diagonal blocks are kept where the substitution uses them.
template <class B>
constexpr bool stream_keeps_inverses = !std::is_same_v<B, Cpu>;
/// The rest of a slab's host memory, whose natural columns have `height` entries: zero, and for
/// columns behind the matrix a unit diagonal.
void stream_pad(const BandShape& shape, Index columns, Index all, Index height, double* to);
/// Slab i of end e as a part of its own: the rows below it are its window.
template <class B>
BandPart<B> stream_slab_part(const BandStream<B>& a, Index i, Index e) {
  const Range tiles = a.tiles(i, e);
  BandPart<B> part;
  part.tiles = tiles.count;
  part.window = band_reach_tiles(a.shape);
  part.ring = part.tiles + part.window;  // of the window only the rows are used
  part.band = a.part(e).tile(a.shape, tiles.first);
  if (stream_keeps_inverses<B>) part.inverse = a.part(e).diagonal_inverse(a.shape, tiles.first);
  return part;
}
/// y := L^-1 y, or L^-T y, with slab i of all ends, whose factor and inverses are in the rings.
template <class B>
void stream_substitute(const Stream<B>& lane, const BandStream<B>& a, Index i, bool transposed,
                       const BandStreamRows<B>& x);
}  // namespace detail

}  // namespace terrace::band
