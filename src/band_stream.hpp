// Streamed band Cholesky: the matrix in host memory, a ring of tile columns on the device.
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
// pass from the end. One rank. Sources: Khimich, Baranov 2013 (window of tile columns); LAPACK's
// dpbtrf (the failed minor).
#pragma once
#include <vector>

#include "kernels/band_parts.hpp"
#include "src/band_cholesky.hpp"

namespace terrace {

/// Tile columns of a slab: long against a launch, short against the whole.
Index band_stream_slab(const BandShape& shape);

/// Bytes of a streamed band: all but `host` are memory of the backend.
struct BandStreamMemory {
  Index ring = 0, inverses = 0, vectors = 0, scratch = 0, host = 0;
  [[nodiscard]] Index device() const { return ring + inverses + vectors + scratch; }
};
/// slab = 0: band_stream_slab.
template <class B>
BandStreamMemory band_stream_memory(const BandShape& shape, Index nrhs, Index slab = 0);

template <class B>
struct BandStream {
  BandShape shape;
  Index slab = 1;   ///< tile columns of a slab
  Index back = 1;   ///< slabs that the tile columns reaching a slab are in
  Index slots = 4;  ///< slabs of the ring
  Index piece = 1;  ///< slabs in one piece of host memory
  std::vector<PinnedBuffer<double>> host;
  BandPart<B> part;  ///< all tile columns; its band and inverses are the ring
  Buffer<double, B> ring, inverses;
  Buffer<Index, B> status;  ///< one a slab
  PinnedBuffer<Index> seen;
  Buffer<Word, B> scratch;
  Stream<B> up, down, reader;  ///< `reader` lets the host wait for one event

  [[nodiscard]] Index slabs() const { return ceil_div(shape.tiles(), slab); }
  /// Tile columns of slab i.
  [[nodiscard]] Range tiles(Index i) const {
    return {i * slab, std::min(slab, shape.tiles() - i * slab)};
  }
  /// Tile column k in host memory.
  [[nodiscard]] double* host_tile(Index k) const {
    const Index length = piece * slab;
    return host[std::size_t(k / length)].data() + k % length * shape.tile();
  }
  /// Slab i in the ring.
  [[nodiscard]] View<double, B> in_ring(Index i) const {
    return {part.tile(shape, tiles(i).first), tiles(i).count * shape.tile()};
  }
};
/// Takes the memory; slab = 0: band_stream_slab. Local.
template <class B>
BandStream<B> band_stream(const BandShape& shape, Index slab = 0);
/// Reads the matrix, or a factor of it, into host memory.
template <class B>
void load_stream(Context<B>& context, const BandProblem<B>& problem, BandStream<B>& a);

/// Right-hand sides on the device, row-major; behind the padded rows, rows of zeros that the last
/// slab's window needs.
template <class B>
struct BandStreamRows {
  Index nrhs = 1;
  Buffer<double, B> rows;
  Buffer<Word, B> scratch;
};
template <class B>
BandStreamRows<B> band_stream_rows(const BandStream<B>& a, Index nrhs);
/// x := n rows, nrhs numbers each, from the host; and back there.
template <class B>
void set_rows(Context<B>& context, const BandStream<B>& a, BandStreamRows<B>& x,
              const double* from);
template <class B>
void get_rows(Context<B>& context, const BandStream<B>& a, const BandStreamRows<B>& x, double* to);

/// A := L in host memory and, with `y`, Y := L^-1 Y. Returns 0, or the one-based order of the first
/// leading minor that is not positive definite (by kernels/band_parts.hpp: on CUDA a pivot below
/// 1e-307 or so counts as such); A and Y are then undefined. n m^2 flops; 8 n (m+1) bytes each way,
/// at the same time.
template <class B>
[[nodiscard]] Index stream_factor(Context<B>& context, BandStream<B>& a, BandStreamRows<B>* y,
                                  Progress& progress);
/// Y := L^-1 Y, and X := L^-T X, by a factor in host memory. 2 n m nrhs flops and 8 n (m+1) bytes
/// to the device each.
template <class B>
void stream_forward(Context<B>& context, BandStream<B>& a, BandStreamRows<B>& y,
                    Progress& progress);
template <class B>
void stream_backward(Context<B>& context, BandStream<B>& a, BandStreamRows<B>& x,
                     Progress& progress);

/// As band_factor_residual of tile columns; each is brought to the device once more.
template <class B>
double band_factor_residual(Context<B>& context, const BandProblem<B>& problem,
                            const BandStream<B>& l, Word seed);

/// First `height` entries of columns first .. first + count - 1 of what is in host memory; leading
/// dimension ld.
template <class B>
void copy_columns(const BandStream<B>& a, Index first, Index count, Index height, Index ld,
                  double* to);

}  // namespace terrace
