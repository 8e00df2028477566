// Cholesky factorization of a symmetric positive definite band matrix, and substitution with it.
//
// Tile columns of width w are dealt to the ranks like cards:
//
//   tile column   0   1   2   3   4          w = shape.width, ranks = 2
//   owner         0   1   0   1   0          rank 0 keeps 0, 2, 4 one after the other
//
// Right-hand sides are dealt the same way: w rows beside each tile column. Nothing is gathered.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "distrib/context.hpp"
#include "distrib/layout.hpp"
#include "io/input.hpp"
#include "kernels/band/band.hpp"
#include "kernels/band/forms.hpp"
#include "src/frame/progress.hpp"
#include "src/frame/stages.hpp"

namespace terrace::band {

/// This rank's tile columns of a band matrix (or of its factor, in place).
template <class B>
struct BandTiles {
  BandShape shape;
  BlockCyclic columns;  ///< the padded columns in blocks of shape.width
  Buffer<double, B> data;

  /// Tile column k, which this rank owns.
  [[nodiscard]] View<double, B> tile(Index k) const {
    return data.view().slice(columns.slot(k * shape.width) * shape.column(), shape.tile());
  }
  // All are here, one after the other (src/band/steps.hpp).
  void arrive(const Stream<B>&, Index) const {}
  void leave(const Stream<B>&, Index) const {}
  template <class Run>
  void each_run(Index from, Index to, Run&& run) const {
    run(from, to - from, data.view().slice(from * shape.tile(), (to - from) * shape.tile()));
  }
};

/// Fills `count` columns from `columns.first` on, `height` numbers each and `ld` apart, at `to`:
/// entry d is A[j + d, j], zero outside. Collective; every rank asks for its own columns, perhaps
/// none.
template <class B>
using BandSource = std::function<void(Context<B>& context, Range columns, Index height, Index ld,
                                      View<double, B> to)>;

/// The whole matrix where it lies, in memory of the backend; reading it sets *not_finite as
/// lower_columns() does.
struct BandHere {
  BandForm form;
  Index* not_finite = nullptr;
  explicit operator bool() const { return form.data != nullptr; }
};
/// The band matrix as it is given: order, half-bandwidth (at most n - 1), and where to read it.
template <class B>
struct BandProblem {
  Index n = 0, half_bandwidth = 0;
  BandSource<B> source;
  BandHere here = {};  ///< of one rank, in memory of B; or none
};

/// Reads this rank's `ranges`, piece by piece, as io::BandInput and io::DenseInput do. Collective.
using ReadRanges = std::function<void(std::span<const Range> ranges, const io::Sink<double>& sink)>;
/// A band matrix, or a factor of it, by columns of half_bandwidth + 1 numbers each.
struct BandReader {
  Index n = 0, half_bandwidth = 0;  ///< the latter may exceed n - 1
  ReadRanges read;
  /// As io::BandInput::read_diagonals(); or none.
  std::function<void(Range columns, const io::Sink<double>& sink)> diagonals = {};
  /// Of one rank, in memory of the backend; none, also for ways that hold the band elsewhere.
  std::function<BandHere()> here = {};
  explicit operator bool() const { return bool(read); }
};
/// The columns of `ranges`, `height` numbers of each, from their diagonals into memory of the backend,
/// one every `ld` numbers: they are turned there. Collective.
template <class B>
void turn_columns(Context<B>& context, const BandReader& from, std::span<const Range> ranges,
                  Index height, View<double, B> to, Index ld);
/// Whether that is the way: to a GPU, and of one rank, whose columns are all neighbours.
template <class B>
bool turns_there(const Context<B>& context, const BandReader& from) {
  return !std::is_same_v<B, Cpu> && from.diagonals && context.size() == 1;
}
/// Backend bytes that turn_columns() takes for a while.
Index turning_bytes(const BandReader& from);
/// Of a matrix of order n, as BandSource; all `ld` numbers of a column are written.
template <class B>
void place_columns(const Context<B>& c, const BandHere& here, Index n, Range columns, Index height,
                   Index ld, double* to) {
  const BandRun run{here.form.behind(columns.first), n - columns.first, columns.count, to};
  lower_columns(c.ahead, {&run, 1}, height, ld, here.not_finite);
}
/// Its columns straight into memory of the backend. `from` stays where it is.
template <class B>
BandProblem<B> band_problem(const BandReader& from) {
  return {from.n, band_shape(from.n, from.half_bandwidth, 1).half_bandwidth,
          [&from](Context<B>& c, Range columns, Index height, Index ld, View<double, B> to) {
            if (const BandHere here = from.here ? from.here() : BandHere{})
              return place_columns<B>(c, here, from.n, columns, height, ld, to.data);
            if (turns_there(c, from)) return turn_columns(c, from, {&columns, 1}, height, to, ld);
            from.read({&columns, 1}, [&](Index position, Index count, const double* data) {
              copy_rows<double, B>(c.ahead, to.data + position * ld, ld, data,
                                   from.half_bandwidth + 1, height, count);
              c.ahead.synchronize();
            });
          },
          from.here ? from.here() : BandHere{}};
}

/// Width of the tile columns when none is asked for; depends on the half-bandwidth alone.
Index band_width(Cpu, Index half_bandwidth, Index asked);
Index band_width(Cuda, Index half_bandwidth, Index asked);

/// Useful flops as LAPACK counts them: sum over the columns of (entries from the diagonal down)^2.
double band_factor_flops(Index n, Index half_bandwidth);
double band_solve_flops(Index n, Index half_bandwidth, Index nrhs);

/// Bytes of memory of the backend that a rank needs at most.
struct BandMemory {
  Index matrix = 0, panels = 0, solution = 0, check = 0;
  [[nodiscard]] Index total() const { return matrix + panels + solution + check; }
};
BandMemory band_memory(const BandShape& shape, Index nrhs, int ranks, bool check);

/// Memory for this rank's tile columns: zero, with a unit diagonal behind column n. Local.
template <class B>
BandTiles<B> band_tiles(Context<B>& context, const BandShape& shape);
/// The same state again, for other columns in the same memory.
template <class B>
void band_clear(Context<B>& context, BandTiles<B>& a);

template <class B>
class BandGuard;

/// What the factorization allocates: two panels, and a ring of their statuses on both sides. Taken
/// before the loop.
template <class B>
struct BandWork {
  std::vector<Buffer<double, B>> panels;
  Buffer<double, B> status;
  PinnedBuffer<double> seen;
  PinnedBuffer<double> host_diagonal;  ///< not empty: src/band/hybrid.hpp
  BandGuard<B>* guard = nullptr;       ///< of --guard; has begun on the matrix
  BandWork() = default;
  explicit BandWork(const BandShape& shape);
};

/// A := L, A = L L^T, tile column by tile column. Returns 0, or the one-based order of the first
/// leading minor that is not positive definite, the same on all ranks. About n m^2 flops; a
/// broadcast of w m numbers a tile column. Source: Khimich, Baranov 2013; LAPACK's dpbtrf.
template <class B>
[[nodiscard]] Index band_cholesky(Context<B>& context, BandTiles<B>& a, BandWork<B>& work,
                                  Progress& progress, const StageTimes<B>& stages = {});

/// Rows of the right-hand sides of this rank: slots x nrhs, row-major, zero behind row n; and the
/// window of partial sums that travels from owner to owner.
template <class B>
struct BandVectors {
  Index nrhs = 1;
  BlockCyclic rows;
  Buffer<double, B> data, window;
};
template <class B>
BandVectors<B> band_vectors(Context<B>& context, const BandShape& shape, Index nrhs);

/// X := (L L^T)^-1 X. 4 n m nrhs flops; two messages of (m + w) nrhs numbers a tile column.
template <class B>
void band_substitute(Context<B>& context, const BandTiles<B>& l, BandVectors<B>& x,
                     Progress& progress);

/// max over the right-hand sides of ||b - A x|| / (n ||A|| ||x|| eps), infinity norms, A read in
/// slabs. x and b: this rank's rows (`rows`), nrhs numbers per row. Infinite when anything is NaN.
/// `reciprocal`, if any: at least 1 / (||A|| ||A^-1||), as ||A^-1|| is at least ||x|| / ||b||; near
/// it for a b that no one chose.
template <class B>
double band_residual(Context<B>& context, const BandProblem<B>& a, const BlockCyclic& rows,
                     std::span<const double> x, std::span<const double> b, Index nrhs,
                     double* reciprocal = nullptr);
template <class B>
double band_residual(Context<B>& context, const BandProblem<B>& a, const Range& rows,
                     std::span<const double> x, std::span<const double> b, Index nrhs,
                     double* reciprocal = nullptr);
/// Of one rank, with x and b in memory of the backend.
template <class B>
double band_residual(Context<B>& context, const BandProblem<B>& a,
                     std::type_identity_t<View<const double, B>> x,
                     std::type_identity_t<View<const double, B>> b, Index nrhs,
                     double* reciprocal = nullptr);

/// Tile column k of a factor, for work on context.ahead until the next call.
template <class B>
using TileAt = std::function<View<const double, B>(Index k)>;
/// max over three random vectors z of ||L L^T z - A z|| / (n ||A|| ||z|| eps). `tile` is asked for
/// this rank's tile columns: rank, rank + ranks, .. `reciprocal`, if any, as above: the least
/// eigenvalue is at most the square of any diagonal entry of the factor.
template <class B>
double band_factor_residual(Context<B>& context, const BandProblem<B>& a, const BandShape& shape,
                            const TileAt<B>& tile, Word seed, double* reciprocal = nullptr);
template <class B>
double band_factor_residual(Context<B>& context, const BandProblem<B>& a, const BandTiles<B>& l,
                            Word seed, double* reciprocal = nullptr);

}  // namespace terrace::band
