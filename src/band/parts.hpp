// Band Cholesky in parts: from two ends at once, or as a partition in n with a reduced system.
//
// Q parts, each its own tile columns, then (but for the last) a separator of s rows:
//
//   rows     part 0       S_0   part 1     S_1   part 2     (Q = 3)
//          |------------|=====|----------|=====|------------|
//   begin  0                  begin[1]         begin[2]     n
//
//   part 0        window S_0
//   inner part p  window S_p, arrow S_{p-1}: its spike fills up
//   last part     in opposite order, so that S_{Q-2} is its window: padding, then rows n-1, n-2, ..
//
// Eliminating the parts leaves a block tridiagonal system in the separators, which rank 0 factors
// as one part. Two ends (a twisted factorization) is Q = 2. Rank r holds parts_of(r) and the rows
// rows_of(r); ranks beyond the parts only join the collectives.
//
// Sources: van der Vorst, Parallel Computing 5, 1987; Polizzi, Sameh, Parallel Computing 32, 2006;
// George, SIAM J. Numer. Anal. 10, 1973 (dissection).
#pragma once
#include <algorithm>
#include <span>
#include <vector>

#include "kernels/band/parts.hpp"
#include "kernels/base/rows.hpp"
#include "src/band/plan.hpp"

namespace terrace {
class Archive;
}  // namespace terrace
namespace terrace::band {

/// A := L in one launch, on the one rank that holds all tile columns; their width is
/// band_part_width(B). Returns 0 or a pivot that is not usable (not always LAPACK's failed minor).
template <class B>
[[nodiscard]] Index band_cholesky_at_once(Context<B>& context, BandTiles<B>& a,
                                          const Buffer<double, B>& inverses,
                                          const Buffer<Word, B>& scratch);
/// Numbers and words that it needs.
template <class B>
std::pair<Index, Index> band_at_once_memory(const BandShape& shape);

/// The separators' system, without memory.
template <class B>
BandPart<B> reduced_part(const BandPlan& plan) {
  BandPart<B> part;
  part.tiles = part.ring = plan.reduced.tiles();
  return part;
}

/// Bytes of memory of the backend that the rank with most needs.
struct BandPartsMemory {
  Index band = 0, inverses = 0, spikes = 0, reduced = 0, vectors = 0, slab = 0, scratch = 0;
  [[nodiscard]] Index total() const {
    return band + inverses + spikes + reduced + vectors + slab + scratch;
  }
};
template <class B>
BandPartsMemory band_parts_memory(const BandPlan& plan, Index nrhs);

/// This rank's parts; and, of all parts on rank 0, what they leave to the separators:
///   record of part p: block of S_p (its window) | block of S_{p-1} (arrow_block, or the reversed
///   window) | coupling of S_p and S_{p-1}; s (s + 1) numbers each, dense with ld s, lower parts.
template <class B>
struct BandParts {
  BandPlan plan;
  Range own;  ///< numbers of this rank's parts
  std::vector<BandPart<B>> parts;
  BandPart<B> reduced;
  Buffer<double, B> memory;  ///< of all that the parts point to
  Buffer<double, B> records, slab, window;
  Buffer<Index, B> status;
  Buffer<Word, B> scratch;
  Buffer<double, B> prepared;  ///< of prepare_solves()

  /// Numbers of one block of a record.
  [[nodiscard]] Index block() const { return plan.separator * (plan.separator + 1); }
  /// Block `which` of part p's record.
  [[nodiscard]] View<double, B> record(Index p, int which) const {
    const Index at = p - (own.first == 0 ? 0 : own.first);
    return records.view().slice((3 * at + which) * block(), block());
  }
};
/// Takes the memory. Local.
template <class B>
BandParts<B> band_parts(Context<B>& context, const BandPlan& plan);
/// Reads the matrix into the parts, slab by slab; or, where it is in memory of the backend, from there,
/// and does not wait. Collective.
template <class B>
void load_parts(Context<B>& context, const BandProblem<B>& problem, BandParts<B>& a);
/// The same for a stored factor of the whole matrix, which is one part then (one end): solve_parts
/// may follow. Collective.
template <class B>
void load_factor(Context<B>& context, const BandProblem<B>& factor, BandParts<B>& a);
/// The reversed part once more, from its columns(p) in natural order in memory, half_bandwidth + 1
/// numbers each: what a solve of data in the file's layout pays. Local; `natural` counts on the
/// rank that holds the part.
template <class B>
void reload_reversed(Context<B>& context, BandParts<B>& a,
                     std::type_identity_t<View<const double, B>> natural);
/// Factors the parts and the separators' system. False on all ranks when a pivot of either is not
/// positive and finite. n m^2 flops for ends, about 4 n m^2 for inner parts; one message of
/// 3 s (s + 1) numbers a part. With checkpoints in `progress`: in part_segments() pieces, between
/// which, and after which, the run may stop; goes on from such a checkpoint.
template <class B>
[[nodiscard]] bool factor_parts(Context<B>& context, BandParts<B>& a,
                                const Progress* progress = nullptr);

/// Segments: a launch each, so they are long against the end of one, which fills and drains.
inline Index part_segments(const BandPlan& plan) {
  constexpr Index shortest = 8, most = 64;  // tile columns; segments
  Index tiles = 1;
  for (Index p = 0; p < plan.parts(); ++p) tiles = std::max(tiles, plan.tiles(p));
  return std::clamp<Index>(tiles / shortest, 1, most);
}
/// Tile columns of part p that the first `segments` of them factor.
inline Index tiles_after(const BandPlan& plan, Index p, Index segments) {
  return plan.tiles(p) * segments / part_segments(plan);
}
/// What a checkpoint holds after `segments` of them: the parts' factors as far as they are, and
/// after the last one that of the separators. Collective; all lanes are idle.
template <class B>
void archive_parts(Context<B>& context, Archive& archive, const BandParts<B>& a, Index segments);

/// log |det A| of a factored A: of the parts and of the separators' system. Collective.
template <class B>
double log_determinant(const Context<B>& context, const BandParts<B>& a);

/// Right-hand sides of this rank's parts, one part after the other; records of s rows for S_p and
/// S_{p-1} of each part; and the separators' rows on rank 0.
template <class B>
struct BandPartRows {
  Index nrhs = 1;
  std::vector<BandPartVectors<B>> parts;
  Buffer<double, B> rows, records, reduced;
  Buffer<Word, B> scratch;
};
/// What each solve_parts() with few right-hand sides would do anew is done once, for a factor that solves
/// again: band_prepare(), where its memory is free twice. Local.
template <class B>
void prepare_solves(Context<B>& context, BandParts<B>& a);
template <class B>
BandPartRows<B> band_part_rows(const BandParts<B>& a, Index nrhs);
/// Rows rows_of(rank), nrhs numbers each, on the host, or `there`, in memory of the backend: into the
/// parts, and out of them.
template <class B>
void set_rows(Context<B>& context, const BandParts<B>& a, BandPartRows<B>& x, const double* from,
              bool there = false);
template <class B>
void get_rows(Context<B>& context, const BandParts<B>& a, const BandPartRows<B>& x, double* to,
              bool there = false);
/// X := A^-1 X by a factored A. Collective; two messages of 2 s nrhs numbers a part.
template <class B>
void solve_parts(Context<B>& context, const BandParts<B>& a, BandPartRows<B>& x);

namespace detail {
/// Ones on the diagonal of `count` columns.
template <class B>
void unit_diagonal(const Stream<B>& lane, const BandShape& s, double* column, Index count) {
  if (count <= 0) return;
  const BlockCopy ones{nullptr, 0, column, s.column(), count, 1, nullptr, 1.0};
  copy_blocks(lane, {&ones, 1});
}
/// to := the rows of `from`, nrhs numbers each.
inline BlockCopy in_order(Index rows, Index nrhs, const double* from, double* to) {
  return {from, nrhs, to, nrhs, rows, nrhs};
}
/// The same in opposite order.
inline BlockCopy in_opposite_order(Index rows, Index nrhs, const double* from, double* to) {
  return {from + std::max<Index>(rows - 1, 0) * nrhs, -nrhs, to, nrhs, rows, nrhs};
}
template <class B>
void turn_rows(const Stream<B>& lane, Index rows, Index nrhs, const double* from, double* to) {
  const BlockCopy turned = in_opposite_order(rows, nrhs, from, to);
  copy_blocks(lane, {&turned, 1});
}
/// `size` numbers of each part, this rank's parts one after the other: to rank 0, which holds those
/// of all parts, or back from there.
template <class B>
void exchange_records(Context<B>& c, const BandPlan& plan, const Buffer<double, B>& records,
                      Index size, bool to_root) {
  const auto piece = [&](int rank, int peer) {
    const Range own = plan.parts_of(rank);
    return Piece{peer, records.data() + (c.rank() == 0 ? own.first * size : 0),
                 own.count * size * Index(sizeof(double))};
  };
  std::vector<Piece> pieces;
  if (c.rank() == 0)
    for (int rank = 1; rank < c.size(); ++rank) pieces.push_back(piece(rank, rank));
  else
    pieces.push_back(piece(c.rank(), 0));
  std::erase_if(pieces, [](const Piece& p) { return p.bytes == 0; });
  const bool sends = (c.rank() != 0) == to_root;
  const std::span<const Piece> all = pieces, none;
  c.comm.exchange(c.ahead, sends ? all : none, sends ? none : all);
}
}  // namespace detail

}  // namespace terrace::band
