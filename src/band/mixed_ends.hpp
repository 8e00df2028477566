// Mixed precision on several ranks, from both ends: src/band/mixed.hpp.
//
//   rows     end 0 ->              S             <- end 1       S: separator of s rows
//          |----------------|======|----------------|
//
//   rank 0: rows of end 0, then S         rank 1: padding, rows of end 1 backward, then S backward
//
// Each of the two ranks has its rows in the order of their elimination (`shape`), a factor in low
// precision of them and S, and vectors of them and S. That factor ends with the one of
// T_e = A_SS - A_Se A_ee^-1 A_eS. Rank 0 factors the separator's system, T_0 + T_1 - A_SS, in FP64.
// Ranks beyond two, or beyond one where n has no room for two ends, only join the collectives.
//
// In vectors that are summed (b, r, A x) rank 1 has zeros for S; in those that are not (x, z, p) both
// have the same bits. A x: each multiplies its matrix, which on rank 1 has no A_SS; S is added.
//
// M^-1 r, M being the product of both factors and the separator's: each end solves with its own
// factor and zeros for S, which gives u; T_e u_S is what it leaves to S; x_S by the separator's
// system; then again, with T_e (x_S - u_S) for S. Messages: s numbers to rank 0 and s back.
//
// Source: van der Vorst, Parallel Computing 5, 1987 (two ends); Golub, Van Loan, 4.3 (Schur
// complements).
#pragma once
#include "src/band/mixed.hpp"
#include "src/band/parts.hpp"

namespace terrace::band {

/// Bytes of memory of the backend of the rank with most.
struct MixedEndsMemory {
  BandPartsMemory parts;
  MixedMemory mixed;
  Index separator = 0, rows = 0;  ///< the latter of the condition estimate
};
template <class B>
MixedEndsMemory mixed_ends_memory(const BandPlan& plan, Index nrhs);

/// This rank's end. Not copied; reusable.
template <class B>
struct MixedEnds {
  BandPlan plan;
  BandShape shape;        ///< of this rank's rows and S; n = 0: it has none
  BandParts<B> parts;     ///< the matrix; its records and reduced system are the separator's
  Buffer<double, B> own;  ///< rank 1: A_SS in its order, s tile columns
  Buffer<double, B> tail, turned, t;  ///< s x s each: of the factor; and T_e
  Buffer<double, B> left, solved;     ///< s rows of a group, in this rank's order, and in the other
  Buffer<double, B> reduced;          ///< rank 0: rows of the separator's system
  Buffer<Word, B> scratch;

  [[nodiscard]] Index separator() const { return plan.parts() > 1 ? plan.separator : 0; }
  [[nodiscard]] bool here() const { return shape.n > 0; }
  [[nodiscard]] bool reversed() const { return here() && parts.own.first > 0; }
  [[nodiscard]] Index padding() const { return reversed() ? plan.padding(1) : 0; }
  /// Rows of `shape` before S.
  [[nodiscard]] Index interior() const { return shape.padded() - separator(); }
  /// Rows that count as this rank's.
  [[nodiscard]] Range mine() const {
    if (!here()) return {};
    return reversed() ? Range{padding(), interior() - padding()} : Range{0, shape.n};
  }
  /// Natural row of row i of `shape`.
  [[nodiscard]] Index natural(Index i) const {
    return reversed() ? plan.shape.n - 1 - (i - padding()) : i;
  }
  /// The tile columns.
  [[nodiscard]] View<const double, B> matrix() const {
    return here() ? View<const double, B>{parts.parts[0].band, shape.tiles() * shape.tile()}
                  : View<const double, B>{};
  }
};
/// Takes the memory, for groups of up to kMixedGroup of `nrhs`. Local.
template <class B>
MixedEnds<B> mixed_ends(Context<B>& context, const BandPlan& plan, Index nrhs);
/// Reads the matrix. Collective.
template <class B>
void load_mixed_ends(Context<B>& context, const BandProblem<B>& problem, MixedEnds<B>& ends);

/// With `whole` rank 1 has A_SS, and ones for its padding, as a factor wants it; else neither, as
/// products do. Local.
template <class B>
void complete(const Stream<B>& lane, const MixedEnds<B>& ends, bool whole);
/// The separator's system from the factors. False on all ranks when a pivot is not positive.
template <class B>
[[nodiscard]] bool form_separator(Context<B>& context, MixedEnds<B>& ends,
                                  std::type_identity_t<View<const Word, B>> low,
                                  std::type_identity_t<View<const double, B>> scale, double shift);
/// S of y := the sum of both ends' on rank 0, zero on rank 1. One message of s nrhs numbers.
template <class B>
void add_separator(Context<B>& context, const MixedEnds<B>& ends, Index nrhs,
                   std::type_identity_t<View<double, B>> y);
/// z := M^-1 r; z may not be r.
template <class B>
void solve_ends(Context<B>& context, const MixedEnds<B>& ends, const BandMixed<B>& m, Index nrhs,
                std::type_identity_t<View<const double, B>> r,
                std::type_identity_t<View<double, B>> z);

}  // namespace terrace::band
