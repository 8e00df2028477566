// Band systems by a factor in low precision and conjugate gradients in double precision.
//
//   M = S^-1 L L^T S^-1 ~ A, L in half precision on CUDA and in single precision on the CPU; then
//   conjugate gradients on A x = b with M, whose products and sums are FP64.
//
// On several ranks from two ends: src/band/mixed_ends.hpp. The matrix stays in FP64 as it is, so a
// solve that does not converge leaves it to the FP64 methods. Success is claimed from the residual of the matrix itself, in two norms: of the
// system as it is, and scaled to a unit diagonal (as a Cholesky factorization, which no scaling
// disturbs, would satisfy it).
//
// Sources: Higham, Pranesh, SIAM J. Sci. Comput. 43, 2021; Hestenes, Stiefel 1952; beta by z.q, as
// flexible conjugate gradients have it: Notay, SIAM J. Sci. Comput. 22, 2000.
#pragma once
#include <string>
#include <vector>

#include "distrib/context.hpp"
#include "kernels/band/low.hpp"
#include "kernels/band/mixed_cg.hpp"

namespace terrace {
class Archive;
class Progress;
}  // namespace terrace
namespace terrace::band {

/// Right-hand sides that are solved in lock step.
inline constexpr Index kMixedGroup = band_cg_columns;

struct MixedLimits {
  Index iterations = 200;  ///< of a group of right-hand sides
  Index patience = 40;     ///< iterations without a residual half of the best so far
  int raises = 2;          ///< times that the shift is raised, by 8, when a pivot fails
};

/// Why a solve ended; the first is success, the others want FP64.
enum class MixedReason { converged, not_definite, iterations, stagnation, not_finite };
/// "converged", "a pivot is not positive", ...
std::string to_string(MixedReason reason);

struct MixedResult {
  MixedReason reason = MixedReason::converged;
  Index iterations = 0;  ///< of the group that took most
  Index restarts = 0;    ///< from a residual that the recurrence had thought smaller; all groups
  double backward_error = 0;         ///< max ||b - A x|| / (||A|| ||x|| + ||b||), infinity norms
  double smallest = 0, largest = 0;  ///< eigenvalues of M^-1 A as the first iteration saw them
};

/// Bytes of memory of the backend beside the matrix.
struct MixedMemory {
  Index factor = 0, vectors = 0, scratch = 0;
  [[nodiscard]] Index total() const { return factor + vectors + scratch; }
};
template <class B>
MixedMemory band_mixed_memory(const BandShape& shape, Index nrhs);

template <class B>
struct MixedEnds;

/// The factor and the vectors of a group of right-hand sides. Not copied; reusable.
template <class B>
struct BandMixed {
  BandShape shape;
  MixedEnds<B>* ends = nullptr;  ///< of several ranks: `shape` is then that of this rank's end
  Index nrhs = 0, group = 0;
  Buffer<Word, B> low, low_scratch;
  Buffer<double, B> scale;                         // S
  Buffer<double, B> b, x, r, z, p, q;              // padded() x group
  Buffer<double, B> state, factors, sums, strips;  // scalars; scratch of passes and products
  Buffer<Index, B> status;
  PinnedBuffer<double> seen, given;              // state on the host; what goes there
  double shift = 0;                              // of the last factorization
  double norm = 0, scaled_norm = 0;              // ||A||, ||S A S||, infinity norms
  MixedReason failure = MixedReason::converged;  // of the last factorization

  // Of the solve under way, for checkpoints (src/frame/checkpoints.hpp).
  Index first = 0, done = 0;  // its group's first column; iterations of all groups
  MixedResult before;         // of the groups before
  bool resumed = false;       // by mixed_resume
  bool inside = false;        // a group was interrupted: its state is
  std::vector<double> numbers, lanczos, off_lanczos;  // in the vectors and here
};
/// Takes the memory. Local.
template <class B>
BandMixed<B> band_mixed(const BandShape& shape, Index nrhs);

/// The factor of the tile columns `a` (width band_low_width, kernels/band/band.hpp; of m.ends its
/// matrix()), the shift raised where a pivot fails; and the norms of A. False, with m.failure, when
/// there is none. n m^2 flops of low precision; reads the matrix twice. This and what follows is
/// collective with m.ends, where `x` are this rank's rows of its end's shape.
template <class B>
[[nodiscard]] bool mixed_factor(Context<B>& context, std::type_identity_t<View<const double, B>> a,
                                BandMixed<B>& m, const MixedLimits& limits = {});

/// What a checkpoint holds: the factor, x as in mixed_solve, and a group's state. Collective; the
/// lane is idle.
template <class B>
void archive_mixed(Context<B>& context, Archive& archive, BandMixed<B>& m,
                   std::type_identity_t<View<double, B>> x);
/// Goes on from a checkpoint: the factor is there, and mixed_solve ends what was begun. False
/// without one.
template <class B>
[[nodiscard]] bool mixed_resume(Context<B>& context, BandMixed<B>& m,
                                std::type_identity_t<View<double, B>> x, const Progress& progress);

/// x (padded() x nrhs, row-major, zero behind n): right-hand sides, then solutions; undefined
/// unless the result is `converged`. An iteration reads the matrix once for up to
/// band_symmetric_group right-hand sides and the factor twice; the host waits once. With
/// checkpoints in `progress` the run may stop before it, and after each iteration.
template <class B>
[[nodiscard]] MixedResult mixed_solve(Context<B>& context,
                                      std::type_identity_t<View<const double, B>> a,
                                      BandMixed<B>& m, std::type_identity_t<View<double, B>> x,
                                      const MixedLimits& limits = {},
                                      const Progress* progress = nullptr);

/// Estimate of the condition number in the 1-norm, seldom more than 3 times too small; takes a
/// vector of memory. Up to 12 solves: with the factor alone where `solved` saw that it is close to
/// A, by conjugate gradients otherwise.
/// Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., algorithm 15.4.
template <class B>
double mixed_condition(Context<B>& context, std::type_identity_t<View<const double, B>> a,
                       BandMixed<B>& m, const MixedResult& solved, const MixedLimits& limits = {});

/// log |det A|: of the factor, and of what M^-1 A differs from the identity by, the first three
/// terms of log(I + E) from `probes` random vectors; *error, if any, := the standard error of that.
/// The rounding of the solves is not in that: about u sqrt(n), u the unit roundoff of the factor.
/// An estimate with 3 products and solves per group of vectors. Uses the vectors of m.
/// Source: Hutchinson, Commun. Stat. Simul. Comput. 19, 1990.
template <class B>
double mixed_log_determinant(Context<B>& context, std::type_identity_t<View<const double, B>> a,
                             BandMixed<B>& m, double* error = nullptr, Index probes = 16);

}  // namespace terrace::band
